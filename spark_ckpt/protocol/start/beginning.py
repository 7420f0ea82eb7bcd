"""What a start, or a coordinator that takes the place of another one, hands to the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_ckpt.model import Checkpoint
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol.driver_files import DriverFiles
from spark_ckpt.protocol.entries import Claim, Plan, Request


@dataclass(frozen=True)
class Replaced:
    """What a coordinator finds that takes the place of another one.

    `requests`: what that one may have taken up, by log entry. `sealed`: the newest finished epoch, -1 for none. `in_hand`: the newest that
    the driver has triggered, or is about to. `unplanned`: what the driver has written that may be in no plan. `hooks`: what the query's
    hooks gave at the end of `sealed`. `unrecorded`: what epochs have read in real time of which the log does not say so.
    """

    requests: tuple[tuple[int, Request], ...]
    sealed: int = -1
    in_hand: int = -1
    unplanned: ev.Changes = field(default_factory=dict)
    hooks: ev.HookStates = field(default_factory=ev.HookStates)
    unrecorded: Mapping[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Beginning:
    """What a run begins with. `next_number`: of the log. `plan`: that of the first epoch, if it has one.

    `numbers`: epoch -> the entry under the run's own claim that plans it, for the first that runs again the claim, which adopts its plan.
    A checkpoint's `log` is that one: all that the run plans for later epochs stands behind it or is adopted, where the next start looks.
    Others that run again are appended when they are triggered, so that a run that repeats old epochs is fenced like any other.
    `not_inherited`: checkpoints past the one that a person chose to go back to. Nobody goes on from them any more, and the run deletes
    them when it has completed one of its own.
    `planned`: the entries before `next_number` of which it is known what they name that is an object of its own. `floor`: of the log's
    tail. `stored_ms`: when the claim was put, by the storage's clock, where it was just put and that is known. `hooks`: names of the
    query's. `real_time`: the run is one in real time.
    """

    claim: Claim
    next_number: int
    origin: Checkpoint | None
    inherited: tuple[Checkpoint, ...]
    files: DriverFiles
    epoch: int
    plan: Plan | None
    numbers: Mapping[int, int]
    planned_before: tuple[Plan, ...]
    not_inherited: tuple[Checkpoint, ...] = ()
    replaced: Replaced | None = None
    planned: Mapping[int, frozenset[str]] = field(default_factory=dict)
    floor: int = 0
    stored_ms: int | None = None
    hooks: tuple[str, ...] = ()
    real_time: bool = False
