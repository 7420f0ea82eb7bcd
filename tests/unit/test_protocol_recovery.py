"""What a start rests on: questions that are asked again, steps that raise, and whether the log has moved on."""

from __future__ import annotations

import functools
from enum import Enum
from typing import Any

import pytest

from spark_ckpt.errors import ErrorKind
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import Request, encode
from spark_ckpt.protocol.instructions import Instruction, RequestName
from spark_ckpt.protocol.machine import Questions, Tickets
from spark_ckpt.protocol.start.log_read import LogRead
from spark_ckpt.protocol.start.recovery import ATTEMPTS, GivenUpError, Recovery, UnlessMovedOnError


class At(Enum):
    NEW = "NEW"
    READING = "READING"
    CONFIRMING = "CONFIRMING"
    REFUSED = "REFUSED"


class Stage:
    """One that does nothing but ask. `done`: what followed."""

    tail = 7

    def __init__(self) -> None:
        self.phase: Any = At.NEW
        self.questions = Questions(Tickets())
        self.recovery = Recovery(self, RequestName.START, At.CONFIRMING, At.REFUSED)
        self.done: list[str] = []

    def moved_on(self, _event: ev.PastSeen) -> list[Instruction]:
        return self.then("begun again")

    def then(self, what: str) -> list[Instruction]:
        self.done.append(what)
        return []


def only(asked: list[Instruction]) -> Any:
    (one,) = asked
    return one


def failed(asked: Any, hopeless: bool = False) -> ev.ReadFailed:
    return ev.ReadFailed(asked.ticket, "no answer", hopeless)


def test_a_question_is_asked_again_in_the_phase_in_which_its_answer_is_waited_for() -> None:
    stage = Stage()
    asked = only(stage.recovery.ask(At.READING, do.LocateTail, lambda event: stage.then(f"tail {event.number}")))
    assert stage.phase is At.READING
    again = only(stage.questions.answer(failed(asked)))
    assert (again.attempt, again.ticket in stage.questions, asked.ticket in stage.questions) == (1, True, False)
    assert stage.questions.answer(ev.TailLocated(again.ticket, 7)) == []
    assert stage.done == ["tail 7"]


@pytest.mark.parametrize("hopeless", [False, True])
def test_one_that_gets_no_answer_ends_the_stage(hopeless: bool) -> None:
    stage = Stage()
    asked = only(stage.recovery.ask(At.READING, do.LocateTail, lambda _: []))
    for _ in range(0 if hopeless else ATTEMPTS - 1):
        asked = only(stage.questions.answer(failed(asked)))
    with pytest.raises(GivenUpError, match="the stream cannot be started: no answer"):
        stage.questions.answer(failed(asked, hopeless))


def test_what_follows_waits_for_the_last_of_the_answers_however_often_one_was_asked() -> None:
    stage, seen = Stage(), list[int]()
    asked: list[Any] = stage.recovery.ask_each(
        At.READING, [3, 4], do.ReadEntry, lambda event: seen.append(event.number), lambda: stage.then("all")
    )
    again = only(stage.questions.answer(failed(asked[0])))
    stage.questions.answer(ev.EntryRead(asked[1].ticket, 4, None))
    assert stage.done == []
    stage.questions.answer(ev.EntryRead(again.ticket, 3, None))
    assert (seen, stage.done) == ([4, 3], ["all"])


def test_where_nothing_is_wanted_nothing_is_asked() -> None:
    stage = Stage()
    assert stage.recovery.ask_each(At.READING, [], do.ReadEntry, lambda _: None, lambda: stage.then("all")) == []
    assert (stage.phase, stage.done) == (At.NEW, ["all"])


def test_what_is_missing_is_damage_only_if_nobody_has_appended_since() -> None:
    for found in (None, 8):
        stage = Stage()

        def missing() -> list[Instruction]:
            raise UnlessMovedOnError(ErrorKind.DAMAGED, "entry 5 is missing")

        late = only(stage.recovery.ask(At.READING, do.LocateTail, lambda _: []))
        look = only(stage.recovery.carry_out(missing))
        assert isinstance(look, do.LookPast)
        assert (look.number, stage.phase, late.ticket in stage.questions) == (7, At.CONFIRMING, False)
        seen = ev.PastSeen(look.ticket, look.number, found, None)
        told = stage.recovery.carry_out(functools.partial(stage.questions.answer, seen))
        if found is None:
            assert told == [do.Refused(RequestName.START, ErrorKind.DAMAGED, "entry 5 is missing")]
            assert stage.phase is At.REFUSED
        else:
            assert stage.done == ["begun again"]


def test_entries_are_read_once_and_may_be_gone_only_where_that_is_said() -> None:
    stage = Stage()
    log = LogRead(stage.recovery)
    entry = Request(1, "savepoint", "", "somebody")
    asked = only(log.read_one(At.READING, 2, lambda found: stage.then(type(found).__name__)))
    stage.questions.answer(ev.EntryRead(asked.ticket, 2, encode(entry)))
    assert (stage.done, log.entries) == (["Request"], {2: entry})
    gone = only(log.read(At.READING, [2, 3], lambda: stage.then("read"), may_be_gone=lambda number: number < 4))
    stage.questions.answer(ev.EntryRead(gone.ticket, 3, None))
    assert stage.done == ["Request", "read"]
    lost = only(log.read(At.READING, [4], lambda: stage.then("never"), may_be_gone=lambda number: number < 4))
    with pytest.raises(UnlessMovedOnError, match="log entry 4 is missing"):
        stage.questions.answer(ev.EntryRead(lost.ticket, 4, None))
