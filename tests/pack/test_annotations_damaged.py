"""Annotations of any bytes: what is wrong is said by the errors that packing lists, never by others."""

from __future__ import annotations

import contextlib

from annotated_trees import voc_objects, voc_xml
from hypothesis import given, settings
from hypothesis import strategies as some

from fastload.packing.annotations.voc import object_of, objects_of, parse_voc, rest_of, to_xml
from fastload.packing.annotations.yolo import LabelRules, _parsed, label_path, parse_labels

XML = voc_xml("a", voc_objects(3)).encode()
WORDS = some.sampled_from(
    ["0", "1", "0.5", "-0.02", "1e999", "nan", "x", "3", "2.5", "1_0", "\ufeff", " ", "\n"]
)
LINES = some.sampled_from([
    "names:", "  0: a", "  - b", "train: x", "kpt_shape: [1, [2", "a: 'b", "- c", "\t", "x", "  : y",
    "n: [1, 2]", "d: |", "   deep: 1", "---", "# x", 'q: "a"', "i: !!int ''", "t: !!timestamp x", "? [a]",
])  # fmt: skip
HEADS = some.sampled_from([b"\xff\xd8", b"\x89PNG\r\n\x1a\n", b"RIFF\0\0\0\0WEBP", b""])


@given(some.lists(WORDS, max_size=40))
@settings(max_examples=200, deadline=None)
def test_label_files(words: list[str]) -> None:
    text = " ".join(words)
    for rules in (LabelRules(3), LabelRules(None), LabelRules(2, (1, 2))):
        objects, wrong = parse_labels(text, rules)
        assert len(objects) + len(wrong) == sum(bool(line.split()) for line in text.splitlines())
        for one in objects:
            assert min(one.box[2:]) > 0
            assert -0.011 <= min(one.box[:2]) <= max(one.box[:2]) <= 1.01
            assert bool(one.points) == (rules.points is not None)


@given(some.integers(0, len(XML) - 1), some.binary(max_size=4), some.integers(0, 30))
@settings(max_examples=300, deadline=None)
def test_xml(at: int, put: bytes, cut: int) -> None:
    data = XML[:at] + put + XML[at + cut :]
    tree = None
    with contextlib.suppress(ValueError):
        tree = parse_voc(data)
    kept = []
    for element in objects_of(tree) if tree is not None else []:
        with contextlib.suppress(ValueError):
            kept.append((element, object_of(element)))
    assert tree is None or len(objects_of(rest_of(tree, kept))) == len(kept)
    assert tree is None or parse_voc(to_xml(tree).encode()) == tree


@given(some.lists(LINES, max_size=12))
@settings(max_examples=200, deadline=None)
def test_yaml(lines: list[str]) -> None:
    words = "none"
    try:
        _parsed("\n".join(lines))
    except ValueError as error:  # no other
        words = str(error)
    assert words


@given(some.binary(min_size=1, max_size=40))
@settings(max_examples=100, deadline=None)
def test_paths(path: bytes) -> None:
    assert label_path(path).endswith(b".txt")
    assert label_path(path).count(b"/") == path.count(b"/")
