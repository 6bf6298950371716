"""``hf://datasets/OWNER/NAME``: files of the Hub, found by huggingface_hub; the core reads their bytes.

The revision is fixed at the first look, so a push while a job runs changes nothing. The Hub is asked once per
file, off the read path, for the address of its bytes (mostly on a CDN, signed for about an hour), and again
when that address has expired. So ranges need no calls to the Hub, whose rate is limited.
"""

from __future__ import annotations

import os
import re
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

from fastload._native import _C
from fastload.errors import LocationError, ObjectMissing, RemoteError, ShardError
from fastload.extras import library_missing
from fastload.machine.threads import ForkSafeLock
from fastload.remote.http import check_reach
from fastload.remote.location import Location
from fastload.remote.options import StorageOptions, checked_headers, unknown_options
from fastload.remote.store import Facts, Listed, warn_of_store

try:
    import huggingface_hub
    from huggingface_hub import errors
except ImportError as error:
    raise library_missing("huggingface_hub", "hf://", error) from error

_LEGAL = ("token", "endpoint", "anon")
_ENDPOINT = "https://huggingface.co"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_TRIES, _PATIENCE = 6, 90.0  # tries, seconds: as for the core's requests
_AGAIN = (429, 500, 502, 503, 504)
_RATE = re.compile(r"\bt=(\d+)")  # seconds until the window of the header RateLimit ends
_FAILURES: Any = (getattr(errors, "HTTPError"), errors.EntryNotFoundError, OSError, ValueError)  # noqa: B009
Result = TypeVar("Result")


class HubStore:
    """A dataset repository of the Hub, at one commit. Read-only.

    Args:
        root: ``hf://datasets/OWNER/NAME[@REVISION]``.
        storage_options: ``token``; ``anon``, which sends none; ``endpoint``. Other settings come from where
            huggingface_hub looks (``HF_TOKEN``, ``hf auth login``; ``HF_ENDPOINT``).
        commit: the revision, if it is known already.

    Raises:
        LocationError: an option is unknown or has an invalid value.
    """

    def __init__(
        self, root: Location, storage_options: Mapping[str, Any] | None = None, commit: str = ""
    ) -> None:
        self.root = root
        self._given = StorageOptions(storage_options)
        for name in self._given:
            if name not in _LEGAL:
                raise unknown_options("hf", name, ", ".join(_LEGAL))
        anon = self._given.get("anon", False) in (True, "true", "True", "1")
        if anon and self._given.get("token"):
            raise LocationError("storage_options has anon, and a token, which exclude each other.")
        self._token: str | bool = (
            self._given.get("token") or (not anon and huggingface_hub.get_token()) or False
        )
        endpoint = self._given.get("endpoint") or os.environ.get("HF_ENDPOINT") or _ENDPOINT
        self._endpoint = str(endpoint).rstrip("/")
        self._repo, _, revision = root.host.removeprefix("datasets/").partition("@")
        self._revision = unquote(revision)
        self._commit = commit or (self._revision if _COMMIT.fullmatch(self._revision) else "")
        self._found: dict[str, Facts | None] = {}
        self._listed: dict[str, list[Listed]] = {}
        self._made: _C.RemoteStore | None = None
        self._lock = ForkSafeLock()

    def __reduce__(self) -> Any:
        return HubStore, (self.root, self._given, self._commit)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.root)!r})"

    @property
    def commit(self) -> str:
        """The revision that is read: 40 hex digits.

        Raises:
            RemoteError: the Hub does not answer.
        """
        with self._lock.held():
            if not self._commit:
                check_reach(self._endpoint, str(self.root), "Check HF_ENDPOINT and the network.")
                api = huggingface_hub.HfApi(self._endpoint, token=self._token)
                ask = partial(api.dataset_info, self._repo, revision=self._revision or None)
                self._commit = str(self._ask("opened", "", ask).sha)
            return self._commit

    def head(self, path: str) -> Facts | None:
        """See :class:`~fastload.remote.store.Store`. Each file is asked for once: a commit never changes."""
        if path not in self._found:
            try:
                self._resolve(path)
            except ObjectMissing:
                self._found[path] = None
        return self._found[path]

    def get(self, path: str, begin: int = 0, end: int | None = None, most: int | None = None) -> bytes:
        """See :class:`~fastload.remote.store.Store`."""
        if self.head(path) is None:
            raise ObjectMissing(f"{self.root / path} does not exist.")
        try:
            return self.core().get(path, begin, end, most)
        except RemoteError:
            raise
        except ShardError as error:
            raise RemoteError(str(error)) from error

    def list(self, prefix: str) -> Iterator[Listed]:
        """See :class:`~fastload.remote.store.Store`. The Hub lists folders; other paths are filtered out."""
        folder = prefix.rpartition("/")[0]
        if folder not in self._listed:
            commit = self.commit
            api = huggingface_hub.HfApi(self._endpoint, token=self._token)

            def tree() -> list[Listed]:
                entries = api.list_repo_tree(
                    self._repo, folder or None, recursive=True, revision=commit, repo_type="dataset"
                )
                return [Listed(each.path, int(each.size)) for each in entries if hasattr(each, "size")]

            try:
                self._listed[folder] = sorted(self._ask("listed", prefix, tree), key=lambda each: each.path)
            except ObjectMissing:
                self._listed[folder] = []
        yield from (each for each in self._listed[folder] if each.path.startswith(prefix))

    def put(self, path: str, data: bytes, *, if_absent: bool = False) -> bool:
        """Raise: the Hub is read-only here."""
        raise self._read_only()

    def upload(self, path: str, file: Path) -> None:
        """Raise: the Hub is read-only here."""
        raise self._read_only()

    def delete(self, path: str) -> None:
        """Raise: the Hub is read-only here."""
        raise self._read_only()

    def core(self, paths: Sequence[str] = ()) -> _C.RemoteStore:
        """See :class:`~fastload.remote.store.Store`. Each path's address is requested at first use."""
        with self._lock.held():
            if self._made is None:
                headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
                self._made = _C.RemoteStore(
                    self._endpoint,
                    str(self.root),
                    signing="presigned",
                    headers=list(checked_headers(headers).items()),
                    renew=partial(_renew, weakref.ref(self)),
                    warn=warn_of_store,
                )
            return self._made

    def _resolve(self, path: str) -> None:
        """Ask the Hub for the address of a path's bytes.

        Raises:
            ObjectMissing: the file does not exist.
            RemoteError: the Hub does not answer.
        """
        url = huggingface_hub.hf_hub_url(
            self._repo, path, repo_type="dataset", revision=self.commit, endpoint=self._endpoint
        )
        ask = partial(huggingface_hub.get_hf_file_metadata, url, token=self._token)
        facts = self._ask("read", path, ask)
        if facts.size is None:
            raise RemoteError(f"{self.root / path} cannot be read: the Hub does not report its size.")
        self.core().set_urls({path: facts.location})
        self._found[path] = Facts(int(facts.size), str(facts.etag or ""))

    def _ask(self, what: str, path: str, call: Callable[[], Result]) -> Result:
        """Call the Hub; retry temporary failures, at the times that the Hub names."""
        began, tries = time.monotonic(), 0
        place = self.root / path if path else self.root
        while True:
            try:
                return call()
            except _FAILURES as error:
                missing = isinstance(error, errors.EntryNotFoundError)
                if missing and not isinstance(error, errors.LocalEntryNotFoundError):
                    raise ObjectMissing(f"{place} does not exist.") from error
                tries += 1
                pause = _pause(error, tries)
                spent = time.monotonic() - began
                if pause is None or tries >= _TRIES or spent + pause > _PATIENCE:
                    reason = f"{_first_line(error)} ({tries} tries in {spent:.1f} s)" if tries > 1 else ""
                    raise RemoteError(
                        f"{place} cannot be {what}: {reason or _first_line(error)}.{self._advice(error)}"
                    ) from error
                time.sleep(pause)

    def _advice(self, error: Exception) -> str:
        """Return what to do about an error of the Hub."""
        page = f"{self._endpoint}/datasets/{self._repo}"
        token = "a token (HF_TOKEN, 'hf auth login', or storage_options={'token': ...})"
        if isinstance(error, errors.GatedRepoError):
            return f" It is gated: accept its conditions on {page}, and pass {token}."
        if isinstance(error, errors.RepositoryNotFoundError):
            return f" There is no such dataset on the Hub, or it is private, and needs {token}."
        if isinstance(error, errors.RevisionNotFoundError):
            return f" It has no revision {self._revision or 'main'!r}."
        if isinstance(error, errors.OfflineModeIsEnabled):
            return " Unset HF_HUB_OFFLINE."
        status = getattr(getattr(error, "response", None), "status_code", 0)
        return f" Pass {token} that may read it." if status in (401, 403) else ""

    def _read_only(self) -> RemoteError:
        return RemoteError(
            f"{self.root} cannot be written to: the Hub is read only here. Pack into a folder, and upload "
            "that: 'hf upload OWNER/NAME FOLDER --repo-type dataset'."
        )

    def renew(self, path: str) -> None:
        """Get a path's address, or a new one if it has expired."""
        self._resolve(path)


def _renew(store: weakref.ref[HubStore], path: str) -> None:
    """Renew an address, without a reference from the core's store to this one, whose addresses it has."""
    owner = store()
    if owner is not None:
        owner.renew(path)


def _pause(error: Exception, tries: int) -> float | None:
    """Return the seconds until a call may be retried; None: never."""
    response = getattr(error, "response", None)
    if response is None:
        passes = isinstance(error, OSError) and not isinstance(error, errors.OfflineModeIsEnabled)
        passes = passes or type(error).__module__.partition(".")[0] in ("httpx", "httpx2", "requests")
        return float(min(0.25 * 2**tries, 5.0)) if passes else None
    if response.status_code not in _AGAIN:
        return None
    wait = str(response.headers.get("retry-after", ""))
    rate = _RATE.search(str(response.headers.get("ratelimit", "")))
    least = float(wait) if wait.isdigit() else float(rate[1]) if rate else 0.0
    return float(max(least, min(0.25 * 2**tries, 5.0)))


def _first_line(error: BaseException) -> str:
    """Return an error's first line: huggingface_hub's messages have many."""
    return (str(error).strip().partition("\n")[0] or type(error).__name__).rstrip(".")
