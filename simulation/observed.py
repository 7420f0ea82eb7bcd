"""What happened in a simulation, counted, so that a check cannot silently test nothing."""

from __future__ import annotations

from enum import Enum


class Observed(Enum):
    """Faults first, then what the protocol did about them."""

    REAL_TIME = "epochs in real time"
    SWITCHED = "runs in real time after one that ran what was planned as micro-batches, or went back"
    DRIVER_CRASHED = "driver crashes"
    DRIVER_SLEPT = "drivers that slept"
    ZOMBIE_WOKE = "zombies that woke up with a successor in the log"
    COORDINATOR_CRASHED = "coordinator crashes"
    EXECUTOR_LOST = "executors lost"
    EXECUTOR_LEFT = "executors that stored what they held before they went"
    LOSS_MISSED = "executors lost of which no event told"
    AGENT_RESTARTED = "agents that died alone"
    ANSWER_LOST = "answers lost"
    REQUEST_LOST = "requests lost"
    LANDED_LATE = "puts that landed after their time-out"
    PUT_FAILED = "puts that failed"
    READ_FAILED = "reads that failed"
    DELETE_FAILED = "deletes that failed"
    ACK_LOST = "acks lost"
    ACK_DOUBLED = "acks doubled"
    ACK_LEFT = "acks left in the storage"
    DECLINED = "declines"
    OUTAGE = "outages of the storage"
    DAMAGED = "log entries, _metadata and objects that were damaged or vanished"
    DAMAGE_NOTED = "damage that a run noted in the log"
    DAMAGE_REFUSED = "starts that damage refused"
    PASSED_OVER = "damaged checkpoints that a claim passes over"
    REPAIRED = "times that a person put back what was damaged"
    STRANDED = "streams of which damage and a sleeper left nothing"
    LOSING_ATTEMPT = "losing attempts"
    MOVED = "tasks that ran elsewhere"
    WANTED = "states that only another executor's spool held"
    HANDED_OVER = "states that another executor handed over"
    STATE_LOST = "states that were lost with their executor"
    PRESSED = "uploads because a spool filled"
    SPOOL_FULL = "commits that waited for a full spool"
    SLOW = "slow operations"
    LONG = "epochs that ran for long"
    STARTED = "runs started"
    OVERLAPPED = "runs started while another lived"
    FILE_STORED = "large files of the driver stored"
    FILE_FETCHED = "large files of the driver brought back"
    RESTORED = "restores from a checkpoint"
    RERUN = "epochs run again as planned"
    RERUN_IN_PLACE = "epochs run again in place"
    WENT_BACK = "queries that went back to the last checkpoint in place"
    LATE = "checkpoints of finished epochs"
    BRIDGED = "checkpoints of finished epochs that completed while a long one ran"
    ABORTED = "checkpoints aborted"
    SUBSUMED = "checkpoints subsumed"
    TOLERATED = "failed checkpoints that were tolerated"
    NOT_TOLERATED = "runs that failed because of a checkpoint"
    FINISHED = "last epochs that became a checkpoint"
    NOT_FINISHED = "last epochs that did not"
    ASKED = "savepoints asked for"
    DEMANDED = "checkpoints asked for"
    MET = "requests for checkpoints that one answered"
    SAVEPOINT = "savepoints stored"
    NOT_SAVED = "savepoints that could not be stored"
    STOPPING = "queries asked to end with a savepoint"
    DRAINED = "queries drained"
    CHOSEN = "checkpoints that a person chose to go on from"
    IMPORTED = "savepoints that a stream went on from"
    ELSEWHERE = "streams that began from another one's savepoint"
    CHOICE_REFUSED = "choices that were refused"
    SOURCE_GONE = "savepoints that a stream took over and deleted"
    CHANGED = "queries that a person changed"
    RENUMBERED_OPERATORS = "checkpoints of which a stream got a copy, for the query had changed"
    DISCARDED = "plans that a person discarded"
    RENUMBERED = "runs that began under new numbers"
    AHEAD = "epochs that ran before their plan was stored"
    DUPLICATED = "input that the sink holds more than once"
    CLAIM_TAKEN = "claims whose number was taken"
    FENCED = "runs fenced"
    FENCED_IDLE = "runs fenced while idle"
    RESUMED = "coordinators resumed"
    STOPPED = "runs stopped by a person"
    TASK_FAILED = "runs stopped because a task failed"
    FAILED = "runs failed"
    COMPLETED = "checkpoints completed"
    PUBLISHED = "epochs that a hook published"
    LATE_BEGINNING = "starts that reached their hook after a later one"
    MADE_GOOD = "savepoints that a hook refused, for it had dropped what belongs to them"
    DROPPED = "checkpoints deleted"
    RESURFACED = "checkpoints that came back when a put landed late"
    DELETED = "objects deleted"
    TRIMMED = "old entries of the log deleted"
    HOLE = "entries that a sleeper wrote where old ones had been deleted"
    FORGOTTEN = "savepoints older than the log that a stream went on from"
    SHARED = "shared files reused"
    STORED_ANEW = "files of sparse packs stored anew"
    SKIPPED = "batches that the sink had seen"
    LOADED = "states loaded from a checkpoint"
    LOAD_FENCED = "loads that found nothing because the run was fenced"
    STREAM_DELETED = "streams deleted"
    ANEW = "streams that began anew after their end"
    GC = "collections of garbage"
    COLLECTED = "objects collected"
    COLLECTED_ALIVE = "of them of the run that lives"


BACKGROUND = frozenset(
    {
        Observed.WANTED,
        Observed.HANDED_OVER,
        Observed.STATE_LOST,
        Observed.PRESSED,
        Observed.SPOOL_FULL,
        Observed.WENT_BACK,
        Observed.LATE,
        Observed.BRIDGED,
        Observed.SUBSUMED,
        Observed.TOLERATED,
        Observed.NOT_TOLERATED,
    }
)
"""What can only happen where snapshots lie in spools while later epochs run."""

IN_REAL_TIME = frozenset({Observed.REAL_TIME, Observed.SWITCHED})
"""What happens in real time alone."""

SELDOM = frozenset({Observed.STRANDED})
"""What happens in a few of ten thousand seeds, and ends them."""

AGAIN = frozenset({Observed.FORGOTTEN, Observed.DISCARDED, Observed.RENUMBERED, Observed.AHEAD, Observed.DUPLICATED})
"""What can only happen where input may be run again as something else: at-least-once, and plans that a person discards."""
