"""What a start finds planned past its origin: epochs that run again, and numbers that are not used again."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping

from spark_ckpt.errors import CheckpointError, ErrorKind, FormatError, without_way_out
from spark_ckpt.model import CheckpointId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import End, Entry, Plan
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.start.recorded import (
    CopyOf,
    Reach,
    Recorded,
    check_unbroken,
    does_not_follow,
    ever_used,
    numbers_known,
    past_all_plans,
    reach,
    recorded,
    takes_its_claim,
)
from spark_ckpt.protocol.start.recovery import GivenUpError, UnlessMovedOnError
from spark_ckpt.protocol.start.restoring import Restoring
from spark_ckpt.protocol.start.state import StartPhase, named

MOST_READ = 1_000_000
"""Entries past a checkpoint that a start reads."""


class StartPlans(Restoring):
    """Transitions from the choice of the origin to the claim."""

    def _read_plans(self) -> list[Instruction]:
        """What lies behind the origin; what the last claim has adopted, or the one under which the origin was made."""
        self._check_length()
        wanted = [n for n in self._to_read() if n not in self._entries and n not in self._gaps]
        # Nobody asks for these any more, whether they are still there or not (`Entry.floor`).
        self._gaps.update(n for n in wanted if self._forgets(n))
        wanted = [n for n in wanted if n not in self._gaps]
        if not wanted:
            return self._plans_known()
        self.phase = StartPhase.READING_PLANS
        return [self._ask(do.ReadEntry(self.questions.ticket(), n)) for n in wanted]

    def _check_length(self) -> None:
        """No log has so many entries past a checkpoint; one that seems to was forged, and asking for each would take for ever."""
        if self._forgotten or (self._end is not None and not self._same_stream):
            return
        past = self._tail - self._reach.after
        if past > MOST_READ:
            raise UnlessMovedOnError(
                ErrorKind.DAMAGED,
                f"log entry {self._tail}, the last one, says that {past} entries past the checkpoint to go on from count, more "
                "than any log has: it is forged or was put there by mistake; remove it",
            )

    def _to_read(self) -> Iterable[int]:
        if self._end is not None and not self._same_stream:
            # Where it has to be looked up which numbers the stream had used when it was deleted.
            return range(1, self._tail + 1) if self._end.used is None else ()
        if self._forgotten:
            return self._past_newest()
        within, origin = self._reach, self._origin
        tail = self._entries.get(self._tail)
        its_claim = origin and within.claim is None and takes_its_claim(origin, self._tail, tail.floor if tail else 0)
        return [*([origin.claim] if origin and its_claim else []), *within.numbers(origin, self._tail)]

    def _forgets(self, number: int) -> bool:
        its_claim = self._origin is not None and self._origin.claim == number
        return number < self._floor and not its_claim

    def _past_newest(self) -> Iterable[int]:
        """Where the highest number stands that the last run has used, if not in its newest checkpoint."""
        last = self._living
        if last is None:
            return ()
        newest = max((c.log for c in (*self._read.values(), *self._aside) if c.id.run == last.run), default=0)
        return range(max(newest, last.claim) + 1, self._tail + 1)

    @property
    def _ever_used(self) -> int:
        """The highest number that an epoch of the stream may have had, however far the log reaches back."""
        last = self._last
        noted = self._end.used if self._end is not None else last.used if last is not None else None
        if noted is None or last is None:
            raise GivenUpError(
                ErrorKind.CONFLICT,
                "it is not known which numbers the stream has used since that savepoint was made; restore it with a new checkpointLocation "
                "and a new output path",
            )
        planned = [entry.epoch for entry in self._entries.values() if isinstance(entry, Plan)]
        listed = [c.epoch for c in self._listed]
        used = max([noted, *planned, *listed]) + last.ahead if self._end is None else noted
        source = self._source.id.epoch if self._source else -1
        if source > used:
            raise GivenUpError(
                ErrorKind.CONFLICT,
                f"the savepoint is of epoch {source}, and the highest number that this stream has used is {used}: it belongs to another "
                "stream; restore it with a new checkpointLocation and a new output path",
            )
        return used

    @property
    def _told(self) -> Mapping[int, Entry]:
        """What was read of the log."""
        return self._entries

    @property
    def _reach(self) -> Reach:
        return reach(self._origin, self._last, self._entries.get(self._origin.claim) if self._origin else None)

    def _plan_read(self, event: ev.EntryRead) -> list[Instruction]:
        if event.data is None and self._origin:
            self._answered(event.ticket)
            self._gaps.add(event.number)
        else:
            self._entry(event)
        return self._read_plans() if not self._outstanding else []

    def _plans_known(self) -> list[Instruction]:
        if self._gaps and not (self._discards and self._numbers_known):
            return self._unless_cured(self._log_too_short())
        found, origin = self._unplanned, self._origin
        if found is not None and origin is not None:
            # True only if nobody has appended since, who could have planned that epoch.
            raise UnlessMovedOnError(
                ErrorKind.DAMAGED,
                f"the log ends with entry {self._tail}, before the plan of checkpoint run {found.run} epoch {found.epoch}: later entries "
                f"are missing, so it is not known what ran past checkpoint run {origin.id.run} epoch {origin.id.epoch}; put them back, or "
                "go on from one of the stream's checkpoints with spark.ckpt.restore.path, a new checkpointLocation and a new output path",
            )
        return self._log_known()

    @property
    def _unplanned(self) -> CheckpointId | None:
        origin, last = self._origin, self._living
        if origin is None or last is None or self._forgotten:
            return None
        return past_all_plans(origin, self._listed, self._entries, self._tail, last)

    def _log_known(self) -> list[Instruction]:
        if self._forgotten:
            self._number_anew(self._ever_used)
            self._check_sink(self._used)
        elif self._follows_nothing:
            last = self._last
            self._number_behind(last.used + last.ahead if last and last.used is not None else -1)
        elif self._end is None or self._same_stream:
            found = self._recorded()
            refused = self._cannot_follow(found)
            if refused is not None:
                return self._unless_cured(refused)
            self._plans_found(found)
            self._check_deleted()
            self._used = max(found.used, (self._first or 0) - 1)
            self._check_sink(self._used)
        else:
            used = ever_used(self._entries) if self._end.used is None else self._end.used
            self._number_behind(used)
            if self._first is not None and self._origin is None and self._request.from_zero:
                raise GivenUpError(
                    ErrorKind.CONFLICT,
                    f"the stream was deleted after epoch {used} and its numbers go on from there, but Spark begins transformWithState, and "
                    "what has an initial state, with epoch 0 only; give the query a new checkpointLocation and a new output path",
                )
        return self._fetch([c for plan in self._plans for c in plan.files.values()], self._next_step, self._plan_damaged)

    @property
    def _follows_nothing(self) -> bool:
        """A copy from elsewhere, in the place of one that was cut short: no plan is behind that claim, so its numbers go on behind all that
        were used before it, and behind those of epochs that may have run without a plan."""
        return self._imported is not None and not self._same_stream and self._end is None

    def _number_behind(self, used: int) -> None:
        following = self._origin.id.epoch + 1 if self._origin else 0
        self._first = used + 1 if used >= following else None
        self._used = max(used, following - 1)
        self._check_sink(self._used)

    def _recorded(self) -> Recorded:
        wanted = self._restoring
        source = self._source.id if self._source is not None and self._same_stream else None
        copied = CopyOf(source, wanted.path) if source is not None and wanted is not None else None
        return recorded(self._told, self._origin, self._tail, self._last, self._reach, copied)

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
        return self._in_need or (self._restoring is not None and self._restoring.discard)

    def _unless_cured(self, refused: CheckpointError) -> list[Instruction]:
        """What was planned past the origin cannot run again. Rule: first what makes it right, and only then what gives sinks rows twice.

        A choice that was applied is applied once more only here, or a refusal would name a way out that is none.
        """
        noted = [c for c in self._newer if c in self._noted] if self._restoring is None else []
        if noted:
            return self._look_again(noted)
        wanted = self._request.restore
        may = wanted is not None and wanted.discard and self._begins_from_what_was_applied and self._numbers_known
        if self._in_need or not may:
            raise refused
        self._in_need = True
        self._notes.append(f"spark.ckpt.restore.plans=DISCARD is applied again, for {without_way_out(str(refused))}")
        return self._plans_known()

    @property
    def _newer(self) -> list[CheckpointId]:
        """What the last run had that is newer than the origin: none of these can be gone on from."""
        order = self._in_order
        at = self._origin.id if self._origin is not None else None
        return order[: order.index(at)] if at in order else []

    @abstractmethod
    def _next_step(self) -> list[Instruction]:
        """What is planned past the origin is known."""

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

    @property
    def _numbers_known(self) -> bool:
        return self._last is not None and numbers_known(self._gaps, self._entries, self._last)

    def _log_too_short(self) -> UnlessMovedOnError:
        if self._origin is None:
            return UnlessMovedOnError(
                ErrorKind.DAMAGED,
                f"the stream has no checkpoint, and its log begins with entry {self._floor}, so it had one; put its run-* folders back, or "
                "start with a new checkpointLocation and a new output path",
            )
        at = self._origin.id
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

    def _plans_found(self, found: Recorded) -> None:
        """They run again as planned, unless it is not known what ran past them, or a person does not want them."""
        origin = self._origin
        self._plans, self._adopted = found.plans, found.numbers
        following = origin.id.epoch + 1 if origin else 0
        self._first = found.first if found.first != following else None
        if origin is None:
            self._check_ahead(found)
            return
        unwanted = self._discards and (found.plans or self._gaps)
        if unwanted or self._may_be_unplanned or does_not_follow(found, origin.id, self._noted_used) is not None:
            self._number_anew(max(found.used, self._ever_used if found.anew else self._noted_used))

    @property
    def _noted_used(self) -> int:
        return self._last.used if self._last is not None and self._last.used is not None else -1

    @property
    def _may_be_unplanned(self) -> bool:
        """Epochs of the last run may have run without a plan, so what followed the origin runs anew in any case."""
        return self._last is not None and self._last.ahead > 0

    def _cannot_follow(self, found: Recorded) -> CheckpointError | None:
        """Why what is planned cannot run again, and nobody has said that it need not."""
        origin = self._origin
        if self._discards:
            return None
        try:
            check_unbroken(found, origin.id if origin else None)
        except FormatError as error:
            return error
        problem = does_not_follow(found, origin.id, self._noted_used) if origin else None
        if problem is None or self._may_be_unplanned or (found.crossed and self._ahead):
            return None
        kind, way_out = ErrorKind.CONFLICT, ""
        newer = {c: self._bad[c] for c in self._newer if c in self._bad} if self._restoring is None else {}
        if newer:
            kind, way_out = ErrorKind.DAMAGED, f"put back what is damaged or missing of newer ones: {named(newer)}; or "
        # True only if nobody has appended since, who could have completed newer ones, and deleted what is missing.
        return UnlessMovedOnError(
            kind,
            f"{problem}; {way_out}with spark.ckpt.restore.path and spark.ckpt.restore.plans=DISCARD they run anew, and sinks get their "
            "rows twice",
        )

    @abstractmethod
    def _look_again(self, noted: list[CheckpointId]) -> list[Instruction]:
        """Whether a person has put the objects of these checkpoints back."""

    def _check_ahead(self, found: Recorded) -> None:
        """Without a checkpoint all runs again as planned; but once there was one, epochs may have run whose plans were never stored.

        No entry raises the floor before a checkpoint of the run is complete.
        """
        last = self._living
        if last is not None and last.ahead and found.plans and self._floor > last.floor:
            raise UnlessMovedOnError(
                ErrorKind.DAMAGED,
                f"the checkpoints of run {last.run} are gone, and its epochs could run before their plans were stored "
                "(at-least-once), so it is not known which numbers sinks have seen; put its run-* folder back, or start with "
                "a new checkpointLocation and a new output path",
            )

    def _number_anew(self, used: int) -> None:
        """What followed the origin runs under numbers past all that were used."""
        assert self._origin is not None
        self._first, self._plans, self._adopted = used + 1, (), {}
        self._used = used
        self._notes.append(
            f"what followed epoch {self._origin.id.epoch} runs anew, under numbers from {self._first} on: sinks may get its rows twice"
        )

    def _check_deleted(self) -> None:
        """A deletion takes the large files that plans name along. Those that it left may be collected at any moment, also after this start
        has brought them to the local disk: (1) `gc` reads that the stream has ended; (2) this start fetches them, claims, and its plans
        and checkpoints name them; (3) `gc` deletes them.
        """
        origin = self._origin.log if self._origin else 0
        end = max((n for n, entry in self._entries.items() if isinstance(entry, End) and n > origin), default=0)
        old = (entry for n, entry in self._entries.items() if n < end and n in self._adopted)
        plan = next((entry for entry in old if isinstance(entry, Plan) and entry.objects), None)
        if self._restoring is not None and plan is not None:
            raise GivenUpError(
                ErrorKind.CONFLICT,
                f"what was planned past {self._restoring.path} cannot run again: the stream was deleted, and with it files that the plan "
                f"of epoch {plan.epoch} names; with spark.ckpt.restore.plans=DISCARD what followed runs anew under new numbers, and sinks "
                "may get its rows twice",
            )
