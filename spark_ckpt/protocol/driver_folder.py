"""The driver's files as a run sees them: what changed with each request, and the puts of those that are objects of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from spark_ckpt.model import Content, objects_of
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.driver_files import DriverFiles, offsets_file
from spark_ckpt.protocol.durable_put import DurablePut, Known
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.large_files import LargeFiles, Unstored
from spark_ckpt.protocol.machine import Questions
from spark_ckpt.protocol.retention.planned_files import PlannedFiles


class FolderOwner(Protocol):
    """Who waits for large files."""

    def files_stored(self) -> list[Instruction]:
        """Some became durable: plans and checkpoints may have waited for them."""

    def file_refused(self, message: str) -> list[Instruction]:
        """One cannot be stored, however often that is tried."""


class DriverFolder:
    """A large file is put any number of times, until it is there: its key has its content's digest in it."""

    def __init__(
        self, owner: FolderOwner, run: int, files: DriverFiles, questions: Questions, planned: PlannedFiles, gone: Callable[[str], bool]
    ) -> None:
        self.files = files
        self._owner = owner
        self._questions = questions
        self._planned = planned
        self._large = LargeFiles(run, files, gone)
        self._last: DurablePut | None = None
        self._epoch = -1
        self._dropped: frozenset[str] = frozenset()
        """Large files that the folder had in this epoch, and may get again in it, under the same name."""

    @property
    def objects(self) -> frozenset[str]:
        """Large files that the folder has now."""
        return objects_of(self.files.as_mapping().values())

    @property
    def unstored(self) -> frozenset[str]:
        """Large files whose puts may still land."""
        return self._large.names

    @property
    def cause(self) -> str:
        """Why a file was not stored when that was last tried."""
        return self._last.cause if self._last else ""

    def awaits(self, contents: Iterable[Content | None]) -> bool:
        """Whether any of them is not stored yet."""
        return self._large.awaits(contents)

    def take_in(self, changes: ev.Changes, epoch: int, beneath: Mapping[str, Content | None] | None = None) -> list[Instruction]:
        """What the driver has written or deleted, and the puts of what is large. `beneath`: what lies there and is not written again."""
        if epoch > self._epoch:
            self._planned.let_go(self._dropped - self.objects)
            self._epoch, self._dropped = epoch, frozenset()
        placed, new = self._large.place(changes, epoch)
        self._planned.keep(objects_of(placed.values()))
        self._dropped |= objects_of(self.files.get(path) for path in placed)
        self.files.apply({**(beneath or {}), **placed})
        return [asked for one in new for asked in self._store(one)]

    def take_in_planned(
        self, epoch: int, offsets: bytes, changes: ev.Changes, beneath: Mapping[str, Content | None] | None = None
    ) -> list[Instruction]:
        """The same with a trigger."""
        puts = self.take_in(changes, epoch, beneath)
        self.files.apply({offsets_file(epoch): offsets})
        return puts

    def _store(self, one: Unstored) -> list[Instruction]:
        def known(known: Known, _event: ev.FileStored) -> list[Instruction]:
            if known is Known.HOPELESS:
                return self._owner.file_refused(put.cause)
            self._large.stored(one.handle.object)
            return self._owner.files_stored()

        def ask(ticket: int, attempt: int) -> Instruction:
            return do.StoreFile(ticket, one.handle, one.source, attempt)

        self._last = put = DurablePut(self._questions, ask, known)
        return put.begin()
