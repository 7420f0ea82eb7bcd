"""What an S3 server's or botocore's error means for a request: try again or not, could it have happened, and what to tell a person.

Only `s3.py`, `s3_requests.py` and `s3_connection.py` import this. Messages carry error codes and names, never what the
server said: that may hold key ids or signatures.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from botocore import exceptions as boto
from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from spark_ckpt.errors import DamagedError, ObjectMissingError, OutageError, StorageError, StorageSetupError
from spark_ckpt.storage.base import OPTION
from spark_ckpt.storage.s3_tls import TlsFault, tls_fault, while_connecting


class S3Fault(Enum):
    """What an error means for the request: whether it has happened, and whether it is sent again."""

    EXISTS = "EXISTS"
    MISSING = "MISSING"
    OUT_OF_RANGE = "OUT_OF_RANGE"
    UNREACHABLE = "UNREACHABLE"
    """No connection: it has not happened; again."""
    AGAIN = "AGAIN"
    """The server refused for now: it has not happened; again."""
    LOST = "LOST"
    """It may have happened; again."""
    GARBLED = "GARBLED"
    """The bytes do not have their checksum; again, and damaged if that stays so."""
    CREDENTIALS = "CREDENTIALS"
    """There are none now, or what is signed with them is not accepted, as where the clock is wrong: it has not happened; again,
    where others have been."""
    SETUP = "SETUP"
    """It cannot happen: a wrong right, bucket or setting. Not again."""
    FAILED = "FAILED"
    """The server refused this request, and would again."""


class ShortAnswerError(Exception):
    """An answer said 200 but was cut off: a proxy, or a connection that closed early. botocore does not notice without headers."""


class CredentialsError(Exception):
    """boto3 finds none to sign a request with. `__cause__` is what it has met: the network's, a file's, another service's error."""


@dataclass(frozen=True)
class Place:
    """What messages name."""

    url: str
    bucket: str
    endpoint: str
    called: str = OPTION


_CREDENTIALS = frozenset(
    (
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "ExpiredToken",
        "TokenRefreshRequired",
        "InvalidToken",
        "AuthFailure",
        "InvalidSecurity",
        "UnrecognizedClientException",
    )
)
_SKEWED = "RequestTimeTooSkewed"
_REGION = frozenset(
    ("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "301", "TemporaryRedirect", "307")
)
_MISSING = frozenset(("NoSuchKey", "NoSuchUpload", "NoSuchVersion", "NotFound", "404"))
_AGAIN = frozenset(("ConditionalRequestConflict", "OperationAborted", "BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch"))
_LOST = frozenset(("RequestTimeout", "RequestTimeoutException", "SlowDown", "Throttling", "ThrottlingException", "TooManyRequests"))
_NO_CREDENTIALS = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.CredentialRetrievalError,
    boto.NoAuthTokenError,
    boto.TokenRetrievalError,
    boto.ProfileNotFound,
    boto.ConfigParseError,
    boto.SSOError,
    boto.UnknownCredentialError,
    boto.MetadataRetrievalError,
    *([boto.LoginError] if hasattr(boto, "LoginError") else []),  # newer botocores only
)


def fault_of(error: Exception) -> S3Fault:
    """What the error of one attempt means."""
    if isinstance(error, ClientError):
        return _fault_of_answer(error)
    if isinstance(error, (CredentialsError, *_NO_CREDENTIALS)):
        return S3Fault.CREDENTIALS
    if isinstance(error, (boto.EndpointConnectionError, boto.ConnectTimeoutError)):
        return S3Fault.UNREACHABLE
    if isinstance(error, boto.FlexibleChecksumError):
        return S3Fault.GARBLED
    # Through a proxy, urllib3 takes an answer that is cut off for a fault of the proxy's, too.
    if isinstance(error, (boto.HTTPClientError, boto.SSLError, boto.ProxyConnectionError)):
        return S3Fault.UNREACHABLE if while_connecting(error.kwargs.get("error")) else S3Fault.LOST
    if isinstance(error, (boto.IncompleteReadError, HTTPError, ResponseParserError, ShortAnswerError)):
        return S3Fault.LOST
    return S3Fault.SETUP


def _fault_of_answer(error: ClientError) -> S3Fault:
    code, status = code_of(error), status_of(error)
    if code in _CREDENTIALS or code == _SKEWED:
        return S3Fault.CREDENTIALS
    if code in _REGION or code in ("NoSuchBucket", "NotImplemented"):
        return S3Fault.SETUP
    if code in _AGAIN:
        return S3Fault.AGAIN
    if code in _LOST or status in (408, 429):
        return S3Fault.LOST
    if code in _MISSING and status == 404:
        return S3Fault.MISSING
    by_status = {
        403: S3Fault.SETUP,
        404: S3Fault.SETUP,  # not the object: some servers say so of an access key that they do not know
        409: S3Fault.AGAIN,
        412: S3Fault.EXISTS,
        416: S3Fault.OUT_OF_RANGE,
        501: S3Fault.SETUP,
    }
    if status in by_status:
        return by_status[status]
    if status >= 500 or status < 300:  # some failures of long operations come in a 200
        return S3Fault.LOST
    return S3Fault.SETUP if code.startswith("KMS.") else S3Fault.FAILED


def code_of(error: Exception) -> str:
    """A short name for the error."""
    if isinstance(error, CredentialsError) and isinstance(error.__cause__, Exception):
        return code_of(error.__cause__)
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", status_of(error)))
    tls = _tls_of(error)
    return type(error).__name__ if tls is None else f"{type(error).__name__}: {tls[1]}"


def _tls_of(error: Exception) -> tuple[TlsFault, str] | None:
    """None where TLS was spoken, or none was to be."""
    cause = error.kwargs.get("error") if isinstance(error, boto.SSLError) else None
    return tls_fault(cause) if while_connecting(cause) else None


def status_of(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def setup_error(error: Exception, doing: str, place: Place) -> StorageSetupError:
    """The sentence for what no retry can mend."""
    code = code_of(error)
    at = f"{place.endpoint} (bucket {place.bucket})"
    if isinstance(error, (CredentialsError, *_NO_CREDENTIALS)):
        return StorageSetupError(
            f"no usable S3 credentials for {place.url} ({code}); set them where boto3 looks: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
            "~/.aws/credentials, or the machine's role"
        )
    if code == "NoSuchBucket":
        return StorageSetupError(f"the bucket {place.bucket} does not exist at {place.endpoint}; create it or correct {place.called}")
    if code in ("ExpiredToken", "TokenRefreshRequired"):
        return StorageSetupError(f"the S3 credentials for {at} have expired ({code}); renew them and start again")
    if code in _CREDENTIALS or (isinstance(error, ClientError) and status_of(error) == 404):
        return StorageSetupError(f"{at} does not accept the S3 credentials ({code}); correct the access key and secret that boto3 finds")
    if code == _SKEWED:
        return StorageSetupError(f"this machine's clock differs too much from that of {at} ({code}); set the clock")
    if code in _REGION:
        region = _region_of(error)
        where = f"in region {region}" if region else "in another region"
        return StorageSetupError(f"the bucket {place.bucket} is {where} ({code}); set spark.ckpt.s3.region to it")
    if code.startswith("KMS."):
        return StorageSetupError(f"{at} cannot use the key for encryption ({code}); check spark.ckpt.s3.kmsKeyId and the right to use it")
    if isinstance(error, ClientError) and status_of(error) == 403:
        return StorageSetupError(
            f"{at} does not allow to {doing} ({code}); correct the credentials or give them s3:GetObject, s3:PutObject, s3:DeleteObject, "
            "s3:ListBucket and s3:AbortMultipartUpload"
        )
    if code == "NotImplemented" or (isinstance(error, ClientError) and status_of(error) == 501):
        return StorageSetupError(f"{at} does not support what it takes to {doing} (501 {code}); use a server with conditional writes")
    return StorageSetupError(f"cannot {doing} at {at} ({code}); check {place.called} and the spark.ckpt.s3 options")


def unreachable_error(error: Exception, place: Place) -> StorageSetupError:
    """Nothing ever answered there."""
    tls = _tls_of(error)
    check = "check spark.ckpt.s3.endpoint, DNS, network and the server" if tls is None else tls[0].value
    return StorageSetupError(f"no S3 server can be reached at {place.endpoint} ({code_of(error)}); {check}")


def outage_error(error: Exception, doing: str, place: Place, waited_s: float) -> OutageError:
    """Nothing has answered for as long as may be waited, or there were no credentials to ask with."""
    if fault_of(error) is S3Fault.CREDENTIALS:
        return OutageError(f"cannot {doing}, tried for {waited_s:.0f} s (spark.ckpt.timeout): {setup_error(error, doing, place)}")
    return OutageError(
        f"cannot {doing}: {place.endpoint} has not answered for {waited_s:.0f} s (spark.ckpt.timeout), at last with {code_of(error)}; "
        "start the query again when it does"
    )


def final_error(fault: S3Fault, error: Exception, doing: str, place: Place, attempts: int) -> StorageError | DamagedError:
    """After the last attempt of a request that may be asked again."""
    if fault is S3Fault.MISSING:
        return ObjectMissingError(f"cannot {doing}: there is no such object in {place.url}")
    if fault is S3Fault.GARBLED:
        return DamagedError(f"cannot {doing}: its bytes at {place.endpoint} do not have the checksum they were stored with")
    if fault in (S3Fault.FAILED, S3Fault.EXISTS, S3Fault.OUT_OF_RANGE):
        return StorageError(f"cannot {doing}: {place.endpoint} refused ({code_of(error)}); check the server and its log")
    return StorageError(f"cannot {doing}: {attempts} attempts at {place.endpoint} failed, the last with {code_of(error)}; check the server")


def _region_of(error: Exception) -> str | None:
    if not isinstance(error, ClientError):
        return None
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    region = headers.get("x-amz-bucket-region") or error.response.get("Error", {}).get("Region")
    return str(region) if region else None
