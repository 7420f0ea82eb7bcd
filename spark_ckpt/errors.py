"""What can go wrong, as types: every message names the thing and the way out."""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_ckpt.model import CheckpointId


def without_way_out(message: str) -> str:
    """What went wrong, to be told inside another message, which has a way out of its own. Messages have it after the first semicolon."""
    return message.split("; ", 1)[0]


_SCHEME = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*://")
_QUERY = re.compile(r"^([\s\[(<'\"]*(?!file:)[A-Za-z][A-Za-z0-9+.-]*:[^?]*)\?.+", re.DOTALL | re.IGNORECASE)
_AUTHORITY = re.compile(
    r"([\s\[(<'\"]*(?!file:)(?:[A-Za-z][A-Za-z0-9+.-]*:/+|s3[an]?:))([^/]*:(?![0-9]{1,5}[\])>'\"]*(?:/|$))[^/]*)", re.IGNORECASE
)


def without_password(text: str) -> str:
    """A URL, or what a person has written for one. A password goes up to the last `@`, whatever is in it; before that, the scheme stays.
    Without an `@` it stands where a server's port would. What follows a `?` may be a signature (`sig=`, `X-Amz-Signature=`), also with an
    `@` in it."""
    before, at, after = text.rpartition("@")
    if at:
        scheme = _SCHEME.match(before)
        host, asked, _ = after.partition("?")
        text = f"{scheme[0] if scheme else ''}…" + (f"@{host}{'?…' if asked else ''}" if "?" not in before else "")
    elif _AUTHORITY.match(text):
        text = _AUTHORITY.sub(lambda found: f"{found[1]}…", text, count=1)
    return _QUERY.sub(lambda found: f"{found[1]}?…", text)


def printable(text: str) -> str:
    """What was read from a storage must steer no terminal, and begin no line of its own in a log."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


class ErrorKind(Enum):
    """Tells the JVM what to do with a failed request; sent over the pipe by name."""

    CONFIG = "CONFIG"
    FENCED = "FENCED"
    CONFLICT = "CONFLICT"
    DAMAGED = "DAMAGED"
    UNUSABLE = "UNUSABLE"
    """What a start was to go on from is damaged or missing, and nothing else may take its place until a person has done something."""
    MISSING = "MISSING"
    STORAGE = "STORAGE"
    TIMEOUT = "TIMEOUT"
    DECLINED = "DECLINED"
    SOURCE = "SOURCE"
    """What a source reads from does not let the query in. Only the JVM says so."""
    LOST = "LOST"
    INTERNAL = "INTERNAL"


class CheckpointError(Exception):
    """Base of all errors of this package; `kind` decides whether a retry can help."""

    kind = ErrorKind.INTERNAL
    object: str | None = None
    """The object that is damaged or missing, its key relative to the stream, where known."""
    checkpoint: CheckpointId | None = None
    """The completed checkpoint that was being read."""


class ConfigError(CheckpointError):
    """An option is unknown, malformed or contradicts another one."""

    kind = ErrorKind.CONFIG


class ConflictError(CheckpointError):
    """The stream belongs to another query, or the location holds a stock checkpoint."""

    kind = ErrorKind.CONFLICT


class DamagedError(CheckpointError):
    """Something stored has the wrong length, checksum or form."""

    kind = ErrorKind.DAMAGED


class FormatError(DamagedError):
    """A document is of a newer format version, oversized, or not what its name says."""


class StorageError(CheckpointError):
    """The storage refused, or did not answer within its retries."""

    kind = ErrorKind.STORAGE


class ObjectMissingError(StorageError):
    """The named object does not exist."""

    kind = ErrorKind.MISSING


class OutcomeUnknownError(StorageError):
    """A put was sent and its answer was lost: it may or may not have happened."""


class StorageSetupError(StorageError):
    """Retrying cannot help: wrong credentials, missing bucket, no put-if-absent, read-only folder."""


class OutageError(StorageError):
    """The storage has not answered for as long as `spark.ckpt.timeout` allows: it need not be asked once more."""


class TimeoutExpiredError(CheckpointError):
    """A checkpoint did not complete within `spark.ckpt.timeout`."""

    kind = ErrorKind.TIMEOUT


class DeclinedError(CheckpointError):
    """An executor could not store its snapshot."""

    kind = ErrorKind.DECLINED
