"""The claim of a start: what it says, its put, the look past it, and the copy that is stored under it."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from spark_ckpt.errors import ErrorKind
from spark_ckpt.model import Checkpoint
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.durable_put import DurablePut, Known, Seen, put_entry
from spark_ckpt.protocol.entries import Claim, as_adopted, decode, encode, is_request
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.start.candidates import Candidates
from spark_ckpt.protocol.start.phases import StartPhase
from spark_ckpt.protocol.start.plans import PlansPast
from spark_ckpt.protocol.start.recovery import ATTEMPTS, GivenUpError, Recovery, fenced_message
from spark_ckpt.protocol.start.restoring import Restoring
from spark_ckpt.protocol.start.round import Round


class ClaimingOwner(Protocol):
    """The start, as its claim sees it."""

    def overtaken(self) -> list[Instruction]:
        """Somebody else's entry stands at the claim's number."""

    def claimed(self, claim: Claim, stored_ms: int | None) -> list[Instruction]:
        """It stands, and so does the copy. `stored_ms`: when it was put, by the storage's clock, where that is known."""


class Claiming:
    """`copy`: what is stored under the claim, of which only the `_metadata` is missing; None: nothing."""

    def __init__(self, owner: ClaimingOwner, recovery: Recovery, claim: Claim, copy: Checkpoint | None) -> None:
        self._owner = owner
        self._recovery = recovery
        self._claim = claim
        self._copy = copy
        self._stored_ms: int | None = None

    def begin(self) -> list[Instruction]:
        claim = self._claim

        def known(known: Known, event: ev.EntryPut | ev.EntryRead) -> list[Instruction]:
            if known is Known.TAKEN:
                return self._owner.overtaken()
            if known is not Known.STORED:
                raise GivenUpError(ErrorKind.STORAGE, f"the stream cannot be started, its log takes no entry: {put.cause}")
            self._stored_ms = event.stored_ms if isinstance(event, ev.EntryPut) else None
            return self._look_past(claim.claim)

        self._recovery.enter(StartPhase.CLAIMING)
        put = put_entry(self._recovery.questions, claim.claim, encode(claim), known, ATTEMPTS)
        return put.begin()

    def _look_past(self, number: int) -> list[Instruction]:
        return self._recovery.ask(StartPhase.LOOKING_PAST, lambda ticket: do.LookPast(ticket, number), self.past_seen)

    def past_seen(self, event: ev.PastSeen) -> list[Instruction]:
        """Rule: a start that slept since it looked for the tail may have claimed a number that others had used and left (`log_trim.py`):
        its claim is void."""
        if event.found is None:
            return self._import(self._copy) if self._copy else self._owner.claimed(self._claim, self._stored_ms)
        entry = decode(event.found, event.data) if event.data is not None else None
        if is_request(entry, self._claim.claim):
            return self._look_past(event.found)
        found = "a later run" if entry is None else fenced_message(self._claim, event.found, entry)
        raise GivenUpError(ErrorKind.FENCED, found)

    def _import(self, copy: Checkpoint) -> list[Instruction]:
        """The copy's `_metadata`, under one's own claim."""

        def judge(event: ev.MetadataRead) -> Seen:
            found = event.checkpoint
            return Seen.OURS if found is not None and replace(found, counters={}) == replace(copy, counters={}) else Seen.NOTHING

        def known(known: Known, _event: ev.Answer) -> list[Instruction]:
            if known is Known.STORED:
                return self._owner.claimed(self._claim, self._stored_ms)
            raise GivenUpError(ErrorKind.STORAGE, f"the stream cannot be started, the copy of its origin is not complete: {put.cause}")

        self._recovery.enter(StartPhase.IMPORTING)
        put = DurablePut(
            self._recovery.questions,
            lambda ticket, attempt: do.StoreMetadata(ticket, copy, attempt),
            known,
            lambda ticket, attempt: do.ReadMetadata(ticket, copy.id, attempt),
            judge,
            ATTEMPTS,
        )
        return put.begin()


def claim_of(around: Round, candidates: Candidates, restoring: Restoring, plans: PlansPast, now_ms: int) -> Claim:
    """The entry behind the tail. What a start has found, and what it is configured with."""
    request, settings, last = around.request, around.settings, around.last
    return Claim(
        last.tail + 1,
        last.next_run,
        request.query_id,
        request.job,
        plans.origin.id if plans.origin else None,
        tuple(sorted(candidates.read)),
        candidates.bad_of_last_run,
        request.host,
        request.versions,
        now_ms,
        request.nonce,
        restoring.restored(),
        request.spark_run_id,
        plans.settings.ahead,
        plans.first,
        settings.retained,
        request.savepoint_dir,
        request.application,
        settings.timeout_ms,
        as_adopted(plans.adopted),
        plans.noted,
        last.floor if restoring.young is None else restoring.young,
        last.stream or request.nonce,
        restoring.unsure(),
    )
