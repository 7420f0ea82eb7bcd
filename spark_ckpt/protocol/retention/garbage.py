"""What `gc` may delete: garbage of superseded runs, and of the one that lives. Pure: the caller reads the last claim, then lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from spark_ckpt.model import Checkpoint, CheckpointId
from spark_ckpt.paths import METADATA_NAME, parse_checkpoint_prefix, parse_leavable, parse_run_prefix
from spark_ckpt.protocol.entries import Claim, End, Entry, Plan
from spark_ckpt.protocol.retention.deletion import Batch
from spark_ckpt.protocol.retention.order import newest_first, worth_keeping


def kept_checkpoints(claim: Claim) -> frozenset[CheckpointId]:
    """Checkpoints of older runs that the last claim's run goes on from or owns."""
    return frozenset([*claim.inherits, *([claim.origin] if claim.origin else [])])


def planned_objects(log: Iterable[Entry]) -> frozenset[str]:
    """What the plans in the log, given in order, name and somebody may yet run again: all of them, but of a stream that was deleted and has
    begun anew only the later ones. A savepoint that is restored after the deletion makes the plans past it count again, but none that name
    such an object (`PlansPast._check_deleted`).
    """
    named: set[str] = set()
    for entry in log:
        if isinstance(entry, Plan):
            named |= entry.objects
        elif isinstance(entry, End):
            named.clear()
    return frozenset(named)


def vanished(claim: Claim, checkpoints: Iterable[CheckpointId]) -> tuple[CheckpointId, ...]:
    """What the last claim's run began with and still retains, by the `checkpoints` that were read, and is not there: nobody has deleted it.

    A person may put it back, if what it names is left alone.
    """
    there = frozenset(checkpoints)
    own = {c for c in there if c.run == claim.run}
    # Without a checkpoint of its own a run stands on its origin, whoever has deleted that.
    unsure = frozenset(claim.unsure) - (frozenset() if own else {claim.origin})
    kept = kept_checkpoints(claim).difference(there, unsure)
    order = newest_first(claim, own)
    due = worth_keeping(order, there, claim.retained)
    return tuple(c for c in order if c in kept and c in due)


def is_bare(claim: Claim, floor: int, checkpoints: Iterable[CheckpointId]) -> bool:
    """Whether the last claim's run has completed a checkpoint, and none is there: no run raises the log's `floor` before it has one."""
    return floor > claim.floor and not any(True for _ in checkpoints)


def is_over(run: int, claim: Claim, ended: bool) -> bool:
    """Whether nothing below this run's prefix is deleted by itself any more: it was superseded, or its stream was deleted."""
    return run < claim.run or (ended and run == claim.run)


def garbage(
    claim: Claim, checkpoints: Iterable[Checkpoint], keys: Iterable[str], ended: bool = False, planned: Iterable[str] = ()
) -> Batch:
    """Everything under runs older than the last claim's that no checkpoint names, and the checkpoints nobody inherits.

    `planned`: what plans in the log name; they are read after all that, and then (2) to (4) are done once more, for `checkpoints` of both
    times. Each time it is looked whether one is gone that nobody has deleted (`vanished`, `is_bare`): it may have made plans superfluous
    that named the same. A plan that is appended after the log was read names no object of an older run but what an older plan or a
    checkpoint does; and an entry that was deleted before that (`log_trim.py`) names none that is needed but what a checkpoint does, maybe
    one that completed after the first time.

    The order of reading matters, because runs go on meanwhile: (1) the last claim; (2) `_metadata` of its `kept_checkpoints`; (3) those
    of its own run, listed and read, again if one of the listed is gone when it is read; (4) whether the claim is still the last, else
    begin again; (5) the keys. What (2) and (3) found are `checkpoints`: a later claim inherits from these and no others. With (3) before
    (2), or without (4), what is kept may be superseded and deleted between two reads, and what its successors still share with it would
    be named by nothing. Of the claim's own run `garbage_of_living` tells: it deletes itself what it knows of. But of a stream that was
    deleted (`ended`) everything is, and `checkpoints` are none: what its last run had not heard of, or had no time to delete.
    """
    named = frozenset(() if ended else planned).union(*(c.objects for c in checkpoints))
    kept = frozenset() if ended else kept_checkpoints(claim)
    superfluous: list[CheckpointId] = []
    objects: list[str] = []
    for key in keys:
        run = parse_run_prefix(key.split("/", 1)[0])
        if run is None or not is_over(run, claim, ended):
            continue
        folder, _, name = key.rpartition("/")
        found = parse_checkpoint_prefix(folder) if name == METADATA_NAME else None
        if found is not None:
            if found not in kept:
                superfluous.append(found)
        elif key not in named:
            objects.append(key)
    return Batch(tuple(sorted(superfluous)), tuple(sorted(objects)))


@dataclass(frozen=True)
class Settled:
    """A checkpoint that a live run has completed, and when its epoch was certainly still to come: `before_ms`, by the storage's clock."""

    checkpoint: Checkpoint
    before_ms: int


def settled(own: Iterable[Checkpoint]) -> Checkpoint | None:
    """Of the checkpoints that are there of the run that lives, the newest behind which no older one is still to come.

    (1) Checkpoint 2 is in the making; (2) 5 completes; (3) what only 2 names is collected; (4) `_metadata` of 2 lands.
    """
    found = sorted(own, key=lambda c: c.id, reverse=True)
    epochs = {c.id.epoch for c in found}
    return next((c for c in found if epochs.issuperset(c.unfinished)), None)


def entry_before_barrier(claim: Claim, checkpoint: Checkpoint, floor: int, read: Callable[[int], Entry | None]) -> int:
    """The number of a log entry that was stored before the epoch of that checkpoint ran: no epoch runs more than `Claim.ahead` past the
    newest one whose plan is stored. `floor`: the log's. `read` answers None for an entry that is not there."""
    for number in range(checkpoint.log - claim.ahead, claim.claim, -1):
        entry = read(number)
        if entry is None and number < floor:
            break  # what is below it may be gone as well
        if isinstance(entry, Plan) and entry.claim == claim.claim and entry.epoch <= checkpoint.id.epoch - claim.ahead:
            return number
    return claim.claim


def garbage_of_living(settled: Settled, checkpoints: Iterable[Checkpoint], stored: Mapping[str, int], age_ms: int) -> tuple[str, ...]:
    """Of the run that has completed `settled` and goes on: what nobody has heard of, or will ask for.

    That is what agents uploaded whose acknowledgement never arrived, the acknowledgements that they left in the storage, copies that
    restores made which then lost the claim, and answers to requests. `stored`: key -> when, by the storage's clock; no other clock is
    asked. An object that no checkpoint names, stored before the epoch of a completed one was triggered, is named by none to come:
    whatever an executor commits from that epoch on builds on what this checkpoint names, or was stored later. What was still on its way
    then - an acknowledgement, the snapshots of a savepoint, a person who waits for the answer - has `age_ms` to arrive: no less than the
    run's own `spark.ckpt.timeout`, for S3 dates an object that comes in parts from the beginning of its upload. Driver files, `_metadata`
    and all that a run deletes by itself are left to it.
    """
    named = frozenset().union(*(c.objects for c in checkpoints))
    newest, before_ms = settled.checkpoint.id, settled.before_ms - age_ms
    found: list[str] = []
    for key, stored_ms in stored.items():
        left = parse_leavable(key)
        if left is None or left.run != newest.run or stored_ms >= before_ms or key in named:
            continue
        if left.epoch is None or left.epoch <= newest.epoch:
            found.append(key)
    return tuple(sorted(found))
