"""``storage_options`` of stores, in the vocabulary of s3fs, boto3 and datasets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastload.errors import LocationError

_ALIASES = {
    "key": "key", "aws_access_key_id": "key", "access_key_id": "key",
    "secret": "secret", "aws_secret_access_key": "secret", "secret_access_key": "secret",
    "token": "token", "aws_session_token": "token", "session_token": "token",
    "profile": "profile", "profile_name": "profile",
    "region": "region", "region_name": "region", "aws_region": "region",
    "endpoint_url": "endpoint_url", "aws_endpoint_url": "endpoint_url", "endpoint": "endpoint_url",
    "anon": "anon", "skip_signature": "anon",
    "verify": "ca_file", "ca_file": "ca_file",
    "addressing_style": "addressing_style",
}  # fmt: skip
_LEGAL = (
    "key", "secret", "token", "profile", "region", "endpoint_url", "anon", "ca_file", "addressing_style",
    "client_kwargs",
)  # fmt: skip


def unknown_options(scheme: str, unknown: object, legal: object) -> LocationError:
    """Return the error about unknown options, without their values, which may be secrets."""
    return LocationError(f"storage_options of {scheme}:// has no {unknown!r}. Legal are: {legal}.")


class StorageOptions(Mapping[str, Any]):
    """``storage_options`` that pickle with their values but show only their names.

    Raises:
        TypeError: not a mapping whose keys are strings.
    """

    def __init__(self, given: Mapping[str, Any] | None = None) -> None:
        if given is not None and (
            not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given)
        ):
            raise TypeError(f"storage_options must be a dict by name. Found: {type(given).__name__}.")
        self._values = dict(given or {})

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"<storage_options: {', '.join(self._values) or 'none'}>"


@dataclass(frozen=True)
class S3Options:
    """Options of an S3-compatible store; botocore finds those that are None."""

    key: str | None = field(default=None, repr=False)
    secret: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    profile: str | None = None
    region: str | None = None
    endpoint_url: str | None = None
    anon: bool = False
    ca_file: str | None = None
    addressing_style: str | None = None  # "path", "virtual"; None: chosen by the endpoint

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> S3Options:
        """Parse ``storage_options``.

        Raises:
            LocationError, TypeError: an option is unknown or has an invalid value.
        """
        values: dict[str, Any] = {}
        for name, value in [*given.items(), *_nested(given)]:
            if name == "client_kwargs":
                continue
            if name not in _ALIASES:
                raise unknown_options("s3", name, ", ".join(_LEGAL))
            if value is None:
                continue
            word = _ALIASES[name]
            wanted = bool if word == "anon" else str
            if name == "verify" and isinstance(value, bool):
                if not value:
                    raise LocationError(
                        "verify=False is not possible: certificates are always checked. Pass the CA's "
                        "certificates as ca_file=PATH, or an http:// endpoint."
                    )
                continue
            if word == "anon" and value in ("true", "True", "1", "false", "False", "0"):
                value = value in ("true", "True", "1")  # from the command line
            if not isinstance(value, wanted):
                raise TypeError(
                    f"storage_options[{name!r}] must be {'True or False' if wanted is bool else 'a text'}. "
                    f"Found: {type(value).__name__}."
                )
            if values.setdefault(word, value) != value:
                raise LocationError(f"storage_options says {word!r} twice, by other words and values.")
        options = cls(**values)
        if (options.key is None) != (options.secret is None):
            raise LocationError(
                "storage_options must have both key and secret, or neither. Found: one of them."
            )
        if options.anon and options.key is not None:
            raise LocationError("storage_options has anon, and a key, which exclude each other.")
        if options.endpoint_url is not None and "://" not in options.endpoint_url:
            raise LocationError(
                f"endpoint_url must be a URL, https://HOST[:PORT]. Found: {options.endpoint_url!r}."
            )
        return options


def _nested(given: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Flatten the dict in which s3fs has endpoint and region."""
    nested = given.get("client_kwargs") or {}
    if not isinstance(nested, Mapping):
        raise TypeError(f"storage_options['client_kwargs'] must be a dict. Found: {type(nested).__name__}.")
    return list(nested.items())


def checked_headers(given: Any) -> dict[str, str]:
    """Return ``headers`` for requests, checked.

    Raises:
        TypeError: not a dict of strings.
        LocationError: a header has a line break, which would begin another header.
    """
    if not isinstance(given, Mapping) or not all(
        isinstance(each, str) for pair in given.items() for each in pair
    ):
        raise TypeError("storage_options['headers'] must be a dict of texts.")
    wrong = [name for name, value in given.items() if {"\r", "\n", "\0"} & set(name + value)]
    if wrong:
        raise LocationError(f"storage_options['headers'][{wrong[0]!r}] has a line break in it.")
    return dict(given)
