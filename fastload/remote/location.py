"""URLs of stores: parsing, joining and formatting."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, unquote

from fastload.errors import LocationError

SCHEMES = ("s3", "gs", "az", "https", "http", "file", "hf")
_URL = re.compile(r"([a-z][a-z0-9+.-]*)://(.*)", re.DOTALL | re.IGNORECASE)
_CUT_URL = re.compile(rf"({'|'.join(SCHEMES)}):/[^/]")
# A revision may contain slashes if it is one of the Hub's special refs.
_HUB = re.compile(r"(datasets/[^/@]+/[^/@]+(?:@(?:refs/(?:convert|pr)/[^/]+|[^/]+))?)(/.*)?", re.DOTALL)
_ENCODED = ("https", "http", "file")  # their URLs have %20 for a space; object stores' have the raw key


def is_url(text: object) -> bool:
    """Return whether ``text`` looks like a URL: ``scheme://...`` with any scheme."""
    return isinstance(text, str) and _URL.match(text) is not None


def url_of(given: Any) -> Location | None:
    """Return the location that an argument names; None: it is a path, or not text.

    Raises:
        LocationError: the URL is invalid, or pathlib has removed one of its slashes.
    """
    if isinstance(given, Location):
        return given
    if is_url(given):
        return Location.parse(given)
    text = given if isinstance(given, str) else getattr(given, "as_posix", str)()
    if _CUT_URL.match(text):
        raise LocationError(
            f"A URL has two slashes after its scheme; pathlib.Path removes one. Found: {text!r}. Pass "
            "the URL as a string."
        )
    return None


@dataclass(frozen=True)
class Location:
    """A place in a store.

    Args:
        scheme: one of :data:`SCHEMES`.
        host: bucket, container or host with port; ``""`` for ``file``; for ``hf`` the repository,
            ``datasets/OWNER/NAME``, perhaps with ``@REVISION``.
        path: path in the store, without slashes at its ends; ``""``: the whole store. For http(s) and file
            URLs it is decoded.
    """

    scheme: str
    host: str
    path: str = ""

    @classmethod
    def parse(cls, text: str) -> Location:
        """Parse a URL.

        Raises:
            LocationError: the scheme is unknown, the bucket or host is missing, or the URL has a query or a
                password.
        """
        match = _URL.fullmatch(text)
        scheme, rest = (match[1].lower(), match[2]) if match else ("", text)
        if scheme not in SCHEMES:
            legal = ", ".join(f"{name}://" for name in SCHEMES)
            raise LocationError(f"A URL must begin with one of {legal}. Found: {_without_secret(text)!r}.")
        if scheme == "file":
            if not rest.startswith("/"):
                raise LocationError(f"file:// takes an absolute path, file:///data/set. Found: {text!r}.")
            return cls(scheme, "", unquote(rest).strip("/"))
        if scheme == "hf":
            return cls._of_hub(text, rest)
        host, _, path = rest.partition("/")
        if not host:
            raise LocationError(f"{scheme}:// must be followed by a {_host_word(scheme)}. Found: {text!r}.")
        if "@" in host:
            raise LocationError(
                f"A URL may not have a user or password in it, as it is shown in messages. Found: "
                f"{_without_secret(text)!r}. Pass them as storage_options=, or in the environment."
            )
        if scheme in _ENCODED:
            if "?" in path or "#" in path:
                raise LocationError(
                    f"The URL of a set may not have a query or fragment, as its files are found by joining "
                    f"names to it. Found: {_without_secret(text)!r}. Pass tokens as "
                    "storage_options={'headers': ...}."
                )
            path = unquote(path)
        return cls(scheme, host, path.strip("/"))

    @classmethod
    def _of_hub(cls, text: str, rest: str) -> Location:
        match = _HUB.fullmatch(rest)
        if match is None:
            raise LocationError(f"hf:// takes datasets/OWNER/NAME and a path. Found: {text!r}.")
        return cls("hf", match[1], (match[2] or "").strip("/"))

    @property
    def root(self) -> Location:
        """The whole store."""
        return replace(self, path="")

    @property
    def name(self) -> str:
        """The last part of the path; for a whole store, its host."""
        return self.path.rpartition("/")[2] or self.host

    @property
    def parent(self) -> Location:
        """The location without the last part of its path."""
        return replace(self, path=self.path.rpartition("/")[0])

    def __truediv__(self, name: str) -> Location:
        """Join a file below, a file beside it (``../name``), or the file's own URL.

        Raises:
            LocationError: the path is absolute, or leads out of the store.
        """
        if is_url(name):
            other = Location.parse(name)
            if other.root != self.root:
                raise LocationError(f"{name!r} is not in {self.root}. Found it in {self}.")
            return other
        joined = posixpath.normpath(posixpath.join(self.path, name))
        if name.startswith("/") or joined.startswith("../") or joined == "..":
            raise LocationError(f"{name!r} is not a path within {self.root}. Found it in {self}.")
        return replace(self, path="" if joined == "." else joined)

    def __str__(self) -> str:
        path = quote(self.path, safe="/!$&'()*+,;=:@~") if self.scheme in _ENCODED else self.path
        return (
            f"{self.scheme}://{self.host}/{path}" if path or not self.host else f"{self.scheme}://{self.host}"
        )


def _host_word(scheme: str) -> str:
    return {"az": "container", "https": "host", "http": "host"}.get(scheme, "bucket")


def _without_secret(text: str) -> str:
    """Return a URL for a message, without password and query."""
    return re.sub(r"\?.*", "?...", re.sub(r"//[^/@]*@", "//...@", text), flags=re.DOTALL)
