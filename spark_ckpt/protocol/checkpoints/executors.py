"""What is known of the executors: which are lost, and which snapshots the live ones still hold."""

from __future__ import annotations


class Executors:
    """After a loss only what is reported *since* counts: an older report may name what the lost executor took over."""

    def __init__(self) -> None:
        self._lost: set[str] = set()
        self._held: dict[str, frozenset[str]] = {}
        self._bytes: dict[str, int] = {}
        self.losses = 0

    def lost(self, executor: str) -> None:
        self._lost.add(executor)
        self._held.clear()
        self._bytes.pop(executor, None)
        self.losses += 1

    def holds(self, executor: str, uids: frozenset[str], unstored: int = 0) -> None:
        """`unstored`: bytes in its spool that are not in the storage yet."""
        if executor not in self._lost:
            self._held[executor] = uids
            self._bytes[executor] = unstored

    @property
    def held(self) -> frozenset[str]:
        return frozenset().union(*self._held.values())

    @property
    def bytes(self) -> int:
        """What is not in the storage yet, of all executors."""
        return sum(self._bytes.values())

    @property
    def fullest(self) -> int:
        """Of the one that has most."""
        return max(self._bytes.values(), default=0)
