"""How far a simulated query is."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Position:
    """`epoch`: the one that is due, or runs; `end`: of the input that was run; `reads`: where the epoch in hand ends, in real time."""

    epoch: int = 0
    end: int = 0
    triggered: int = -1
    sealed: int = -1
    reads: int = 0
    sealed_at: dict[int, int] = field(default_factory=dict)
    """Of epochs that no completed checkpoint is known to hold."""

    def seal(self, epoch: int, end: int, completed: int, now: int) -> None:
        self.sealed, self.end = epoch, end
        self.sealed_at = {n: time for n, time in self.sealed_at.items() if n > completed}
        self.sealed_at[epoch] = now
        self.epoch += 1
