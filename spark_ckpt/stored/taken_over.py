"""The savepoint that a stream has taken over (`restore.mode=CLAIM`), which goes with the copy that was made of it."""

from __future__ import annotations

from contextlib import suppress

from spark_ckpt import paths
from spark_ckpt.errors import ConflictError, DamagedError, ObjectMissingError, StorageSetupError
from spark_ckpt.model import Checkpoint, CheckpointId
from spark_ckpt.storage.base import Storage
from spark_ckpt.stored.copies import RestorePath
from spark_ckpt.stored.metadata.reading import read_metadata


class TakenOver:
    """Its deletion, which may take several attempts.

    Rule: it is deleted only if the copy shows that it is the one. A stream may go on for months before its copy goes, and a folder whose
    savepoint was removed by hand is a name to use again.
    """

    def __init__(self) -> None:
        self._copy: Checkpoint | None = None
        self._objects: frozenset[str] = frozenset()
        """What is left of it, once its `_metadata` is gone."""

    def look_at_copy(self, stream: Storage, copy: CheckpointId) -> None:
        """Before that is deleted. One that is gone was looked at by an earlier attempt, or stays unknown, as does one that may not be read
        (archived by age, for example): nothing else is to wait for it. Raises `StorageError`."""
        with suppress(DamagedError, ObjectMissingError, StorageSetupError):
            self._copy = read_metadata(stream, paths.metadata_key(copy), copy)

    def delete(self, path: RestorePath, storage: Storage) -> None:
        """Its `_metadata` first, then what that named. One that is gone is fine.

        A checkpoint of another stream stays: a run of that stream may live, go back to it, and share what it names with the next. Raises
        `ConflictError`, and deletes nothing, where another savepoint is there by now, or where that cannot be told; `StorageError`.
        """
        if not path.is_savepoint:
            return
        try:
            there = path.read(storage)
        except ObjectMissingError:
            there = None
        other = self._other(there)
        if there is not None and other is None:
            storage.delete([path.key])
            self._objects = there.objects
        storage.delete(sorted(self._objects - there.objects if there is not None and other is not None else self._objects))
        self._copy, self._objects = None, frozenset()
        if other is not None:
            raise ConflictError(other)

    def _other(self, there: Checkpoint | None) -> str | None:
        """Why what is there is not what was taken over, as far as is known. Its `_metadata` once deleted, what is there is another."""
        if there is None:
            return None
        if self._copy is None:
            return "the copy that was made of it cannot be read any more, so nobody knows whether this is still the same savepoint"
        if self._objects or not is_copy(self._copy, there):
            return f"another savepoint is there now (epoch {there.id.epoch} of query {there.query_id})"
        return None


def is_copy(copy: Checkpoint, source: Checkpoint) -> bool:
    """Whether a stream's copy was made of this savepoint. Objects are named anew, and operators that the query no longer has are left
    out; what stays is the epoch, when it was completed, and the content of each range."""

    def contents(checkpoint: Checkpoint) -> frozenset[tuple[int, int]]:
        return frozenset((handle.length, handle.checksum) for handle in checkpoint.handles)

    return (copy.id.epoch, copy.time_ms) == (source.id.epoch, source.time_ms) and contents(copy) <= contents(source)
