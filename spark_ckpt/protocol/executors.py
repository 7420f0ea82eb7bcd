"""What is known of the executors: which are lost, and which snapshots the live ones still hold."""

from __future__ import annotations


class Executors:
    """After a loss only what is reported *since* counts: an older report may name what the lost executor took over."""

    def __init__(self) -> None:
        self._lost: set[str] = set()
        self._held: dict[str, frozenset[str]] = {}
        self.losses = 0

    def lost(self, executor: str) -> None:
        self._lost.add(executor)
        self._held.clear()
        self.losses += 1

    def holds(self, executor: str, uids: frozenset[str]) -> None:
        if executor not in self._lost:
            self._held[executor] = uids

    @property
    def held(self) -> frozenset[str]:
        return frozenset().union(*self._held.values())
