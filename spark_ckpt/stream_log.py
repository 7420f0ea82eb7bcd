"""Where a stream's log ends, and what an entry holds: read from the storage, by the coordinator and by whoever looks from outside."""

from __future__ import annotations

from spark_ckpt import paths
from spark_ckpt.errors import DamagedError, FormatError, ObjectMissingError
from spark_ckpt.protocol.entries import MAX_ENTRY_BYTES, Entry, decode
from spark_ckpt.protocol.tail import Gallop
from spark_ckpt.storage.base import Storage

WIDEST_GAP = 100_000
"""Entries that can be missing between two that are there: a start asks for each of them, to say which ones."""


class StreamLog:
    """`storage` is rooted at the stream. Methods raise `StorageError`."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    @property
    def _url(self) -> str:
        return self._storage.url.rstrip("/")

    def tail(self, known: int = 0) -> int:
        """The highest number, 0 for none; `known`: an entry that probably exists, to begin to look at.

        A gallop upwards finds the first number that is not there; one LIST behind it tells the tail from a gap, into which nobody may
        write: to somebody whose reading ended there it would look like the end. Raises `DamagedError` for an entry far behind the others.
        """
        start: int | None = known if known and self.holds(known) else 0
        found = 0
        while start is not None:
            gallop = Gallop(start)
            while (number := gallop.probe) is not None:
                gallop.tell(number, self.holds(number))
            found = gallop.found
            start = self._first_after(found)
            if start is not None and start - found > WIDEST_GAP:
                raise DamagedError(
                    f"{self._url}/{paths.log_key(start)} cannot be an entry of this log, the one before it is {found}; it is forged or was "
                    "put there by mistake: remove it"
                )
        return found

    def holds(self, number: int) -> bool:
        return self._storage.size(paths.log_key(number)) is not None

    def read(self, number: int) -> bytes | None:
        """The entry as it is stored, None where it is missing."""
        try:
            return self._storage.get(paths.log_key(number), limit=MAX_ENTRY_BYTES)
        except ObjectMissingError:
            return None

    def entry(self, number: int) -> Entry:
        """One that must be there. Raises `DamagedError`, `FormatError`."""
        data = self.read(number)
        if data is None:
            raise DamagedError(f"log entry {number} of {self._url} is missing, although there are later ones; put it back")
        try:
            return decode(number, data)
        except FormatError as e:
            raise FormatError(f"{self._url}: {e}") from e

    def _first_after(self, number: int) -> int | None:
        keys = (stored.key for stored in self._storage.list(paths.LOG_PREFIX, paths.log_key(number)))
        return next((n for n in map(paths.parse_log_key, keys) if n is not None), None)
