"""Reading a stream: its runs, its checkpoints, who has it, and which of them a restart would go on from. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

from spark_ckpt import paths
from spark_ckpt.errors import DamagedError, ObjectMissingError, StorageSetupError
from spark_ckpt.model import Checkpoint, CheckpointId
from spark_ckpt.paths import checkpoint_name
from spark_ckpt.protocol.entries import Claim, Damage, End, Request
from spark_ckpt.storage.base import Storage
from spark_ckpt.stored.copies import RestorePath
from spark_ckpt.stored.log import StreamLog
from spark_ckpt.stored.metadata.reading import read_metadata
from spark_ckpt.stored.standing import Found, Overview, Standing

_SHOWN = 5


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
        return self.has_log() or next(iter(self.runs()), None) is not None

    def has_log(self) -> bool:
        return next(iter(self._storage.list(paths.LOG_PREFIX)), None) is not None

    def check(self) -> None:
        """Raises `ObjectMissingError` where no stream is, with what lies there instead."""
        if self.exists():
            return
        folders = []
        for folder in self._storage.list_folders(""):
            folders.append(folder)
            if len(folders) > _SHOWN:
                break
        if "offsets/" in folders:
            raise ObjectMissingError(
                f"there is no stream at {self.url}, which is a query's checkpointLocation: a stream's URL is <spark.ckpt.storage>/<path "
                "of the checkpointLocation>; if the query has run without the plugin, `spark-ckpt import` makes a savepoint of it"
            )
        inside = f"it holds {', '.join(folders[:_SHOWN])}{' …' if len(folders) > _SHOWN else ''}" if folders else "nothing is there"
        raise ObjectMissingError(
            f"there is no stream at {self.url}: {inside}; a stream's URL is <spark.ckpt.storage>/<path of the query's checkpointLocation>, "
            "and it is no savepoint either"
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

    def latest(self) -> CheckpointId:
        """The one that a start would go on from. Raises `DamagedError`, `ObjectMissingError`, `StorageError`."""
        overview = self.overview()
        if overview.problem is not None:
            raise DamagedError(overview.problem)
        if overview.latest is None:
            raise ObjectMissingError(f"the stream at {self.url} has no checkpoint to go on from; `spark-ckpt list` shows what there is")
        return overview.latest

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

    def overview(self) -> Overview:
        """All checkpoints, and who has the stream. Raises `StorageError`; damage is in the result."""
        found = tuple(self.read_all())
        try:
            standing = self.standing(max((item.checkpoint.log for item in found if item.checkpoint is not None), default=0))
        except DamagedError as e:
            return Overview.of(found, None, str(e))
        if standing is None:
            return Overview.of(found, None, self._log_gone(", so a start would be refused") if found else None)
        overview = Overview.of(found, standing)
        # Its copy comes after a claim: it may have come since.
        return overview if overview.problem is None else Overview.of(self.read_all(), standing)


class CheckpointReader(StreamReader):
    """One checkpoint by the URL of its folder, or one savepoint, read like a stream that holds nothing else. Nobody goes on from it."""

    def __init__(self, storage: Storage, path: RestorePath) -> None:
        super().__init__(storage)
        self._path = path
        self._content: Checkpoint | None = None

    def exists(self) -> bool:
        return self._storage.size(self._path.key) is not None

    def runs(self) -> Iterator[int]:
        yield self._whole().id.run

    def checkpoints(self) -> list[tuple[CheckpointId, int]]:
        return [(self._whole().id, self._storage.size(self._path.key) or 0)]

    def path_of(self, checkpoint: CheckpointId) -> str:  # noqa: ARG002 - there is only one
        return self._path.url

    def is_there(self, checkpoint: CheckpointId) -> bool:  # noqa: ARG002
        return self.exists()

    def read(self, checkpoint: CheckpointId) -> Checkpoint:
        content = self._whole()
        if content.id != checkpoint:
            raise ObjectMissingError(
                f"{self._path.url} is {checkpoint_name(content.id)} and not {checkpoint_name(checkpoint)}; leave --checkpoint out"
            )
        return content

    def standing(self, known: int = 0) -> Standing | None:  # noqa: ARG002 - it has no log
        return None

    def overview(self) -> Overview:
        found = tuple(self.read_all())
        return Overview(found, None, None, found[0].id if found else None)

    def _whole(self) -> Checkpoint:
        if self._content is None:
            self._content = self._path.read(self._storage)
        return self._content
