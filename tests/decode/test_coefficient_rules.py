"""What FORMAT.md says a coefficient record MUST be: the reader written from it and the core refuse alike."""

from __future__ import annotations

import itertools
import random
import struct
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from coefficient_files import (
    FORMS,
    SAMPLINGS,
    bits_of,
    jpeg,
    jpeg_by_core,
    picture,
    rebuilt,
    summed,
    to_record,
    with_bytes,
    with_frame,
)
from coefficient_jpeg import to_jpeg
from coefficient_reader import mask_decoders, read_header, read_record, read_rest, rest_dictionary
from PIL import Image

from fastload import _C
from fastload.errors import DecodeError


def both_refuse(record: bytes, what: object = "", words: str = "") -> None:
    """The reader of FORMAT.md with these ``words``. ``what`` is shown where one does not."""
    with pytest.raises(ValueError, match=rf"{words}.*\.$"):
        raise_nothing(what, to_jpeg(read_record(record)))
    with pytest.raises(DecodeError):
        raise_nothing(what, jpeg_by_core(record))


def raise_nothing(what: object, jpeg: bytes) -> None:
    pytest.fail(f"Not refused: {what}, {len(jpeg)} bytes")


COLOUR = jpeg(picture(20, 20), quality=80, subsampling=2)  # 2 rows of one segment
GRAY = jpeg(picture(8, 8, "L"), quality=80)  # one block


WRONG_HEADERS = [
    *((at, b"\0", "begin") for at in range(4)),
    *((4, bytes([version]), "Version") for version in (0, 2, 255)),
    *((5, bytes([form]), "Form") for form in (0, 3, 255)),
    *((6, bytes([components]), "components: 1 or 3") for components in (0, 2, 4)),
    (6, b"\1", "One component"),
    *((7, bytes([sampling]), "Sampling") for sampling in (0x02, 0x20, 0x23, 0x32, 0xA2)),
    (7, b"\x11", "bytes"),
    (8, b"\0\0", "0 x"),
    (10, b"\0\0", "x 0"),
    (12, b"\1", "another picture"),
    (12, b"\2", "bytes"),
    *((12, bytes([flags]), "Flags") for flags in (4, 8, 128)),
    *((13, bytes([tables]), "tables: 1 to 3") for tables in (0, 4)),
    (13, b"\1", "Table 1 of 1"),
    (13, b"\3", "bytes"),
    (14, b"\0", "other steps"),
    *((14, bytes([tables]), "Table . of 2") for tables in (0b101010, 0b111111)),
    (14, b"\x54", "not there"),
    *((15, bytes([rice]), "Rice") for rice in (0x04, 0x40, 0x0F, 0x80)),
    *((at, b"\x40", "last position") for at in range(16, 34)),
    *((at, b"\x40", "Masks") for at in range(34, 50)),
    (50, b"\1", "50"),
    (51, b"\1", "51"),
    *((at, b"\xff", "lengths differ") for at in range(52, 56)),
    *((at, b"\xff", "The record has") for at in range(56, 60)),
    *((at, b"\0", "other steps") for at in range(64, 64 + 128)),
]


@pytest.mark.parametrize("form", FORMS)
def test_headers_that_break_a_rule(form: str) -> None:
    original = to_record(COLOUR, form)
    assert jpeg_by_core(summed(original)) == COLOUR
    for at, value, words in WRONG_HEADERS:
        both_refuse(with_bytes(original, at, value), (at, value), words)


@pytest.mark.parametrize("form", FORMS)
def test_other_rules_of_the_record(form: str) -> None:
    original, gray = to_record(COLOUR, form), to_record(GRAY, form)
    both_refuse(original[:60] + bytes([original[60] ^ 1]) + original[61:])
    both_refuse(with_bytes(gray, 7, b"\x21"), words="One component")
    both_refuse(with_bytes(gray, 14, b"\x04"))  # the table of a component that is not there
    both_refuse(summed(original + b"\0"))
    for count in (*range(1, 70), len(original) - 64, len(original) - 10, len(original)):
        both_refuse(summed(original[:-count]) if len(original) - count >= 64 else original[:-count])
    if form == "small":
        both_refuse(with_bytes(gray, 49, b"\1"))
    lengths_at = 64 + 128
    lengths = np.frombuffer(original[lengths_at : lengths_at + 4], "<u2")
    both_refuse(with_bytes(original, lengths_at, struct.pack("<2H", lengths[0] + 1, lengths[1] - 1)))
    both_refuse(with_bytes(original, lengths_at, struct.pack("<2H", lengths[0], lengths[1] - 1)))


def test_what_fills_up_a_short_rest() -> None:
    data = jpeg(Image.new("L", (8, 8)), qtables=[[255] * 64])
    original = to_record(data, "fast")
    assert len(read_header(original).rest) < 64
    assert jpeg_by_core(original) == to_jpeg(read_record(original)) == data
    for at in (-1, -2, len(read_header(original).rest) - 64):
        both_refuse(with_bytes(original, len(original) + at, b"\1"), at, "fills up")


def core_reads(record: bytes) -> bool:
    try:
        return _C.decode_rgb(np.frombuffer(record, np.uint8), roi=None) is not None
    except DecodeError:
        return False


def coded_mask(mask: list[int]) -> list[tuple[int, int]]:
    """Of form small, for the first block of a row: bits, the first one first."""
    of_counts, of_bytes = mask_decoders()
    found = [(of_counts[4], len(mask))]
    found += [(of_bytes[3 * min(j, 4) + min(len(mask) - 1 - j, 2)], byte) for j, byte in enumerate(mask)]
    bits = []
    for decoder, value in found:
        length, code = next(key for key, coded in decoder.items() if coded == value)
        bits += [(code >> length - 1 - i & 1, 1) for i in range(length)]
    return bits


def test_segments_that_break_a_rule() -> None:
    """Of one gray block: a width, a minimum, DC less the minimum, and its mask with values, if it has any."""
    fast = with_bytes(to_record(GRAY, "fast"), 34, bytes([0, 1, 63, *[0] * 13]))
    fast, small = (
        with_bytes(record, 15, b"\0") for record in (fast, to_record(GRAY, "small"))
    )  # Rice parameters
    dc = ((0, 4), (5, 12))
    one = (*dc, (1, 4), (1, 1), (0, 1))  # coefficient 1 is not zero, and positive
    ones = [(1, 1)] * 64
    right = {
        "no AC": rebuilt(fast, [bits_of(*dc, (0, 4))]),
        "a class of a bit that is 0": rebuilt(fast, [bits_of(*dc, (1, 4), (0, 1))]),
        "DC of 12 bits": rebuilt(fast, [bits_of((12, 4), (5, 12), (7, 12), (0, 4))]),
        "1": rebuilt(fast, [bits_of(*one, (0, 1))]),
        "2^14": rebuilt(fast, [bits_of(*one, *ones[:14], (0, 1), (0, 14))]),
        "no AC, small": rebuilt(small, [bits_of(*dc, *coded_mask([]))]),
        "1, small": rebuilt(small, [bits_of(*dc, *coded_mask([1]), (0, 1), (0, 1))]),
        "all, small": rebuilt(small, [bits_of(*dc, *coded_mask([255] * 7 + [127]), (0, 63), (0, 63 + 2))]),
    }
    wrong = {
        "DC of 13 bits": rebuilt(fast, [bits_of((13, 4), (5, 12), (7, 13), (0, 4))]),
        "a spare bit": rebuilt(fast, [bits_of(*one, (0, 1), (1, 1))]),
        "a byte more": rebuilt(fast, [bits_of(*one, (0, 1)) + b"\0"]),
        "a byte less": rebuilt(fast, [bits_of(*one, (0, 1))[:-1]]),
        "no bytes": rebuilt(fast, [b""]),
        "S_15": rebuilt(fast, [bits_of(*one, *ones[:15], (0, 17))]),
        "a byte more, small": rebuilt(small, [bits_of(*dc, *coded_mask([1]), (0, 1), (0, 1)) + b"\0"]),
        "bit 63": rebuilt(small, [bits_of(*dc, *coded_mask([0] * 7 + [128]), (0, 1), (0, 1))]),
    }
    for name, record in right.items():
        assert read_record(record).coefficients[0].any(), name
        assert core_reads(record), name
    for name, record in wrong.items():
        with pytest.raises(ValueError, match="segment|DC of|too large|mask"):
            read_record(record)
        assert not core_reads(record), name


def packed_rest(data: bytes, dictionary: bytes = b"") -> bytes:
    packer = zlib.compressobj(zdict=dictionary) if dictionary else zlib.compressobj()
    return packer.compress(data) + packer.flush()


def test_rests_that_break_a_rule() -> None:
    original = to_record(COLOUR, "fast")
    frame = read_rest(read_header(original).rest)[1]
    size = len(frame)
    packed = packed_rest(frame, rest_dictionary())
    for flags, said, data in [(1, size, frame), (3, size, packed)]:
        assert jpeg_by_core(rebuilt(original, rest=struct.pack("<BI", flags, said) + data)) == COLOUR
    wrong = [
        (5, size, frame),
        (129, size, frame),
        (1, size + 1, frame),
        (1, size - 1, frame),
        (1, (64 << 20) + 1, frame),
        (3, size, frame),
        (3, size + 1, packed),
        (3, size - 1, packed),
        (3, size, packed + b"\0"),
        (3, size, packed[:-1]),
        (3, size, packed[:-1] + bytes([packed[-1] ^ 1])),
        (3, size, packed_rest(frame)),
        (3, size, packed_rest(frame, rest_dictionary()[1:])),
        (3, (64 << 20) + 1, packed),
    ]
    for flags, said, data in wrong:
        both_refuse(rebuilt(original, rest=struct.pack("<BI", flags, said) + data))
    for count in range(5):
        both_refuse(rebuilt(original, rest=b"\1\0\0\0"[:count]))


def edit(old: str, new: str) -> Callable[[bytes], bytes]:
    """Hexadecimal; ``old`` is there once."""

    def change(frame: bytes) -> bytes:
        assert frame.count(bytes.fromhex(old)) == 1
        return frame.replace(bytes.fromhex(old), bytes.fromhex(new))

    return change


def first_segment(marker: int, frame: bytes) -> bytes:
    at = frame.index(bytes([0xFF, marker]))
    return frame[at : at + 2 + int.from_bytes(frame[at + 2 : at + 4], "big")]


SOF, SOS = "ffc0001108", "ffda000c03 0100 0211 0311 003f00"
RGB = (("012200021101031101", "522200471101421101"), ("0100 0211 0311", "5200 4711 4211"))
EDITS = {
    "no SOI": edit("ffd8", "ffd7"),
    "no EOI": edit("ffd9", ""),
    "no scan": edit(SOS, ""),
    "garbage": edit(SOS, "00" + SOS),
    "a marker that ends the file": edit("ffd9", "ffff"),
    "an unknown marker": edit(SOS, "ffcc 0002" + SOS),
    "a restart marker": edit(SOS, "ffd0" + SOS),
    "a segment of 1 byte": edit(SOS, "fffe 0001" + SOS),
    "a segment that ends behind the file": edit("ffd9", "fffe 0010"),
    "two frames": lambda frame: frame.replace(first_segment(0xC0, frame), 2 * first_segment(0xC0, frame)),
    "a second frame behind the scan": lambda frame: frame[:-2] + first_segment(0xC0, frame) + frame[-2:],
    "no frame": lambda frame: frame.replace(first_segment(0xC0, frame), b""),
    "DQT behind the scan": lambda frame: frame[:-2] + first_segment(0xDB, frame) + frame[-2:],
    "no DQT": lambda frame: frame.replace(first_segment(0xDB, frame), b""),
    "no DHT": lambda frame: frame.replace(first_segment(0xC4, frame), b""),
    "a progressive frame": edit(SOF, "ffc2001108"),
    "12 bits": edit(SOF, "ffc000110c"),
    "another height": edit(SOF + "0014", SOF + "0013"),
    "another width": edit(SOF + "00140014", SOF + "00140013"),
    "other factors": edit("012200", "011200"),
    "another table": edit("012200", "012201"),
    "a table that is not there": edit("012200", "012203"),
    "components of one number": lambda frame: edit("021101031101", "021101021101")(
        edit("0211 0311", "0211 0211")(frame)
    ),
    "RGB by its Adobe segment": lambda frame: frame.replace(
        first_segment(0xE0, frame), bytes.fromhex("ffee000e") + b"Adobe\0\x64\0\0\0\0\0"
    ),
    "RGB by its numbers": lambda frame: edit(*RGB[1])(
        edit(*RGB[0])(frame.replace(first_segment(0xE0, frame), b""))
    ),
    "DQT of number 4": edit(SOS, "ffdb 0043 04" + 64 * "01" + SOS),
    "DQT of 24 bits": edit(SOS, "ffdb 00c3 20" + 192 * "01" + SOS),
    "DHT of number 4": edit(SOS, "ffc4 0014 04 01" + 15 * "00" + "00" + SOS),
    "DHT of class 2": edit(SOS, "ffc4 0014 23 01" + 15 * "00" + "00" + SOS),
    "DHT of 257 values": edit(SOS, "ffc4 0114 03" + 14 * "00" + "02ff" + 257 * "00" + SOS),
    "DHT that is too short": edit("ffc4001f00", "ffc4001e00"),
    "codes that do not fit": edit("ffc4001f00 000105", "ffc4001f00 030102"),
    "no code for a value": lambda frame: frame.replace(bytes(range(12)), bytes([11] * 12)),
    "DRI of 3 bytes": edit(SOS, "ffdd0005000000" + SOS),
    "a scan of 4 components": edit(SOS, SOS.replace("000c03", "000c04")),
    "a scan of no component": edit(SOS, "ffda000600003f00"),
    "another order": edit(SOS, SOS.replace("0211 0311", "0311 0211")),
    "an unknown component": edit(SOS, SOS.replace("0311", "0411")),
    "a table of number 4": edit(SOS, SOS.replace("0311", "0314")),
    "a missing table": edit(SOS, SOS.replace("0311", "0312")),
    "Ss": edit(SOS, SOS.replace("003f00", "013f00")),
    "Se": edit(SOS, SOS.replace("003f00", "003e00")),
    "Ah": edit(SOS, SOS.replace("003f00", "003f10")),
    "Al": edit(SOS, SOS.replace("003f00", "003f01")),
    "101 scans": edit(SOS, 101 * SOS),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("what", EDITS)
def test_a_rest_of_another_jpeg(what: str, packed: bool) -> None:
    original = to_record(COLOUR, "fast")
    assert jpeg_by_core(with_frame(original, lambda frame: frame, packed)) == COLOUR
    both_refuse(with_frame(original, EDITS[what], packed), what)


def test_rests_that_are_unusual() -> None:
    """Both give the same file, whether or not a JPEG decoder would take it."""
    original = to_record(COLOUR, "fast")
    changes = [
        edit(SOS, 100 * SOS),
        edit(SOS, "ffc4 0016 03 03" + 15 * "00" + "000102" + SOS),  # codes that do not fit, and are not used
        edit(SOS, "fffffffe000341 ffdd00040001" + SOS),
        edit("ffd9", "ffd9ffda"),
        lambda frame: edit(*RGB[1])(edit(*RGB[0])(frame)),  # as it has a JFIF segment
        # A second code for the value 0.
        lambda frame: frame.replace(bytes.fromhex("0405060708090a0b"), bytes.fromhex("0405060708090a00"), 1),
    ]
    for change in changes:
        record = with_frame(original, change)
        assert to_jpeg(read_record(record)) == jpeg_by_core(record)


def test_sampling_factors_of_one_component() -> None:
    original = to_record(GRAY, "fast")
    for factors in ("22", "14", "43"):
        record = with_frame(original, edit("0801011100", f"080101{factors}00"))
        assert to_jpeg(read_record(record)) == jpeg_by_core(record) != GRAY
    for factors in ("01", "10", "51", "15"):
        both_refuse(with_frame(original, edit("0801011100", f"080101{factors}00")), factors)


PROGRESSIVE_EDITS = [
    ("ffda0008 01 0100 0105", "ffda0008 01 0100 0005"),
    ("ffda0008 01 0100 0105", "ffda0008 01 0100 0500"),
    ("ffda0008 01 0100 0105", "ffda0008 01 0100 0140"),
    ("ffda0008 01 0100 0105 02", "ffda0008 01 0100 0105 0e"),
    ("ffda0008 01 0100 0105 02", "ffda0008 01 0100 0105 42"),
]


@pytest.mark.parametrize(("old", "new"), PROGRESSIVE_EDITS, ids=str)
def test_scans_of_a_progressive_jpeg(old: str, new: str) -> None:
    original = to_record(jpeg(picture(20, 20), quality=80, progressive=True), "fast")
    both_refuse(with_frame(original, edit(old, new)))


@pytest.mark.parametrize("form", FORMS)
def test_both_readers_say_the_same_of_damage(form: str) -> None:
    rng = random.Random(1)
    agreed = {True: 0, False: 0}
    options = [{}, {"progressive": True}, {"restart_marker_blocks": 2}]
    for sampling, option in itertools.product(SAMPLINGS, options):
        mode, subsampling = SAMPLINGS[sampling]
        data = jpeg(picture(33, 18, mode), quality=rng.randint(20, 98), subsampling=subsampling, **option)
        original = with_frame(to_record(data, form), lambda frame: frame)
        for _ in range(40):
            record = bytearray(original)
            for _ in range(rng.randint(1, 2)):
                record[rng.randrange(4, len(record))] ^= 1 << rng.randrange(8)
            try:
                wanted = jpeg_by_core(summed(bytes(record)))
            except DecodeError:
                wanted = None
            try:
                found = to_jpeg(read_record(summed(bytes(record))))
            except ValueError:
                found = None
            assert found == wanted
            agreed[found is not None] += 1
    assert min(agreed.values()) > 50
