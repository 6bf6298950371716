"""Messages of Arrow IPC files, looked at before pyarrow makes anything of them.

A compressed batch says itself how large it gets, which may be more than there is memory. It can never be
indexed, so it is refused before it is unpacked. Layout: Arrow's Message.fbs, and FlatBuffers' tables.
"""

from __future__ import annotations

import struct

import pyarrow as pa

__all__ = ["has_compression"]

_HEADER_TYPE, _HEADER = 1, 2  # fields of Message
_DICTIONARY, _RECORDS = 2, 3  # its header's types
_DATA = 1  # of DictionaryBatch
_COMPRESSION = 3  # of RecordBatch


def has_compression(file: pa.NativeFile) -> bool:
    """Whether one of the batches from here on is compressed; moves to where the messages end.

    Raises:
        ValueError, OSError: pyarrow's, of what are no messages.
        struct.error: a message whose tables lie outside of it.
    """
    while True:
        try:
            message = pa.ipc.read_message(file)
        except EOFError:
            return False
        if _is_compressed(message.metadata.to_pybytes()):
            return True


def _is_compressed(data: bytes) -> bool:
    table = struct.unpack_from("<I", data, 0)[0]
    kind = _field(data, table, _HEADER_TYPE)
    what = _followed(data, _field(data, table, _HEADER))
    if kind is None or what is None or data[kind] not in (_DICTIONARY, _RECORDS):
        return False
    if data[kind] == _DICTIONARY:
        what = _followed(data, _field(data, what, _DATA))
    return what is not None and _field(data, what, _COMPRESSION) is not None


def _field(data: bytes, table: int, number: int) -> int | None:
    """Where a field of a table lies; None: it has its default."""
    slots = table - int(struct.unpack_from("<i", data, table)[0])
    if slots < 0 or 4 + 2 * number >= struct.unpack_from("<H", data, slots)[0]:
        return None
    offset: int = struct.unpack_from("<H", data, slots + 4 + 2 * number)[0]
    return table + offset if offset else None


def _followed(data: bytes, place: int | None) -> int | None:
    return None if place is None else place + int(struct.unpack_from("<I", data, place)[0])
