"""What the log says was planned past a checkpoint, read from outside as a start reads it (`protocol/start/plans.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter

from spark_ckpt.errors import DamagedError
from spark_ckpt.model import Checkpoint, CheckpointId, FileHandle, Handle
from spark_ckpt.protocol.start.planned_before import (
    CopyOf,
    PlannedBefore,
    numbers_known,
    past_all_plans,
    planned_before,
    reach,
    takes_its_claim,
)
from spark_ckpt.protocol.start.plans import MOST_READ
from spark_ckpt.storage.base import Storage
from spark_ckpt.stored.log import StreamLog
from spark_ckpt.stored.reading import StreamReader
from spark_ckpt.stored.standing import Standing


@dataclass(frozen=True)
class Planned:
    """`gaps`: entries that a start would ask for, and that are missing. `numbers_known`: whether it is known all the same which numbers
    were used. `past_all`: a checkpoint whose plan is not in the log, since the log's end is missing.
    """

    planned_before: PlannedBefore
    gaps: tuple[int, ...]
    numbers_known: bool
    past_all: CheckpointId | None

    @property
    def files(self) -> list[Handle]:
        """Large files of the driver that epochs take which would run again."""
        contents = (named for plan in self.planned_before.plans for named in sorted(plan.files.items(), key=itemgetter(0)))
        return [content.whole(path) for path, content in contents if isinstance(content, FileHandle)]


def planned_past(
    storage: Storage, reader: StreamReader, standing: Standing, origin: Checkpoint | None, copied: CopyOf | None = None
) -> Planned:
    """Raises `DamagedError` for an entry that is damaged or forged, `StorageError`."""
    claim, tail, log = standing.claim, standing.tail, StreamLog(storage)
    its_claim = log.readable(origin.claim) if origin is not None and 0 < origin.claim <= tail else None
    within = reach(origin, claim, its_claim)
    if tail - within.after > MOST_READ:
        raise DamagedError(f"entry {tail} of {reader.url} is forged or was put there by mistake; remove it")
    wanted = within.numbers(origin, tail)
    if origin is not None and within.claim is None and takes_its_claim(origin, tail, standing.floor):
        wanted.append(origin.claim)
    entries = {number: entry for number, entry in log.each(log.found, wanted) if entry is not None}
    gaps = tuple(sorted(number for number in wanted if number not in entries))
    listed = [checkpoint for checkpoint, _ in reader.checkpoints_of(claim.run)] if origin is not None and not standing.ended else []
    return Planned(
        planned_before(entries, origin, tail, claim, within, copied),
        gaps,
        numbers_known(gaps, entries, claim),
        past_all_plans(origin, listed, entries, tail, claim) if origin is not None else None,
    )
