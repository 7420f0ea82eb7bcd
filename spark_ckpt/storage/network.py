"""What storages on a server have in common: reading, around the attempts of one client."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path

from spark_ckpt.errors import DamagedError, ObjectMissingError, StorageError
from spark_ckpt.storage.attempts import Attempts, Fault
from spark_ckpt.storage.base import LARGEST_READ, Storage
from spark_ckpt.storage.slices import download, local_write_error


class NetworkStorage(Storage):
    """`_requests` are those of its one client, for all threads."""

    _requests: Attempts

    @abstractmethod
    def _begin(self, key: str) -> None:
        """Raises where the storage is closed, or can have no such key."""

    @abstractmethod
    def _receive(self, key: str, offset: int, length: int | None, limit: int, take: Callable[[bytes], object]) -> None:
        """One attempt to read. An answer with too few bytes is an error of which `Attempts` makes `LOST`, never a short value."""

    def get(self, key: str, offset: int = 0, length: int | None = None, limit: int = LARGEST_READ) -> bytes:
        self._begin(key)
        found = bytearray()

        def send() -> None:
            found.clear()
            self._receive(key, offset, length, limit, found.extend)

        self._read(key, offset, length, send)
        return bytes(found)

    def get_to_file(self, key: str, offset: int, length: int, path: Path, at: int | None = None) -> int:
        self._begin(key)
        crc = 0

        def send() -> None:
            nonlocal crc
            with download(path, at) as out:
                self._receive(key, offset, length, length, out.write)
            crc = out.checksum

        try:
            self._read(key, offset, length, send)
            if length == 0:
                with download(path, at):
                    pass
        except OSError as error:
            raise local_write_error(path, error) from error
        return crc

    def _read(self, key: str, offset: int, length: int | None, send: Callable[[], None]) -> None:
        name = f"{self.url}/{key}"
        result: Fault | None = Fault.OUT_OF_RANGE
        if length != 0:  # a range of no bytes cannot be asked for
            result = self._requests.run(f"read {name}", send, frozenset((Fault.MISSING, Fault.OUT_OF_RANGE)), reads=True)
        if result is Fault.MISSING:
            raise ObjectMissingError(f"{name} does not exist")
        if result is Fault.OUT_OF_RANGE:
            size = self.size(key)
            if size is None:
                raise ObjectMissingError(f"{name} does not exist")
            if offset + (length or 0) > size:
                raise DamagedError(f"{name} has {size} bytes, too few for the range from {offset} to {offset + (length or 0)}")
            if length or (length is None and offset < size):
                raise StorageError(f"{name} has {size} bytes, and was said to have less a moment ago; read it again")
