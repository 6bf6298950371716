"""What S3 and botocore say of a failure, in words that say what to do."""

from __future__ import annotations

from typing import Any

from fastload.errors import ObjectMissing, RemoteError
from fastload.remote.location import Location

__all__ = ["in_words"]

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
