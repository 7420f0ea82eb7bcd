"""The phases of a start, and in which order it looks at things."""

from __future__ import annotations

from enum import Enum


class Step(Enum):
    TAIL = "TAIL"
    """Locate the tail, read the last claim, compare the job."""
    CHECKPOINTS = "CHECKPOINTS"
    """List the checkpoints of the last claim's run, read them, choose the origin, read the plans past it."""


class StartOrder:
    """Rule: the tail is read *before* the checkpoints are listed, and the claim goes to the number after that tail.

    Otherwise: (1) list, newest is K; (2) the old run completes K+1, appends its next plan and deletes K; (3) read the tail, which now
    includes that plan, and claim behind it with origin K, which is gone.
    """

    def steps(self) -> tuple[Step, ...]:
        return (Step.TAIL, Step.CHECKPOINTS)


class StartPhase(Enum):
    NEW = "NEW"
    LOCATING = "LOCATING"
    READING_TAIL = "READING_TAIL"
    READING_CLAIM = "READING_CLAIM"
    CHECKING_STORAGE = "CHECKING_STORAGE"
    LISTING = "LISTING"
    READING_BEHIND = "READING_BEHIND"
    READING_RESTORE_PATH = "READING_RESTORE_PATH"
    DATING = "DATING"
    """How old the entries are that a savepoint below the floor takes."""
    READING_ITS_PLAN = "READING_ITS_PLAN"
    READING_METADATA = "READING_METADATA"
    FETCHING = "FETCHING"
    """Large files of the driver are brought to the local disk."""
    VERIFYING = "VERIFYING"
    CONFIRMING = "CONFIRMING"
    """Whether the log has grown, since something is missing."""
    READING_PLANS = "READING_PLANS"
    DESCRIBING = "DESCRIBING"
    COPYING = "COPYING"
    CLAIMING = "CLAIMING"
    LOOKING_PAST = "LOOKING_PAST"
    """Whether the claim stands at the log's end."""
    IMPORTING = "IMPORTING"
    DONE = "DONE"
    REFUSED = "REFUSED"
