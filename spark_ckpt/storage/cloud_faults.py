"""What an error of obstore means for a request to Google Cloud Storage or Azure: try again or not, could it have happened, what to tell.

obstore gives an error as text alone: a sentence, and below it all that the client knows, field by field. What is looked for are those
fields, and the code in the server's answer. What has none of them is taken for a lost answer, of which nothing is believed. The text itself
is never told: it holds addresses, and what the server said.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore

from spark_ckpt.errors import StorageSetupError, without_password
from spark_ckpt.storage.attempts import Fault, Place

T = TypeVar("T")

_FIELDS = "Debug source:"
_BODY = re.compile(r"\bbody: ")
_STATUS = re.compile(r"\bstatus: (\d{3})\b|\bDeleteFailed \{[^}]*?\bcode: \"(\d{3})\"")
_METHOD = re.compile(r"\bmethod: ([A-Z]+)\b")
_SENT_AGAIN = re.compile(r"\bretries: [1-9]")
_HTTP = re.compile(r"\bHttpError \{\s*kind: (\w+)")
_CONNECTING = re.compile(r"\blegacy::Error\(\s*Connect\b")
_CAUSE = re.compile(r"\bkind: (Connection\w+|HostUnreachable|NetworkUnreachable|TimedOut)\b")
_TLS = re.compile(r"\bInvalidCertificate\(\s*(\w+)|\b(InvalidContentType|AlertReceived)\b")
_DNS = re.compile(r"\bdns error\b")
_CREDENTIALS = re.compile(
    r"\b(TokenRequest|TokenResponseBody|OpenCredentials|DecodeCredentials|MissingKey|InvalidKey|InvalidAccessKey|DecodeSasKey"
    r"|MissingSasComponent|ServiceAccountPathAndKeyProvided|FederatedTokenFile|AzureCli\w*)\b"
)
_SETUP = re.compile(r"\b(MissingAccount|NotPartial|UnableToParseUrl|InvalidPath)\b")
_OUT_OF_RANGE = re.compile(r"\bStartTooLarge\b|\bParseContentRange \{\s*value: \"bytes [^\"]*/0\"")
"""The second one: of an object without bytes, where a server names a range before its beginning."""
_CODE = re.compile(r"<Code>(\w{1,80})</Code>")

_ARCHIVED = frozenset(("BlobArchived", "BlobBeingRehydrated"))
_NO_BUCKET = frozenset(("NoSuchBucket", "ContainerNotFound", "InvalidBucketName"))
_NOT_ACCEPTED = frozenset(("AuthenticationFailed", "InvalidAuthenticationInfo", "SignatureDoesNotMatch", "ExpiredToken"))


@dataclass(frozen=True)
class Cloud:
    """One of the two, in words. `credentials`: where the client finds them. `right`: what allows all that a storage does.
    `client`: obstore's. `endpoints` and `account` are variables that name the server."""

    scheme: str
    name: str
    bucket: str
    endpoints: tuple[str, ...]
    credentials: str
    right: str
    client: Any
    account: tuple[str, ...] = ()


GOOGLE = Cloud(
    "gs",
    "Google Cloud Storage",
    "bucket",
    ("GOOGLE_BASE_URL",),
    "GOOGLE_APPLICATION_CREDENTIALS, `gcloud auth application-default login`, or the machine's service account (workload identity)",
    "Storage Object User (roles/storage.objectUser)",
    GCSStore,
)
AZURE = Cloud(
    "az",
    "Azure Blob Storage",
    "container",
    ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT", "AZURITE_BLOB_STORAGE_URL"),
    "AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_FEDERATED_TOKEN_FILE (workload identity) or AZURE_CLIENT_SECRET, "
    "AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_KEY, or the machine's managed identity",
    "Storage Blob Data Contributor",
    AzureStore,
    ("AZURE_STORAGE_ACCOUNT_NAME",),
)


class CloudError(Exception):
    """Of one attempt. `status` and `code` are the server's; `http` says how far a request came that was not answered; `known` is what went
    wrong before any was sent, or with what it brought."""

    def __init__(self, text: str) -> None:
        super().__init__()
        fields = text.partition(_FIELDS)[2] or text
        said = _BODY.split(fields, maxsplit=1)[0]
        status = _first(_STATUS, said)
        self.status = int(status) if status else None
        self.code = _first(_CODE, fields) if status else ""
        self.method = _first(_METHOD, said)
        self.http = _first(_HTTP, said)
        again = _SENT_AGAIN.search(said) is not None  # by the client itself: the request before may have come through
        self.connecting = not again and (self.http == "Connect" or _CONNECTING.search(said) is not None)
        self.credentials = _first(_CREDENTIALS, said)
        self.setup = "" if status else _first(_SETUP, said)
        self.out_of_range = _OUT_OF_RANGE.search(said) is not None
        self.tls = _first(_TLS, said)
        self.cause = "no such host" if _DNS.search(said) else _first(_CAUSE, said)

    @property
    def answered(self) -> bool:
        """Did the server say so itself?"""
        return not self.http and not self.setup and not self.credentials


class ShortAnswerError(CloudError):
    """An answer had fewer bytes than it said."""

    def __init__(self) -> None:
        super().__init__("")


def asked(call: Callable[[], T]) -> T:
    """What obstore answers. Raises `CloudError` for all that it raises; `call` touches no file of this machine."""
    try:
        return call()
    except (BaseError, OSError, NotImplementedError) as error:
        raise CloudError(str(error)) from error


def fault_of(error: Exception) -> Fault:
    """What the error of one attempt means."""
    if not isinstance(error, CloudError):
        return Fault.FAILED
    if error.credentials or error.status == 401 or error.code in _NOT_ACCEPTED:
        return Fault.CREDENTIALS
    if error.setup or error.code in _NO_BUCKET:
        return Fault.SETUP
    if error.status is None:
        if error.out_of_range:
            return Fault.OUT_OF_RANGE
        return Fault.UNREACHABLE if error.connecting else Fault.LOST
    if error.status == 404:
        if error.code == "NoSuchUpload":
            return Fault.LOST  # so it is once an upload is complete, too
        return Fault.SETUP if error.method in ("PUT", "POST") else Fault.MISSING
    if error.status == 409:
        if error.code in _ARCHIVED:
            return Fault.SETUP
        return Fault.EXISTS if error.code == "BlobAlreadyExists" else Fault.AGAIN
    by_status = {403: Fault.SETUP, 408: Fault.LOST, 412: Fault.EXISTS, 416: Fault.OUT_OF_RANGE, 429: Fault.LOST, 501: Fault.SETUP}
    return by_status.get(error.status, Fault.LOST if error.status >= 500 or error.status < 300 else Fault.FAILED)


def code_of(error: Exception) -> str:
    """A short name for the error."""
    if not isinstance(error, CloudError):
        return type(error).__name__
    if error.status is not None:
        return f"{error.status} {error.code}".rstrip()
    tls = f"TLS: {error.tls}" if error.tls else ""
    return error.credentials or error.setup or tls or error.cause or error.http or "an answer that was cut off"


def setup_error(error: Exception, doing: str, place: Place, cloud: Cloud) -> StorageSetupError:
    """The sentence for what no retry can mend."""
    code = code_of(error)
    at = f"{place.endpoint} ({cloud.bucket} {place.bucket})"
    status, kind = (error.status, error.setup) if isinstance(error, CloudError) else (None, "")
    if fault_of(error) is Fault.CREDENTIALS:
        what = f"{at} does not accept the credentials" if status is not None else f"no usable credentials for {without_password(place.url)}"
        return StorageSetupError(f"{what} ({code}); give the client its own: {cloud.credentials}")
    if kind == "MissingAccount":
        return StorageSetupError(f"the storage account of {without_password(place.url)} is not known; set AZURE_STORAGE_ACCOUNT_NAME")
    if kind == "NotPartial":
        return StorageSetupError(f"{place.endpoint} ignores the range of a read; use a server that supports ranged reads")
    if kind == "UnableToParseUrl":
        return StorageSetupError(f"{' or '.join(cloud.endpoints)} is not the URL of a server; write it as https://host:port")
    if kind == "InvalidPath":
        return StorageSetupError(
            f"below {without_password(place.url)} lies an object whose name the client cannot read, with //, . or .. in it; remove it, or "
            "give checkpoints a folder of their own"
        )
    if status == 404:
        named = f"the {cloud.bucket} {place.bucket}"
        return StorageSetupError(f"{named} does not exist at {place.endpoint}; create it or correct {place.called}")
    if isinstance(error, CloudError) and error.code in _ARCHIVED:
        return StorageSetupError(f"{at} has archived what it takes to {doing} ({code}); bring it back to a tier that can be read")
    if status == 403:
        return StorageSetupError(f"{at} does not allow to {doing} ({code}); give whoever the credentials stand for the role {cloud.right}")
    if status == 501:
        return StorageSetupError(f"{at} does not support what it takes to {doing} ({code}); use a server with conditional writes")
    return StorageSetupError(f"cannot {doing} at {at} ({code}); check {place.called} and the variables of the environment")


def unreachable_error(error: Exception, place: Place, cloud: Cloud) -> StorageSetupError:
    """Nothing ever answered there."""
    check = f"check {', '.join((*cloud.account, *cloud.endpoints[:1]))}, DNS, network and the server"
    if isinstance(error, CloudError) and error.tls:
        check = "give the machine the certificate of who has signed the server's (SSL_CERT_FILE), or correct the server's name"
    return StorageSetupError(f"no server can be reached at {place.endpoint} ({code_of(error)}); {check}")


def _first(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return next((group for group in match.groups() if group), "") if match is not None else ""
