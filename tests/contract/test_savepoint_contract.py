"""A savepoint is made and read back in every storage."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from spark_ckpt.errors import ConflictError
from spark_ckpt.storage import Storage
from spark_ckpt.storage.memory import MemoryStorage, wipe
from spark_ckpt.stored.copies import RestorePath, import_objects, store_savepoint
from spark_ckpt.stored.verify import Verifier
from testbed.faulty import Fault, FaultyStorage, Moment
from tests.drivers.checkpoints import taken_over, written


def test_a_savepoint_there_and_back(open_again: Callable[[], Storage]) -> None:
    with MemoryStorage("memory://savepoint-source/s") as stream, MemoryStorage("memory://savepoint-source/t") as back:
        checkpoint = written(stream, random.Random(3))
        made = store_savepoint(stream, checkpoint, open_again())
        folder = open_again()
        assert RestorePath.at(folder.url).read(folder) == made
        assert not Verifier(folder).verify(made).problems
        assert store_savepoint(stream, checkpoint, folder) == made
        imported = import_objects(folder, made, back, 2)
        assert [s.uid for s in imported.snapshots] == [s.uid for s in checkpoint.snapshots]
        taken_over(folder, imported)
        assert list(folder.list("")) == []
    wipe("savepoint-source")


def test_a_savepoint_whose_objects_are_deleted_before_it_is_complete(open_again: Callable[[], Storage]) -> None:
    """(1) Two make the same; (2) A completes it; (3) a stream that owns it deletes it; (4) B goes on."""
    with MemoryStorage("memory://savepoint-deleted/s") as stream:
        checkpoint = written(stream, random.Random(3))

        def claimed() -> None:
            folder = open_again()
            store_savepoint(stream, checkpoint, folder)
            taken_over(folder, checkpoint)

        late = FaultyStorage(open_again(), [Fault(Moment.DELAY, operations=frozenset({"list"}), skip=2, pause=claimed)])
        with pytest.raises(ConflictError, match="has been deleted meanwhile; make it again"):
            store_savepoint(stream, checkpoint, late)
        assert open_again().size("_metadata") is None
    wipe("savepoint-deleted")
