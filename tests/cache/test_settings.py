"""What cache= may say."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastload.cache.settings import CacheSetting, parse_setting
from fastload.machine.sizes import human_bytes, parse_size
from fastload.packing.options import parse_bytes

UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "Ki": 2**10, "Gi": 2**30}
UNITS |= {"K": 10**3, "M": 10**6, "G": 10**9}


@given(st.integers(1, 10**6), st.sampled_from(sorted(UNITS)), st.booleans(), st.booleans())
def test_whole_numbers_of_units_are_exact(number: int, unit: str, space: bool, lower: bool) -> None:
    text = f"{number}{' ' if space else ''}{unit.lower() if lower else unit}"
    assert parse_size(text) == parse_bytes(text) == number * UNITS[unit]  # one meaning everywhere
    setting = parse_setting(text)
    assert (setting.mode, setting.limit, setting.share) == ("on", number * UNITS[unit], None)


@given(st.integers(1, 10**9), st.integers(0, 999))
def test_fractions_are_cut_to_whole_bytes(whole: int, thousandths: int) -> None:
    assert parse_size(f"{whole}.{thousandths:03}kB") == whole * 1000 + thousandths
    assert parse_size(f"{whole}.{thousandths:03}999kB") == whole * 1000 + thousandths


@given(st.text())
def test_any_text_is_understood_or_refused_in_words(text: str) -> None:
    refusal = ""
    try:
        setting = parse_setting(text)
    except ValueError as error:
        refusal = str(error)
    if refusal:
        assert 'Legal: "auto"' in refusal
    elif setting.disk is not None:
        assert (setting.mode, setting.disk.root.is_absolute()) == ("auto", True)
    elif "/" in text:
        assert setting.mode == "on"
        assert setting.root is not None
        assert setting.root.is_absolute()
    else:
        assert (setting.mode == "on") == (setting.limit is not None or setting.share is not None)


@given(st.floats(0.001, 100))
def test_shares(percent: float) -> None:
    setting = parse_setting(f"{percent:.3f}%")
    assert setting.share == pytest.approx(float(f"{percent:.3f}") / 100)


def test_the_other_forms() -> None:
    assert parse_setting("auto") == CacheSetting()
    assert parse_setting("off") == parse_setting(None) == CacheSetting("off")
    assert (
        parse_setting("/dev/shm")
        == parse_setting(Path("/dev/shm"))
        == CacheSetting("on", root=Path("/dev/shm"))
    )
    given = CacheSetting("on", limit=5, root=Path("/x"))
    assert parse_setting(given) is given


@pytest.mark.parametrize(
    "text", ["64", "0GB", "-1GB", "101%", "0%", "1e3GB", "GB", "%", "64 iB", "", "1.2.3GB", "99999999999TB"]
)
def test_what_is_no_setting(text: str) -> None:
    with pytest.raises(ValueError, match="Legal"):
        parse_setting(text)


@pytest.mark.parametrize("value", [True, 64, 0.5, {"auto"}])
def test_what_has_no_unit_is_no_setting(value: object) -> None:
    with pytest.raises(TypeError, match="Legal"):
        parse_setting(value)


@pytest.mark.parametrize(
    "arguments", [{"mode": "yes"}, {"limit": 0}, {"share": 0.0}, {"share": 1.5}, {"share": 0.5, "limit": 1}]
)
def test_a_setting_is_checked(arguments: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="must be"):
        CacheSetting(**arguments)  # type: ignore[arg-type]


def test_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTLOAD_CACHE_DIR", "/mnt/ram")
    assert CacheSetting().folder == Path("/mnt/ram")
    assert parse_setting("/tmp/x").folder == Path("/tmp/x")
    monkeypatch.delenv("FASTLOAD_CACHE_DIR")
    assert CacheSetting().folder == Path("/dev/shm")


def test_messages_quote_the_user() -> None:
    assert str(parse_setting("64GB")) == "cache='64GB'"
    assert str(CacheSetting("on", share=0.5)) == "cache='50%'"
    assert human_bytes(parse_size("64GB")) == "64.0 GB"
