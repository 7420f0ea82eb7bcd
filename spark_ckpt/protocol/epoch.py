"""The epoch in hand, and those that are still to run as they were planned."""

from __future__ import annotations

from collections.abc import Mapping

from spark_ckpt.model import Content
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol.driver_files import sources_of
from spark_ckpt.protocol.entries import Claim, Plan
from spark_ckpt.protocol.start.beginning import Beginning


class EpochInHand:
    """`number`: the one that is due, or runs."""

    def __init__(self, beginning: Beginning) -> None:
        self.number = beginning.epoch
        self.plan: Plan | None = beginning.plan
        self.asked_ms = 0
        """When the driver asked for it."""
        self.plan_ms = 0
        """How long its plan took."""
        self.losses = 0
        """How many executors had been lost when it was triggered."""
        self._stretches = 0
        """How often `CheckpointPolicy.long_ms` has passed since it began."""
        self._stretches_before: int | None = None
        """In the epoch before, of this run."""
        self._planned_before = {plan.epoch: plan for plan in beginning.planned_before}
        self._logs = dict(beginning.numbers)
        origin, first = beginning.origin, beginning.claim.first
        self._begins = origin.begins if origin is not None else ()
        self._first = first if first is not None else origin.id.epoch + 1 if origin is not None else 0

    @property
    def is_long(self) -> bool:
        """Rule: while an epoch runs for long, what is done while idle is done all the same."""
        return self._stretches > 0

    @property
    def is_about_to_end(self) -> bool:
        """Of a long one, where epochs are as long as each other: the one before had ended by now, and this one is not much longer. (No two
        are of the same length to the millisecond.)"""
        before = self._stretches_before
        return self.is_long and before is not None and before <= self._stretches <= before + 1

    def runs_long(self) -> None:
        """For `CheckpointPolicy.long_ms`, or once more."""
        self._stretches += 1

    def version(self, claim: Claim) -> int | None:
        """`Triggered.version`. Rule: state that goes on under a new number is loaded under its old one."""
        if self.number != claim.first:
            return None
        return claim.origin.epoch + 1 if claim.origin is not None else 0

    @property
    def begins(self) -> tuple[int, ...]:
        """`Triggered.begins`. Rule: an operator that is new begins empty in the first epoch, however often that runs."""
        return self._begins if self.number == self._first else ()

    def listed(self) -> Mapping[str, Content | None]:
        """What its sources had listed for it when it was planned before, which lies there since the start: nobody writes it again."""
        return sources_of(self.planned_before.files) if self.planned_before else {}

    def planned(self, plan: Plan) -> bool:
        """The driver has asked for it. False: it was planned before with other data."""
        planned_before = self._planned_before.pop(self.number, None)
        self.plan = plan
        return planned_before is None or planned_before.same_data(plan)

    @property
    def planned_before(self) -> Plan | None:
        """As it was planned before; it runs again."""
        return self._planned_before.get(self.number)

    def is_asked_again(self, event: ev.TriggerRequested) -> bool:
        """The same trigger was sent once more, because the coordinator that got it first died."""
        plan = self.plan
        return plan is not None and event.epoch == self.number and plan.same_data(Plan(0, 0, event.epoch, event.offsets))

    def ended(self) -> None:
        self.number += 1
        self.plan = None
        self._stretches_before, self._stretches = self._stretches, 0

    def stored(self, epoch: int, number: int) -> None:
        """Entry `number` plans that epoch. The first that does counts: what is planned for later epochs stands behind it."""
        self._logs.setdefault(epoch, number)

    def log(self, epoch: int) -> int:
        """The entry that plans that epoch, 0 if none is stored yet."""
        return self._logs.get(epoch, 0)

    def forget_before(self, epoch: int) -> None:
        self._logs = {one: number for one, number in self._logs.items() if one >= epoch}

    @property
    def highest_planned(self) -> int:
        return max(self._planned_before, default=-1)
