"""What Hypothesis' machines of both modes share: a stream's storage, and what holds of its log."""

from __future__ import annotations

from typing import Any

from hypothesis.stateful import RuleBasedStateMachine, invariant

from spark_ckpt.protocol.entries import Claim, Plan, decode
from tests.drivers.protocol_driving import World


class StreamMachine(RuleBasedStateMachine):
    """A machine's first step gives it `world`."""

    world: World
    ran: dict[int, bytes]
    """The input that each epoch ran with, whoever ran it."""

    def entries(self) -> dict[int, Any]:
        return {number: decode(number, data) for number, data in sorted(self.world.log.items())}

    def check_planned(self, run: int, epoch: int) -> None:
        """An epoch runs."""
        entries = self.entries()
        adopted = {n for e in entries.values() if isinstance(e, Claim) and e.run == run for n in e.adopted_past(-1)}
        plans = [e for n, e in entries.items() if isinstance(e, Plan) and e.epoch == epoch and (e.run == run or n in adopted)]
        assert plans, "an epoch ran before its plan was in the log"
        assert self.ran.setdefault(epoch, plans[-1].offsets) == plans[-1].offsets, "one epoch, two inputs"

    @invariant()
    def the_log_has_no_gap_and_every_entry_is_its_last_claims(self) -> None:
        if not hasattr(self, "world"):
            return
        claim = 0
        for expected, (number, entry) in enumerate(self.entries().items(), 1):
            assert number == expected
            if isinstance(entry, Claim):
                claim = number
            assert entry.claim == claim
