"""What a restore would do, looked at from outside before anything is changed (rules: protocol/restoring.py)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from spark_ckpt import paths
from spark_ckpt.errors import ObjectMissingError
from spark_ckpt.model import Checkpoint
from spark_ckpt.protocol.entries import LIMITS, Entry, decode
from spark_ckpt.protocol.log_trim import DAY_MS
from spark_ckpt.protocol.recorded import CopyOf, does_not_follow, reach, recorded
from spark_ckpt.protocol.restoring import TO_APPLY_AGAIN, incomplete, is_of_this_stream, misfits
from spark_ckpt.storage import Storage
from spark_ckpt.stored.copies import Source
from spark_ckpt.stored.log import StreamLog
from spark_ckpt.stored.presence import absent
from spark_ckpt.stored.reading import Standing, StreamReader, Use


@dataclass(frozen=True)
class Preflight:
    """`problems` is empty where a restore into the stream is possible. `reruns`: epochs that were planned past it and run again."""

    problems: tuple[str, ...]
    same_stream: bool = False
    copied: bool = True
    reruns: tuple[int, ...] = ()
    new_stream: bool = False
    """Nothing has begun there yet."""


_FORGOTTEN = (
    "it is older than what the stream's log is sure to hold, so what was planned past it cannot run again: restore it with "
    "spark.ckpt.restore.plans=DISCARD, and sinks get the rows that followed it twice; or with a new checkpointLocation and a new output "
    "path"
)


_SHOWN = 10
"""Objects that are named one by one."""


def without_objects(content: Checkpoint, storage: Storage) -> list[str]:
    """What a checkpoint names and `storage`, where its objects are, has not. Raises `StorageError`."""
    found = list(absent(storage, content))
    more = [f"{len(found) - _SHOWN} more of its objects are missing or too short"] if len(found) > _SHOWN else []
    return [*found[:_SHOWN], *more]


def alone(content: Checkpoint) -> Preflight:
    """What can be said of a checkpoint without a stream to restore it into."""
    return Preflight(tuple(incomplete(content)))


def into(content: Checkpoint, source: Source, storage: Storage) -> Preflight:
    """Whether the stream at `storage` can go on from a checkpoint. Raises `DamagedError` for a damaged log, `StorageError`."""
    reader = StreamReader(storage)
    standing = reader.standing()
    if standing is None:
        found = list(reader.read_all())
        _, problem = reader.standing_or_problem(found)
        return Preflight((*incomplete(content), *([problem] if problem else [])), new_stream=not found)
    if _is_applied(source, reader, standing):
        ignored = f"an earlier run has restored it, so a start with this option goes on from the newest checkpoint. {TO_APPLY_AGAIN}"
        return Preflight((ignored,), True, source.root != reader.url)
    if source.checkpoint is not None and source.root == reader.url:
        return _own(content, source, storage, reader, standing)
    log = _read(storage, {content.claim, content.log}, standing.tail)
    stream, its_claim, its_plan = standing.claim.stream, log.get(content.claim), log.get(content.log)
    by_its_entries = is_of_this_stream(content, stream, its_claim, its_plan)
    same = by_its_entries or is_of_this_stream(content, stream, its_claim, its_plan, standing.floor)
    problems = misfits(content, standing.claim.job)
    stays = content.lowest_entry >= standing.floor or (by_its_entries and _young(storage, content.lowest_entry, standing.tail))
    if same and not stays:
        return Preflight((*problems, _FORGOTTEN), True)
    if not same and not standing.ended:
        problems.append(
            f"it belongs to another stream, and this one has epochs of its own (run {standing.claim.run}); use a new checkpointLocation"
        )
    return _with_plans(problems, True, content, source, storage, standing) if same else Preflight(tuple(problems))


def _is_applied(source: Source, reader: StreamReader, standing: Standing) -> bool:
    """Whether the newest claim notes it (`Restoring._restore`), and the copy was not cut short."""
    restored = standing.claim.restored
    if standing.ended or restored is None or restored.path != source.url:
        return False
    cut_short = restored.imported is not None and restored.imported.run == standing.claim.run
    return not cut_short or bool(reader.checkpoints_of(standing.claim.run))


def _young(storage: Storage, lowest: int, tail: int) -> bool:
    """Whether entries from `lowest` on stay although they are below the floor (`Restoring._dated`)."""
    log = StreamLog(storage)
    at, newest = log.stored_ms(lowest), log.stored_ms(tail)
    return at is not None and newest is not None and at > newest - DAY_MS


def _own(content: Checkpoint, source: Source, storage: Storage, reader: StreamReader, standing: Standing) -> Preflight:
    problems = misfits(content, standing.claim.job)
    use = standing.use(content.id)
    if use is not Use.USABLE:
        why = "was found damaged" if use is Use.BAD else "is not one that the stream can go back to"
        problems.append(f"it {why} ({use.value} in `spark-ckpt list`)")
    elif content.id not in reader.retained(list(reader.read_all()), standing):
        retained = standing.claim.retained
        problems.append(f"it is not among the newest {retained} (spark.ckpt.retained), and may be deleted at any moment")
    return _with_plans(problems, False, content, source, storage, standing)


def _with_plans(problems: list[str], copied: bool, content: Checkpoint, source: Source, storage: Storage, standing: Standing) -> Preflight:
    """What was planned past it runs again, or `Preflight.problems` says why not."""
    its_claim = _read(storage, {content.claim}, standing.tail).get(content.claim)
    within = reach(content, standing.claim, its_claim)
    entries = _read(storage, within.numbers(content, standing.tail), standing.tail)
    found = recorded(entries, content, standing.tail, standing.claim, within, copied=CopyOf(content.id, source.url))
    if standing.claim.ahead:
        return Preflight(tuple(problems), True, copied)  # what followed runs anew under new numbers, whatever was planned
    why = does_not_follow(found, content.id, standing.claim.used if standing.claim.used is not None else -1)
    if why is not None:
        problems = [*problems, f"{why}; with spark.ckpt.restore.plans=DISCARD they run anew, and sinks get their rows twice"]
    return Preflight(tuple(problems), True, copied, tuple(plan.epoch for plan in found.plans))


def _read(storage: Storage, numbers: Iterable[int], tail: int) -> dict[int, Entry]:
    found = {}
    for number in numbers:
        if number <= tail:
            try:
                found[number] = decode(number, storage.get(paths.log_key(number), limit=LIMITS.bytes))
            except ObjectMissingError:
                continue
    return found
