"""What a driver's JVM carries between its executors and its coordinator: questions for state, and which executors are lost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from simulation.agent import Executor
from simulation.process import DriverProcess
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do

Answer = do.HandedOver | do.NotHandedOver


@dataclass
class _Want:
    epoch: int
    wanted: bool = False
    """Whoever holds it is to hand it over."""
    answer: Answer | None = None


class Wants:
    """Executors ask again and again; the coordinator is asked once, and its answer is kept until it is fetched."""

    def __init__(self, process: DriverProcess) -> None:
        self.gone: set[str] = set()
        """Executors that Spark has lost."""
        self._process = process
        self._wants: dict[str, _Want] = {}
        self._part: dict[str, Executor] = {}

    def begin(self) -> None:
        """Another run: none has committed in it."""
        self._wants = {}
        self._part = {}

    def clear(self) -> None:
        """The tasks that asked are gone."""
        self._wants = {}

    def joined(self, executor: Executor) -> None:
        """Before it commits, or asks."""
        executor.joined = True
        self._part[executor.name] = executor

    def look_who_lives(self) -> None:
        """No event may have told of a loss."""
        for executor in list(self._part.values()):
            if not executor.alive:
                self.lost(executor.name)

    def lost(self, name: str) -> None:
        if name not in self.gone:
            self.gone.add(name)
            self._part.pop(name, None)
            self._process.give(ev.ExecutorLost(name), self._process.coordinator)

    def ask(self, uid: str, epoch: int) -> Answer | None:
        want = self._wants.get(uid)
        if want is None:
            self._wants[uid] = _Want(epoch)
            if not self._process.resuming:  # else it is said with all else
                self._process.give(self._question(uid, epoch), self._process.coordinator)
            return None
        if want.answer is not None:
            del self._wants[uid]
        return want.answer

    def told(self, i: do.HandOver | Answer) -> None:
        want = self._wants.get(i.uid)
        if want is None:
            return
        if isinstance(i, do.HandOver):
            want.wanted = True
        else:
            want.answer = i

    @property
    def is_open(self) -> bool:
        return any(want.answer is None for want in self._wants.values())

    def of(self, held: Iterable[str]) -> list[str]:
        """What an executor that holds these is to hand over."""
        return [uid for uid in held if (want := self._wants.get(uid)) is not None and want.wanted and want.answer is None]

    def told_again(self) -> list[ev.Event]:
        """To a coordinator that takes another one's place."""
        asked = [self._question(uid, want.epoch) for uid, want in self._wants.items() if want.answer is None]
        return [*asked, *(ev.ExecutorLost(name) for name in sorted(self.gone))]

    def _question(self, uid: str, epoch: int) -> ev.StateWanted:
        return ev.StateWanted(uid, epoch, frozenset(self._part))
