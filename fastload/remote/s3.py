"""``s3://``: AWS and servers of its protocol, by botocore, with errors that say what to do."""

from __future__ import annotations

import contextlib
import os
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from fastload._native import _C
from fastload.errors import ObjectMissing, RemoteError, ShardError
from fastload.extras import library_missing
from fastload.machine.paths import read_at
from fastload.machine.threads import ForkSafeLock
from fastload.remote.http import check_reach
from fastload.remote.location import Location
from fastload.remote.opening import S3Options, StorageOptions
from fastload.remote.store import Facts, Listed, warn_of_store

# ---- What S3 and botocore say of a failure, in words that say what to do ----------------------------

_KEYS = (
    "Look at key and secret (storage_options, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile)."
)
_RIGHTS = "These credentials may not do that: look at the bucket's policy, or give others."
_REGION = "The bucket is in another region: give it as storage_options={'region': ...}."
_ADVICE = {
    "NoSuchBucket": "There is no such bucket there: look at its name, region and endpoint_url.",
    "AccessDenied": _RIGHTS,
    "403": _RIGHTS,
    "Forbidden": _RIGHTS,
    "AllAccessDisabled": _RIGHTS,
    "InvalidAccessKeyId": _KEYS,
    "SignatureDoesNotMatch": _KEYS,
    "ExpiredToken": "The credentials have expired: get new ones, or give a profile that renews them.",
    "InvalidToken": "The session token is not valid: give the one that belongs to key and secret.",
    "RequestTimeTooSkewed": "This machine's clock is wrong: set it (timedatectl).",
    "AuthorizationHeaderMalformed": _REGION,
    "PermanentRedirect": _REGION,
    "301": _REGION,
    "IllegalLocationConstraintException": _REGION,
    "InvalidObjectState": "It is archived: restore it first.",
    "SlowDown": "The store asks for fewer requests, and did so until the attempts were used up.",
}
_MISSING = ("NoSuchKey", "404", "NotFound")


def in_words(error: Exception, location: Location, what: str) -> RemoteError:
    """botocore's error as ours.

    Args:
        location: of what.
        what: what it cannot be: "read", "written".
    """
    response: dict[str, Any] = getattr(error, "response", None) or {}
    said = response.get("Error", {})
    code, region = str(said.get("Code", "")), _region(response)
    if code in _MISSING:
        return ObjectMissing(f"{location} does not exist.")
    if response:
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", "?")
        answer = f"the store answers {status} {code}".rstrip()
        if said.get("Message") and said["Message"] != code:
            answer += f" ({said['Message']})"
        advice = _ADVICE.get(code) or _ADVICE.get(str(status), "")
        if region and advice == _REGION:
            advice = (
                f"The bucket is in region {region!r}: give it as storage_options={{'region': {region!r}}}."
            )
    else:
        answer, advice = _of_botocore(error)
    return RemoteError(f"{location} cannot be {what}: {answer}.{' ' + advice if advice else ''}")


def _region(response: dict[str, Any]) -> str:
    headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return str(headers.get("x-amz-bucket-region") or response.get("Error", {}).get("Region") or "")


def _of_botocore(error: Exception) -> tuple[str, str]:
    """What happened before an answer came, and what to do."""
    name, text = type(error).__name__, str(error).rstrip(".")
    if name in ("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"):
        return (
            f"{text} (looked in storage_options, the environment, the profile, SSO and the machine's role)",
            "Give key and secret as storage_options=, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a "
            "profile; storage_options={'anon': True} reads what is public.",
        )
    if name == "ProfileNotFound":
        return text, "Look into ~/.aws/config, or at storage_options['profile'] and AWS_PROFILE."
    if "SSO" in name or "Token" in name:
        return text, "Log in again: aws sso login."
    if name in ("EndpointConnectionError", "ConnectTimeoutError", "ConnectionClosedError"):
        return text, "Look at endpoint_url, and whether this machine reaches it."
    return text, ""


# ---- ``s3://`` --------------------------------------------------------------------------------------
# AWS and what speaks its protocol, by botocore; bytes of records are read by the core.

try:
    import botocore.config
    import botocore.exceptions
    import botocore.session
except ImportError as error:
    raise library_missing("botocore", "s3://", error) from error

_ERRORS = (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError)
_LARGE = 64 << 20  # files from here on are uploaded in parts
_PART = 16 << 20  # as many at once as there are threads are in memory
_MOST_PARTS = 10_000  # of an object: S3's rule
_THREADS = 4
_ATTEMPTS = 6
_ANY = "any"  # an object's name
_RENEWAL_SECONDS = 5.0  # credentials are looked for again at most so often
Result = TypeVar("Result")


class S3Store:
    """A bucket.

    Args:
        root: ``s3://BUCKET``.
        storage_options: see :class:`~fastload.remote.opening.S3Options`.

    Raises:
        ValueError, TypeError: options that have no meaning.
    """

    def __init__(self, root: Location, storage_options: Mapping[str, Any] | None = None) -> None:
        self.root = root
        self._given = StorageOptions(storage_options)
        self._options = S3Options.parse(self._given)
        self._made: tuple[int, Any] | None = None  # process id, client
        self._core: tuple[int, _C.RemoteStore] | None = None
        self._renewed = 0.0  # when other credentials were looked for
        self._lock = ForkSafeLock()

    def __reduce__(self) -> Any:
        return S3Store, (self.root, self._given)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.root)!r})"

    @property
    def _client(self) -> Any:
        """botocore's, of this process: a forked child must not use its parent's connections."""
        made = self._made
        if made is None or made[0] != os.getpid():
            with self._lock.held():
                made = self._made  # another thread's, perhaps: a client takes a while
                if made is None or made[0] != os.getpid():
                    made = self._made = os.getpid(), self._new_client()
        return made[1]

    def _session(self) -> Any:
        """Anew each time: a file of credentials that was changed meanwhile is read again."""
        return botocore.session.Session(profile=self._options.profile)

    def _new_client(self, region: str | None = None) -> Any:
        options = self._options
        try:
            session = self._session()
            style = options.addressing_style or ("path" if options.endpoint_url else "auto")
            config = botocore.config.Config(
                signature_version=botocore.UNSIGNED if options.anon else None,
                s3={"addressing_style": style},
                retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
                connect_timeout=10,
                read_timeout=60,
                max_pool_connections=4 * _THREADS,
                # Checksums in trailers, the default, are unknown to many a compatible store.
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            )
            return session.create_client(
                "s3",
                region_name=region or options.region,
                endpoint_url=options.endpoint_url,
                aws_access_key_id=options.key,
                aws_secret_access_key=options.secret,
                aws_session_token=options.token,
                verify=options.ca_file,
                config=config,
            )
        except (botocore.exceptions.BotoCoreError, ValueError) as error:
            raise in_words(error, self.root, "opened") from error

    def _ask(self, what: str, path: str, call: Callable[[], Result]) -> Result:
        try:
            return call()
        except _ERRORS as error:
            raise in_words(error, self.root / path if path else self.root, what) from error

    def head(self, path: str) -> Facts | None:
        """See :class:`~fastload.remote.store.Store`."""
        core = self.core()
        try:
            found = core.head(path)
        except ShardError as error:
            raise self._in_words(error, "looked at", path) from error
        return None if found is None else Facts(*found)

    def get(self, path: str, begin: int = 0, end: int | None = None, most: int | None = None) -> bytes:
        """See :class:`~fastload.remote.store.Store`."""
        core = self.core()
        try:
            return core.get(path, begin, end, most)
        except ShardError as error:
            raise self._in_words(error, "read", path) from error

    def _in_words(self, error: ShardError, what: str, path: str) -> RemoteError:
        """The core's error. Where the store has said no, what it says of the object now, as botocore
        understands that; a store that has not answered for long is not asked once more."""
        if isinstance(error, RemoteError):
            asked = {"Bucket": self.root.host, "Key": path, "Range": "bytes=0-0"}
            try:
                self._ask(what, path, partial(self._client.get_object, **asked))
            except RemoteError as words:
                return words
        return RemoteError(str(error))

    def list(self, prefix: str) -> Iterator[Listed]:
        """See :class:`~fastload.remote.store.Store`."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.root.host, Prefix=prefix)
        ending = object()
        each = iter(pages)
        while True:
            page: Any = self._ask("listed", prefix, lambda: next(each, ending))
            if page is ending:
                return
            for found in page.get("Contents", ()):
                yield Listed(found["Key"], int(found["Size"]))

    def put(self, path: str, data: bytes, *, if_absent: bool = False) -> bool:
        """See :class:`~fastload.remote.store.Store`."""
        condition = {"IfNoneMatch": "*"} if if_absent else {}
        call = partial(self._client.put_object, Bucket=self.root.host, Key=path, Body=data, **condition)
        try:
            self._ask("written", path, call)
        except RemoteError as error:
            if if_absent and _code(error) in ("PreconditionFailed", "412", "ConditionalRequestConflict"):
                return False
            raise
        return True

    def upload(self, path: str, file: Path) -> None:
        """See :class:`~fastload.remote.store.Store`."""
        try:
            size = file.stat().st_size
            if size < _LARGE:
                self.put(path, file.read_bytes())
                return
            with open(file, "rb") as opened:
                self._upload_parts(path, opened.fileno(), size)
        except OSError as error:
            if isinstance(error, RemoteError):
                raise
            raise RemoteError(f"{file} cannot be uploaded to {self.root / path}: {error}.") from error

    def _upload_parts(self, path: str, descriptor: int, size: int) -> None:
        """Several parts at once; what has been taken of them is removed if one fails."""
        to = {"Bucket": self.root.host, "Key": path}
        begun = self._ask("written", path, partial(self._client.create_multipart_upload, **to))
        to |= {"UploadId": begun["UploadId"]}
        part = max(_PART, -(-size // _MOST_PARTS))

        def send(number: int) -> dict[str, Any]:
            data = read_at(descriptor, part, (number - 1) * part)
            call = partial(self._client.upload_part, PartNumber=number, Body=data, **to)
            return {"PartNumber": number, "ETag": self._ask("written", path, call)["ETag"]}

        try:
            with ThreadPoolExecutor(_THREADS, "upload") as pool:
                try:
                    parts = [*pool.map(send, range(1, -(-size // part) + 1))]
                except BaseException:
                    pool.shutdown(cancel_futures=True)
                    raise
            call = partial(self._client.complete_multipart_upload, MultipartUpload={"Parts": parts}, **to)
            self._ask("written", path, call)
        except BaseException:
            # The first error says more than one here would.
            with contextlib.suppress(*_ERRORS):
                self._client.abort_multipart_upload(**to)
            raise

    def delete(self, path: str) -> None:
        """See :class:`~fastload.remote.store.Store`."""
        self._ask("removed", path, partial(self._client.delete_object, Bucket=self.root.host, Key=path))

    def core(self, paths: Sequence[str] = ()) -> _C.RemoteStore:
        """See :class:`~fastload.remote.store.Store`."""
        made = self._core
        if made is None or made[0] != os.getpid():
            with self._lock.held():
                made = self._core
                if made is None or made[0] != os.getpid():
                    base, region = self._base_and_region()
                    check_reach(base, str(self.root), "Look at endpoint_url and region.")
                    made = self._core = os.getpid(), self._new_core(base, region)
        return made[1]

    def _base_and_region(self) -> tuple[str, str]:
        """The bucket's address, and what requests are signed for."""
        options = self._options
        if options.endpoint_url and options.region and options.addressing_style != "virtual":
            return f"{options.endpoint_url.rstrip('/')}/{self.root.host}", options.region
        client = self._client
        url = self._ask("opened", "", partial(_url_of_object, client, self.root.host))
        region = client.meta.region_name
        if urlsplit(url).netloc.endswith(".amazonaws.com"):
            region = self._bucket_region(client)
            if region != client.meta.region_name:
                client = self._new_client(region)
                url = self._ask("opened", "", partial(_url_of_object, client, self.root.host))
        base = urlsplit(url)._replace(query="").geturl().removesuffix("/" + _ANY)
        return base, region or "us-east-1"

    def _new_core(self, base: str, region: str) -> _C.RemoteStore:
        key, secret, token = self._credentials()
        return _C.RemoteStore(
            base,
            str(self.root),
            signing="none" if self._options.anon else "sigv4",
            region=region,
            access_key=key,
            secret_key=secret,
            token=token,
            ca_file=self._options.ca_file or self._session().get_config_variable("ca_bundle") or "",
            renew=partial(_renew, weakref.ref(self)),
            warn=warn_of_store,
        )

    def _bucket_region(self, client: Any) -> str:
        """AWS says it in every answer about a bucket, also in one that denies."""
        try:
            found = client.head_bucket(Bucket=self.root.host)
        except botocore.exceptions.ClientError as error:
            found = error.response
        except botocore.exceptions.BotoCoreError as error:
            raise in_words(error, self.root, "opened") from error
        headers = found.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        return str(headers.get("x-amz-bucket-region") or client.meta.region_name)

    def _credentials(self) -> tuple[str, str, str]:
        """Key, secret and token as they are found now."""
        options = self._options
        if options.anon:
            return "", "", ""
        if options.key is not None:
            return options.key, options.secret or "", options.token or ""
        try:
            found = self._session().get_credentials()
            if found is None:
                raise botocore.exceptions.NoCredentialsError
            now = found.get_frozen_credentials()
        except botocore.exceptions.BotoCoreError as error:
            raise in_words(error, self.root, "opened") from error
        return now.access_key, now.secret_key, now.token or ""

    def renew(self) -> None:
        """Look for other credentials: a request was denied. Who reads at the same time waits, and needs no
        others then."""
        with self._lock.held():
            if self._core is None or time.monotonic() - self._renewed < _RENEWAL_SECONDS:
                return
            self._core[1].set_credentials(*self._credentials())
            self._renewed = time.monotonic()


def _renew(store: weakref.ref[S3Store], path: str) -> None:
    """The core's store has this one's credentials, but must not keep it."""
    found = store()
    if found is not None:
        found.renew()


def _url_of_object(client: Any, bucket: str) -> str:
    """The address of an object: host and path as botocore makes them of region, endpoint and style."""
    named = {"Bucket": bucket, "Key": _ANY}
    return str(client.generate_presigned_url("get_object", Params=named))


def _code(error: RemoteError) -> str:
    """S3's own word for an error."""
    response = getattr(error.__cause__, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))
