"""State that a task needs, and that another executor has committed since the newest completed checkpoint.

Flink has no such thing: a task that moves reads the state handles of the checkpoint that its job goes back to, and local recovery is only a
shortcut to them. Here epochs go on from what lies in the executors' spools alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Set
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from spark_ckpt.model import Ack, Decline, Snapshot
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.checkpoints.executors import Executors
from spark_ckpt.protocol.context import Context
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.reasons import HandoverFailure
from spark_ckpt.protocol.retention.subsumption import Subsumption


class Durable(Protocol):
    """The checkpoints of the run, as handovers see them."""

    def durable(self, uid: str) -> Snapshot | None:
        """In the newest completed checkpoint, or acknowledged since and not deleted."""

    def take_left(self, event: ev.LeftAcksRead) -> list[Instruction]:
        """Acknowledgements that agents have left whose executors have died."""


@dataclass(frozen=True)
class _StateQuestion:
    """`asked`: how many reports of executors had come before."""

    epoch: int
    asked: int


class StateHandover:
    """Every question gets one answer: the handles, once the holder's acknowledgement is in; declined; or lost.

    Rule: a state is lost when each executor that takes part in the run, and that Spark counts on, has reported twice that it does not hold
    it, since the question and since the last loss of an executor (the first of the two may have been on its way); and when no agent that
    outlived its executor has left an acknowledgement in the storage. One that says nothing is waited for, and so is one that leaves, until
    Spark has lost it.
    """

    def __init__(self, context: Context, executors: Executors, checkpoints: Durable, subsumption: Subsumption) -> None:
        self._context = context
        self._executors = executors
        self._checkpoints = checkpoints
        self._subsumption = subsumption
        self._state_questions: dict[str, _StateQuestion] = {}
        self._unreported: deque[tuple[str, _StateQuestion]] = deque()
        """The oldest first: not every executor has reported twice since. Some may have their answer."""
        self._reported = -1
        """Every executor has reported twice since what was asked up to then."""
        self._looks = False

    @property
    def wanted(self) -> frozenset[str]:
        """Without an answer so far."""
        return frozenset(self._state_questions)

    def want(self, event: ev.StateWanted) -> list[Instruction]:
        """Asked again, it is answered again: the driver's process may have forgotten."""
        if self._executors.take_part(event.executors):
            self._count_anew()
        given = self._give(event.uid)
        if given:
            return given
        if event.uid not in self._state_questions:
            question = self._state_questions[event.uid] = _StateQuestion(event.epoch, self._executors.reports)
            self._unreported.append((event.uid, question))
        return [do.HandOver(event.uid)]

    def acknowledged(self, acks: Iterable[Ack]) -> list[Instruction]:
        return [i for ack in acks for i in self._acknowledged(ack)] if self._state_questions else []

    def _acknowledged(self, ack: Ack) -> list[Instruction]:
        """What it names may have been deleted, with a checkpoint that was aborted: its agent takes it for stored all the same."""
        uid = ack.snapshot.uid
        if self._state_questions.pop(uid, None) is None:
            return []
        if self._subsumption.deleted_object(ack) is not None:
            return [do.NotHandedOver(uid, HandoverFailure.LOST)]
        return [do.HandedOver(uid, ack.snapshot.handles)]

    def declined(self, decline: Decline) -> list[Instruction]:
        """An agent that does not have the commit says so without its run: reports will tell whether anybody has it."""
        own = decline.run == self._context.claim.run and decline.uid in self._state_questions
        return self._refuse([decline.uid] if own else [], HandoverFailure.DECLINED, decline.cause)

    def executors_lost(self) -> list[Instruction]:
        self._count_anew()
        return self.reported()

    def reported(self, dropped: Set[str] = frozenset()) -> list[Instruction]:
        """An executor has said what it holds. Only what it has `dropped` is looked at, and what all have reported twice about by now."""
        if not self._state_questions or self._looks:
            return []
        reported = [uid for uid in sorted(dropped & self._state_questions.keys()) if self._state_questions[uid].asked <= self._reported]
        unheld = [uid for uid in dict.fromkeys([*reported, *self._take_reported()]) if not self._executors.holds_it(uid)]
        given = [i for uid in unheld for i in self._give(uid)]
        gone = [uid for uid in unheld if uid in self._state_questions]
        if not gone:
            return given
        return [*given, *(self.look_for_left(gone) if self._executors.losses else self._lose(gone))]

    def _take_reported(self) -> Iterable[str]:
        while self._unreported:
            uid, question = self._unreported[0]
            if self._state_questions.get(uid) is question:
                if not self.all_reported(question.asked):
                    return
                self._reported = question.asked
                yield uid
            self._unreported.popleft()

    def all_reported(self, asked: int) -> bool:
        """Twice, since then."""
        return self._executors.all_reported_twice_since(asked)

    def _count_anew(self) -> None:
        """Every question is looked at once more."""
        self._unreported = deque(self._state_questions.items())
        self._reported = -1

    def forget_before(self, epoch: int) -> None:
        """Nobody loads what older epochs have left: the tasks that asked are gone."""
        self._state_questions = {uid: question for uid, question in self._state_questions.items() if question.epoch >= epoch}
        self._count_anew()

    def close(self, message: str) -> list[Instruction]:
        """The run is over."""
        return self._refuse(tuple(self._state_questions), HandoverFailure.DECLINED, message)

    def _give(self, uid: str) -> list[Instruction]:
        snapshot = self._checkpoints.durable(uid)
        if snapshot is None:
            return []
        self._state_questions.pop(uid, None)
        return [do.HandedOver(uid, snapshot.handles)]

    def look_for_left(self, gone: list[str]) -> list[Instruction]:
        """Before it is given up: the agent of an executor that is lost may have finished what it had been told to store."""
        self._looks = True
        epoch = self._state_questions[gone[0]].epoch
        looked_for = [uid for uid in gone if self._state_questions[uid].epoch == epoch]
        return [self._read_left(looked_for, epoch, 0)]

    def _read_left(self, uids: list[str], epoch: int, attempt: int) -> Instruction:
        read = partial(do.ReadLeftAcks, run=self._context.claim.run, epoch=epoch, attempt=attempt)
        return self._context.questions.ask(read, partial(self._left_read, uids), partial(self._left_not_read, uids, epoch, attempt))

    def _left_read(self, uids: list[str], event: ev.LeftAcksRead) -> list[Instruction]:
        instructions = self._checkpoints.take_left(event)
        left = [uid for uid in uids if uid in self._state_questions]
        instructions += [i for uid in left for i in self._give(uid)]
        return [*instructions, *self._end_look([uid for uid in left if uid in self._state_questions])]

    def _left_not_read(self, uids: list[str], epoch: int, attempt: int, event: ev.ReadFailed) -> list[Instruction]:
        left = [uid for uid in uids if uid in self._state_questions]
        if left and not event.hopeless:
            return [self._read_left(left, epoch, attempt + 1)]
        return self._end_look(left)

    def _end_look(self, lost: list[str]) -> list[Instruction]:
        self._looks = False
        self._count_anew()
        return [*self._lose(lost), *self.reported()]

    def _lose(self, uids: Iterable[str]) -> list[Instruction]:
        return self._refuse(uids, HandoverFailure.LOST, "")

    def _refuse(self, uids: Iterable[str], reason: HandoverFailure, cause: str) -> list[Instruction]:
        refused: list[Instruction] = []
        for uid in uids:
            del self._state_questions[uid]
            refused.append(do.NotHandedOver(uid, reason, cause))
        return refused
