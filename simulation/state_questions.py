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
class _Question:
    epoch: int
    hands_over: bool = False
    """Whoever holds it is to hand it over."""
    answer: Answer | None = None


class StateQuestions:
    """Executors ask again and again; the coordinator is asked once, and its answer is kept until it is fetched."""

    def __init__(self, process: DriverProcess) -> None:
        self.gone: set[str] = set()
        """Executors that Spark has lost."""
        self._process = process
        self._questions: dict[str, _Question] = {}
        self._taking_part: dict[str, Executor] = {}

    def begin(self) -> None:
        """Another run: none has committed in it."""
        self._questions = {}
        self._taking_part = {}

    def clear(self) -> None:
        """The tasks that asked are gone."""
        self._questions = {}

    def joined(self, executor: Executor) -> None:
        """Before it commits, or asks."""
        executor.joined = True
        self._taking_part[executor.name] = executor

    def look_who_lives(self) -> None:
        """No event may have told of a loss."""
        for executor in list(self._taking_part.values()):
            if not executor.alive:
                self.lost(executor.name)

    def lost(self, name: str) -> None:
        if name not in self.gone:
            self.gone.add(name)
            self._taking_part.pop(name, None)
            self._process.give(ev.ExecutorsLost(frozenset({name})), self._process.coordinator)

    def ask(self, uid: str, epoch: int) -> Answer | None:
        question = self._questions.get(uid)
        if question is None:
            self._questions[uid] = _Question(epoch)
            if not self._process.resuming:  # else it is said with all else
                self._process.give(self._asked_of_coordinator(uid, epoch), self._process.coordinator)
            return None
        if question.answer is not None:
            del self._questions[uid]
        return question.answer

    def answered(self, i: do.HandOver | Answer) -> None:
        question = self._questions.get(i.uid)
        if question is None:
            return
        if isinstance(i, do.HandOver):
            question.hands_over = True
        else:
            question.answer = i

    @property
    def is_open(self) -> bool:
        return any(question.answer is None for question in self._questions.values())

    def of(self, held: Iterable[str]) -> list[str]:
        """What an executor that holds these is to hand over."""
        return [
            uid for uid in held if (question := self._questions.get(uid)) is not None and question.hands_over and question.answer is None
        ]

    def events_to_repeat(self) -> list[ev.Event]:
        """To a coordinator that takes another one's place."""
        asked = [self._asked_of_coordinator(uid, question.epoch) for uid, question in self._questions.items() if question.answer is None]
        return [*asked, *([ev.ExecutorsLost(frozenset(self.gone))] if self.gone else [])]

    def _asked_of_coordinator(self, uid: str, epoch: int) -> ev.StateWanted:
        return ev.StateWanted(uid, epoch, frozenset(self._taking_part))
