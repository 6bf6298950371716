"""``gs://`` and ``az://``: Google's and Azure's stores, through obstore; the core reads the records' bytes.

The core reads from addresses that obstore has signed or that carry the user's shared access signature (SAS),
so it knows neither store's protocol. obstore hangs in a forked child of a process that has used it, so such a
child raises an error instead; addresses signed before the fork work there too.
"""

from __future__ import annotations

import base64
import datetime
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlencode, urlsplit

from fastload._native import _C
from fastload.errors import LocationError, ObjectMissing, RemoteError, ShardError, StateError
from fastload.extras import library_missing
from fastload.machine.threads import ForkSafeLock
from fastload.remote.location import Location
from fastload.remote.options import StorageOptions, unknown_options
from fastload.remote.store import Facts, Listed, warn_of_store

try:
    import obstore
    import obstore.exceptions
    import obstore.store
except ImportError as error:
    raise library_missing("obstore", "gs:// or az://", error) from error

_VALID = datetime.timedelta(hours=12)  # of a signed address; it is signed anew when the store denies it
_RETRIES: Any = {"max_retries": 5, "retry_timeout": datetime.timedelta(seconds=60)}
_CLASSES = {"gs": "GCSStore", "az": "AzureStore"}
_GOOGLE = "https://storage.googleapis.com"
_SAS = ("sas_token", "sas_key")  # with or without "azure_storage_", as in obstore
_KEYS = ("account_key", "access_key", "master_key")
_ADVICE = {
    "PermissionDeniedError": " These credentials do not permit that, or there is no such bucket.",
    "UnauthenticatedError": " Check the credentials in storage_options and in the environment.",
}
_used_in: set[int] = set()  # ids of processes
Result = TypeVar("Result")


class CloudStore:
    """A bucket of Google's or a container of Azure's.

    Args:
        root: ``gs://BUCKET`` or ``az://CONTAINER``.
        storage_options: obstore's configuration by name (``service_account_path``, ``account_name``,
            ``account_key``, ``sas_token``, ...), and ``anon``. Other settings come from where Google's and
            Azure's own programs look.

    Raises:
        LocationError: an option is unknown or has an invalid value.
    """

    def __init__(self, root: Location, storage_options: Mapping[str, Any] | None = None) -> None:
        self.root = root
        self._given = StorageOptions(storage_options)
        config = {name: value for name, value in self._given.items() if value is not None}
        self._anon = config.pop("anon", False) in (True, "true", "True", "1")
        if self._anon:
            config["skip_signature"] = "true"
        self._store = self._new_store(config)
        self._config = config
        self._sas = "" if root.scheme != "az" or self._anon else _sas_of(config)
        self._address = ""
        self._made: _C.RemoteStore | None = None
        self._signed: set[str] = set()
        self._lock = ForkSafeLock()

    def __reduce__(self) -> Any:
        return type(self), (self.root, self._given)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.root)!r})"

    def _new_store(self, config: dict[str, Any]) -> Any:
        try:
            made = getattr(obstore.store, _CLASSES[self.root.scheme])
            return made(self.root.host, config=config, retry_config=_RETRIES)
        except obstore.exceptions.UnknownConfigurationKeyError as error:
            unknown = next((name for name in config if repr(name) in str(error)), "?")
            legal = "anon, and what obstore's configuration has (account_name, service_account_path, ...)"
            raise unknown_options(self.root.scheme, unknown, legal) from None
        except obstore.exceptions.BaseError as error:
            raise LocationError(f"{self.root} cannot be opened: {_first_line(error)}.") from None

    def _ask(self, what: str, path: str, call: Callable[[], Result]) -> Result:
        place = self.root / path if path else self.root
        if os.getpid() not in _used_in and _used_in:
            raise StateError(
                f"{place} cannot be {what} here: obstore, which does it, hangs in a forked process. Use the "
                "start method 'spawn' or 'forkserver' (multiprocessing_context=)."
            )
        _used_in.add(os.getpid())
        try:
            return call()
        except (FileNotFoundError, obstore.exceptions.NotFoundError) as error:
            raise ObjectMissing(f"{place} does not exist.") from error
        except (obstore.exceptions.BaseError, PermissionError) as error:
            advice = _ADVICE.get(type(error).__name__, "")
            raise RemoteError(f"{place} cannot be {what}: {_first_line(error)}.{advice}") from error

    def head(self, path: str) -> Facts | None:
        """See :class:`~fastload.remote.store.Store`."""
        try:
            facts = self._ask("looked at", path, partial(obstore.head, self._store, path))
        except ObjectMissing:
            return None
        return Facts(int(facts["size"]), str(facts["e_tag"] or ""))

    def get(self, path: str, begin: int = 0, end: int | None = None, most: int | None = None) -> bytes:
        """See :class:`~fastload.remote.store.Store`."""
        core = self.core((path,))
        try:
            return core.get(path, begin, end, most)
        except ObjectMissing as error:
            raise ObjectMissing(f"{self.root / path} does not exist.") from error
        except ShardError as error:
            raise RemoteError(str(error)) from error

    def list(self, prefix: str) -> Iterator[Listed]:
        """See :class:`~fastload.remote.store.Store`. obstore lists folders; other paths are filtered out."""
        folder = prefix.rpartition("/")[0]
        objects = self._ask("listed", prefix, lambda: obstore.list(self._store, folder or None).collect())
        for each in sorted(objects, key=lambda each: str(each["path"])):
            if str(each["path"]).startswith(prefix):
                yield Listed(str(each["path"]), int(each["size"]))

    def put(self, path: str, data: bytes, *, if_absent: bool = False) -> bool:
        """See :class:`~fastload.remote.store.Store`."""
        mode: Any = "create" if if_absent else "overwrite"

        def call() -> bool:
            try:
                obstore.put(self._store, path, data, mode=mode)
            except (FileExistsError, obstore.exceptions.AlreadyExistsError):
                if not if_absent:
                    raise
                return False
            return True

        return self._ask("written", path, call)

    def upload(self, path: str, file: Path) -> None:
        """See :class:`~fastload.remote.store.Store`."""
        try:
            with open(file, "rb") as opened:
                self._ask("written", path, partial(obstore.put, self._store, path, opened))
        except OSError as error:
            if isinstance(error, RemoteError):
                raise
            raise RemoteError(f"{file} cannot be uploaded to {self.root / path}: {error}.") from error

    def delete(self, path: str) -> None:
        """See :class:`~fastload.remote.store.Store`."""
        try:
            self._ask("removed", path, partial(obstore.delete, self._store, path))
        except ObjectMissing:
            return

    def core(self, paths: Sequence[str] = ()) -> _C.RemoteStore:
        """See :class:`~fastload.remote.store.Store`."""
        with self._lock.held():
            if self._made is None:
                self._made = self._new_core()
            new = [] if self._anon else [path for path in paths if path not in self._signed]
            if new:
                self._made.set_urls(self._signed_urls(new))
                self._signed.update(new)
            return self._made

    def _new_core(self) -> _C.RemoteStore:
        if self._anon:
            return _C.RemoteStore(self._base(), str(self.root), signing="none", warn=warn_of_store)
        renew = partial(_renew, weakref.ref(self))
        # The addresses are absolute: the base only limits where headers go, and there are none.
        base = f"{self.root.scheme}://{self.root.host}"
        return _C.RemoteStore(base, str(self.root), signing="presigned", renew=renew, warn=warn_of_store)

    def _base(self) -> str:
        """Return the bucket's address. For Azure, obstore makes it from account, endpoint and emulator: any
        signed address starts with it, whatever the key."""
        if self.root.scheme == "gs":
            return f"{_GOOGLE}/{self.root.host}"
        if not self._address:
            other = {name: value for name, value in self._config.items() if name != "skip_signature"}
            config: Any = {**other, "account_key": base64.b64encode(b"any").decode()}
            store = obstore.store.AzureStore(self.root.host, config=config)
            url = self._ask("opened", "", partial(obstore.sign, store, "GET", "x", _VALID))
            self._address = urlsplit(url)._replace(query="").geturl().removesuffix("/x")
        return self._address

    def _signed_urls(self, paths: Sequence[str]) -> dict[str, str]:
        if self._sas:  # a SAS is already a signature
            return {path: f"{self._base()}/{quote(path, safe='/-._~')}?{self._sas}" for path in paths}
        sign = partial(obstore.sign, self._store, "GET", list(paths), _VALID)
        return dict(zip(paths, self._ask("signed", paths[0], sign), strict=True))

    def renew(self, path: str) -> None:
        """Sign a path's address anew."""
        core = self.core()
        if not self._anon:
            core.set_urls(self._signed_urls([path]))


def _sas_of(config: Mapping[str, Any]) -> str:
    """Return the SAS from the options or environment, as a query; "" if there is none or a key signs."""
    settings = {name.lower().removeprefix("azure_storage_"): str(value) for name, value in config.items()}
    around = {name: os.environ.get(f"AZURE_STORAGE_{name.upper()}", "") for name in (*_SAS, *_KEYS)}
    if any(map(settings.get, _KEYS)):
        return ""
    token = next(filter(None, map(settings.get, _SAS)), "")
    if not token and not any(map(around.get, _KEYS)):
        token = next(filter(None, map(around.get, _SAS)), "")
    pairs = [pair.partition("=") for pair in unquote(token).lstrip("?").split("&") if pair]
    return urlencode([(name, value) for name, _, value in pairs], quote_via=quote, safe="")


def _renew(store: weakref.ref[CloudStore], path: str) -> None:
    """Renew an address, without a reference from the core's store to this one, whose addresses it has."""
    owner = store()
    if owner is not None:
        owner.renew(path)


def _first_line(error: BaseException) -> str:
    """Return an error's first line: obstore's messages end with debugging details."""
    return str(error).partition("\n")[0].rstrip(".")
