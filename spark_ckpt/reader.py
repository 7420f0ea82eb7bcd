"""Reading a stream from outside: its runs, its checkpoints, and which of them a restart would go on from. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spark_ckpt import metadata, paths
from spark_ckpt.errors import ConfigError, DamagedError, ObjectMissingError
from spark_ckpt.model import Checkpoint, CheckpointId
from spark_ckpt.protocol.entries import Claim, Damage, End, Entry, decode
from spark_ckpt.storage.base import Storage

_SHOWN = 5


@dataclass(frozen=True)
class Found:
    """One checkpoint in a listing: its content, or the error that reading it met. `size` is that of `_metadata`, in bytes."""

    id: CheckpointId
    size: int
    checkpoint: Checkpoint | None
    error: DamagedError | None


class StreamReader:
    """`storage` is rooted at the stream."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

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
        found = []
        for run in self.runs():
            for stored in self._storage.list(paths.checkpoints_prefix(run)):
                folder, _, name = stored.key.rpartition("/")
                checkpoint = paths.parse_checkpoint_prefix(folder)
                if checkpoint is not None and name == paths.METADATA_NAME:
                    found.append((checkpoint, stored.size))
        return sorted(found)

    def read(self, checkpoint: CheckpointId) -> Checkpoint:
        """Raises `ObjectMissingError`, `DamagedError`, `StorageError`."""
        key = paths.metadata_key(checkpoint)
        try:
            data = self._storage.get(key)
        except ObjectMissingError as e:
            raise ObjectMissingError(f"there is no checkpoint {name_of(checkpoint)} at {self.url}; `spark-ckpt list` shows what is") from e
        content = metadata.decode(data, where=f"{self.url}/{key}")
        if content.id != checkpoint:
            raise DamagedError(f"{self.url}/{key} holds {name_of(content.id)} instead; it was moved or damaged")
        return content

    def read_all(self) -> Iterator[Found]:
        """Every completed checkpoint, ascending. One that vanishes meanwhile (a running stream drops old ones) is left out."""
        for checkpoint, size in self.checkpoints():
            try:
                yield Found(checkpoint, size, self.read(checkpoint), None)
            except ObjectMissingError:
                continue
            except DamagedError as e:
                yield Found(checkpoint, size, None, e)

    def latest(self, found: list[Found]) -> CheckpointId | None:
        """The checkpoint a restart goes on from, given all that were found: the newest intact one of the last claim's run, else that
        claim's origin, else an older one that it inherited; never one that was named bad. None: a restart begins anew.
        """
        known = {item.id: item for item in found}
        intact = [item.checkpoint for item in found if item.checkpoint is not None]
        number, last = self._last_entry(max((c.log for c in intact), default=1))
        if last is None or isinstance(last, End):
            return None
        claim = last if isinstance(last, Claim) else self._entry(last.claim)
        if not isinstance(claim, Claim):
            raise DamagedError(f"{self.url}/{paths.log_key(number)} names {last.claim} as its claim, which is none; the log is damaged")
        bad = {*claim.bad, *(last.bad if isinstance(last, Damage) else ())}
        newest = sorted((c.id for c in intact if c.id.run == claim.run), reverse=True)
        for candidate in [*newest, *([claim.origin] if claim.origin else []), *sorted(claim.inherits, reverse=True)]:
            item = known.get(candidate)
            if item is not None and item.checkpoint is not None and candidate not in bad:
                return candidate
        return None

    def _last_entry(self, known: int) -> tuple[int, Entry | None]:
        number = 0
        for stored in self._storage.list(paths.LOG_PREFIX, start_after=paths.log_key(max(known - 1, 0))):
            number = paths.parse_log_key(stored.key) or number
        return (number, self._entry(number)) if number else (0, None)

    def _entry(self, number: int) -> Entry:
        return decode(number, self._storage.get(paths.log_key(number)))


def name_of(checkpoint: CheckpointId) -> str:
    """`run-3/chk-42`, as people write it."""
    return f"run-{checkpoint.run}/chk-{checkpoint.epoch}"


def parse_name(text: str) -> CheckpointId:
    """`run-3/chk-42` or with the zeros of the stored key. Raises ConfigError."""
    run, slash, epoch = text.strip("/").partition("/")
    if slash and run.startswith("run-") and run[4:].isdecimal() and epoch.startswith("chk-") and epoch[4:].isdecimal():
        return CheckpointId(int(run[4:]), int(epoch[4:]))
    raise ConfigError(f"{text!r} is not a checkpoint; write it as run-3/chk-42, as `spark-ckpt list` prints it")
