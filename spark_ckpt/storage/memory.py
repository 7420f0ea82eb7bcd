"""`memory://name/prefix`: objects of this process, for tests. Storages opened under the same name see the same objects."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from spark_ckpt.errors import ConfigError, DamagedError, ObjectMissingError
from spark_ckpt.storage.base import LARGEST_READ, PAGE, PutResult, Slice, Storage, Stored, check_key, check_prefix, check_root, check_size
from spark_ckpt.storage.slices import SliceReader, check_slices, download, local_write_error


class _Bucket:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.objects: dict[str, tuple[bytes, int]] = {}


_BUCKETS: dict[str, _Bucket] = {}
_BUCKETS_LOCK = threading.Lock()


class MemoryStorage(Storage):
    """Counts requests as S3 would: a listing is one per 1000 keys, a deletion one per 1000 keys."""

    def __init__(self, url: str) -> None:
        name, _, prefix = url[len("memory:") :].lstrip("/").partition("/")
        prefix = prefix.strip("/")
        if not name:
            raise ConfigError(f"the storage {url} has no name; write memory://name")
        super().__init__(f"memory://{name}" + (f"/{prefix}" if prefix else ""))
        self._prefix = check_root(self.url, prefix) + "/" if prefix else ""
        with _BUCKETS_LOCK:
            self._bucket = _BUCKETS.setdefault(name, _Bucket())

    def put(self, key: str, data: bytes) -> None:
        self._begin(key, "put")
        self._store(key, data)

    def put_slices(self, key: str, slices: Sequence[Slice]) -> None:
        self._begin(key, "put")
        check_slices(slices)
        with SliceReader(slices) as reader:
            data = reader.read()
        self._store(key, data)

    def put_if_absent_dated(self, key: str, data: bytes) -> tuple[PutResult, int | None]:
        self._begin(key, "put_if_absent")
        self.traffic.sent(len(data))
        with self._bucket.lock:
            if self._prefix + key in self._bucket.objects:
                return PutResult.EXISTS, None
            now_ms = _now_ms()
            self._bucket.objects[self._prefix + key] = (bytes(data), now_ms)
            return PutResult.STORED, now_ms

    def get(self, key: str, offset: int = 0, length: int | None = None, limit: int = LARGEST_READ) -> bytes:
        self._begin(key, "get")
        with self._bucket.lock:
            found = self._bucket.objects.get(self._prefix + key)
        if found is None:
            raise ObjectMissingError(f"{self.url}/{key} does not exist")
        whole = found[0]
        end = len(whole) if length is None else offset + length
        if offset > len(whole) or end > len(whole):
            raise DamagedError(f"{self.url}/{key} has {len(whole)} bytes, too few for the range from {offset} to {end}")
        check_size(f"{self.url}/{key}", end - offset, limit)
        data = whole[offset:end]
        self.traffic.received(len(data))
        return data

    def get_to_file(self, key: str, offset: int, length: int, path: Path, at: int | None = None) -> int:
        data = self.get(key, offset, length, limit=length)
        try:
            with download(path, at) as out:
                out.write(data)
        except OSError as error:
            raise local_write_error(path, error) from error
        return out.checksum

    def size(self, key: str) -> int | None:
        self._begin(key, "head")
        with self._bucket.lock:
            found = self._bucket.objects.get(self._prefix + key)
        return None if found is None else len(found[0])

    def list(self, prefix: str, start_after: str = "") -> Iterator[Stored]:
        self._check_open()
        listing = self._listing(check_prefix(prefix))
        first = start_after.encode()
        yield from self.traffic.listed(stored for stored in listing if stored.key.encode() > first)

    def list_folders(self, prefix: str) -> Iterator[str]:
        self._check_open()
        listing = self._listing(check_prefix(prefix))
        self.traffic.request("list")
        last = None
        for stored in listing:
            end = stored.key.find("/", len(prefix))
            folder = stored.key[: end + 1]
            if end >= 0 and folder != last:
                last = folder
                yield folder

    def delete(self, keys: Iterable[str]) -> None:
        self._check_open()
        names = [self._prefix + check_key(key) for key in keys]
        self.traffic.request("delete", -(-len(names) // PAGE))
        with self._bucket.lock:
            for name in names:
                self._bucket.objects.pop(name, None)

    def close(self) -> None:
        self._closed = True

    def _begin(self, key: str, operation: str) -> None:
        self._check_open()
        check_key(key)
        self.traffic.request(operation)

    def _store(self, key: str, data: bytes) -> None:
        self.traffic.sent(len(data))
        with self._bucket.lock:
            self._bucket.objects[self._prefix + key] = (bytes(data), _now_ms())

    def _listing(self, prefix: str) -> Sequence[Stored]:
        start, skip = self._prefix + prefix, len(self._prefix)
        with self._bucket.lock:
            found = [Stored(k[skip:], len(v[0]), v[1]) for k, v in self._bucket.objects.items() if k.startswith(start)]
        return sorted(found, key=lambda stored: stored.key.encode())


def wipe(name: str) -> None:
    """Forget every object of `memory://name`, also for storages that are open."""
    with _BUCKETS_LOCK:
        bucket = _BUCKETS.get(name)
    if bucket is not None:
        with bucket.lock:
            bucket.objects.clear()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
