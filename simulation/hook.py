"""The hook of a simulated query: a two-phase sink, as a user would write it (docs/hooks.md), and what must hold of it."""

from __future__ import annotations

from collections import Counter

from simulation.invariants import Invariant, ViolationError
from simulation.observed import Observed
from simulation.source_sink import Row, Sink
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do

HOOKS = ("two-phase",)


def states_of(epoch: int, end: int) -> ev.HookStates:
    """What the hook gives at the end of an epoch. `end`: how far the input was run."""
    return ev.HookStates({HOOKS[0]: f"{epoch} {end}".encode()})


class Publication:
    """An outside database, which all drivers write to: epochs are staged, and published once they are durable.

    What is published is what a sink holds that is given each epoch when it is published.
    """

    def __init__(self, observed: Counter[Observed], again: bool) -> None:
        self._sink = Sink(observed, again)
        self._staged: dict[int, Row] = {}
        self._owner = ""
        self._start = 0
        self._observed = observed

    def anew(self, begins: int, first: int) -> None:
        self._sink.anew(begins, first)
        self._staged.clear()

    def restore(self, who: str, i: do.Started, end: int) -> None:
        """A driver's run begins, with the input up to `end` in its state: the hook is given its state, and told what is durable.

        A driver may sleep between its claim and this, and wake up when another has taken over: the greater number of a start decides, not
        who comes last.
        """
        epoch = i.origin.epoch if i.origin else -1
        right = states_of(epoch, end).states if i.origin else {}
        if i.hooks != right:
            raise ViolationError(Invariant.HOOK_STATE, f"{who} goes on from {i.origin} and gives its hook {i.hooks}, right is {right}")
        if i.claim < self._start:
            self._observed[Observed.LATE_BEGINNING] += 1
            return
        self._owner, self._start = who, i.claim
        self._staged = {n: row for n, row in self._staged.items() if n <= epoch}
        self.completed(who, epoch)
        # (1) Epochs are staged, and a savepoint is taken; (2) the stream goes back, and they are dropped; (3) a person restores that
        # savepoint. A hook refuses that (docs/hooks.md), and the person sees to what is missing.
        if i.restored is not None and i.restored.startswith("savepoint") and self._sink.make_good(epoch, end):
            self._observed[Observed.MADE_GOOD] += 1

    def stage(self, who: str, epoch: int, row: Row) -> None:
        """A driver that was replaced, and does not know it yet, writes nothing."""
        if who == self._owner:
            self._staged[epoch] = row

    def completed(self, who: str, epoch: int) -> None:
        if who != self._owner:
            return
        for number in sorted(n for n in self._staged if n <= epoch):
            self._observed[Observed.PUBLISHED] += 1
            self._sink.add_batch(number, self._staged.pop(number), f"the hook of {who}")

    def check(self, end: int) -> None:
        """As of a sink: each row of the input up to `end` is published, and once."""
        self._sink.check(end)
