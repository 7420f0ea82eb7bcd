"""What an S3 server's or botocore's error means for a request: try again or not, could it have happened, and what to tell a person.

Only `s3.py`, `s3_requests.py` and `s3_connection.py` import this. Messages carry error codes and names, never what the
server said: that may hold key ids or signatures.
"""

from __future__ import annotations

from botocore import exceptions as boto
from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from spark_ckpt.errors import StorageSetupError, without_password
from spark_ckpt.storage.attempts import Fault, Place
from spark_ckpt.storage.s3_tls import TlsFault, tls_fault, while_connecting


class ShortAnswerError(Exception):
    """An answer said 200 but was cut off: a proxy, or a connection that closed early. botocore does not notice without headers."""


class CredentialsError(Exception):
    """boto3 finds none to sign a request with. `__cause__` is what it has met: the network's, a file's, another service's error."""


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


def fault_of(error: Exception) -> Fault:
    """What the error of one attempt means."""
    if isinstance(error, ClientError):
        return _fault_of_answer(error)
    if isinstance(error, (CredentialsError, *_NO_CREDENTIALS)):
        return Fault.CREDENTIALS
    if isinstance(error, (boto.EndpointConnectionError, boto.ConnectTimeoutError)):
        return Fault.UNREACHABLE
    if isinstance(error, boto.FlexibleChecksumError):
        return Fault.GARBLED
    # Through a proxy, urllib3 takes an answer that is cut off for a fault of the proxy's, too.
    if isinstance(error, (boto.HTTPClientError, boto.SSLError, boto.ProxyConnectionError)):
        return Fault.UNREACHABLE if while_connecting(error.kwargs.get("error")) else Fault.LOST
    if isinstance(error, (boto.IncompleteReadError, HTTPError, ResponseParserError, ShortAnswerError)):
        return Fault.LOST
    return Fault.SETUP


def _fault_of_answer(error: ClientError) -> Fault:
    code, status = code_of(error), status_of(error)
    if code in _CREDENTIALS or code == _SKEWED:
        return Fault.CREDENTIALS
    if code in _REGION or code in ("NoSuchBucket", "NotImplemented"):
        return Fault.SETUP
    if code in _AGAIN:
        return Fault.AGAIN
    if code in _LOST or status in (408, 429):
        return Fault.LOST
    if code in _MISSING and status == 404:
        return Fault.MISSING
    by_status = {
        403: Fault.SETUP,
        404: Fault.SETUP,  # not the object: some servers say so of an access key that they do not know
        409: Fault.AGAIN,
        412: Fault.EXISTS,
        416: Fault.OUT_OF_RANGE,
        501: Fault.SETUP,
    }
    if status in by_status:
        return by_status[status]
    if status >= 500 or status < 300:  # some failures of long operations come in a 200
        return Fault.LOST
    return Fault.SETUP if code.startswith("KMS.") else Fault.FAILED


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
            f"no usable S3 credentials for {without_password(place.url)} ({code}); set them where boto3 looks: "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, ~/.aws/credentials, or the machine's role"
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


def _region_of(error: Exception) -> str | None:
    if not isinstance(error, ClientError):
        return None
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    region = headers.get("x-amz-bucket-region") or error.response.get("Error", {}).get("Region")
    return str(region) if region else None
