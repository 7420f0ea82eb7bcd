"""What is known of the executors: which are lost, and which snapshots the live ones still hold."""

from __future__ import annotations

from collections import Counter


class Executors:
    """After a loss only what is reported *since* counts: an older report may name what the lost executor took over."""

    def __init__(self) -> None:
        self._lost: set[str] = set()
        self._held: dict[str, frozenset[str]] = {}
        self._holders: Counter[str] = Counter()
        """How many hold it, by id: reports of thousands of executors ask for thousands of ids."""
        self._bytes: dict[str, int] = {}
        self._taking_part: frozenset[str] = frozenset()
        self._heard: dict[str, tuple[int, int]] = {}
        """When each reported last, and the time before, counted in reports."""
        self._all_twice = 0
        """All that take part have reported twice from that report on, or from a later one."""
        self._since = 0
        self._awaited: list[str] | None = None
        """Who may still have to report twice since that report."""
        self.losses = 0
        self.reports = 0
        """How many have come."""

    def lost(self, executor: str) -> None:
        self._lost.add(executor)
        self._held.clear()
        self._holders.clear()
        self._heard.clear()
        self._bytes.pop(executor, None)
        self.losses += 1
        self._count_anew()

    def holds(self, executor: str, uids: frozenset[str], unstored: int = 0) -> frozenset[str]:
        """What it has held until now, and no longer does. `unstored`: bytes in its spool that are not in the storage yet."""
        if executor in self._lost:
            return frozenset()
        before = self._held.get(executor, frozenset())
        dropped = before - uids
        self._holders.update(uids - before)
        for uid in dropped:
            self._holders[uid] -= 1
            if not self._holders[uid]:
                del self._holders[uid]
        self._held[executor] = uids
        self._bytes[executor] = unstored
        self.reports += 1
        self._heard[executor] = (self.reports, self._heard.get(executor, (0, 0))[0])
        return dropped

    def take_part(self, executors: frozenset[str]) -> bool:
        """These, and no others, may have committed in this run, as far as they are alive. Are they others than before?"""
        if executors == self._taking_part:
            return False
        self._taking_part = executors
        self._count_anew()
        return True

    def _count_anew(self) -> None:
        self._all_twice = 0
        self._awaited = None

    def all_reported_twice_since(self, report: int) -> bool:
        """Of those that take part. What an executor says while its last report is answered it says later: the second one was made after
        the first had come. Asked again and again for one report, each executor is looked at once."""
        if report < self._all_twice:
            return True
        if self._awaited is None or report != self._since:
            self._since, self._awaited = report, list(self._taking_part - self._lost)
        while self._awaited and self._time_before(self._awaited[-1]) > report:
            self._awaited.pop()
        if self._awaited:
            return False
        self._all_twice = min((self._time_before(executor) for executor in self._taking_part - self._lost), default=report + 1)
        return True

    def _time_before(self, executor: str) -> int:
        return self._heard.get(executor, (0, 0))[1]

    def holds_it(self, uid: str) -> bool:
        return uid in self._holders

    @property
    def held(self) -> frozenset[str]:
        return frozenset(self._holders)

    @property
    def bytes(self) -> int:
        """What is not in the storage yet, of all executors."""
        return sum(self._bytes.values())

    @property
    def fullest(self) -> int:
        """Of the one that has most."""
        return max(self._bytes.values(), default=0)
