"""What is known of the executors: which are lost, and which snapshots the live ones still hold."""

from __future__ import annotations


class Executors:
    """After a loss only what is reported *since* counts: an older report may name what the lost executor took over."""

    def __init__(self) -> None:
        self._lost: set[str] = set()
        self._held: dict[str, frozenset[str]] = {}
        self._bytes: dict[str, int] = {}
        self._part: frozenset[str] = frozenset()
        self._heard: dict[str, tuple[int, int]] = {}
        """When each reported last, and the time before, counted in reports."""
        self._all_twice = 0
        self.losses = 0
        self.reports = 0
        """How many have come."""

    def lost(self, executor: str) -> None:
        self._lost.add(executor)
        self._held.clear()
        self._heard.clear()
        self._bytes.pop(executor, None)
        self.losses += 1
        self._count()

    def holds(self, executor: str, uids: frozenset[str], unstored: int = 0) -> None:
        """`unstored`: bytes in its spool that are not in the storage yet."""
        if executor not in self._lost:
            self._held[executor] = uids
            self._bytes[executor] = unstored
            self.reports += 1
            self._heard[executor] = (self.reports, self._heard.get(executor, (0, 0))[0])
            self._count()

    def take_part(self, executors: frozenset[str]) -> None:
        """These, and no others, may have committed in this run, as far as they are alive."""
        self._part = executors
        self._count()

    def _count(self) -> None:
        """All that take part have reported twice from that report on."""
        part = self._part - self._lost
        self._all_twice = min((self._heard.get(executor, (0, 0))[1] for executor in part), default=self.reports + 1)

    def all_reported_twice_since(self, report: int) -> bool:
        """Of those that take part. What an executor says while its last report is answered it says later: the second one was made after
        the first had come."""
        return self._all_twice > report

    def holds_it(self, uid: str) -> bool:
        return any(uid in held for held in self._held.values())

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
