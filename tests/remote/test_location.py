"""URLs of stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastload.remote.location import Location, is_url, url_of


@pytest.mark.parametrize(
    ("text", "location", "again"),
    [
        ("s3://bucket/a/b", Location("s3", "bucket", "a/b"), "s3://bucket/a/b"),
        ("s3://bucket/a/b/", Location("s3", "bucket", "a/b"), "s3://bucket/a/b"),
        ("S3://bucket", Location("s3", "bucket"), "s3://bucket"),
        ("s3://bucket/a b%20c?d", Location("s3", "bucket", "a b%20c?d"), "s3://bucket/a b%20c?d"),
        ("https://host:8080/a%20b", Location("https", "host:8080", "a b"), "https://host:8080/a%20b"),
        ("file:///data/x", Location("file", "", "data/x"), "file:///data/x"),
        ("file:///", Location("file", ""), "file:///"),
        ("gs://bucket/a", Location("gs", "bucket", "a"), "gs://bucket/a"),
        ("az://box/a", Location("az", "box", "a"), "az://box/a"),
        (
            "hf://datasets/me/birds@main/data/train",
            Location("hf", "datasets/me/birds@main", "data/train"),
            "hf://datasets/me/birds@main/data/train",
        ),
        ("hf://datasets/me/birds", Location("hf", "datasets/me/birds"), "hf://datasets/me/birds"),
    ],
)
def test_a_url_is_read_and_written(text: str, location: Location, again: str) -> None:
    assert is_url(text)
    assert Location.parse(text) == location
    assert str(location) == again
    assert Location.parse(again) == location


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ftp://host/a", "A URL must begin with one of s3://, gs://.*Found: 'ftp://host/a'"),
        ("s3:///a", "s3:// must be followed by a bucket. Found: 's3:///a'"),
        ("az://", "must be followed by a container"),
        ("file://host/a", "file:// takes an absolute path"),
        ("hf://me/birds", "hf:// takes datasets/OWNER/NAME"),
        ("https://host/a?sig=1", r"may not have a query or fragment.*'https://host/a\?...'"),
    ],
)
def test_other_urls_are_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Location.parse(text)


def test_a_password_in_a_url_is_refused_and_not_shown() -> None:
    with pytest.raises(ValueError, match="user or password") as caught:
        Location.parse("https://me:geheim@host/a")
    assert "geheim" not in str(caught.value)
    with pytest.raises(ValueError, match="query") as caught:
        Location.parse("https://host/a?token=geheim")
    assert "geheim" not in str(caught.value)


def test_paths_are_joined_within_their_store() -> None:
    place = Location.parse("s3://bucket/a/b")
    assert str(place / "dataset.json") == "s3://bucket/a/b/dataset.json"
    assert str(place / "../c/x.arrow") == "s3://bucket/a/c/x.arrow"
    assert place / "../.." == place.root
    assert (place.name, place.root.name, str(place.parent)) == ("b", "bucket", "s3://bucket/a")
    for name in ("/etc/passwd", "../../../x"):
        with pytest.raises(ValueError, match=f"'{name}' is not a path within s3://bucket"):
            place / name


def test_what_is_no_url_is_a_path() -> None:
    for path in ("data/set", "/data/s3:/x", Path("data"), "C:", 3):
        assert url_of(path) is None
    assert url_of("s3://b/x") == url_of(Location("s3", "b", "x")) == Location("s3", "b", "x")


def test_a_url_that_pathlib_has_cut_is_told() -> None:
    with pytest.raises(ValueError, match="pathlib.Path removes one. Found: 's3:/bucket/set'"):
        url_of(Path("s3://bucket/set"))
