"""The access log of versitygw (S3's server access log format): one line for each request that reached the server."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

# owner bucket [time] address requester id s3_Operation key uri status error sent size …
_LINE = re.compile(r"^\S+ (\S+) \[[^\]]*\] \S+ \S+ \S+ s3_(\w+) (\S+) (\S+) (\d+) (\S+) (\d+) (\d+) ")
_BATCH = "DeleteObjects"
_LONGEST = 1 << 16
"""Of a line, in bytes: keys have 1 KiB at most."""


class Kind(Enum):
    """What S3 bills and limits by; a multipart upload is one PUT for each of its parts, its begin and its end."""

    PUT = "PUT"
    GET = "GET"
    HEAD = "HEAD"
    LIST = "LIST"
    DELETE = "DELETE"
    OTHER = "other"


_KINDS = {
    "PutObject": Kind.PUT,
    "CopyObject": Kind.PUT,
    "CreateMultipartUpload": Kind.PUT,
    "UploadPart": Kind.PUT,
    "UploadPartCopy": Kind.PUT,
    "CompleteMultipartUpload": Kind.PUT,
    "GetObject": Kind.GET,
    "HeadObject": Kind.HEAD,
    "HeadBucket": Kind.HEAD,
    "ListObjects": Kind.LIST,
    "ListObjectsV2": Kind.LIST,
    "ListMultipartUploads": Kind.LIST,
    "DeleteObject": Kind.DELETE,
    _BATCH: Kind.DELETE,
    "AbortMultipartUpload": Kind.DELETE,
}


@dataclass(frozen=True)
class Request:
    """`key` is the object's or, of a request that lists, the prefix it asked for; empty where the log tells neither.

    `size` is the length of an object that was put, in bytes; the log does not know it for parts of a multipart upload (0), and tells 0 of
    what is read: see `FarS3.brought`.
    """

    operation: str
    bucket: str
    key: str
    status: int
    size: int

    @property
    def kind(self) -> Kind:
        return _KINDS.get(self.operation, Kind.OTHER)


def parse(lines: Iterable[str]) -> Iterator[Request]:
    """Lines that are no request (the log's first one) are passed over. Raises ValueError for one that should be a request and is not."""
    for line in lines:
        if match := _LINE.match(line):
            bucket, operation, key, uri, status, _, _, size = match.groups()
            yield Request(operation, bucket, _prefix(uri) if key == "-" else key, int(status), int(size))
        elif " s3_" in line:
            raise ValueError(f"not a line of versitygw's access log: {line[:200]!r}; the benchmark knows that of version 1.8")


def _prefix(uri: str) -> str:
    return next(iter(parse_qs(urlsplit(uri).query).get("prefix", ())), "")


def of_stream(requests: Iterable[Request], bucket: str, name: str) -> list[Request]:
    """Those for a stream whose folder has this name, in the bucket of its system: none of another system, none of an earlier stream.

    Which keys a DeleteObjects has stands in its body, which is not logged: one counts for the stream that runs, so there are never too few.
    """
    return [r for r in requests if r.bucket == bucket and (name in r.key.split("/") or r.operation == _BATCH)]


def between(log: Path, start: int, end: int) -> list[Request]:
    """The requests whose lines end between two lengths of the file, in bytes: no line is lost or told twice from mark to mark."""
    before = min(start, _LONGEST)
    with log.open("rb") as file:
        file.seek(start - before)
        data = file.read(before + end - start)
    first, last = data.rfind(b"\n", 0, before) + 1, data.rfind(b"\n") + 1
    return list(parse(data[first:last].decode("utf-8", "replace").splitlines()))


def by_kind(requests: Iterable[Request]) -> Counter[Kind]:
    return Counter(request.kind for request in requests)


def bytes_put(requests: Iterable[Request]) -> Counter[str]:
    """Payload of whole-object puts that were accepted, by key."""
    sizes: Counter[str] = Counter()
    for r in requests:
        if r.operation == "PutObject" and r.status < 300:
            sizes[r.key] += r.size
    return sizes
