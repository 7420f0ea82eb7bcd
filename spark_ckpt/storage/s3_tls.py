"""Where a connection to an S3 server has failed, and what is wrong with its TLS.

botocore and urllib3 wrap what happens before a request is sent and after it in the same errors: only where they were raised tells.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence
from enum import Enum
from http.client import HTTPConnection
from traceback import walk_tb
from types import FrameType

from urllib3.exceptions import ReadTimeoutError

_OTHER_HOST = (62, 64)
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""


class TlsFault(Enum):
    """With the sentence's part that says what to do."""

    HOST_NAME = "name the host in spark.ckpt.s3.endpoint as the certificate does, or give the server a certificate for this name"
    NOT_TRUSTED = "let AWS_CA_BUNDLE, or ca_bundle in ~/.aws/config, name a file with the certificate of who has signed the server's"
    BUNDLE = "correct AWS_CA_BUNDLE, REQUESTS_CA_BUNDLE, or ca_bundle in ~/.aws/config, whichever names it"
    OTHER = "check whether https is spoken there, or write http:// in spark.ckpt.s3.endpoint"


def while_connecting(error: object) -> bool:
    """Then no byte of the request was sent."""
    return any(_connects(frame) for _, frames in _causes(error) for frame in frames)


def tls_fault(error: object) -> tuple[TlsFault, str]:
    """Of an error of TLS while connecting, with a few words that say what was wrong."""
    for cause, frames in _causes(error):
        if any(frame.f_code.co_name == "_match_hostname" for frame in frames):  # urllib3 looks at the name itself
            return TlsFault.HOST_NAME, "its certificate is for another host name"
        if isinstance(cause, ssl.SSLCertVerificationError):
            if cause.verify_code in _OTHER_HOST:
                return TlsFault.HOST_NAME, "its certificate is for another host name"
            return TlsFault.NOT_TRUSTED, f"its certificate is not trusted: {cause.verify_message}"
        if isinstance(cause, OSError):
            reason = (cause.reason if isinstance(cause, ssl.SSLError) else None) or cause.strerror or type(cause).__name__
            if frames and frames[-1].f_code.co_name == "ssl_wrap_socket":  # which loads the bundle itself; the rest lies deeper
                return TlsFault.BUNDLE, f"the file of trusted certificates cannot be loaded: {reason}"
            return TlsFault.OTHER, reason
    return TlsFault.OTHER, type(error).__name__


def _causes(error: object) -> Iterator[tuple[BaseException, Sequence[FrameType]]]:
    """Each with the frames from where it was caught to where it was raised. The outermost first."""
    seen: set[int] = set()
    while isinstance(error, BaseException) and id(error) not in seen:
        seen.add(id(error))
        yield error, [frame for frame, _ in walk_tb(error.__traceback__)]
        # urllib3 1 raises a time-out while it handles that of the socket, and names no cause.
        named = error.__cause__ or (error.__context__ if isinstance(error, ReadTimeoutError) else None)
        error = next((arg for arg in error.args if isinstance(arg, BaseException)), named)


def _connects(frame: FrameType) -> bool:
    return frame.f_code.co_name == HTTPConnection.connect.__name__ and isinstance(frame.f_locals.get("self"), HTTPConnection)
