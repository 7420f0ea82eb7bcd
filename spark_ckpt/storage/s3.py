"""`s3://bucket/prefix`: any S3 server that honours `If-None-Match: *` on puts."""

from __future__ import annotations

import base64
import random
import re
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import closing, suppress
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, TypeVar

from botocore.exceptions import ClientError

from spark_ckpt.errors import ConfigError, DamagedError, StorageError, StorageSetupError
from spark_ckpt.storage.attempts import Fault, certain
from spark_ckpt.storage.base import (
    OPTION,
    PutResult,
    Slice,
    Stored,
    check_key,
    check_prefix,
    check_root,
    check_size,
    is_key,
)
from spark_ckpt.storage.checksums import CHUNK
from spark_ckpt.storage.network import NetworkStorage
from spark_ckpt.storage.options import S3Options, bucket_problem
from spark_ckpt.storage.s3_faults import ShortAnswerError, status_of
from spark_ckpt.storage.s3_requests import S3Limits, S3Requests
from spark_ckpt.storage.slices import SliceReader, check_slices

__all__ = ["S3Limits", "S3Storage"]

T = TypeVar("T")

_CONTENT_RANGE = re.compile(r"^bytes (\d+)-(\d+)/(\d+)$")
_MAX_PARTS = 10_000
SINGLE_DELETES = 64
"""Where a request for many deletions is refused, so many calls delete one by one before the next one tries it again."""


class S3Storage(NetworkStorage):
    """One client with pooled connections, shared by all threads."""

    _requests: S3Requests

    def __init__(
        self,
        url: str,
        options: S3Options | None = None,
        limits: S3Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        chance: random.Random | None = None,
        called: str = OPTION,
    ) -> None:
        bucket, _, prefix = url.split(":", 1)[1].lstrip("/").partition("/")
        prefix = prefix.strip("/")
        problem = bucket_problem(bucket)
        if problem is not None:
            raise ConfigError(f"{problem}; write s3://bucket/prefix, without credentials or port")
        if bucket.endswith("--x-s3"):
            raise ConfigError(
                f"the bucket {bucket} is a directory bucket (S3 Express One Zone), whose listings have no order and cannot begin after a "
                "name; use a general purpose bucket"
            )
        super().__init__(f"s3://{bucket}" + (f"/{prefix}" if prefix else ""), called=called)
        self._options = options or S3Options()
        self._limits = limits or S3Limits()
        self._bucket = bucket
        self._prefix = check_root(self.url, prefix, called) + "/" if prefix else ""
        self._single_deletes = 0
        """So many calls are still to delete objects one by one."""
        self._requests = S3Requests(
            self.url, bucket, self._options, self._limits, self.traffic, clock, sleep, chance or random.Random(), called
        )
        self._run = self._requests.run

    @property
    def _client(self) -> Any:
        return self._requests.client

    def put(self, key: str, data: bytes) -> None:
        self._begin(key)
        self._put(key, data, zlib.crc32(data))

    def put_if_absent_dated(self, key: str, data: bytes) -> tuple[PutResult, int | None]:
        self._begin(key)
        doing = f"store {self.url}/{key}"
        extra = {"IfNoneMatch": "*", "ChecksumCRC32": _crc_text(zlib.crc32(data))}

        def send() -> int | None:
            answer = self._client.put_object(**self._at(key), Body=data, **self._encryption(), **extra)
            _tag(answer)
            return _date_of(answer)

        stored_ms = self._run(doing, send, frozenset((Fault.EXISTS,)), writes=True)
        return (PutResult.EXISTS, None) if isinstance(stored_ms, Fault) else (PutResult.STORED, stored_ms)

    def put_slices(self, key: str, slices: Sequence[Slice]) -> None:
        self._begin(key)
        total = check_slices(slices)
        if total > self._limits.single_put_max:
            self._put_parts(key, slices, total)
            return
        if total == 0:
            self._put(key, b"", 0)
            return
        with SliceReader(slices) as reader:
            self._put(key, reader, reader.crc32())

    def size(self, key: str) -> int | None:
        self._begin(key)

        def send() -> int:
            try:
                answer = self._client.head_object(**self._at(key))
            except ClientError as error:
                if status_of(error) in (400, 403):  # an answer to HEAD has no body to say why: the credentials may have expired
                    self._client.list_objects_v2(Bucket=self._bucket, Prefix=self._prefix + key, MaxKeys=1)
                raise
            if "ContentLength" not in answer:
                raise ShortAnswerError
            return int(answer["ContentLength"])

        result = self._run(f"look at {self.url}/{key}", send, frozenset((Fault.MISSING,)), reads=True)
        if not isinstance(result, Fault):
            return result
        if not self._requests.worked:
            # a 404 to HEAD has no body: it may also mean the bucket, or an unknown access key; a listing tells
            next(iter(self.list(key)), None)
        return None

    def list(self, prefix: str, start_after: str = "") -> Iterator[Stored]:
        for page in self._pages(check_prefix(prefix), {"StartAfter": self._prefix + start_after} if start_after else {}):
            for item in page.get("Contents", ()):
                key = str(item["Key"])[len(self._prefix) :]
                if is_key(key):  # consoles and some servers make empty objects to show folders, whose names end with /
                    yield Stored(key, int(item["Size"]), int(item["LastModified"].timestamp() * 1000))

    def list_folders(self, prefix: str) -> Iterator[str]:
        for page in self._pages(check_prefix(prefix), {"Delimiter": "/"}):
            for item in page.get("CommonPrefixes", ()):
                folder = str(item["Prefix"])[len(self._prefix) :]
                if is_key(folder[:-1]):
                    yield folder

    def delete(self, keys: Iterable[str]) -> None:
        self._check_open()
        names = [check_key(key) for key in keys]
        self._single_deletes = max(0, self._single_deletes - 1)
        for start in range(0, len(names), 1000):
            batch = names[start : start + 1000]
            left = self._delete_batch(batch) if len(batch) > 1 and not self._single_deletes else batch
            for key in left:
                self._run(f"delete {self.url}/{key}", partial(self._delete_one, key), frozenset((Fault.MISSING,)))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._requests.close()

    # ---- one request

    def _begin(self, key: str) -> None:
        self._check_open()
        check_key(key)

    def _at(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._prefix + key}

    def _encryption(self) -> dict[str, str]:
        found = {}
        if self._options.sse is not None:
            found["ServerSideEncryption"] = self._options.sse
        if self._options.kms_key_id is not None:
            found["SSEKMSKeyId"] = self._options.kms_key_id
        return found

    # ---- writing

    def _put(self, key: str, body: bytes | SliceReader, crc: int) -> None:
        def send() -> None:
            if isinstance(body, SliceReader):
                body.seek(0)
            _tag(self._client.put_object(**self._at(key), Body=body, ChecksumCRC32=_crc_text(crc), **self._encryption()))

        self._run(f"store {self.url}/{key}", send, writes=True)

    def _put_parts(self, key: str, slices: Sequence[Slice], total: int) -> None:
        doing = f"store {self.url}/{key}"
        part_size = max(self._limits.part_size, -(-total // _MAX_PARTS))

        def create() -> str:
            answer = self._client.create_multipart_upload(**self._at(key), ChecksumAlgorithm="CRC32", **self._encryption())
            if not answer.get("UploadId"):
                raise ShortAnswerError
            return str(answer["UploadId"])

        upload = certain(self._run(doing, create))
        try:
            parts = self._send_parts(key, upload, slices, [(at, min(at + part_size, total)) for at in range(0, total, part_size)])
            self._complete(key, upload, parts, total)
        except BaseException:
            with suppress(StorageError):  # the bucket's life-cycle rule removes what stays behind
                self._abort(key, upload)
            raise

    def _send_parts(self, key: str, upload: str, slices: Sequence[Slice], bounds: Sequence[tuple[int, int]]) -> Sequence[dict[str, Any]]:
        with ThreadPoolExecutor(min(self._limits.part_threads, len(bounds)), "s3-part") as pool:
            futures = [pool.submit(self._send_part, key, upload, slices, number + 1, *bound) for number, bound in enumerate(bounds)]
            done, waiting = wait(futures, return_when=FIRST_EXCEPTION)
            if waiting:
                pool.shutdown(wait=True, cancel_futures=True)
                for future in done:
                    future.result()
            return [future.result() for future in futures]

    def _send_part(self, key: str, upload: str, slices: Sequence[Slice], number: int, begin: int, end: int) -> dict[str, Any]:
        with SliceReader(slices, begin, end) as reader:
            crc = _crc_text(reader.crc32())
            named = {**self._at(key), "UploadId": upload, "PartNumber": number}

            def send() -> str:
                reader.seek(0)
                return _tag(self._client.upload_part(**named, Body=reader, ChecksumCRC32=crc))

            tag = certain(self._run(f"store part {number} of {self.url}/{key}", send))
        return {"PartNumber": number, "ETag": tag, "ChecksumCRC32": crc}

    def _complete(self, key: str, upload: str, parts: Sequence[dict[str, Any]], total: int) -> None:
        """The upload is gone (404) if an earlier attempt completed it and its answer was lost: then the object is there."""

        def send() -> None:
            _tag(self._client.complete_multipart_upload(**self._at(key), UploadId=upload, MultipartUpload={"Parts": parts}))

        result = self._run(f"complete {self.url}/{key}", send, frozenset((Fault.MISSING,)), writes=True)
        if isinstance(result, Fault) and self.size(key) != total:
            raise StorageError(f"the upload of {self.url}/{key} was removed from the server before it was complete; upload it again")

    def _abort(self, key: str, upload: str) -> None:
        self._run(
            f"abort the upload of {self.url}/{key}",
            lambda: self._client.abort_multipart_upload(**self._at(key), UploadId=upload),
            frozenset((Fault.MISSING,)),
        )

    def _delete_one(self, key: str) -> None:
        self._client.delete_object(**self._at(key))

    def _delete_batch(self, keys: Sequence[str]) -> Sequence[str]:
        """Returns what the answer does not confirm: it is deleted one by one, which also tells why."""
        order = {"Objects": [{"Key": self._prefix + key} for key in keys], "Quiet": False}
        answer = self._run(
            f"delete {len(keys)} objects of {self.url}",
            lambda: self._client.delete_objects(Bucket=self._bucket, Delete=order),
            frozenset((Fault.FAILED, Fault.SETUP)),
        )
        if isinstance(answer, Fault):
            self._single_deletes = SINGLE_DELETES  # a server without DeleteObjects, or one that wants MD5; or a right that will come back
            return keys
        gone = {item.get("Key") for item in answer.get("Deleted", ())}
        return [key for key in keys if self._prefix + key not in gone]

    # ---- reading

    def _receive(self, key: str, offset: int, length: int | None, limit: int, take: Callable[[bytes], object]) -> None:
        """One attempt. A 200 or 206 with too few bytes, even with none and no headers, is a `ShortAnswerError`, never a short value."""
        ranged = offset > 0 or length is not None
        asked = {"Range": f"bytes={offset}-{'' if length is None else offset + length - 1}"} if ranged else {"ChecksumMode": "ENABLED"}
        answer = self._client.get_object(**self._at(key), **asked)
        with closing(answer["Body"]) as body:
            expected = self._expected(key, answer, offset, length) if ranged else answer.get("ContentLength")
            if expected is None:
                raise ShortAnswerError
            check_size(f"{self.url}/{key}", expected, limit)
            count = 0
            while chunk := body.read(CHUNK):
                count += len(chunk)
                self.traffic.received(len(chunk))
                take(chunk)
            if count != expected:
                raise ShortAnswerError

    def _expected(self, key: str, answer: Any, offset: int, length: int | None) -> int:
        """Bytes that a ranged read must bring."""
        if answer["ResponseMetadata"]["HTTPStatusCode"] != 206:
            raise StorageSetupError(f"{self._requests.place.endpoint} ignores the range of a read; use a server that supports ranged reads")
        found = _CONTENT_RANGE.match(answer.get("ContentRange", ""))
        if found is None:
            raise ShortAnswerError
        first, last, size = (int(part) for part in found.groups())
        if length is not None and offset + length > size:
            raise DamagedError(f"{self.url}/{key} has {size} bytes, too few for the range from {offset} to {offset + length}")
        if first != offset or last + 1 != (size if length is None else offset + length):
            raise ShortAnswerError
        return last + 1 - first

    def _pages(self, prefix: str, asked: dict[str, str]) -> Iterator[Any]:
        self._check_open()
        at = {"Bucket": self._bucket, "Prefix": self._prefix + prefix, "MaxKeys": self._limits.page_size}
        token: dict[str, str] = {}
        while True:
            page = certain(self._run(f"list {self.url}/{prefix}", partial(self._page, {**at, **asked, **token}), reads=True))
            yield page
            if not page["IsTruncated"]:
                return
            token = {"ContinuationToken": page["NextContinuationToken"]}

    def _page(self, asked: dict[str, Any]) -> Any:
        page = self._client.list_objects_v2(**asked)
        # an answer cut off before its body parses as an empty page
        if "IsTruncated" not in page or (page["IsTruncated"] and "NextContinuationToken" not in page):
            raise ShortAnswerError
        return page


def _tag(answer: Any) -> str:
    """Every answer to a put names the object's ETag; one that does not was cut off."""
    if not answer.get("ETag"):
        raise ShortAnswerError
    return str(answer["ETag"])


def _date_of(answer: Any) -> int | None:
    """The server's clock, in milliseconds (RFC 9110, section 6.6.1)."""
    try:
        said = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
        return int(said.replace(tzinfo=said.tzinfo or UTC).timestamp() * 1000)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _crc_text(crc: int) -> str:
    return base64.b64encode(crc.to_bytes(4, "big")).decode()
