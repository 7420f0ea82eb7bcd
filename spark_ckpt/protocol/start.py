"""The beginning of a run: tail, job, checkpoints, claim, materialise - in this order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

from spark_ckpt.errors import ErrorKind, printable, without_way_out
from spark_ckpt.model import CheckpointId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.asking import ATTEMPTS, GivenUpError
from spark_ckpt.protocol.driver_files import DriverFiles, offsets_file
from spark_ckpt.protocol.entries import Claim, Damage, End, Entry, Plan, decode, encode
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.reasons import Outcome
from spark_ckpt.protocol.recorded import Recorded, driver_files_of, ever_used, recorded
from spark_ckpt.protocol.restoring import Restoring
from spark_ckpt.protocol.start_state import Beginning, StartOrder, StartPhase, Step

__all__ = ["Beginning", "Start", "StartOrder", "StartPhase", "Step", "fenced_message"]

ROUNDS = 20

_SILENT = (StartPhase.NEW, StartPhase.DONE, StartPhase.REFUSED)


class Start(Restoring):
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
            return [self._ask(do.LocateTail(self.ticket()))]
        if self._last is None or self._end is not None:
            return self._restore() or self._choose()
        self.phase = StartPhase.LISTING
        return [self._ask(do.ListCheckpoints(self.ticket(), self._last.run))]

    # --- step TAIL

    def _tail_located(self, event: ev.TailLocated) -> list[Instruction]:
        self._answered(event.ticket)
        self._tail = event.number
        if event.number == 0:
            self._last = None
            return self._first_start()
        self.phase = StartPhase.READING_TAIL
        return [self._ask(do.ReadEntry(self.ticket(), event.number))]

    def _tail_read(self, event: ev.EntryRead) -> list[Instruction]:
        entry = self._entry(event)
        self._end = entry if isinstance(entry, End) else None
        if isinstance(entry, Damage):
            self._bad.update(dict.fromkeys(entry.bad, entry.cause))
            self._noted.update(entry.bad)
        if isinstance(entry, Claim):
            return self._claim_known(entry)
        self.phase = StartPhase.READING_CLAIM
        return [self._ask(do.ReadEntry(self.ticket(), entry.claim))]

    def _claim_read(self, event: ev.EntryRead) -> list[Instruction]:
        entry = self._entry(event)
        if not isinstance(entry, Claim):
            raise GivenUpError(
                ErrorKind.DAMAGED, f"log entry {event.number} should be a claim and is a {type(entry).__name__.lower()}; the log is damaged"
            )
        return self._claim_known(entry)

    def _claim_known(self, claim: Claim) -> list[Instruction]:
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
        return [self._ask(do.CheckStorage(self.ticket()))]

    def _storage_checked(self, event: ev.StorageChecked) -> list[Instruction]:
        self._answered(event.ticket)
        return self._next_step()

    # --- step CHECKPOINTS

    def _listed_checkpoints(self, event: ev.CheckpointsListed) -> list[Instruction]:
        self._answered(event.ticket)
        self._listed = event.found
        self._candidates = [c for c in self._in_order if c not in self._bad]
        return self._restore() or self._read_candidates()

    def _read_candidates(self) -> list[Instruction]:
        if not self._candidates:
            return self._choose()
        self.phase = StartPhase.READING_METADATA
        return [self._ask(do.ReadMetadata(self.ticket(), c)) for c in self._candidates]

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
        for named in self._candidates:
            if named in self._read:
                self._origin = self._read[named]
                self.phase = StartPhase.VERIFYING
                return [self._ask(do.VerifyObjects(self.ticket(), self._origin))]
            if last is not None and named not in self._bad and (named in self._listed or named == last.origin):
                self._bad[named] = "its _metadata is missing"
        if last is not None and (last.origin or last.inherits or self._listed):
            self.phase = StartPhase.CONFIRMING
            return [self._ask(do.ReadEntry(self.ticket(), self._tail + 1))]
        self._origin = None
        return self._read_plans()

    def _confirmed(self, event: ev.EntryRead) -> list[Instruction]:
        """No checkpoint is intact: true only if nobody has appended since, who could have completed newer ones."""
        self._answered(event.ticket)
        if event.data is not None:
            return self.begin(self.now_ms)
        if self._restoring and self._restoring.own:
            raise self._refuse_chosen(self._bad.get(self._restoring.own) or "its _metadata is missing")
        noted = [c for c in self._in_order if c in self._noted]
        if noted:
            return self._look_again(noted)
        bad = ", ".join(
            f"run {c.run} epoch {c.epoch} ({why})" if why else f"run {c.run} epoch {c.epoch}" for c, why in sorted(self._bad.items())
        )
        raise GivenUpError(
            ErrorKind.DAMAGED,
            f"no checkpoint of the stream can be restored: damaged or missing are {bad}; put their objects back, or start with a new "
            "checkpointLocation",
        )

    def _look_again(self, noted: list[CheckpointId]) -> list[Instruction]:
        """At those that earlier runs found damaged: a person may have put their objects back, and nothing else is left."""
        self._noted.clear()
        for checkpoint in noted:
            cause = self._bad.pop(checkpoint)
            found = f" ({cause})" if cause else ""
            self._notes.append(
                f"checkpoint run {checkpoint.run} epoch {checkpoint.epoch} was found damaged before{found}; it is looked at again, for no "
                "other can be restored"
            )
        self._candidates = noted
        return self._read_candidates()

    def _verified(self, event: ev.ObjectsVerified) -> list[Instruction]:
        self._answered(event.ticket)
        return self._origin_damaged(event.damage) if event.damage is not None else self._fetch_origin()

    def _fetch_origin(self) -> list[Instruction]:
        assert self._origin is not None
        return self._fetch(self._origin.files.values(), self._read_plans, self._origin_damaged)

    def _origin_damaged(self, damage: str) -> list[Instruction]:
        assert self._origin is not None
        if self._restoring:
            raise self._refuse_chosen(damage)
        self._bad[self._origin.id] = damage
        self._read.pop(self._origin.id, None)
        return self._choose()

    def _read_plans(self) -> list[Instruction]:
        first = self._origin.log + 1 if self._origin else 1
        numbers = range(first, self._tail + 1) if self._end is None or self._same_stream else self._before_the_end(self._end)
        wanted = [n for n in numbers if n not in self._entries]
        if not wanted:
            return self._plans_known()
        self.phase = StartPhase.READING_PLANS
        return [self._ask(do.ReadEntry(self.ticket(), n)) for n in wanted]

    def _before_the_end(self, end: End) -> range:
        """Where it has to be looked up which numbers the stream had used when it was deleted."""
        return range(1, self._tail + 1) if end.used is None else range(0)

    def _plan_read(self, event: ev.EntryRead) -> list[Instruction]:
        if event.data is None and self._origin:
            self._answered(event.ticket)
            self._gaps.add(event.number)
        else:
            self._entry(event)
        return self._plans_known() if not self._outstanding else []

    def _plans_known(self) -> list[Instruction]:
        if self._gaps and not self._numbers_known():
            raise self._log_too_short()
        if self._unplanned is not None:
            self.phase = StartPhase.CONFIRMING_END
            return [self._ask(do.ReadEntry(self.ticket(), self._tail + 1))]
        return self._log_known()

    @property
    def _unplanned(self) -> CheckpointId | None:
        """A checkpoint of the last run past all plans in the log: there is none without a plan.

        Not the copy of a savepoint: the plan of that is where it was made.
        """
        origin, last = self._origin, self._living
        if origin is None or last is None:
            return None
        if origin.id in self._listed and origin.log > self._tail:
            return origin.id
        imported = last.restored.imported if last.restored else None
        plans = [entry.epoch for entry in self._entries.values() if isinstance(entry, Plan) and entry.run == last.run]
        planned = max([origin.id.epoch, *plans])
        return max((c for c in self._listed if c.epoch > planned and c != imported), default=None)

    def _end_confirmed(self, event: ev.EntryRead) -> list[Instruction]:
        """The log ends too early: true only if nobody has appended since, who could have planned that epoch."""
        self._answered(event.ticket)
        if event.data is not None:
            return self.begin(self.now_ms)
        found, origin = self._unplanned, self._origin
        assert found is not None
        assert origin is not None
        raise GivenUpError(
            ErrorKind.DAMAGED,
            f"the log ends with entry {self._tail}, before the plan of checkpoint run {found.run} epoch {found.epoch}: later entries are "
            f"missing, so it is not known what ran past checkpoint run {origin.id.run} epoch {origin.id.epoch}; put them back, or go on "
            "from one of the stream's checkpoints with spark.ckpt.restore.path, a new checkpointLocation and a new output path",
        )

    def _log_known(self) -> list[Instruction]:
        if self._end is None or self._same_stream:
            found = recorded(self._past_the_end(), self._origin, self._tail, self._last, complete=not self._gaps)
            self._plans_found(found)
            self._check_deleted()
            self._check_sink(max(found.used, (self._first or 0) - 1))
        else:
            used = ever_used(self._entries) if self._end.used is None else self._end.used
            following = self._origin.id.epoch + 1 if self._origin else 0
            self._first = used + 1 if used >= following else None
            if self._first is not None and self._origin is None and self._request.from_zero:
                raise GivenUpError(
                    ErrorKind.CONFLICT,
                    f"the stream was deleted after epoch {used} and its numbers go on from there, but Spark begins transformWithState, and "
                    "what has an initial state, with epoch 0 only; give the query a new checkpointLocation and a new output path",
                )
            self._check_sink(max(used, following - 1))
        return self._fetch([c for plan in self._plans for c in plan.files.values()], self._next_step, self._plan_damaged)

    def _plan_damaged(self, damage: str) -> list[Instruction]:
        raise GivenUpError(
            ErrorKind.DAMAGED,
            f"what was planned past the checkpoint that this start goes on from cannot run again: {damage}; put the object back, or go on "
            "from that checkpoint with spark.ckpt.restore.path and spark.ckpt.restore.plans=DISCARD: what followed runs anew under new "
            "numbers, and sinks may get its rows twice",
        )

    def _check_sink(self, used: int) -> None:
        """`used`: the highest number that an epoch of this stream may have had. A sink that has seen more would skip the next ones."""
        seen = self._request.sink_seen
        if seen is not None and seen > used:
            has = f"the highest number that this stream has used is {used}" if used >= 0 else "this stream has had no epoch yet"
            raise GivenUpError(
                ErrorKind.CONFLICT,
                f"the sink ({self._request.job.sink}) has batch {seen} already and {has}, so it would skip new rows; give the query an "
                "output path that is new, or the checkpointLocation with which that one was written",
            )

    def _numbers_known(self) -> bool:
        """With entries missing, and nothing to run again: a plan behind them has the highest number, since each run plans all of them."""
        plans = [n for n, entry in self._entries.items() if isinstance(entry, Plan)]
        return self._restoring is not None and self._restoring.discard and max(plans, default=0) > max(self._gaps)

    def _log_too_short(self) -> GivenUpError:
        assert self._origin is not None
        at = self._origin.id
        way_out = "put it back"
        if self._restoring is None or not self._restoring.discard:
            way_out += (
                "; or go on from that checkpoint without them, with spark.ckpt.restore.path (its URL, from `spark-ckpt list`) and "
                "spark.ckpt.restore.plans=DISCARD: what followed runs anew under new numbers, and sinks may get its rows twice"
            )
        return GivenUpError(
            ErrorKind.DAMAGED,
            f"log entry {min(self._gaps)} is missing, so it is not known which epochs were planned past checkpoint run {at.run} epoch "
            f"{at.epoch}, the origin of this start; {way_out}; or start with a new checkpointLocation",
        )

    def _plans_found(self, found: Recorded) -> None:
        """They run again as planned, unless it is not known what ran past them, or a person does not want them."""
        origin = self._origin
        self._plans = found.plans
        following = origin.id.epoch + 1 if origin else 0
        self._first = found.first if found.first != following else None
        if origin is None:
            return
        unplanned = self._last is not None and self._last.ahead > 0
        discard = self._restoring is not None and self._restoring.discard
        if found.crossed and not (unplanned or discard or self._ahead):
            raise GivenUpError(
                ErrorKind.CONFLICT,
                f"epochs past checkpoint run {origin.id.run} epoch {origin.id.epoch} went on under new numbers from {found.first} on, and "
                f"cannot run again as planned; with spark.ckpt.restore.path and spark.ckpt.restore.plans=DISCARD they run anew, and sinks "
                "get their rows twice",
            )
        if found.crossed or unplanned or (discard and found.plans):
            self._first, self._plans = found.used + 1, ()
            self._notes.append(
                f"what followed epoch {origin.id.epoch} runs anew, under numbers from {self._first} on: sinks may get its rows twice"
            )

    def _past_the_end(self) -> dict[int, Entry]:
        """The log without the stream's end, if that is its last entry and a savepoint from before it is restored: its plans count again."""
        if not self._same_stream:
            return self._entries
        ends = [n for n, entry in self._entries.items() if isinstance(entry, End) and self._origin and n > self._origin.log]
        if any(n < self._tail for n in ends):
            raise GivenUpError(
                ErrorKind.CONFLICT,
                "the stream was deleted and began anew after that savepoint was made; restore it with a new checkpointLocation and a new "
                "output path",
            )
        return {n: entry for n, entry in self._entries.items() if n not in ends}

    def _check_deleted(self) -> None:
        """A deletion takes the large files that plans name along. Those that it left may be collected at any moment, also after this start
        has brought them to the local disk: (1) `gc` reads that the stream has ended; (2) this start fetches them, claims, and its plans
        and checkpoints name them; (3) `gc` deletes them.
        """
        plan = next((plan for plan in self._plans if plan.objects), None)
        if self._end is not None and self._restoring is not None and plan is not None:
            raise GivenUpError(
                ErrorKind.CONFLICT,
                f"what was planned past {self._restoring.path} cannot run again: the stream was deleted, and with it files that the plan "
                f"of epoch {plan.epoch} names; with spark.ckpt.restore.plans=DISCARD what followed runs anew under new numbers, and sinks "
                "may get its rows twice",
            )

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
        )
        self.phase = StartPhase.CLAIMING
        return [self._ask(do.PutEntry(self.ticket(), number, encode(self._claim)))]

    @property
    def _sure_to_retain(self) -> int:
        """What an earlier run may still delete does not become retained because this one retains more."""
        last = self._living
        inherited = [c for c in self._read if c in self._in_order] if last else []
        if last is None or all(self._is_retained(c) for c in inherited):
            return self._retained
        return min(self._retained, last.retained)

    def _claim_put(self, event: ev.EntryPut) -> list[Instruction]:
        asked = self._answered(event.ticket)
        assert isinstance(asked, do.PutEntry)
        if event.outcome is Outcome.STORED:
            return self._claimed()
        if event.outcome in (Outcome.EXISTS, Outcome.UNKNOWN):
            self.phase = StartPhase.READING_BACK
            return [self._ask(do.ReadEntry(self.ticket(), event.number, asked.attempt))]
        return self._put_again(asked, event)

    def _put_again(self, asked: do.PutEntry, event: ev.EntryPut) -> list[Instruction]:
        if event.outcome is Outcome.REFUSED or asked.attempt + 1 >= ATTEMPTS:
            raise GivenUpError(ErrorKind.STORAGE, f"the stream cannot be started, its log takes no entry: {event.message}")
        return [self._ask(replace(asked, ticket=self.ticket(), attempt=asked.attempt + 1))]

    def _claim_read_back(self, event: ev.EntryRead) -> list[Instruction]:
        asked = self._answered(event.ticket)
        assert isinstance(asked, do.ReadEntry)
        assert self._claim is not None
        mine = encode(self._claim)
        if event.data is None:
            self.phase = StartPhase.CLAIMING
            put = do.PutEntry(0, event.number, mine, asked.attempt)
            return self._put_again(put, ev.EntryPut(0, event.number, Outcome.FAILED, "a put was not answered and did not arrive"))
        return self._claimed() if event.data == mine else self.begin(self.now_ms)

    def _claimed(self) -> list[Instruction]:
        """Every planned epoch is appended again before the first runs.

        So a run that repeats old epochs is fenced like any other; and once the first of them is a checkpoint, whoever starts from it finds
        the plans of the others behind it in the log, where it looks.
        """
        assert self._claim is not None
        return self._import() if self._imported else self._replan(0)

    def _replan(self, done: int) -> list[Instruction]:
        claim = self._claim
        assert claim is not None
        if done == len(self._plans):
            return self._done()
        plan = replace(self._plans[done], claim=claim.claim, run=claim.run, rerun=True)
        self._plans = (*self._plans[:done], plan, *self._plans[done + 1 :])
        self._replanned = done
        self.phase = StartPhase.REPLANNING
        return [self._ask(do.PutEntry(self.ticket(), claim.claim + 1 + done, encode(plan)))]

    def _plan_put(self, event: ev.EntryPut) -> list[Instruction]:
        asked = self._answered(event.ticket)
        assert isinstance(asked, do.PutEntry)
        if event.outcome is Outcome.STORED:
            return self._replan(self._replanned + 1)
        if event.outcome in (Outcome.EXISTS, Outcome.UNKNOWN):
            self.phase = StartPhase.READING_BACK_PLAN
            return [self._ask(do.ReadEntry(self.ticket(), event.number, asked.attempt))]
        return self._put_again(asked, event)

    def _plan_read_back(self, event: ev.EntryRead) -> list[Instruction]:
        asked = self._answered(event.ticket)
        assert isinstance(asked, do.ReadEntry)
        assert self._claim is not None
        mine = encode(self._plans[self._replanned])
        if event.data is None:
            self.phase = StartPhase.REPLANNING
            put = do.PutEntry(0, event.number, mine, asked.attempt)
            return self._put_again(put, ev.EntryPut(0, event.number, Outcome.FAILED, "a put was not answered and did not arrive"))
        if event.data == mine:
            return self._replan(self._replanned + 1)
        raise GivenUpError(ErrorKind.FENCED, fenced_message(self._claim, event.number, decode(event.number, event.data)))

    def _done(self) -> list[Instruction]:
        assert self._claim is not None
        plan = self._plans[0] if self._plans else None
        self.phase = StartPhase.DONE
        origin = self._origin
        epoch = self._first if self._first is not None else origin.id.epoch + 1 if origin else 0
        files = DriverFiles(driver_files_of(origin, epoch, len(self._claim.job.sources)))
        if plan:
            files.apply({**plan.files, offsets_file(plan.epoch): plan.offsets})
            files.take_changes()
        inherited = tuple(sorted(self._read.values(), key=lambda c: (c.log, c.id)))
        number = self._claim.claim + 1
        recorded = self._plans[1:]
        following = number + len(self._plans)
        numbers = {one.epoch: number + i for i, one in enumerate(self._plans)}
        self.beginning = Beginning(self._claim, following, origin, inherited, files, epoch, plan, numbers, recorded, self._aside)
        known = self._last.bad if self._last else ()
        warnings = [
            do.Log(do.Level.WARN, f"checkpoint run {c.run} epoch {c.epoch} is damaged and left out, the one before it is restored: {why}")
            for c, why in sorted(self._bad.items())
            if c not in known
        ]
        warnings += [do.Log(do.Level.WARN, note) for note in self._notes]
        started = do.Started(
            self._claim.run,
            self._claim.claim,
            origin.id if origin else None,
            epoch,
            plan is not None,
            self.now_ms,
            files.as_mapping(),
            recorded,
            restored=self._claim.restored.path if self._claim.restored else None,
            version=(origin.id.epoch + 1 if origin else 0) if self._first is not None else None,
            taken_over=self._living if self._living and not self._is_of_this_application(self._living) else None,
        )
        return [*warnings, started]

    def _is_of_this_application(self, claim: Claim) -> bool:
        theirs, mine = claim.application, self._request.application
        return claim.host == self._request.host and (theirs is None or mine is None or theirs.id == mine.id)

    TABLE: ClassVar = {
        (StartPhase.LOCATING, ev.TailLocated): "_tail_located",
        (StartPhase.READING_TAIL, ev.EntryRead): "_tail_read",
        (StartPhase.READING_CLAIM, ev.EntryRead): "_claim_read",
        (StartPhase.CHECKING_STORAGE, ev.StorageChecked): "_storage_checked",
        (StartPhase.LISTING, ev.CheckpointsListed): "_listed_checkpoints",
        (StartPhase.READING_SOURCE, ev.SourceRead): "_source_read",
        (StartPhase.READING_ITS_PLAN, ev.EntryRead): "_its_plan_read",
        (StartPhase.READING_METADATA, ev.MetadataRead): "_metadata_read",
        (StartPhase.VERIFYING, ev.ObjectsVerified): "_verified",
        (StartPhase.FETCHING, ev.FilesFetched): "_files_fetched",
        (StartPhase.CONFIRMING, ev.EntryRead): "_confirmed",
        (StartPhase.READING_PLANS, ev.EntryRead): "_plan_read",
        (StartPhase.CONFIRMING_END, ev.EntryRead): "_end_confirmed",
        (StartPhase.COPYING, ev.SourceCopied): "_source_copied",
        (StartPhase.IMPORTING, ev.MetadataPut): "_import_put",
        (StartPhase.READING_BACK_IMPORT, ev.MetadataRead): "_import_read_back",
        (StartPhase.CLAIMING, ev.EntryPut): "_claim_put",
        (StartPhase.READING_BACK, ev.EntryRead): "_claim_read_back",
        (StartPhase.REPLANNING, ev.EntryPut): "_plan_put",
        (StartPhase.READING_BACK_PLAN, ev.EntryRead): "_plan_read_back",
        **{(phase, ev.ReadFailed): "_read_failed" for phase in StartPhase if phase not in _SILENT},
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
