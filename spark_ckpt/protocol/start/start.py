"""The beginning of a run: tail, job, checkpoints, claim, materialise - in this order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

from spark_ckpt.errors import ErrorKind, FormatError, printable, without_way_out
from spark_ckpt.model import Checkpoint, CheckpointId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.driver_files import DriverFiles, offsets_file
from spark_ckpt.protocol.durable_put import Known, Seen, put_entry
from spark_ckpt.protocol.entries import Claim, Damage, End, Entry, Request, as_adopted, decode, encode
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.machine import leads
from spark_ckpt.protocol.retention.planned_files import objects_by_entry
from spark_ckpt.protocol.start.plans import StartPlans
from spark_ckpt.protocol.start.recorded import driver_files_of
from spark_ckpt.protocol.start.recovery import ATTEMPTS, GivenUpError, UnlessMovedOnError
from spark_ckpt.protocol.start.state import Beginning, StartOrder, StartPhase, Step, named

__all__ = ["Beginning", "Start", "StartOrder", "StartPhase", "Step", "fenced_message"]

ROUNDS = 20

_SILENT = (StartPhase.NEW, StartPhase.DONE, StartPhase.REFUSED)
_PUTTING = (StartPhase.CLAIMING, StartPhase.IMPORTING)
_At = StartPhase
_ONWARD = (_At.VERIFYING, _At.READING_METADATA, _At.FETCHING, _At.READING_PLANS, _At.CLAIMING, _At.LOCATING)
"""What follows from a checkpoint that was looked at; LOCATING where `StartOrder` looks for the tail once more."""
_CHOOSING = (_At.READING_SOURCE, *_ONWARD)
_CHOSEN = (_At.READING_ITS_PLAN, _At.READING_METADATA, _At.VERIFYING, _At.FETCHING, _At.COPYING, _At.REFUSED)
"""What a person chose is looked at. REFUSED: the start is asked for once more when its schemas are compared."""


class Start(StartPlans):
    """Ends in phase DONE with `beginning` set, or REFUSED. Somebody else's claim at our number: begin again, at most `ROUNDS` times."""

    # --- beginning, and beginning again

    def begin(self, now_ms: int) -> list[Instruction]:
        self.now_ms = now_ms
        self._rounds += 1
        if self._rounds > ROUNDS:
            raise GivenUpError(
                ErrorKind.CONFLICT,
                f"the stream is in use: its log grew {ROUNDS} times while this query tried to start; stop the other query that runs on the "
                "same checkpointLocation",
            )
        self._reset()
        self._steps = list(self._order.steps())
        return self._next_step()

    def _next_step(self) -> list[Instruction]:
        if not self._steps:
            return self._append_claim()
        step = self._steps.pop(0)
        if step is Step.TAIL:
            self.phase = StartPhase.LOCATING
            return [self._ask(do.LocateTail(self.questions.ticket()))]
        if self._last is None or self._end is not None:
            return self._restore() or self._choose()
        self.phase = StartPhase.LISTING
        return [self._ask(do.ListCheckpoints(self.questions.ticket(), self._last.run))]

    # --- step TAIL

    def _tail_located(self, event: ev.TailLocated) -> list[Instruction]:
        self._answered(event.ticket)
        self._tail = event.number
        if event.number == 0:
            self._last = None
            return self._first_start()
        self.phase = StartPhase.READING_TAIL
        return [self._ask(do.ReadEntry(self.questions.ticket(), event.number))]

    def _tail_read(self, event: ev.EntryRead) -> list[Instruction]:
        entry = self._entry(event)
        self._floor = entry.floor
        if isinstance(entry, Claim):
            return self._last_claim_known(entry)
        self.phase = StartPhase.READING_CLAIM
        self._back = event.number
        return [self._ask(do.ReadEntry(self.questions.ticket(), n)) for n in (entry.claim, *self._further_back())]

    def _further_back(self) -> range:
        """As many entries as were read back already. Below the floor a run that slept may have stored its entry in a hole; from there on
        nothing was ever deleted."""
        tail = self._entries[self._tail]
        last, width = self._back, max(1, self._tail - self._back)
        self._back = max(last - width, tail.floor, tail.claim + 1)
        return range(self._back, last)

    def _claim_read(self, event: ev.EntryRead) -> list[Instruction]:
        if event.number == self._entries[self._tail].claim:
            self._entry(event)
        else:
            self._answered(event.ticket)
            try:
                entry = decode(event.number, event.data) if event.data is not None else None
            except FormatError:
                entry = None  # whether it is needed turns out later
            if entry is not None:
                self._before[event.number] = entry
        return [] if self._outstanding else self._tail_and_claim_read()

    def _tail_and_claim_read(self) -> list[Instruction]:
        """What the run itself appended last says how it ended: behind that are requests of people, who ask whether it lives or not.

        Rule: an entry names the claim that the one before it names, or is one.
        """
        tail = self._entries[self._tail]
        number, newest = self._tail, tail
        while (before := self._before.get(number - 1)) is not None:
            if before.claim != tail.claim:
                at = f"log entry {number}, the last one," if number == self._tail else f"log entry {number}, and each one behind it,"
                raise GivenUpError(
                    ErrorKind.DAMAGED,
                    f"{at} names the claim in entry {tail.claim}, and the one before it that in entry {before.claim}: it was forged or put "
                    "there by mistake; remove it",
                )
            if not isinstance(newest, Request):
                break
            number, newest = number - 1, before
        if isinstance(newest, Request) and number == self._back and (further := self._further_back()):
            return [self._ask(do.ReadEntry(self.questions.ticket(), n)) for n in further]
        claim = self._entries[tail.claim]
        if not isinstance(claim, Claim):
            raise GivenUpError(
                ErrorKind.DAMAGED, f"log entry {tail.claim} should be a claim and is a {type(claim).__name__.lower()}; the log is damaged"
            )
        self._floor = max(self._floor, newest.floor)
        self._end = newest if isinstance(newest, End) else None
        if isinstance(newest, Damage):
            self._bad.update(dict.fromkeys(newest.bad, newest.cause))
            self._noted.update(newest.bad)
        return self._last_claim_known(claim)

    def _last_claim_known(self, claim: Claim) -> list[Instruction]:
        if self._last is not None and claim != self._last:
            return self.begin(self.now_ms)
        self._last = claim
        instructions: list[Instruction] = []
        if self._end is None:
            self._bad = {**dict.fromkeys(claim.bad, ""), **self._bad}
            self._noted.update(claim.bad)
            instructions = self._compare(claim)
        if self._request.again and claim.life != self._request.life:
            raise GivenUpError(ErrorKind.FENCED, fenced_message(None, claim.claim, claim))
        return instructions + self._next_step()

    def _compare(self, claim: Claim) -> list[Instruction]:
        job, other = self._request.job, claim.job
        if claim.query_id != self._request.query_id:
            raise GivenUpError(
                ErrorKind.CONFLICT,
                f"the stream belongs to query {claim.query_id} and this is query {self._request.query_id}; give this query a "
                "checkpointLocation of its own",
            )
        for what, mine, theirs in (("stateful operators", job.operators, other.operators), ("sources", job.sources, other.sources)):
            if mine != theirs:
                raise GivenUpError(
                    ErrorKind.CONFLICT,
                    f"another job uses this checkpointLocation: its {what} are {_names(theirs)}, those of this one {_names(mine)}; "
                    "give this query a checkpointLocation of its own, or start the job as it was",
                )
        if job.sink != other.sink:
            return [
                do.Log(
                    do.Level.WARN, f"the sink was {other.sink} and is {job.sink} now; batches that the old one holds are not written again"
                )
            ]
        return []

    def _first_start(self) -> list[Instruction]:
        local = sorted(p for p in self._request.local if p.startswith(("offsets/", "commits/")))
        if local:
            raise GivenUpError(
                ErrorKind.CONFLICT,
                f"the checkpointLocation holds a checkpoint that Spark wrote without spark-ckpt (for example {local[-1]}), and "
                "the storage knows nothing of "
                "this stream; give the query a new checkpointLocation, or delete the folder if its state is not needed",
            )
        self.phase = StartPhase.CHECKING_STORAGE
        return [self._ask(do.CheckStorage(self.questions.ticket()))]

    def _storage_checked(self, event: ev.StorageChecked) -> list[Instruction]:
        self._answered(event.ticket)
        return self._next_step()

    # --- step CHECKPOINTS

    def _listed_checkpoints(self, event: ev.CheckpointsListed) -> list[Instruction]:
        self._answered(event.ticket)
        self._listed = event.found
        self._candidates = [c for c in self._in_order if c not in self._bad]
        return self._read_behind() or self._restore() or self._read_candidates()

    def _read_candidates(self) -> list[Instruction]:
        if not self._candidates:
            return self._choose()
        self.phase = StartPhase.READING_METADATA
        return [self._ask(do.ReadMetadata(self.questions.ticket(), c)) for c in self._candidates]

    def _metadata_read(self, event: ev.MetadataRead) -> list[Instruction]:
        self._answered(event.ticket)
        if event.damage is not None:
            self._bad[event.id] = without_way_out(event.damage)
        elif event.checkpoint is not None:
            self._read[event.id] = event.checkpoint
        if self._outstanding:
            return []
        return self._chosen() if self._restoring else self._choose()

    def _choose(self) -> list[Instruction]:
        """The newest that is intact is the origin; newer ones are bad.

        One that was listed and is gone may also have been deleted meanwhile. Then the log has moved on, and the claim, which goes to the
        number after the tail as it was before the listing, is refused; so nothing wrong is ever written about it.
        """
        last = self._last if self._end is None else None
        for candidate in self._candidates:
            if candidate in self._read:
                self._origin = self._read[candidate]
                self.phase = StartPhase.VERIFYING
                told = [self._deep_look(self._origin)] if candidate in self._again else []
                return [*told, self._ask(do.VerifyObjects(self.questions.ticket(), self._origin, deep=candidate in self._again))]
            if last is not None and candidate not in self._bad and (candidate in self._listed or candidate == last.origin):
                self._bad[candidate] = "its _metadata is missing"
        if last is not None and (last.origin or last.inherits or self._listed):
            noted = [c for c in self._in_order if c in self._noted]
            if noted and self._restoring is None:
                return self._look_again(noted)
            raise self._none_intact
        self._origin = None
        return self._read_plans()

    @property
    def _none_intact(self) -> UnlessMovedOnError:
        """True only if nobody has appended since, who could have completed newer ones."""
        return UnlessMovedOnError(
            ErrorKind.DAMAGED,
            f"no checkpoint of the stream can be restored: damaged or missing are {named(self._bad)}; put their objects back, or start "
            "with a new checkpointLocation",
        )

    def _look_again(self, noted: list[CheckpointId]) -> list[Instruction]:
        """At those that earlier runs found damaged: a person may have put their objects back, and nothing else is left. With checksums, for
        executors may have found what no size tells, and would again."""
        self._noted.clear()
        self._gaps.clear()
        self._again = {checkpoint: self._bad[checkpoint] for checkpoint in noted}
        for checkpoint in noted:
            del self._bad[checkpoint]
        self._candidates = [c for c in self._in_order if c in self._again or c in self._read]
        return self._read_candidates()

    def _deep_look(self, checkpoint: Checkpoint) -> do.Log:
        found = f" ({self._again[checkpoint.id]})" if self._again[checkpoint.id] else ""
        return do.Log(
            do.Level.WARN,
            f"checkpoint run {checkpoint.id.run} epoch {checkpoint.id.epoch} was found damaged before{found}; it is looked at again, for "
            f"no other can be restored: all of it is read, {checkpoint.size} bytes",
        )

    def _verified(self, event: ev.ObjectsVerified) -> list[Instruction]:
        self._answered(event.ticket)
        if event.damage is not None:
            return self._origin_damaged(event.damage)
        for checkpoint, cause in self._again.items():
            if checkpoint != event.id and checkpoint not in self._bad:
                self._bad[checkpoint] = cause  # nobody has looked whether it is whole
                self._read.pop(checkpoint, None)
        return self._fetch_origin()

    def _fetch_origin(self) -> list[Instruction]:
        assert self._origin is not None
        return self._fetch(self._origin.files.values(), self._read_plans, self._origin_damaged)

    def _origin_damaged(self, damage: str) -> list[Instruction]:
        assert self._origin is not None
        if self._restoring:
            refused = self._refuse_chosen(damage)
            raise UnlessMovedOnError(refused.kind, str(refused))
        self._bad[self._origin.id] = damage
        self._read.pop(self._origin.id, None)
        return self._choose()

    def _moved_on(self, event: ev.PastSeen) -> list[Instruction]:  # noqa: ARG002
        return self.begin(self.now_ms)

    # --- the claim

    def _append_claim(self) -> list[Instruction]:
        ended = self._end is not None
        inherits = tuple(sorted(self._read))
        number = self._tail + 1
        self._claim = Claim(
            number,
            self._next_run,
            self._request.query_id,
            self._request.job,
            self._origin.id if self._origin else None,
            inherits,
            () if ended else tuple(sorted(self._bad)),
            self._request.host,
            self._request.versions,
            self.now_ms,
            self._request.nonce,
            self._restored(),
            self._request.life,
            self._ahead,
            self._first,
            self._sure_to_retain,
            self._request.savepoint_dir,
            self._request.application,
            self._timeout_ms,
            as_adopted(self._adopted),
            max(self._used, self._last.used if self._last and self._last.used is not None else -1),
            self._floor,
            (self._last.stream if self._last else "") or self._request.nonce,
        )
        self.phase = StartPhase.CLAIMING
        mine = encode(self._claim)

        def judge(event: ev.EntryRead) -> Seen:
            return Seen.NOTHING if event.data is None else Seen.OURS if event.data == mine else Seen.OTHERS

        self._put = put_entry(self.questions, number, mine, judge, self._claim_known, ATTEMPTS)
        return self._put.begin()

    @property
    def _sure_to_retain(self) -> int:
        """What an earlier run may still delete does not become retained because this one retains more."""
        last = self._living
        inherited = [c for c in self._read if c in self._in_order] if last else []
        if last is None or all(self._is_retained(c) for c in inherited):
            return self._retained
        return min(self._retained, last.retained)

    def _claim_known(self, known: Known, event: ev.EntryPut | ev.EntryRead) -> list[Instruction]:
        """What became of its put. Somebody else's claim at our number: begin again."""
        if known is Known.STORED:
            self._stored_ms = event.stored_ms if isinstance(event, ev.EntryPut) else None
            return self._claimed()
        if known is Known.TAKEN:
            return self.begin(self.now_ms)
        assert self._put is not None
        raise GivenUpError(ErrorKind.STORAGE, f"the stream cannot be started, its log takes no entry: {self._put.cause}")

    def _claimed(self) -> list[Instruction]:
        """A start that slept since it looked for the tail may have claimed a number that others had used and left (`log_trim.py`):
        its claim is void."""
        assert self._claim is not None
        return self._look_past(self._claim.claim)

    def _look_past(self, number: int) -> list[Instruction]:
        self.phase = StartPhase.LOOKING_PAST
        return [self._ask(do.LookPast(self.questions.ticket(), number))]

    def _past_seen(self, event: ev.PastSeen) -> list[Instruction]:
        self._answered(event.ticket)
        assert self._claim is not None
        if event.found is None:
            return self._import() if self._imported else self._done()
        entry = decode(event.found, event.data) if event.data is not None else None
        if isinstance(entry, Request) and entry.claim == self._claim.claim:
            return self._look_past(event.found)
        found = "a later run" if entry is None else fenced_message(self._claim, event.found, entry)
        raise GivenUpError(ErrorKind.FENCED, found)

    def _done(self) -> list[Instruction]:
        claim = self._claim
        assert claim is not None
        plans = tuple(replace(plan, claim=claim.claim, run=claim.run, rerun=True) for plan in self._plans)
        plan = plans[0] if plans else None
        self.phase = StartPhase.DONE
        origin = self._origin
        epoch = self._first if self._first is not None else origin.id.epoch + 1 if origin else 0
        files = DriverFiles(driver_files_of(origin, epoch, len(claim.job.sources)))
        if plan:
            files.apply({**plan.files, offsets_file(plan.epoch): plan.offsets})
            files.take_changes()
        inherited = tuple(sorted(self._read.values(), key=lambda c: (c.log, c.id)))
        # Nothing is appended for the first that runs again: Spark does not trigger it once more, and the claim has just fenced it.
        numbers = {plan.epoch: claim.claim} if plan else {}
        recorded = plans[1:]
        self.beginning = Beginning(
            claim,
            claim.claim + 1,
            origin,
            inherited,
            files,
            epoch,
            plan,
            numbers,
            recorded,
            self._aside,
            planned=objects_by_entry(self._entries),
            floor=self._floor,
            stored_ms=self._stored_ms,
        )
        known = self._last.bad if self._last else ()
        warnings = [
            do.Log(do.Level.WARN, f"checkpoint run {c.run} epoch {c.epoch} is damaged and left out, the one before it is restored: {why}")
            for c, why in sorted(self._bad.items())
            if c not in known
        ]
        warnings += [do.Log(do.Level.WARN, note) for note in self._notes]
        started = do.Started(
            claim.run,
            claim.claim,
            origin.id if origin else None,
            epoch,
            plan is not None,
            self.now_ms,
            files.as_mapping(),
            recorded,
            restored=claim.restored.path if claim.restored else None,
            version=(origin.id.epoch + 1 if origin else 0) if self._first is not None else None,
            taken_over=self._living if self._living and not self._is_of_this_application(self._living) else None,
        )
        return [*warnings, started]

    def _is_of_this_application(self, claim: Claim) -> bool:
        theirs, mine = claim.application, self._request.application
        return claim.host == self._request.host and (theirs is None or mine is None or theirs.id == mine.id)

    TABLE: ClassVar = {
        (_At.LOCATING, ev.TailLocated): leads("_tail_located", _At.READING_TAIL, _At.CHECKING_STORAGE),
        (_At.READING_TAIL, ev.EntryRead): leads("_tail_read", _At.READING_CLAIM, _At.LISTING, _At.LOCATING, *_CHOOSING),
        (_At.READING_CLAIM, ev.EntryRead): leads("_claim_read", _At.LISTING, _At.LOCATING, *_CHOOSING),
        (_At.CHECKING_STORAGE, ev.StorageChecked): leads("_storage_checked", *_CHOOSING),
        (_At.LISTING, ev.CheckpointsListed): leads("_listed_checkpoints", _At.READING_BEHIND, *_CHOOSING),
        (_At.READING_BEHIND, ev.EntryRead): leads("_behind_read", *_CHOOSING),
        (_At.READING_SOURCE, ev.SourceRead): leads("_source_read", _At.DATING, *_CHOSEN),
        (_At.DATING, ev.EntriesDated): leads("_dated", *_CHOSEN),
        (_At.READING_ITS_PLAN, ev.EntryRead): leads("_its_plan_read", *_CHOSEN),
        (_At.READING_METADATA, ev.MetadataRead): leads("_metadata_read", _At.COPYING, _At.REFUSED, *_ONWARD),
        (_At.VERIFYING, ev.ObjectsVerified): leads("_verified", *_ONWARD),
        (_At.FETCHING, ev.FilesFetched): leads("_files_fetched", _At.COPYING, _At.REFUSED, *_ONWARD),
        (_At.CONFIRMING, ev.PastSeen): leads("_confirmed", _At.LOCATING),
        (_At.READING_PLANS, ev.EntryRead): leads("_plan_read", *_ONWARD),
        (_At.COPYING, ev.SourceCopied): leads("_source_copied", *_ONWARD),
        (_At.CLAIMING, ev.EntryPut): leads("_to_put", _At.LOOKING_PAST),
        (_At.CLAIMING, ev.EntryRead): leads("_to_put", _At.LOOKING_PAST, _At.LOCATING),
        (_At.LOOKING_PAST, ev.PastSeen): leads("_past_seen", _At.IMPORTING, _At.DONE),
        (_At.IMPORTING, ev.MetadataPut): leads("_to_put", _At.DONE),
        (_At.IMPORTING, ev.MetadataRead): leads("_to_put", _At.DONE),
        **{(phase, ev.ReadFailed): leads("_read_failed") for phase in StartPhase if phase not in (*_SILENT, *_PUTTING)},
        **{(phase, ev.ReadFailed): leads("_to_put") for phase in _PUTTING},
    }


def fenced_message(claim: Claim | None, number: int, entry: Entry) -> str:
    """`claim`: that of the run that is fenced, None where it has none yet."""
    stops = f"run {claim.run}" if claim else "this query"
    who = f"run {entry.run} on host {printable(entry.host)}" if isinstance(entry, Claim) else f"the run of claim {entry.claim}"
    return (
        f"{who} took over the stream at log entry {number}; {stops} stops and touches nothing. If both were started "
        "on purpose, stop one of them"
    )


def _names(items: Iterable[str]) -> str:
    return ", ".join(items) or "none"
