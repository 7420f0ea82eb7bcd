"""Large files of the driver that plans name: which of them may go.

It takes all that a plan names to run its epoch again, and a plan is there for as long as somebody may want that: as the epoch after a
checkpoint, or after a savepoint that is much older. So such an object stays while a plan in the log names it, whatever becomes of the
checkpoints that do. A run knows its own plans, and those that it began with, but not all those of earlier runs: what they named is left to
`gc`, which reads the log.
"""

from __future__ import annotations

from spark_ckpt.paths import parse_driver_file_key
from spark_ckpt.protocol.entries import Plan


class PlannedFiles:
    """What a run knows of the plans in the log."""

    def __init__(self) -> None:
        self._named: dict[int, frozenset[str]] = {}
        self._free: set[str] = set()

    def add(self, number: int, plan: Plan) -> None:
        """The plan is entry `number` of the log."""
        if plan.objects:
            self._named[number] = plan.objects

    def gone(self, number: int) -> frozenset[str]:
        """Entry `number` of the log is deleted. Returns what no plan that is left names: it may go, unless a checkpoint names it."""
        free = self._named.pop(number, frozenset()) - self.named()
        self._free |= free
        return free

    def named(self) -> frozenset[str]:
        """Every object that a plan in the log names, as far as is known."""
        return frozenset().union(*self._named.values())

    def keeps(self, name: str) -> bool:
        """Whether an object must stay, although no checkpoint names it."""
        return parse_driver_file_key(name) is not None and name not in self._free

    def deleted(self, name: str) -> None:
        self._free.discard(name)
