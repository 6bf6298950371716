"""A file system in user space with a folder's files, read-only: ``python fuse_server.py FOLDER MOUNT_POINT``.

It speaks the kernel's protocol itself (linux/fuse.h, version 7.31) and answers one request at a time. It
prints "ready" when it is mounted, and needs the right to mount. When it dies, the kernel answers reads with
ENOTCONN.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import sys
from collections.abc import Callable
from pathlib import Path

LOOKUP, FORGET, GETATTR, OPEN, READ, RELEASE = 1, 2, 3, 14, 15, 18
FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR, INTERRUPT, BATCH_FORGET = 25, 26, 27, 28, 29, 36, 42
HEADER = struct.Struct("<IIQQIIII")  # length, opcode, unique, node, uid, gid, pid, padding
ROOT = 1
MOUNT_FLAGS = 1 | 2 | 4  # MS_RDONLY, MS_NOSUID, MS_NODEV
LONGEST = 1 << 20  # bytes of a message


class Server:
    """Node 1 is the folder, its files are the nodes from 2 on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = sorted(path for path in folder.iterdir() if path.is_file())
        self._actions: dict[int, Callable[[int, bytes], bytes]] = {
            INIT: self._init, LOOKUP: self._lookup, GETATTR: self._getattr, OPEN: self._open,
            OPENDIR: self._open, READ: self._read, READDIR: self._readdir,
            RELEASE: lambda *_: b"", RELEASEDIR: lambda *_: b"", FLUSH: lambda *_: b"",
        }  # fmt: skip

    def _path(self, node: int) -> Path:
        return self._folder if node == ROOT else self._files[node - 2]

    def _attributes(self, node: int) -> bytes:
        found = self._path(node).stat()
        kind = stat.S_IFDIR | 0o755 if node == ROOT else stat.S_IFREG | 0o644
        return struct.pack(
            "<6Q10I", node, found.st_size, found.st_size // 512 + 1, 0, 0, 0, 0, 0, 0,
            kind, 1, os.getuid(), os.getgid(), 0, 4096, 0,
        )  # fmt: skip

    def _init(self, node: int, body: bytes) -> bytes:
        readahead = struct.unpack_from("<I", body, 8)[0]
        return struct.pack("<4I2H2I2H8I", 7, 31, readahead, 0, 16, 12, 4096, 1, 0, 0, *[0] * 8)

    def _lookup(self, node: int, body: bytes) -> bytes:
        names = [path.name.encode() for path in self._files]
        name = body.rstrip(b"\0")
        if name not in names:
            raise FileNotFoundError(errno.ENOENT, "no such file")
        found = names.index(name) + 2
        return struct.pack("<4Q2I", found, 0, 0, 0, 0, 0) + self._attributes(found)

    def _getattr(self, node: int, body: bytes) -> bytes:
        return struct.pack("<QII", 0, 0, 0) + self._attributes(node)

    def _open(self, node: int, body: bytes) -> bytes:
        return struct.pack("<QII", 0, 0, 0)

    def _read(self, node: int, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        with self._path(node).open("rb") as file:
            return os.pread(file.fileno(), size, offset)

    def _readdir(self, node: int, body: bytes) -> bytes:
        offset = struct.unpack_from("<Q", body, 8)[0]
        entries = []
        for i, path in enumerate(self._files[offset:], offset):
            name = path.name.encode()
            padding = b"\0" * (-len(name) % 8)
            entries.append(struct.pack("<QQII", i + 2, i + 1, len(name), stat.S_IFREG >> 12) + name + padding)
        return b"".join(entries)

    def answer(self, message: bytes) -> bytes | None:
        """The reply to one request of the kernel's; None where it wants none."""
        _, opcode, unique, node, *_ = HEADER.unpack_from(message)
        if opcode in (FORGET, BATCH_FORGET, INTERRUPT):
            return None
        body, code = b"", 0
        try:
            action = self._actions.get(opcode)
            if action is None:
                raise OSError(errno.ENOSYS, "not needed here")
            body = action(node, message[HEADER.size :])
        except OSError as error:
            code = -(error.errno or errno.EIO)
        return struct.pack("<IiQ", 16 + len(body), code, unique) + body


def main() -> None:
    folder, place = Path(sys.argv[1]), sys.argv[2]
    device = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()},allow_other"
    if libc.mount(b"fastload-test", place.encode(), b"fuse", MOUNT_FLAGS, options.encode()) != 0:
        sys.exit(f"cannot mount: {os.strerror(ctypes.get_errno())}")
    server = Server(folder)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        try:
            message = os.read(device, LONGEST + 4096)
        except OSError as error:
            if error.errno == errno.ENODEV:
                return  # unmounted
            continue
        reply = server.answer(message)
        if reply is not None:
            os.write(device, reply)


if __name__ == "__main__":
    main()
