"""What every stage rests on: a table that holds its methods to what it says, questions, and puts whose outcome may be unknown."""

from __future__ import annotations

from enum import Enum
from typing import Any, ClassVar

import pytest

from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.durable_put import DurablePut, Known, Seen
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.machine import InvalidTransitionError, Machine, Questions, Story, Tickets, leads
from spark_ckpt.protocol.reasons import Outcome


class Door(Enum):
    OPEN = "OPEN"
    SHUT = "SHUT"


class Slams(Machine):
    TABLE: ClassVar = {(Door.OPEN, ev.ExecutorsLost): leads("slam"), (Door.OPEN, ev.HoldingReceived): leads("slam", Door.SHUT)}

    def slam(self, _event: ev.Event) -> list[Instruction]:
        self.phase = Door.SHUT
        return []


def test_a_phase_that_the_row_does_not_name_is_an_error() -> None:
    Slams(Door.OPEN, Tickets(), Story()).handle(ev.HoldingReceived("1", frozenset()), 0)
    with pytest.raises(InvalidTransitionError, match="ExecutorsLost led from phase OPEN to SHUT, which its row does not name"):
        Slams(Door.OPEN, Tickets(), Story()).handle(ev.ExecutorsLost(frozenset({"1"})), 0)


class Shelf:
    """Where one entry is put. `told`: what became of it."""

    def __init__(self, attempts: int | None = None) -> None:
        self.questions = Questions(Tickets())
        self.told: list[Known] = []
        self.put = DurablePut(
            self.questions,
            lambda ticket, attempt: do.PutEntry(ticket, 1, b"ours", attempt),
            self.known,
            lambda ticket, attempt: do.ReadEntry(ticket, 1, attempt),
            lambda event: Seen.NOTHING if event.data is None else Seen.OURS if event.data == b"ours" else Seen.OTHERS,
            attempts,
        )
        self.asked: Any = None
        self.ask(self.put.begin())

    def known(self, known: Known, _event: ev.Event | None) -> list[Instruction]:
        self.told.append(known)
        return []

    def ask(self, instructions: list[Instruction]) -> None:
        (self.asked,) = instructions or (None,)

    def answer(self, said: Outcome | bytes | None) -> str:
        """Of a put, or of a look; returns what is asked next."""
        if isinstance(said, Outcome):
            self.ask(self.questions.answer(ev.EntryPut(self.asked.ticket, 1, said)))
        else:
            self.ask(self.questions.answer(ev.EntryRead(self.asked.ticket, 1, said)))
        return type(self.asked).__name__ if self.asked is not None else ""


def test_what_may_be_there_is_read_back_before_anything_else() -> None:
    for unsure in (Outcome.UNKNOWN, Outcome.EXISTS):
        ours, others, nothing = Shelf(), Shelf(), Shelf()
        assert [shelf.answer(unsure) for shelf in (ours, others, nothing)] == ["ReadEntry"] * 3
        assert [ours.answer(b"ours"), others.answer(b"theirs"), nothing.answer(None)] == ["", "", "PutEntry"]
        assert (ours.told, others.told, nothing.told) == ([Known.STORED], [Known.TAKEN], [])


def test_what_failed_is_put_again_as_often_as_is_allowed_and_what_is_refused_is_not() -> None:
    shelf, refused = Shelf(attempts=2), Shelf()
    assert shelf.answer(Outcome.FAILED) == "PutEntry"
    assert shelf.asked.attempt == 1
    assert (shelf.answer(Outcome.FAILED), shelf.told) == ("", [Known.TRIED_OUT])
    assert (refused.answer(Outcome.HOPELESS), refused.told) == ("", [Known.HOPELESS])


def test_whoever_gives_up_puts_no_more_and_looks_on_while_it_may_land() -> None:
    absent, unsure = Shelf(), Shelf()
    assert absent.put.give_up() == []
    assert (absent.answer(Outcome.FAILED), absent.told) == ("", [Known.ABSENT])
    assert unsure.put.give_up() == []
    assert [unsure.answer(Outcome.UNKNOWN), unsure.answer(None), unsure.answer(None)] == ["ReadEntry"] * 3
    assert (unsure.answer(b"ours"), unsure.told) == ("", [Known.STORED])


def test_what_was_abandoned_is_nobodys_but_for_the_put_that_is_under_way() -> None:
    shelf, landed = Shelf(), list[Outcome]()

    def answered(event: ev.EntryPut) -> list[Instruction]:
        landed.append(event.outcome)
        return []

    shelf.put.abandon(answered)
    shelf.answer(Outcome.STORED)
    assert (landed, shelf.told) == ([Outcome.STORED], [])
