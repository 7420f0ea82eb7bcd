"""What `Start` and `Resume` have in common: questions to the storage that are asked again when they get no answer, what becomes of a step
that raises."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, Protocol

from spark_ckpt.errors import CheckpointError, ErrorKind, printable
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol.entries import Claim, Damage, Entry
from spark_ckpt.protocol.instructions import Instruction, LookPast, Question, Refused, RequestName
from spark_ckpt.protocol.machine import InvalidTransitionError, Questions, Then

ATTEMPTS = 5
_DONE = {RequestName.START: "started", RequestName.RESUME: "taken up again by a new coordinator"}

Make = Callable[[int], Question]
"""From a ticket."""
Next = Callable[[], list[Instruction]]
"""What is done next."""
Unanswered = Callable[[ev.ReadFailed], list[Instruction] | None]
"""What is done instead where no answer comes; None: what the storage said ends the stage. It may raise what else is to be said."""


class GivenUpError(CheckpointError):
    """Raised inside a stage to end it with a refusal of this kind."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class UnlessMovedOnError(GivenUpError):
    """Raised where something is missing that whoever has appended to the log meanwhile may have deleted: then look again."""


class RecoveryOwner(Protocol):
    """`Start` or `Resume`."""

    phase: Any
    questions: Questions

    @property
    def tail(self) -> int:
        """Of the log, as it was located."""

    def moved_on(self, event: ev.PastSeen) -> list[Instruction]:
        """The log has grown since."""


class Recovery:
    """Each question names the phase in which the stage waits for its answer. `confirming`, `refused`: phases of the stage."""

    def __init__(self, owner: RecoveryOwner, request: RequestName, confirming: Enum, refused: Enum) -> None:
        self._owner = owner
        self._request = request
        self._confirming = confirming
        self._refused = refused

    @property
    def questions(self) -> Questions:
        return self._owner.questions

    def enter(self, phase: Enum) -> None:
        self._owner.phase = phase

    # --- asking

    def ask(self, phase: Enum, make: Make, then: Then, unanswered: Unanswered | None = None) -> list[Instruction]:
        """`then` takes the answer."""
        self.enter(phase)
        return [self._question(make, then, unanswered)]

    def ask_each(
        self,
        phase: Enum,
        wanted: Sequence[Any],
        make: Callable[[int, Any], Question],
        each: Callable[[Any], None],
        then: Next,
        spared: Collection[Any] = (),
    ) -> list[Instruction]:
        """One question about each of `wanted`, made from ticket and it. `each` takes the answers, one by one; `then` follows the last of
        them, at once where nothing is wanted. Those that are `spared` may stay unanswered."""
        if not wanted:
            return then()
        self.enter(phase)
        waits = len(wanted)

        def passed() -> list[Instruction]:
            nonlocal waits
            waits -= 1
            return [] if waits else then()

        def answered(event: ev.Answer) -> list[Instruction]:
            each(event)
            return passed()

        def about(one: Any) -> Question:
            return self._question(lambda ticket: make(ticket, one), answered, (lambda _: passed()) if one in spared else None)

        return [about(one) for one in wanted]

    def _question(self, make: Make, then: Then, unanswered: Unanswered | None = None) -> Question:
        def failed(event: ev.ReadFailed) -> list[Instruction]:
            if event.hopeless or asked.attempt + 1 >= ATTEMPTS:
                instead = unanswered(event) if unanswered is not None else None
                if instead is not None:
                    return instead
                raise GivenUpError(event.kind, f"the stream cannot be {_DONE[self._request]}: {event.message}")
            return [self._question(lambda ticket: replace(asked, ticket=ticket, attempt=asked.attempt + 1), then, unanswered)]

        asked: Question = self.questions.ask(make, then, failed)
        return asked

    # --- ending

    def carry_out(self, step: Next) -> list[Instruction]:
        """Any `CheckpointError` that it raises ends the stage: the request is refused with its kind and message."""
        try:
            return step()
        except InvalidTransitionError:
            raise
        except UnlessMovedOnError as error:
            return self._confirm(error)
        except CheckpointError as error:
            return self.end(Refused(self._request, error.kind, str(error)))

    def end(self, instruction: Instruction) -> list[Instruction]:
        """Nothing more is asked."""
        self.enter(self._refused)
        self.questions.forget_all()
        return [instruction]

    def _confirm(self, error: UnlessMovedOnError) -> list[Instruction]:
        """Whether the log has grown since its tail was located: only a LIST tells, for the next number may be gone as well."""

        def confirmed(event: ev.PastSeen) -> list[Instruction]:
            if event.found is None:
                raise GivenUpError(error.kind, str(error))
            return self._owner.moved_on(event)

        self.questions.forget_all()
        return self.ask(self._confirming, lambda ticket: LookPast(ticket, self._owner.tail), confirmed)


def fenced_message(claim: Claim | None, number: int, entry: Entry) -> str:
    """`claim`: that of the run that is fenced, None where it has none yet."""
    stops = f"run {claim.run}" if claim else "this query"
    who = f"run {entry.run} on host {printable(entry.host)}" if isinstance(entry, Claim) else f"the run of claim {entry.claim}"
    return (
        f"{who} took over the stream at log entry {number}; {stops} stops and touches nothing. If both were started "
        "on purpose, stop one of them"
    )


def damaged_message(damage: Damage, claim: Claim) -> str:
    """Of what a run of that claim has found."""
    new = [c for c in damage.bad if c not in claim.bad] or damage.bad
    named = ", ".join(f"run {c.run} epoch {c.epoch}" for c in new)
    return f"checkpoint {named} cannot be restored ({damage.cause}); the next start goes back to the one before it"
