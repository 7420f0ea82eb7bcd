"""Reading a stream from outside: its runs, its checkpoints, and which of them a restart would go on from. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from spark_ckpt import paths
from spark_ckpt.errors import DamagedError, ObjectMissingError, StorageSetupError
from spark_ckpt.model import Checkpoint, CheckpointId
from spark_ckpt.paths import checkpoint_name
from spark_ckpt.protocol.entries import Claim, Damage, End, Request
from spark_ckpt.protocol.garbage import kept_checkpoints
from spark_ckpt.protocol.retention import is_retained, newest_first
from spark_ckpt.storage.base import Storage
from spark_ckpt.stored.copies import Source
from spark_ckpt.stored.log import StreamLog
from spark_ckpt.stored.metadata.reading import read_metadata

_SHOWN = 5


@dataclass(frozen=True)
class Found:
    """One checkpoint in a listing: its content, or the error that reading it met: damaged, or nobody here may read it. `size` is that of
    `_metadata`, in bytes."""

    id: CheckpointId
    size: int
    checkpoint: Checkpoint | None
    error: DamagedError | StorageSetupError | None


class Use(Enum):
    """What a restart would make of a completed checkpoint."""

    USABLE = "USABLE"
    """It may go on from it."""
    BAD = "BAD"
    """It was found damaged, and is never gone back to."""
    SUPERSEDED = "SUPERSEDED"
    """Nobody looks for it: the last claim's run did not inherit it. A fenced run completes what it had planned even after that claim; what
    such a checkpoint names may be gone, and that is no damage."""


@dataclass(frozen=True)
class Standing:
    """What the newest run itself appended last says: `tail` is the number of the log's last entry, `claim` that run's. Ended: the stream
    was deleted on purpose.
    `floor`: of the entries below it nothing is asked any more. `newest`: the number of what that run appended last."""

    tail: int
    claim: Claim
    bad: frozenset[CheckpointId]
    ended: bool
    floor: int = 0
    newest: int = 0

    def use(self, checkpoint: CheckpointId) -> Use:
        if self.ended or not (checkpoint.run == self.claim.run or checkpoint in kept_checkpoints(self.claim)):
            return Use.SUPERSEDED
        return Use.BAD if checkpoint in self.bad else Use.USABLE


class StreamReader:
    """`storage` is rooted at the stream."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._log = StreamLog(storage)

    @property
    def url(self) -> str:
        return self._storage.url.rstrip("/")

    def exists(self) -> bool:
        """Whether a stream has ever begun here."""
        return next(iter(self._storage.list(paths.LOG_PREFIX)), None) is not None or next(iter(self.runs()), None) is not None

    def check(self) -> None:
        """Raises `ObjectMissingError` where no stream is, with what lies there instead."""
        if self.exists():
            return
        folders = []
        for folder in self._storage.list_folders(""):
            folders.append(folder)
            if len(folders) > _SHOWN:
                break
        inside = f"it holds {', '.join(folders[:_SHOWN])}{' …' if len(folders) > _SHOWN else ''}" if folders else "nothing is there"
        raise ObjectMissingError(
            f"there is no stream at {self.url}: {inside}; a stream's URL is <spark.ckpt.storage>/<path of the query's checkpointLocation>"
        )

    def runs(self) -> Iterator[int]:
        """Numbers of the runs that have stored anything, ascending."""
        for folder in self._storage.list_folders(paths.RUN_PREFIX):
            run = paths.parse_run_prefix(folder)
            if run is not None:
                yield run

    def checkpoints(self) -> list[tuple[CheckpointId, int]]:
        """Completed checkpoints and the size of their `_metadata`, ascending by run and epoch. Unfinished ones do not exist."""
        return [found for run in self.runs() for found in self.checkpoints_of(run)]

    def checkpoints_of(self, run: int) -> list[tuple[CheckpointId, int]]:
        """Those of one run."""
        found = []
        for stored in self._storage.list(paths.checkpoints_prefix(run)):
            folder, _, name = stored.key.rpartition("/")
            checkpoint = paths.parse_checkpoint_prefix(folder)
            if checkpoint is not None and name == paths.METADATA_NAME:
                found.append((checkpoint, stored.size))
        return sorted(found)

    def newest(self, runs: int) -> CheckpointId | None:
        """Of the newest run that has one; so many runs are looked at."""
        for run in sorted(self.runs(), reverse=True)[:runs]:
            found = self.checkpoints_of(run)
            if found:
                return found[-1][0]
        return None

    def path_of(self, checkpoint: CheckpointId) -> str:
        """URL of the folder that holds its `_metadata`."""
        return f"{self.url}/{paths.checkpoint_prefix(checkpoint).rstrip('/')}"

    def is_there(self, checkpoint: CheckpointId) -> bool:
        return self._storage.size(paths.metadata_key(checkpoint)) is not None

    def read(self, checkpoint: CheckpointId) -> Checkpoint:
        """Raises `ObjectMissingError`, `DamagedError`, `StorageError`."""
        try:
            return read_metadata(self._storage, paths.metadata_key(checkpoint), checkpoint)
        except ObjectMissingError as e:
            raise ObjectMissingError(
                f"there is no checkpoint {checkpoint_name(checkpoint)} at {self.url}; `spark-ckpt list` shows what is"
            ) from e

    def read_all(self) -> Iterator[Found]:
        """Every completed checkpoint, ascending. One that vanishes meanwhile (a running stream drops old ones) is left out."""
        for checkpoint, size in self.checkpoints():
            try:
                yield Found(checkpoint, size, self.read(checkpoint), None)
            except ObjectMissingError:
                continue
            except (DamagedError, StorageSetupError) as e:
                yield Found(checkpoint, size, None, e)

    def latest(self, found: list[Found], standing: Standing | None) -> CheckpointId | None:
        """The checkpoint a restart goes on from, given all that were found: the newest intact one of the last claim's run, else that
        claim's origin, else an older one that it inherited; never one that was named bad. None: a restart begins anew.
        """
        if standing is None:
            return None
        claim = standing.claim
        intact = {item.id for item in found if item.checkpoint is not None and standing.use(item.id) is Use.USABLE}
        newest = sorted((c for c in intact if c.run == claim.run), reverse=True)
        candidates = [*newest, *([claim.origin] if claim.origin else []), *sorted(claim.inherits, reverse=True)]
        return next((c for c in candidates if c in intact), None)

    def retained(self, found: list[Found], standing: Standing | None) -> frozenset[CheckpointId]:
        """Those a person may choose to go back to, given all that were found; the last run may delete any other at any moment."""
        if standing is None:
            return frozenset(item.id for item in found)
        order = newest_first(standing.claim, (item.id for item in found if item.id.run == standing.claim.run))
        intact = {item.id for item in found if item.checkpoint is not None and standing.use(item.id) is Use.USABLE}
        return frozenset(c for c in order if is_retained(c, order, intact, standing.claim.retained))

    def standing(self, known: int = 0) -> Standing | None:
        """Who has the stream; None where nothing was ever logged. `known`: an entry that probably exists, to begin to look at.

        Raises `DamagedError` for a log that contradicts itself, `StorageError`.
        """
        tail = self._log.tail(known)
        return self.standing_at(tail) if tail else None

    def standing_at(self, tail: int) -> Standing:
        """The same, where the log ends with entry `tail`."""
        log = self._log
        last = log.entry(tail)
        claim = last if isinstance(last, Claim) else log.entry(last.claim)
        if not isinstance(claim, Claim):
            raise DamagedError(f"log entry {tail} of {self.url} names {last.claim} as its claim, which is none; the log is damaged")
        number, newest = log.newest_of_a_run(tail) if isinstance(last, Request) else (tail, last)
        bad = frozenset([*claim.bad, *(newest.bad if isinstance(newest, Damage) else ())])
        floor = max(last.floor, newest.floor if newest is not None else 0)
        return Standing(tail, claim, bad, isinstance(newest, End), floor, number)

    def tail(self, known: int = 0) -> int:
        """The log's highest number, 0 where nothing ever began.

        Raises `DamagedError` also where there are checkpoints without a log: a query must not begin from nothing then.
        """
        found = self._log.tail(known)
        if found == 0 and any(self.checkpoints_of(run) for run in self.runs()):
            raise DamagedError(self._log_gone(""))
        return found

    def _log_gone(self, so: str) -> str:
        return (
            f"{self.url} has checkpoints, but its log is gone{so}; put {paths.LOG_PREFIX} back, or go on from one of them with "
            "spark.ckpt.restore.path, a new checkpointLocation and a new output path"
        )

    def standing_or_problem(self, found: list[Found]) -> tuple[Standing | None, str | None]:
        """A damaged log says nothing about the checkpoints: they are looked at all the same, and the damage is told."""
        try:
            standing = self.standing(max((item.checkpoint.log for item in found if item.checkpoint is not None), default=0))
        except DamagedError as e:
            return None, str(e)
        if standing is None and found:
            return None, self._log_gone(", so a start would be refused")
        return standing, None


class SourceReader(StreamReader):
    """One checkpoint by the URL of its folder, or one savepoint, read like a stream that holds nothing else. Nobody goes on from it."""

    def __init__(self, storage: Storage, source: Source) -> None:
        super().__init__(storage)
        self._source = source
        self._content: Checkpoint | None = None

    def exists(self) -> bool:
        return self._storage.size(self._source.key) is not None

    def runs(self) -> Iterator[int]:
        yield self._whole().id.run

    def checkpoints(self) -> list[tuple[CheckpointId, int]]:
        return [(self._whole().id, self._storage.size(self._source.key) or 0)]

    def path_of(self, checkpoint: CheckpointId) -> str:  # noqa: ARG002 - there is only one
        return self._source.url

    def is_there(self, checkpoint: CheckpointId) -> bool:  # noqa: ARG002
        return self.exists()

    def read(self, checkpoint: CheckpointId) -> Checkpoint:
        content = self._whole()
        if content.id != checkpoint:
            raise ObjectMissingError(
                f"{self._source.url} is {checkpoint_name(content.id)} and not {checkpoint_name(checkpoint)}; leave --checkpoint out"
            )
        return content

    def standing(self, known: int = 0) -> Standing | None:  # noqa: ARG002 - it has no log
        return None

    def standing_or_problem(self, found: list[Found]) -> tuple[Standing | None, str | None]:  # noqa: ARG002
        return None, None

    def latest(self, found: list[Found], standing: Standing | None) -> CheckpointId | None:  # noqa: ARG002
        return found[0].id if found else None

    def _whole(self) -> Checkpoint:
        if self._content is None:
            self._content = self._source.read(self._storage)
        return self._content
