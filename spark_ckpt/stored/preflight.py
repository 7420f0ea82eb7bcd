"""What a restore would do, looked at from outside before anything is changed (rules: protocol/start/restoring.py)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from spark_ckpt.model import Checkpoint, CheckpointId, Job
from spark_ckpt.paths import METADATA_NAME, checkpoint_name
from spark_ckpt.progress import Tell, nobody
from spark_ckpt.protocol.entries import Claim, End
from spark_ckpt.protocol.offsets_conf import is_drain
from spark_ckpt.protocol.operators import Matched
from spark_ckpt.protocol.retention.log_trim import DAY_MS
from spark_ckpt.protocol.retention.order import newest_first
from spark_ckpt.protocol.start.planned_before import CopyOf, begun_by_stock, behind, does_not_follow, ever_used
from spark_ckpt.protocol.start.restoring import TO_APPLY_AGAIN, incomplete, is_of_this_stream, may_take_its_place, misfits, unfit
from spark_ckpt.storage import Storage
from spark_ckpt.stored.copies import RestorePath
from spark_ckpt.stored.log import StreamLog
from spark_ckpt.stored.places import savepoint_lies_at
from spark_ckpt.stored.planned import Planned, planned_past
from spark_ckpt.stored.presence import absent
from spark_ckpt.stored.reading import StreamReader
from spark_ckpt.stored.standing import Overview, Standing, Use


@dataclass(frozen=True)
class Preflight:
    """`problems` is empty where a restore into the stream is possible. `reruns`: epochs that were planned past it and run again. `drain`:
    one of these that drains the query once more."""

    problems: tuple[str, ...]
    same_stream: bool = False
    copied: bool = True
    reruns: tuple[int, ...] = ()
    drain: int | None = None
    new_stream: bool = False
    """Nothing has begun there yet."""
    first: int | None = None
    """The first epoch, where that is not the one after the checkpoint's."""


_FORGOTTEN = (
    "it is older than what the stream's log is sure to hold, so what was planned past it cannot run again: restore it with "
    "spark.ckpt.restore.plans=DISCARD, and sinks get the rows that followed it twice; or with a new checkpointLocation and a new output "
    "path"
)


_DISCARD_ONLY = "with spark.ckpt.restore.plans=DISCARD only: what followed runs anew under new numbers, and sinks may get its rows twice"


_SHOWN = 10
"""Objects that are named one by one."""


def without_objects(content: Checkpoint, storage: Storage, tell: Tell = nobody) -> list[str]:
    """What a checkpoint names and `storage`, where its objects are, has not. Raises `StorageError`."""
    found = list(absent(storage, content.handles, tell))
    more = [f"{len(found) - _SHOWN} more of its objects are missing or too short"] if len(found) > _SHOWN else []
    return [*found[:_SHOWN], *more]


def alone(content: Checkpoint) -> Preflight:
    """What can be said of a checkpoint without a stream to restore it into."""
    return Preflight(tuple(incomplete(content)), reruns=_begun(content))


def _begun(content: Checkpoint) -> tuple[int, ...]:
    """The epoch that runs again wherever an imported checkpoint is restored."""
    return tuple(plan.epoch for plan in begun_by_stock(content))


def into(content: Checkpoint, path: RestorePath, storage: Storage, matched: Matched | None = None) -> Preflight:
    """Whether the stream at `storage` can go on from a checkpoint. `matched`: its operators with those of the query that ran there last;
    None: they have to have the same names. Raises `DamagedError` for a damaged log, `StorageError`."""
    reader = StreamReader(storage)
    standing = reader.standing()
    if standing is None:
        overview = reader.overview()
        lacking = [*incomplete(content), *([overview.problem] if overview.problem else [])]
        if storage.size(METADATA_NAME) is not None:
            lacking.append(savepoint_lies_at(reader.url))
        return Preflight(tuple(lacking), reruns=_begun(content), new_stream=not overview.found)
    if _is_applied(path, reader, standing):
        ignored = f"an earlier run has restored it, so a start with this option goes on from the newest checkpoint. {TO_APPLY_AGAIN}"
        return Preflight((ignored,), True, path.storage_url != reader.url)
    if path.checkpoint is not None and path.storage_url == reader.url:
        return _own(content, path, storage, reader, standing, matched)
    log = StreamLog(storage)
    its_claim, its_plan = (log.found(number) if number <= standing.tail else None for number in (content.claim, content.log))
    stream = standing.claim.stream
    by_its_entries = is_of_this_stream(content, stream, its_claim, its_plan)
    same = by_its_entries or is_of_this_stream(content, stream, its_claim, its_plan, standing.floor)
    problems = _misfits(content, standing.claim.job, matched)
    stays = content.lowest_entry >= standing.floor or (by_its_entries and _young(storage, content.lowest_entry, standing.tail))
    if same and not stays:
        return Preflight((*problems, _FORGOTTEN), True)
    if same:
        return _with_plans(problems, True, content, path, storage, reader, standing)
    if standing.ended:
        return _behind(problems, content, _used_by_deleted(log, standing))
    claim = standing.claim
    own = [c for c, _ in reader.checkpoints_of(claim.run)]
    if standing.is_cut_short(own) and may_take_its_place(claim, path.url, discard=False):
        return _behind(problems, content, claim.used + claim.ahead if claim.used is not None else -1)
    problems.append(f"it belongs to another stream, and this one has epochs of its own (run {claim.run}); use a new checkpointLocation")
    return Preflight(tuple(problems))


def _behind(problems: list[str], content: Checkpoint, used: int) -> Preflight:
    first, again = behind(content, used)
    return Preflight(tuple(problems), reruns=tuple(plan.epoch for plan in again), first=first)


def _used_by_deleted(log: StreamLog, standing: Standing) -> int:
    """The highest number that an epoch of a stream has had which was deleted."""
    end = log.readable(standing.newest)
    if isinstance(end, End) and end.used is not None:
        return end.used
    return ever_used(log.all_readable(standing.tail))


def _is_applied(path: RestorePath, reader: StreamReader, standing: Standing) -> bool:
    """Whether the newest claim notes it (`Restoring.begin`), and the copy was not cut short."""
    restored = standing.claim.restored
    if standing.ended or restored is None or restored.path != path.url:
        return False
    return not standing.is_cut_short([c for c, _ in reader.checkpoints_of(standing.claim.run)])


def _young(storage: Storage, lowest: int, tail: int) -> bool:
    """Whether entries from `lowest` on stay although they are below the floor (`Restoring._is_young`)."""
    log = StreamLog(storage)
    at, newest = log.stored_ms(lowest), log.stored_ms(tail)
    return at is not None and newest is not None and at > newest - DAY_MS


def _misfits(content: Checkpoint, job: Job, matched: Matched | None) -> list[str]:
    return misfits(content, job) if matched is None else [*matched.problems, *unfit(content, job)]


def _own(
    content: Checkpoint, path: RestorePath, storage: Storage, reader: StreamReader, standing: Standing, matched: Matched | None
) -> Preflight:
    problems = _misfits(content, standing.claim.job, matched)
    use = standing.use(content.id)
    if use is not Use.USABLE:
        why = "was found damaged" if use is Use.BAD else "is not one that the stream can go back to"
        problems.append(f"it {why} ({use.value} in `spark-ckpt list`)")
    else:
        overview = Overview.of(reader.read_all(), standing)
        if content.id not in overview.retained:
            problems.append(f"{_why_not_retained(content.id, overview, standing.claim)} at any moment")
    return _with_plans(problems, False, content, path, storage, reader, standing)


def _why_not_retained(checkpoint: CheckpointId, overview: Overview, claim: Claim) -> str:
    if checkpoint in claim.unsure:
        return "an earlier run had dropped it or given it up, and may delete it"
    if checkpoint in newest_first(claim, (item.id for item in overview.found if item.id.run == claim.run))[: claim.retained]:
        return "its run had given it up, not knowing that it was stored, and may delete it"
    return f"it is not among the newest {claim.retained} (spark.ckpt.retained; damaged ones count), and may be deleted"


def _with_plans(
    problems: list[str], copied: bool, content: Checkpoint, path: RestorePath, storage: Storage, reader: StreamReader, standing: Standing
) -> Preflight:
    """What was planned past it runs again, or `Preflight.problems` says why not."""
    claim, tail = standing.claim, standing.tail
    origin = replace(content, id=CheckpointId(claim.run + 1, content.id.epoch)) if copied else content
    planned = planned_past(storage, reader, standing, origin, CopyOf(content.id, path.url))
    if planned.gaps:
        way_out = f"; or restore it {_DISCARD_ONLY}" if planned.numbers_known else ""
        missing = f"log entry {planned.gaps[0]} is missing, so it is not known which epochs were planned past it"
        why: str | None = f"{missing}; put it back{way_out}"
    elif planned.past_all is not None:
        why = (
            f"the log ends with entry {tail}, before the plan of {checkpoint_name(planned.past_all)}, so it is not known what ran past it; "
            "put the later entries back, or restore it with a new checkpointLocation and a new output path"
        )
    else:
        why = _not_again(planned, content, storage, claim)
    if why is not None:
        problems = [*problems, why]
    # In at-least-once what followed runs anew under new numbers.
    again = () if planned.gaps or claim.ahead else planned.planned_before.plans
    drain = next((plan.epoch for plan in again if is_drain(plan.offsets)), None)
    return Preflight(tuple(problems), True, copied, tuple(plan.epoch for plan in again), drain)


def _not_again(planned: Planned, content: Checkpoint, storage: Storage, claim: Claim) -> str | None:
    """Why what was planned cannot run again, in words."""
    found = planned.planned_before
    if found.missing is not None:
        return f"the plan of epoch {found.missing} is not in the log, although a later one is; put it back; or restore it {_DISCARD_ONLY}"
    if claim.ahead:
        return None
    why = does_not_follow(found, content.id, claim.used if claim.used is not None else -1)
    if why is not None:
        return f"{why}; with spark.ckpt.restore.plans=DISCARD they run anew, and sinks get their rows twice"
    lost = next(absent(storage, planned.files), None)
    if lost is None:
        return None
    return f"{lost}, which an epoch takes that runs again; put it back; or restore it {_DISCARD_ONLY}"
