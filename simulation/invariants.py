"""The invariants, by name."""

from __future__ import annotations

from enum import Enum


class Invariant(Enum):
    """What must hold after every step, or at the end."""

    OBJECTS_EXIST = "a completed checkpoint's objects all exist"
    COMPLETED_STORED = "a completion is announced only when _metadata is stored"
    NOTHING_NEEDED_DELETED = "nothing that an existing checkpoint references is deleted"
    PLANNED_EXIST = "what a plan in the log names is there when it is stored, and as long as it is"
    DELETED_UNUSED = "nothing is deleted that a snapshot to come names"
    RETAINED_EXIST = "what the last claim's run retains, or began from, exists"
    NEWEST_RESTORED = "a claim's origin is the newest completed checkpoint of the last claim's lineage"
    ORIGIN_WHOLE = "a start goes on from a checkpoint of which all is there"
    ORIGIN_LOADS = "executors of a run that is not fenced can load its state"
    STATE_RIGHT = "restored state is that of one pass over the input up to its epoch"
    FILES_RIGHT = "the driver's files are all there after a restore"
    HOOK_STATE = "a start gives a hook the state that it gave at the end of the epoch which the start goes on from"
    PLAN_FIRST = "no epoch runs before its plan is in the log under the run's own claim"
    FENCED_STOPS = "a fenced run runs no further epoch and notifies nobody"
    SAME_DATA = "a batch id always carries the same data"
    WHOLE_INPUT = "the sink holds one pass over the input, without a gap"
    NOTHING_LOST = "a sink that skips batch ids it has seen holds all input, and rows of one pass over it"
    LOG_WHOLE = "the log has no gap, no entry changes, and no damage is noted where there was none"
    LOST_IS_GONE = "state is declared lost only when nobody can ever give it"
    WANTS_ANSWERED = "a task that needs state of another executor is answered"
    NO_WAITING = "in the interval mode an epoch is sealed at once"
    CONCURRENT = "no more checkpoints are in the making than maxConcurrent"
    LAG = "while the storage works, what is durable never lags behind without bound, and how far it does is told"
    COVERED = "a query that ends is in a completed checkpoint to its last epoch"
    SAVEPOINT = "a savepoint holds all of its checkpoint, whatever is deleted, and every request is answered"
    ON_DEMAND = "a request for a checkpoint is answered with one that was completed and holds all that had ended"
    ANSWERED_ENDS = "a query that was asked to end, and answered with its savepoint, ends"
    DRAINED_ASKED = "a query is drained only while somebody waits for that"
    BOUNDED = "a spool never grows without bound"
    DELETED = "of a stream that is deleted nothing stays that its run had heard of"
    GARBAGE_GONE = "with quiet, all garbage is gone"
    PROGRESS = "with quiet, the stream makes progress"
    MACHINE = "the machine knows every event that can happen"


class ViolationError(Exception):
    """An invariant does not hold."""

    def __init__(self, invariant: Invariant, message: str) -> None:
        super().__init__(f"{invariant.value}: {message}")
        self.invariant = invariant


class StrandedError(Exception):
    """Damage, and a run that was taken for dead, left the stream nothing to go on from: the seed ends there, and nothing was broken."""
