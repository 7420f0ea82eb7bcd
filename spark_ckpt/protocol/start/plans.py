"""What a start finds planned past its origin: epochs that run again, and numbers that are not used again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spark_ckpt.errors import CheckpointError, ErrorKind, FormatError, without_way_out
from spark_ckpt.model import Checkpoint, CheckpointId, Content
from spark_ckpt.protocol.driver_files import beside_state, sources_of
from spark_ckpt.protocol.entries import End, Entry, Plan
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.settings import Settings
from spark_ckpt.protocol.start.candidates import Candidates
from spark_ckpt.protocol.start.phases import StartPhase
from spark_ckpt.protocol.start.planned_before import (
    CopyOf,
    PlannedBefore,
    Reach,
    begun_by_stock,
    behind,
    check_unbroken,
    does_not_follow,
    ever_used,
    numbers_known,
    past_all_plans,
    planned_before,
    reach,
    takes_its_claim,
)
from spark_ckpt.protocol.start.recovery import GivenUpError, Next, UnlessMovedOnError
from spark_ckpt.protocol.start.restoring import Restoring
from spark_ckpt.protocol.start.round import Round, named

MOST_READ = 1_000_000
"""Entries past a checkpoint that a start reads."""


class PlansPast:
    """Past `origin`, None where the stream has no checkpoint. `then`: what follows when it is known what runs again."""

    def __init__(self, around: Round, candidates: Candidates, restoring: Restoring, origin: Checkpoint | None, then: Next) -> None:
        self.origin = origin
        self.used = -1
        """The highest number that an epoch may have had, as far as this start has looked."""
        self._found: tuple[Plan, ...] = ()
        self._numbers: Mapping[int, int] = {}
        """Of the plans: entry -> epoch."""
        self._listing: dict[int, Plan] = {}
        """By entry, the records that say where the sources of real-time epochs began, of a stream without a checkpoint."""
        self._first: int | None = None
        self._gaps: set[int] = set()
        """Entries that are missing."""
        self._in_need = False
        """Whether plans are discarded that would run again if they could."""
        self._round = around
        self._last = around.last
        self._entries = around.log.entries
        self._candidates = candidates
        self._restoring = restoring
        self._then = then

    # --- what the claim says of them

    @property
    def again(self) -> tuple[Plan, ...]:
        """Rule: planned epochs run again as planned."""
        return self._found

    @property
    def adopted(self) -> Mapping[int, int]:
        """Rule: a claim names the plans that run again. Entry -> epoch."""
        return self._numbers

    @property
    def first(self) -> int | None:
        """Rule: a stream that was deleted begins anew behind every number that it had used. So does one whose plans do not run again.

        None: the first epoch follows the origin.
        """
        return self._first

    @property
    def settings(self) -> Settings:
        """Of the run to come. Rule: what runs again as it was planned does so in a run of its own, before one in real time."""
        settings = self._round.settings
        return settings.in_real_time() if self._round.request.real_time and not self._found else settings

    @property
    def listed(self) -> Mapping[str, Content | None]:
        """Where real-time epochs without a checkpoint had their sources begin. Rule: who runs anew begins there too."""
        return {path: content for record in self._listing.values() for path, content in sources_of(record.files).items()}

    @property
    def following(self) -> int:
        """The number of the epoch after the origin."""
        return self.origin.id.epoch + 1 if self.origin else 0

    # --- reading

    def begin(self) -> list[Instruction]:
        """What lies behind the origin; what the last claim has adopted, or the one under which the origin was made."""
        self._check_length()
        wanted = [n for n in self._to_read() if n not in self._entries and n not in self._gaps]
        # Nobody asks for these any more, whether they are still there or not (`Entry.floor`).
        self._gaps.update(n for n in wanted if self._forgets(n))
        wanted = [n for n in wanted if n not in self._gaps]
        if not wanted:
            return self._plans_known()

        def answered() -> list[Instruction]:
            self._gaps.update(n for n in wanted if n not in self._entries)
            return self.begin()

        return self._round.log.read(StartPhase.READING_PLANS, wanted, answered, may_be_gone=lambda _: self.origin is not None)

    def _check_length(self) -> None:
        """No log has so many entries past a checkpoint; one that seems to was forged, and asking for each would take for ever."""
        if self._restoring.forgotten or (self._last.end is not None and not self._restoring.same_stream):
            return
        past = self._last.tail - self._reach.after
        if past > MOST_READ:
            raise UnlessMovedOnError(
                ErrorKind.DAMAGED,
                f"log entry {self._last.tail}, the last one, says that {past} entries past the checkpoint to go on from count, more "
                "than any log has: it is forged or was put there by mistake; remove it",
            )

    def _to_read(self) -> Iterable[int]:
        if self._last.end is not None and not self._restoring.same_stream:
            # Where it has to be looked up which numbers the stream had used when it was deleted.
            return range(1, self._last.tail + 1) if self._last.end.used is None else ()
        if self._restoring.forgotten:
            return self._past_newest()
        within, origin = self._reach, self.origin
        tail = self._entries.get(self._last.tail)
        its_claim = origin and within.claim is None and takes_its_claim(origin, self._last.tail, tail.floor if tail else 0)
        return [*([origin.claim] if origin and its_claim else []), *within.numbers(origin, self._last.tail)]

    def _forgets(self, number: int) -> bool:
        its_claim = self.origin is not None and self.origin.claim == number
        return number < self._restoring.floor and not its_claim

    def _past_newest(self) -> Iterable[int]:
        """Where the highest number stands that the last run has used, if not in its newest checkpoint."""
        last = self._last.living
        if last is None:
            return ()
        newest = max((c.log for c in (*self._candidates.read.values(), *self._restoring.not_inherited) if c.id.run == last.run), default=0)
        return range(max(newest, last.claim) + 1, self._last.tail + 1)

    @property
    def noted(self) -> int:
        """The highest number that the claim notes. Rule: where operators begin in epoch 0 once more, as micro-batches, all numbers are
        given out anew, and plans say what ran under each; with those that real time has used noted no later start could know that."""
        request = self._round.request
        if self.origin is None and request.from_zero and not request.real_time:
            return max((plan.epoch for plan in self._found), default=-1)
        return max(self.used, self._last.used)

    @property
    def _ever_used(self) -> int:
        """The highest number that an epoch of the stream may have had, however far the log reaches back."""
        last = self._last.claim
        noted = self._last.end.used if self._last.end is not None else last.used if last is not None else None
        if noted is None or last is None:
            raise GivenUpError(
                ErrorKind.CONFLICT,
                "it is not known which numbers the stream has used since that savepoint was made; restore it with a new checkpointLocation "
                "and a new output path",
            )
        planned = [entry.epoch for entry in self._entries.values() if isinstance(entry, Plan)]
        listed = [c.epoch for c in self._candidates.listed]
        used = max([noted, *planned, *listed]) + last.ahead if self._last.end is None else noted
        source = self._restoring.source.id.epoch if self._restoring.source else -1
        if source > used:
            raise GivenUpError(
                ErrorKind.CONFLICT,
                f"the savepoint is of epoch {source}, and the highest number that this stream has used is {used}: it belongs to another "
                "stream; restore it with a new checkpointLocation and a new output path",
            )
        return used

    @property
    def _reach(self) -> Reach:
        return reach(self.origin, self._last.claim, self._entries.get(self.origin.claim) if self.origin else None)

    # --- what may run again

    def _plans_known(self) -> list[Instruction]:
        if self._gaps and not (self._discards and self._numbers_known):
            return self._unless_cured(self._log_too_short())
        found, origin, tail = self._unplanned, self.origin, self._last.tail
        if found is not None and origin is not None:
            # True only if nobody has appended since, who could have planned that epoch.
            raise UnlessMovedOnError(
                ErrorKind.DAMAGED,
                f"the log ends with entry {tail}, before the plan of checkpoint run {found.run} epoch {found.epoch}: later entries "
                f"are missing, so it is not known what ran past checkpoint run {origin.id.run} epoch {origin.id.epoch}; put them back, or "
                "go on from one of the stream's checkpoints with spark.ckpt.restore.path, a new checkpointLocation and a new output path",
            )
        return self._log_known()

    @property
    def _unplanned(self) -> CheckpointId | None:
        origin, last = self.origin, self._last.living
        if origin is None or last is None or self._restoring.forgotten:
            return None
        return past_all_plans(origin, self._candidates.listed, self._entries, self._last.tail, last)

    def _log_known(self) -> list[Instruction]:
        if self._restoring.forgotten:
            self._number_anew(self._ever_used)
            self._check_sink(self.used)
        elif self._follows_nothing:
            last = self._last.claim
            self._number_behind(last.used + last.ahead if last and last.used is not None else -1)
        elif self._last.end is None or self._restoring.same_stream:
            found = self.planned_before(self._entries)
            refused = self._cannot_follow(found)
            if refused is not None:
                return self._unless_cured(refused)
            self._plans_found(found)
            self._check_deleted()
            self.used = max(found.used, (self._first or 0) - 1)
            self._check_sink(max([self.used, *(plan.epoch for plan in self._found)]))
        else:
            used = ever_used(self._entries) if self._last.end.used is None else self._last.end.used
            self._number_behind(used)
            if self._first is not None and self.origin is None and self._round.request.from_zero:
                raise GivenUpError(
                    ErrorKind.CONFLICT,
                    f"the stream was deleted after epoch {used} and its numbers go on from there, but Spark begins transformWithState, and "
                    "what has an initial state, with epoch 0 only; give the query a new checkpointLocation and a new output path",
                )
        wanted = [*self.listed.values(), *(c for plan in self._found for c in plan.files.values())]
        return self._round.fetch(wanted, self._then, self._plan_damaged)

    @property
    def _follows_nothing(self) -> bool:
        """A copy from elsewhere, in the place of one that was cut short: no plan is behind that claim, so its numbers go on behind all that
        were used before it, and behind those of epochs that may have run without a plan."""
        return self._restoring.copy is not None and not self._restoring.same_stream and self._last.end is None

    def _number_behind(self, used: int) -> None:
        """Numbers that nothing has had yet are new ones too where the claim keeps checkpoints of what was there before: what is planned
        from here does not follow from those."""
        fresh = used < self.following
        beside_others = self._follows_nothing and any(c != self.origin.id for c in self._candidates.read if self.origin is not None)
        self._first = used + 1 if not fresh else self.following if beside_others else None
        self.used = max(used, self.following - 1)
        if self.origin is not None:
            self._found = behind(self.origin, used)[1]
            if begun_by_stock(self.origin) and not self._found:
                self._round.notes.append(
                    f"what stock Spark had begun as epoch {self.following} runs anew, under a number from {self._first} on: sinks may get "
                    "its rows twice"
                )
        self._check_sink(max([self.used, *(plan.epoch for plan in self._found)]))

    def planned_before(self, entries: Mapping[int, Entry]) -> PlannedBefore:
        """What these say. Rules: plans before a claim with new numbers are void; a claim that only carries such numbers on voids none."""
        wanted = self._restoring.wanted
        source = self._restoring.source.id if self._restoring.source is not None and self._restoring.same_stream else None
        copied = CopyOf(source, wanted.path if wanted is not None else "") if source is not None else None
        return planned_before(entries, self.origin, self._last.tail, self._last.claim, self._reach, copied)

    def _plan_damaged(self, damage: str) -> list[Instruction]:
        refused = UnlessMovedOnError(
            ErrorKind.DAMAGED,
            f"what was planned past the checkpoint that this start goes on from cannot run again: {damage}; put the object back, or go on "
            "from that checkpoint with spark.ckpt.restore.path and spark.ckpt.restore.plans=DISCARD: what followed runs anew under new "
            "numbers, and sinks may get its rows twice",
        )
        return self._unless_cured(refused)

    @property
    def _discards(self) -> bool:
        return self._in_need or self._restoring.discards

    def _unless_cured(self, refused: CheckpointError) -> list[Instruction]:
        """What was planned past the origin cannot run again. Rule: first what makes it right, and only then what gives sinks rows twice.

        A choice that was applied is applied once more only here, or a refusal would name a way out that is none.
        """
        noted = [c for c in self.newer if c in self._candidates.noted]
        if noted:
            return self._candidates.look_again(noted)
        wanted = self._round.request.restore
        applied = self._restoring.begins_from_what_was_applied(self.origin)
        may = wanted is not None and wanted.discard and applied and self._numbers_known
        if self._in_need or not may:
            raise refused
        self._in_need = True
        self._round.notes.append(f"spark.ckpt.restore.plans=DISCARD is applied again, for {without_way_out(str(refused))}")
        return self._plans_known()

    @property
    def newer(self) -> list[CheckpointId]:
        """Checkpoints that this start would rather have gone on from."""
        return self._candidates.newer_than(self._restoring.source or self.origin) if self._restoring.wanted is None else []

    def _check_sink(self, used: int) -> None:
        """`used`: the highest number that an epoch of this stream may have had. A sink that has seen more would skip the next ones."""
        seen, sink = self._round.request.sink_seen, self._round.request.job.sink
        if seen is not None and seen > used:
            has = f"the highest number that this stream has used is {used}" if used >= 0 else "this stream has had no epoch yet"
            raise GivenUpError(
                ErrorKind.CONFLICT,
                f"the sink ({sink}) has batch {seen} already and {has}, so it would skip new rows; give the query an "
                "output path that is new, or the checkpointLocation with which that one was written",
            )

    @property
    def _numbers_known(self) -> bool:
        return self._last.claim is not None and numbers_known(self._gaps, self._entries, self._last.claim)

    def _log_too_short(self) -> UnlessMovedOnError:
        if self.origin is None:
            floor = self._restoring.floor
            return UnlessMovedOnError(
                ErrorKind.DAMAGED,
                f"the stream has no checkpoint, and its log begins with entry {floor}, so it had one; put its run-* folders back, or "
                "start with a new checkpointLocation and a new output path",
            )
        at = self.origin.id
        way_out = "put it back"
        if not self._discards and self._numbers_known:
            way_out += (
                "; or go on from that checkpoint without them, with spark.ckpt.restore.path (its URL, from `spark-ckpt list`) and "
                "spark.ckpt.restore.plans=DISCARD: what followed runs anew under new numbers, and sinks may get its rows twice"
            )
        return UnlessMovedOnError(
            ErrorKind.DAMAGED,
            f"log entry {min(self._gaps)} is missing, so it is not known which epochs were planned past checkpoint run {at.run} epoch "
            f"{at.epoch}, the origin of this start; {way_out}; or start with a new checkpointLocation",
        )

    def _plans_found(self, found: PlannedBefore) -> None:
        """They run again as planned, unless it is not known what ran past them, or a person does not want them."""
        origin = self.origin
        self._found, self._numbers = found.plans, found.numbers
        self._first = found.first if found.first != self.following else None
        if origin is None:
            self._check_ahead(found)
            self._begin_behind(found)
            return
        unwanted = (self._discards and (found.plans or self._gaps)) or found.real_time
        if unwanted or self._last.may_be_unplanned or does_not_follow(found, origin.id, self._last.used) is not None:
            used = max(self.highest_used(found), found.unplanned - 1)
            self._number_anew(max(used, self._ever_used if found.anew else self._last.used))

    def files_again(self, plan: Plan) -> Mapping[str, Content | None]:
        """Of what went with one that runs again. Rule: nothing of operators, whose numbers may have been others then."""
        return beside_state(plan.files)

    def highest_used(self, found: PlannedBefore) -> int:
        """Rule: numbers that may have been used without a plan are not used again."""
        return found.used

    def _cannot_follow(self, found: PlannedBefore) -> CheckpointError | None:
        """Why what is planned cannot run again, and nobody has said that it need not."""
        origin = self.origin
        if self._discards:
            return None
        try:
            check_unbroken(found, self._restoring.named(origin) if origin else None)
        except FormatError as error:
            return error
        problem = does_not_follow(found, self._restoring.named(origin), self._last.used) if origin else None
        if problem is None or self._last.may_be_unplanned or (found.crossed and self._round.may_run_anew):
            return None
        kind, way_out = ErrorKind.CONFLICT, ""
        bad = self._candidates.bad
        newer = {c: bad[c] for c in self.newer if c in bad}
        if newer:
            kind, way_out = ErrorKind.DAMAGED, f"put back what is damaged or missing of newer ones: {named(newer)}; or "
        # True only if nobody has appended since, who could have completed newer ones, and deleted what is missing.
        return UnlessMovedOnError(
            kind,
            f"{problem}; {way_out}with spark.ckpt.restore.path and spark.ckpt.restore.plans=DISCARD they run anew, and sinks get their "
            "rows twice",
        )

    def _check_ahead(self, found: PlannedBefore) -> None:
        """Without a checkpoint all runs again as planned; but once there was one, epochs may have run whose plans were never stored.

        No entry raises the floor before a checkpoint of the run is complete.
        """
        last = self._last.living
        if last is not None and last.ahead and (found.plans or found.records) and self._restoring.floor > last.floor:
            raise UnlessMovedOnError(
                ErrorKind.DAMAGED,
                f"the checkpoints of run {last.run} are gone, and its epochs could run before their plans were stored "
                "(at-least-once, or real time), so it is not known which numbers sinks have seen; put its run-* folder back, or start with "
                "a new checkpointLocation and a new output path",
            )

    def _begin_behind(self, found: PlannedBefore) -> None:
        """Real-time epochs of which there is no checkpoint: each is recorded. The claim adopts what says where their sources began, or the
        next start would not read it. Operators that can begin in epoch 0 only do so, as in stock Spark."""
        self._listing = {number: record for number, record in found.records.items() if sources_of(record.files)}
        self._numbers = dict(self._numbers) | {number: record.epoch for number, record in self._listing.items()}
        if not found.real_time:
            return
        if not self._round.request.from_zero:
            self._first = found.used + 1
        again = f"the stream has no checkpoint, so its real-time epochs up to {found.used} run anew, under numbers from"
        self._round.notes.append(f"{again} {self._first or 0} on: sinks get their rows twice")

    def _number_anew(self, used: int) -> None:
        """What followed the origin runs under numbers past all that were used."""
        assert self.origin is not None
        self._first, self._found, self._numbers = used + 1, (), {}
        self.used = used
        self._round.notes.append(
            f"what followed epoch {self.origin.id.epoch} runs anew, under numbers from {self._first} on: sinks may get its rows twice"
        )

    def _check_deleted(self) -> None:
        """A deletion takes the large files that plans name along. Those that it left may be collected at any moment, also after this start
        has brought them to the local disk: (1) `gc` reads that the stream has ended; (2) this start fetches them, claims, and its plans
        and checkpoints name them; (3) `gc` deletes them.
        """
        origin = self.origin.log if self.origin else 0
        end = max((n for n, entry in self._entries.items() if isinstance(entry, End) and n > origin), default=0)
        old = (entry for n, entry in self._entries.items() if n < end and n in self._numbers)
        plan, wanted = next((entry for entry in old if isinstance(entry, Plan) and entry.objects), None), self._restoring.wanted
        if wanted is not None and plan is not None:
            raise GivenUpError(
                ErrorKind.CONFLICT,
                f"what was planned past {wanted.path} cannot run again: the stream was deleted, and with it files that the plan "
                f"of epoch {plan.epoch} names; with spark.ckpt.restore.plans=DISCARD what followed runs anew under new numbers, and sinks "
                "may get its rows twice",
            )
