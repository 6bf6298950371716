"""``s3://``: AWS and compatible servers, through botocore, with errors that say what to do."""

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
from fastload.remote.options import S3Options, StorageOptions
from fastload.remote.store import Facts, Listed, warn_of_store

# ---- Messages for failures of S3 and botocore ----

_KEYS = "Check key and secret (storage_options, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile)."
_RIGHTS = "These credentials do not permit that: check the bucket policy, or pass others."
_REGION = "The bucket is in another region: pass it as storage_options={'region': ...}."
_ADVICE = {
    "NoSuchBucket": "No such bucket: check its name, region and endpoint_url.",
    "AccessDenied": _RIGHTS,
    "403": _RIGHTS,
    "Forbidden": _RIGHTS,
    "AllAccessDisabled": _RIGHTS,
    "InvalidAccessKeyId": _KEYS,
    "SignatureDoesNotMatch": _KEYS,
    "ExpiredToken": "The credentials have expired: get new ones, or pass a profile that renews them.",
    "InvalidToken": "The session token is not valid: pass the one that belongs to key and secret.",
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
    """Return botocore's error as one of ours.

    Args:
        location: what was accessed.
        what: what failed: "read", "written".
    """
    response: dict[str, Any] = getattr(error, "response", None) or {}
    details = response.get("Error", {})
    code, region = str(details.get("Code", "")), _region(response)
    if code in _MISSING:
        return ObjectMissing(f"{location} does not exist.")
    if response:
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", "?")
        answer = f"the store answers {status} {code}".rstrip()
        if details.get("Message") and details["Message"] != code:
            answer += f" ({details['Message']})"
        advice = _ADVICE.get(code) or _ADVICE.get(str(status), "")
        if region and advice == _REGION:
            advice = (
                f"The bucket is in region {region!r}: pass it as storage_options={{'region': {region!r}}}."
            )
    else:
        answer, advice = _of_botocore(error)
    return RemoteError(f"{location} cannot be {what}: {answer}.{' ' + advice if advice else ''}")


def _region(response: dict[str, Any]) -> str:
    headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return str(headers.get("x-amz-bucket-region") or response.get("Error", {}).get("Region") or "")


def _of_botocore(error: Exception) -> tuple[str, str]:
    """Return what happened before an answer came, and what to do."""
    name, text = type(error).__name__, str(error).rstrip(".")
    if name in ("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"):
        return (
            f"{text} (looked in storage_options, the environment, the profile, SSO and the machine's role)",
            "Pass key and secret as storage_options=, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a "
            "profile; storage_options={'anon': True} reads public data.",
        )
    if name == "ProfileNotFound":
        return text, "Check ~/.aws/config, storage_options['profile'] and AWS_PROFILE."
    if "SSO" in name or "Token" in name:
        return text, "Log in again: aws sso login."
    if name in ("EndpointConnectionError", "ConnectTimeoutError", "ConnectionClosedError"):
        return text, "Check endpoint_url, and that this machine can reach it."
    return text, ""


# ---- The store (the core reads records' bytes) ----

try:
    import botocore.config
    import botocore.exceptions
    import botocore.session
except ImportError as error:
    raise library_missing("botocore", "s3://", error) from error

_ERRORS = (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError)
_LARGE = 64 << 20  # larger files are uploaded in parts
_PART = 16 << 20  # each thread has one in memory
_MOST_PARTS = 10_000  # per object: S3's limit
_THREADS = 4
_ATTEMPTS = 6
_ANY = "any"  # a placeholder for an object's name
_RENEWAL_SECONDS = 5.0  # minimum time between renewals of credentials
Result = TypeVar("Result")


class S3Store:
    """A bucket.

    Args:
        root: ``s3://BUCKET``.
        storage_options: see :class:`~fastload.remote.options.S3Options`.

    Raises:
        ValueError, TypeError: an option is unknown or has an invalid value.
    """

    def __init__(self, root: Location, storage_options: Mapping[str, Any] | None = None) -> None:
        self.root = root
        self._given = StorageOptions(storage_options)
        self._options = S3Options.parse(self._given)
        self._made: tuple[int, Any] | None = None  # process id, client
        self._core: tuple[int, _C.RemoteStore] | None = None
        self._renewed = 0.0  # when credentials were last renewed
        self._lock = ForkSafeLock()

    def __reduce__(self) -> Any:
        return S3Store, (self.root, self._given)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.root)!r})"

    @property
    def _client(self) -> Any:
        """This process's botocore client: a forked child must not use its parent's connections."""
        client = self._made
        if client is None or client[0] != os.getpid():
            with self._lock.held():
                client = self._made  # perhaps created by another thread: a client takes a while
                if client is None or client[0] != os.getpid():
                    client = self._made = os.getpid(), self._new_client()
        return client[1]

    def _session(self) -> Any:
        """Return a new session, which reads a credentials file that was changed meanwhile."""
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
                # Many compatible stores do not support checksums in trailers, the default.
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
            facts = core.head(path)
        except ShardError as error:
            raise self._in_words(error, "looked at", path) from error
        return None if facts is None else Facts(*facts)

    def get(self, path: str, begin: int = 0, end: int | None = None, most: int | None = None) -> bytes:
        """See :class:`~fastload.remote.store.Store`."""
        core = self.core()
        try:
            return core.get(path, begin, end, most)
        except ShardError as error:
            raise self._in_words(error, "read", path) from error

    def _in_words(self, error: ShardError, what: str, path: str) -> RemoteError:
        """Translate the core's error. If the store refused, botocore asks again for its reason; a store that
        has not answered for long is not asked again."""
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
        """Upload several parts at once; if one fails, remove those already uploaded."""
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
            # The first error says more than an error here.
            with contextlib.suppress(*_ERRORS):
                self._client.abort_multipart_upload(**to)
            raise

    def delete(self, path: str) -> None:
        """See :class:`~fastload.remote.store.Store`."""
        self._ask("removed", path, partial(self._client.delete_object, Bucket=self.root.host, Key=path))

    def core(self, paths: Sequence[str] = ()) -> _C.RemoteStore:
        """See :class:`~fastload.remote.store.Store`."""
        core = self._core
        if core is None or core[0] != os.getpid():
            with self._lock.held():
                core = self._core
                if core is None or core[0] != os.getpid():
                    base, region = self._base_and_region()
                    check_reach(base, str(self.root), "Check endpoint_url and region.")
                    core = self._core = os.getpid(), self._new_core(base, region)
        return core[1]

    def _base_and_region(self) -> tuple[str, str]:
        """Return the bucket's address, and the region for which requests are signed."""
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
        """Return the bucket's region, which AWS names in every answer, even a refusal."""
        try:
            response = client.head_bucket(Bucket=self.root.host)
        except botocore.exceptions.ClientError as error:
            response = error.response
        except botocore.exceptions.BotoCoreError as error:
            raise in_words(error, self.root, "opened") from error
        headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        return str(headers.get("x-amz-bucket-region") or client.meta.region_name)

    def _credentials(self) -> tuple[str, str, str]:
        """Return the current key, secret and token."""
        options = self._options
        if options.anon:
            return "", "", ""
        if options.key is not None:
            return options.key, options.secret or "", options.token or ""
        try:
            credentials = self._session().get_credentials()
            if credentials is None:
                raise botocore.exceptions.NoCredentialsError
            now = credentials.get_frozen_credentials()
        except botocore.exceptions.BotoCoreError as error:
            raise in_words(error, self.root, "opened") from error
        return now.access_key, now.secret_key, now.token or ""

    def renew(self) -> None:
        """Look for new credentials after a refusal. Threads that arrive meanwhile wait and share them."""
        with self._lock.held():
            if self._core is None or time.monotonic() - self._renewed < _RENEWAL_SECONDS:
                return
            self._core[1].set_credentials(*self._credentials())
            self._renewed = time.monotonic()


def _renew(store: weakref.ref[S3Store], path: str) -> None:
    """Renew credentials, without a reference from the core's store to this one, whose credentials it has."""
    owner = store()
    if owner is not None:
        owner.renew()


def _url_of_object(client: Any, bucket: str) -> str:
    """Return an object's address, as botocore makes it from region, endpoint and style."""
    named = {"Bucket": bucket, "Key": _ANY}
    return str(client.generate_presigned_url("get_object", Params=named))


def _code(error: RemoteError) -> str:
    """Return S3's code for an error."""
    response = getattr(error.__cause__, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))
