"""Would a start find in the log what it reads there? Looked at from outside, by the protocol's own rules (`planned_before.py`)."""

from __future__ import annotations

from spark_ckpt.errors import DamagedError, ObjectMissingError, StorageSetupError, without_way_out
from spark_ckpt.model import Checkpoint, CheckpointId
from spark_ckpt.paths import checkpoint_name
from spark_ckpt.protocol.retention.garbage import vanished
from spark_ckpt.protocol.retention.order import newest_first
from spark_ckpt.protocol.start.planned_before import check_unbroken, does_not_follow
from spark_ckpt.storage.base import Storage
from spark_ckpt.stored.planned import planned_past
from spark_ckpt.stored.presence import absent
from spark_ckpt.stored.reading import StreamReader
from spark_ckpt.stored.standing import Overview, Standing
from spark_ckpt.stored.verify import Verifier

_ROUNDS = 3
"""How often a stream that moves on is looked at."""


def log_problem(storage: Storage, reader: StreamReader, standing: Standing, newest: Checkpoint | None) -> str | None:
    """Why a start that goes on from `newest` would be refused for what the log lacks, in words; None: it has all. Raises `StorageError`."""
    for _ in range(_ROUNDS):
        problem = _problem(storage, reader, standing, newest)
        now = reader.standing(standing.tail)
        if problem is None or now == standing or now is None:
            break
        # A running stream may have deleted what nobody needs any more.
        standing, newest = now, Overview.of(reader.read_all(), now).newest
    return problem


def checkpoint_lost(reader: StreamReader, overview: Overview) -> str | None:
    """A checkpoint that is not there, although the newest run keeps it and nobody has deleted it: a start goes further back than it has to.
    In words; None: there is none. Raises `StorageError`.

    Rule: the checkpoints are read again, after who has the stream: (1) they are listed, and the run has none; (2) it completes one, and
    deletes what it began with; (3) that is read: gone.
    """
    gone = _vanished(overview)
    for _ in range(_ROUNDS):
        if not gone or overview.standing is None:
            return None
        standing = reader.standing(overview.standing.tail)
        again = Overview.of(reader.read_all(), standing)
        gone = _vanished(again)
        if standing == overview.standing:
            break
        overview = again
    return (
        f"{checkpoint_name(gone[0])}, which the stream at {reader.url} could go on from, is not there, and its run has not deleted it; put "
        "its _metadata back, or start the stream once"
        if gone
        else None
    )


def _vanished(overview: Overview) -> tuple[CheckpointId, ...]:
    """Not the copy that a start was about to make of a checkpoint when it died: the next one makes it."""
    standing = overview.standing
    if standing is None or standing.ended:
        return ()
    there = [item.id for item in overview.found]
    never_made = standing.never_made([c for c in there if c.run == standing.claim.run])
    return tuple(c for c in vanished(standing.claim, there) if c != never_made)


def _problem(storage: Storage, reader: StreamReader, standing: Standing, newest: Checkpoint | None) -> str | None:
    if standing.ended:
        return None
    order = newest_first(standing.claim, (checkpoint for checkpoint, _ in reader.checkpoints_of(standing.claim.run)))
    newer = order if newest is None else order[: order.index(newest.id)] if newest.id in order else []
    noted = [checkpoint for checkpoint in newer if checkpoint in standing.bad and reader.is_there(checkpoint)]
    problem = _refused(storage, reader, standing, newest)
    if not noted or (problem is None and newest is not None):
        return problem
    # Before a start is refused it looks again at what was noted as damaged (`PlansPast._unless_cured`).
    still: list[str] = []
    for checkpoint in noted:
        content, damage = _looked_at_again(storage, reader, checkpoint)
        if content is not None:
            return _refused(storage, reader, standing, content)
        still.append(f"{checkpoint_name(checkpoint)} ({damage})")
    return f"{problem}; found damaged before, and not whole yet: {', '.join(still)}" if problem is not None else None


def _looked_at_again(storage: Storage, reader: StreamReader, checkpoint: CheckpointId) -> tuple[Checkpoint | None, str]:
    """A checkpoint that is whole, or why it is not, or cannot be looked at."""
    try:
        content = reader.read(checkpoint)
        damage = Verifier(storage).verify(content).damage
    except (DamagedError, ObjectMissingError, StorageSetupError) as error:
        return None, without_way_out(str(error))
    return (content, "") if damage is None else (None, without_way_out(damage))


def _refused(storage: Storage, reader: StreamReader, standing: Standing, newest: Checkpoint | None) -> str | None:
    """Why a start from exactly this one would be."""
    if newest is None and standing.claim.origin is not None:
        return None  # where no checkpoint can be read, that is told of each
    try:
        planned = planned_past(storage, reader, standing, newest)
        if planned.gaps:
            raise DamagedError(f"log entry {planned.gaps[0]} of {reader.url} is missing, although there are later ones; put it back")
        if planned.past_all is not None:
            its_plan = f"the plan of {checkpoint_name(planned.past_all)}"
            return f"the log of {reader.url} ends with entry {standing.tail}, before {its_plan}; put the later ones back"
        check_unbroken(planned.planned_before, newest.id if newest is not None else None)
    except DamagedError as error:
        return f"a start would be refused: {error}"
    used = standing.claim.used if standing.claim.used is not None else -1
    why = does_not_follow(planned.planned_before, newest.id, used) if newest is not None and not standing.claim.ahead else None
    if why is not None:
        return f"a start would be refused: {why}"
    if standing.claim.ahead:
        return None
    lost = next(absent(storage, planned.files), None) or next(filter(None, Verifier(storage).check(planned.files).values()), None)
    return f"a start would be refused: {lost}, which the plan of an epoch names that runs again; put it back" if lost is not None else None
