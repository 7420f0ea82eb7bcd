"""`gs://bucket/prefix` on Google Cloud Storage, and `az://container/prefix` on Azure Blob Storage."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import obstore

from spark_ckpt.errors import ConfigError, DamagedError, FormatError, StorageSetupError
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
from spark_ckpt.storage.cloud_faults import AZURE, GOOGLE, Cloud, CloudError, ShortAnswerError, asked
from spark_ckpt.storage.cloud_requests import CloudLimits, CloudRequests
from spark_ckpt.storage.network import NetworkStorage
from spark_ckpt.storage.options import S3Options, cloud_bucket_problem
from spark_ckpt.storage.slices import SliceReader, check_slices

__all__ = ["CloudLimits", "CloudStorage"]

_DELETED_TOGETHER = 256
"""Keys in one request to Azure; Google is asked for each, several at a time."""
_MOST_PARTS = 10_000
_CLOCK_S = 3600.0
"""For so long the storage's clock is known from one look at it."""
_SLEPT_S = 30.0
"""More than that between this machine's two clocks, and it has slept: one of them stood still meanwhile."""


class CloudStorage(NetworkStorage):
    """One client with pooled connections, shared by all threads."""

    _requests: CloudRequests
    clouds: Mapping[str, Cloud] = {cloud.scheme: cloud for cloud in (GOOGLE, AZURE)}

    def __init__(
        self,
        url: str,
        options: S3Options | None = None,
        limits: CloudLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        chance: random.Random | None = None,
        called: str = OPTION,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        scheme, _, rest = url.partition(":")
        bucket, _, prefix = rest.lstrip("/").partition("/")
        prefix = prefix.strip("/")
        cloud = self.clouds[scheme]
        problem = cloud_bucket_problem(scheme, bucket)
        if problem is not None:
            raise ConfigError(f"{problem}; write {cloud.scheme}://{cloud.bucket}/prefix, without credentials or port")
        super().__init__(f"{cloud.scheme}://{bucket}" + (f"/{prefix}" if prefix else ""), called=called)
        if cloud is AZURE and "\\" in prefix:
            raise ConfigError(f"{self.url} cannot be a storage, for in Azure \\ is another way to write /; leave it out, in {called}")
        self._limits = limits or CloudLimits()
        self._prefix = check_root(self.url, prefix, called) + "/" if prefix else ""
        self._cloud = cloud
        self._clock, self._wall_clock = clock, wall_clock
        self._dated: _Dated | None = None
        self._requests = CloudRequests(
            cloud, self.url, bucket, options or S3Options(), self._limits, self.traffic, clock, sleep, chance or random.Random(), called
        )
        self._run = self._requests.run

    def put(self, key: str, data: bytes) -> None:
        self._begin(key)

        def send() -> None:
            self._count("put", len(data))
            _tagged(asked(lambda: obstore.put(self._requests.for_put(len(data)), self._prefix + key, data, use_multipart=False)))

        self._run(f"store {self.url}/{key}", send, writes=True)

    def put_if_absent_dated(self, key: str, data: bytes) -> tuple[PutResult, int | None]:
        self._begin(key)

        def send() -> None:
            self._count("put_if_absent", len(data))
            _tagged(asked(lambda: obstore.put(self._requests.for_put(len(data)), self._prefix + key, data, mode="create")))

        if self._run(f"store {self.url}/{key}", send, frozenset((Fault.EXISTS,)), writes=True) is Fault.EXISTS:
            return PutResult.EXISTS, None
        return PutResult.STORED, self._stored_ms(key)

    def put_slices(self, key: str, slices: Sequence[Slice]) -> None:
        self._begin(key)
        total = check_slices(slices)
        if total > self._limits.single_put_max:
            self._put_parts(key, slices, total)
            return
        with SliceReader(slices) as reader:
            data = reader.read()
        self.put(key, data)

    def size(self, key: str) -> int | None:
        self._begin(key)

        def send() -> int:
            try:
                return int(self._look(key)["size"])
            except CloudError as error:
                if error.status in (400, 403):  # an answer to HEAD has no body to say why: the credentials may have expired
                    next(self.list(key), None)
                raise

        result = self._run(f"look at {self.url}/{key}", send, frozenset((Fault.MISSING,)), reads=True)
        if not isinstance(result, Fault):
            return result
        if not self._requests.worked:
            next(self.list(key), None)  # nor to say whether the bucket is there at all
        return None

    def list(self, prefix: str, start_after: str = "") -> Iterator[Stored]:
        """The client lists whole folders only: it begins before the first key that is wanted, and ends behind the last one."""
        wanted = self._prefix + check_prefix(prefix)
        after = self._prefix + start_after if start_after else ""
        begin = max(after, wanted[:-1].rstrip("/"))
        for path, item in self._items(f"list {self.url}/{prefix}", wanted.rpartition("/")[0], begin):
            if not path.startswith(wanted):
                if path > wanted:
                    return
                continue
            key = path[len(self._prefix) :]
            if path > after and is_key(key):
                yield Stored(key, int(item["size"]), int(item["last_modified"].timestamp() * 1000))

    def list_folders(self, prefix: str) -> Iterator[str]:
        self._check_open()
        wanted = self._prefix + check_prefix(prefix)
        folder = wanted.rpartition("/")[0]

        def send() -> list[str]:
            self.traffic.request("list")
            answer = asked(lambda: obstore.list_with_delimiter(self._requests.single, folder or None))
            return [f"{path}/" for path in answer["common_prefixes"]]

        found = certain(self._run(f"list {self.url}/{prefix}", send, reads=True))
        for path in sorted(path for path in found if path.startswith(wanted)):
            key = path[len(self._prefix) :]
            if is_key(key[:-1]):
                yield key

    def delete(self, keys: Iterable[str]) -> None:
        self._check_open()
        names = [self._checked(key) for key in keys]
        for start in range(0, len(names), _DELETED_TOGETHER):
            batch = names[start : start + _DELETED_TOGETHER]
            doing = f"delete {len(batch)} objects of {self.url}"
            # The first one that is missing ends it, and some others may be left.
            answers = frozenset((Fault.MISSING, Fault.FAILED, Fault.SETUP))
            if len(batch) == 1 or self._run(doing, partial(self._delete, batch), answers) is not None:
                for key in batch:
                    self._run(f"delete {self.url}/{key}", partial(self._delete, [key]), frozenset((Fault.MISSING,)))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._requests.close()

    # ---- one request

    def _begin(self, key: str) -> None:
        self._check_open()
        self._checked(key)

    def _checked(self, key: str) -> str:
        if self._cloud is AZURE and "\\" in key:
            raise FormatError(f"the object name {key!r} is not allowed in Azure, where \\ is another way to write /; it must have none")
        return check_key(key)

    def _count(self, operation: str, size: int = 0) -> None:
        self.traffic.request(operation)
        self.traffic.sent(size)

    def _look(self, key: str) -> Any:
        self.traffic.request("head")
        return asked(lambda: obstore.head(self._requests.single, self._prefix + key))

    def _stored_ms(self, key: str) -> int | None:
        """The answer to a put has no date here. So one object is looked at, and for an hour this process counts on from its date, in whole
        seconds like the dates themselves.

        Rule: not over a sleep, which a clock that stands still then does not count, and of which who has the stream must learn
        (`is_sure` in `spark_ckpt/protocol/retention/log_trim.py`).
        """
        now, wall = self._clock(), self._wall_clock()
        dated = self._dated
        if dated is None or now - dated.at_s >= _CLOCK_S or abs((wall - dated.wall_s) - (now - dated.at_s)) > _SLEPT_S:
            stored = self._requests.once(lambda: self._look(key))
            if stored is None:
                return None
            self._dated = dated = _Dated(now, wall, stored["last_modified"].timestamp())
        return int(dated.stored_s + now - dated.at_s) * 1000

    # ---- writing

    def _put_parts(self, key: str, slices: Sequence[Slice], total: int) -> None:
        part_size = max(self._limits.part_size, -(-total // _MOST_PARTS))
        store = partial(obstore.put, use_multipart=True, chunk_size=part_size, max_concurrency=self._limits.part_threads)

        def send() -> None:
            self.traffic.request("put", -(-total // part_size) + 2)
            self.traffic.sent(total)
            with _Watched(slices) as reader:
                try:
                    _tagged(asked(lambda: store(self._requests.parts, self._prefix + key, reader)))
                except CloudError as error:
                    if reader.failed is not None:
                        raise reader.failed from None
                    if error.method == "DELETE":  # of the upload, after it has failed: nothing is known of why
                        raise ShortAnswerError from error
                    raise

        self._run(f"store {self.url}/{key}", send, writes=True)

    def _delete(self, keys: Sequence[str]) -> None:
        self.traffic.request("delete", 1 if self._cloud is AZURE else len(keys))
        asked(lambda: obstore.delete(self._requests.single, [self._prefix + key for key in keys]))

    # ---- reading

    def _receive(self, key: str, offset: int, length: int | None, limit: int, take: Callable[[bytes], object]) -> None:
        """One attempt. An answer with too few bytes is a `ShortAnswerError`, never a short value."""
        asks: Any = {}
        if length is not None:
            asks = {"range": (offset, offset + length)}
        elif offset > 0:
            asks = {"range": {"offset": offset}}
        self.traffic.request("get")
        answer: Any = asked(lambda: obstore.get(self._requests.single, self._prefix + key, options=asks))
        size, (first, end) = int(answer.meta["size"]), answer.range
        if length is not None and offset + length > size:
            raise DamagedError(f"{self.url}/{key} has {size} bytes, too few for the range from {offset} to {offset + length}")
        if first != offset or end != (size if length is None else offset + length):
            raise ShortAnswerError
        check_size(f"{self.url}/{key}", end - first, limit)
        count = 0
        chunks = answer.stream(min_chunk_size=CHUNK)
        while chunk := asked(lambda: next(chunks, b"")):
            count += len(chunk)
            self.traffic.received(len(chunk))
            take(chunk)
        if count != end - first:
            raise ShortAnswerError

    def _items(self, doing: str, folder: str, begin: str) -> Iterator[tuple[str, Any]]:
        """All objects of the folder whose path comes after `begin`, page by page; one that cannot be had is asked for again from where it
        would begin. A place before the folder is never asked for: what a server makes of that is its own affair."""
        self._check_open()
        inside = f"{folder}/" if folder else ""
        stream: Any = None
        last = since = begin

        def page() -> list[Any]:
            nonlocal stream, since
            self.traffic.request("list")
            try:
                if stream is None:
                    size, since = self._limits.page_size, last
                    offset = last if last.startswith(inside) else ""
                    stream = asked(lambda: obstore.list(self._requests.single, folder or None, offset=offset or None, chunk_size=size))
                return list(asked(lambda: next(stream, ())))
            except CloudError:
                stream = None
                raise

        while True:
            found = certain(self._run(doing, page, reads=True))
            for item in found:
                path = str(item["path"])
                if path <= since:  # some servers begin at the beginning
                    continue
                if path <= last:
                    raise StorageSetupError(
                        f"{self._requests.place.endpoint} lists {self.url} in no order; use a storage account without hierarchical "
                        "namespace"
                    )
                last = path
                yield path, item
            if len(found) < self._limits.page_size:
                return


@dataclass(frozen=True)
class _Dated:
    """A moment by this machine's two clocks, and by the storage's; seconds."""

    at_s: float
    wall_s: float
    stored_s: float


class _Watched(SliceReader):
    """`failed`: what reading has raised, of which the client tells only that it was an error."""

    failed: BaseException | None = None

    def read(self, size: int | None = -1) -> bytes:
        try:
            return super().read(size)
        except BaseException as error:
            self.failed = error
            raise


def _tagged(answer: Any) -> None:
    """Every answer to a put names the object's ETag; one that does not was cut off."""
    if not answer.get("e_tag"):
        raise ShortAnswerError
