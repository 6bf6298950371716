"""What a run of a script may leave behind: its folders and processes, which a watchdog removes."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path

from fastload.diagnose import watchdog

_PATIENCE = 15.0  # seconds for the watchdog, which itself gives up earlier


class Remains:
    """One run's folders and processes: gone when the context ends, and also if this process is killed.

    The watchdog holds one end of a pipe, of which this process alone holds the other.

    Attributes:
        folder: on disk. Its name is short because a socket's path may have at most 107 bytes.
        memory: in shared memory; the same as ``folder`` where there is none.
        environment: for the script's process, with the mark by which its descendants are found.
    """

    def __init__(self) -> None:
        self._script: subprocess.Popen[bytes] | None = None
        token = secrets.token_hex(6)
        self.environment = {**os.environ, watchdog.MARK: token}
        self.folder = self.memory = Path(tempfile.gettempdir(), f"fl-{token}").absolute()
        if os.access(watchdog.SHARED_MEMORY, os.W_OK):
            self.memory = Path(watchdog.SHARED_MEMORY, f"fl-{token}")
        folders = sorted({str(self.folder), str(self.memory)})
        reading, self._alive = os.pipe()
        try:
            self._watchdog = subprocess.Popen(
                [sys.executable, "-I", "-S", watchdog.__file__, token, *folders],
                stdin=reading,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        finally:
            os.close(reading)
        for folder in folders:  # after its start: from now on they are removed whatever happens
            os.mkdir(folder, 0o700)

    def adopt(self, script: subprocess.Popen[bytes]) -> None:
        """Tell the watchdog which process is the script's."""
        self._script = script
        with contextlib.suppress(BrokenPipeError):  # somebody has killed it
            os.write(self._alive, b"%d\n" % script.pid)

    def __enter__(self) -> Remains:
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self._alive)
        for process in (self._watchdog, self._script):
            with contextlib.suppress(subprocess.TimeoutExpired):
                if process is not None:
                    process.wait(_PATIENCE)
