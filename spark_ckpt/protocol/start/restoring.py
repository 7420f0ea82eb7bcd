"""Going on from what a person chose, instead of from the newest checkpoint (`spark.ckpt.restore.path`).

A checkpoint of the stream itself becomes the origin as it is. Anything else, a savepoint or a checkpoint of another stream, is first
copied under the new run's prefix, so that the stream depends on nothing outside of it. The copy's `_metadata` is stored after the claim:
before it, another run might get the same number, and its successor would take the copy for one of that run's checkpoints.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import replace

from spark_ckpt.errors import ErrorKind, without_way_out
from spark_ckpt.model import Checkpoint, CheckpointId, Job
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.driver_files import commits_file, offsets_file
from spark_ckpt.protocol.durable_put import DurablePut, Known, Seen
from spark_ckpt.protocol.entries import Claim, Entry, Plan, Restored
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.retention.order import is_retained
from spark_ckpt.protocol.start.recovery import ATTEMPTS, GivenUpError, UnlessMovedOnError
from spark_ckpt.protocol.start.state import StartPhase, StartState

_OPTION = "spark.ckpt.restore.path"
MOST_REQUESTS = 10_000
"""Entries behind the claim of a run that has run nothing: what people ask while nobody answers."""
_SHOWN = 10
TO_APPLY_AGAIN = "To go back to it once more, start the query once without the option, and then with it"


class Restoring(StartState):
    """Transitions of a start with a choice. Nothing is written before all that can be refused has been."""

    def _restore(self) -> list[Instruction]:
        """What follows from the option; nothing where the stream goes on from its newest checkpoint."""
        wanted, last = self._request.restore, self._living
        if wanted is None:
            if last and last.restored and self._cut_short:
                choices = self._choices
                others = (
                    f" and restore.plans as it was, or go on from one of the stream's checkpoints ({choices}) with {_OPTION} and "
                    "restore.plans=DISCARD, or start it"
                )
                raise UnlessMovedOnError(
                    ErrorKind.CONFLICT,
                    f"the restore of {last.restored.path} was cut short before the stream had a copy of it; start the query with "
                    f"{_OPTION}={last.restored.path} again{others if choices else ', or'} with a new checkpointLocation",
                )
            return []
        if last and last.restored and last.restored.path == wanted.path and not self._cut_short:
            self._notes.append(
                f"{_OPTION}={wanted.path} was applied by an earlier run; the stream goes on from its newest checkpoint, and "
                f"restore.plans=DISCARD counts only where that would be refused. {TO_APPLY_AGAIN}"
            )
            return []
        if wanted.rival is not None:
            raise GivenUpError(
                ErrorKind.CONFIG,
                f"{_OPTION}={wanted.path} is what the query at {wanted.rival} goes on from, and it cannot be said whether this one is to "
                "go on from it too; start the two in applications of their own",
            )
        self._restoring = wanted
        if wanted.own is None:
            self.phase = StartPhase.READING_SOURCE
            return [self._ask(do.ReadSource(self.questions.ticket(), wanted.path))]
        if wanted.own in self._candidates:
            return self._read_candidates()
        raise self._no_choice("was found damaged" if wanted.own in self._bad else "is not one that the stream can go back to")

    @property
    def _begins_from_what_was_applied(self) -> bool:
        """The option names what an earlier run has restored, and nothing newer can be gone on from."""
        wanted, last, origin = self._request.restore, self._living, self._origin
        if wanted is None or self._restoring is not None or last is None or last.restored is None or origin is None:
            return False
        return last.restored.path == wanted.path and origin.id == (wanted.own or last.restored.imported)

    def _no_choice(self, why: str) -> GivenUpError:
        assert self._restoring is not None
        path = self._restoring.path
        others = self._choices or "none"
        return GivenUpError(ErrorKind.MISSING, f"{_OPTION}={path} {why}; choose one of its others ({others}) or a savepoint")

    @property
    def _choices(self) -> str:
        """Checkpoints that a person may choose; before they are read all of them are taken to be whole."""
        assert self._last is not None
        never_made = self._last.restored.imported if self._last.restored and self._cut_short else None
        there = [c for c in self._candidates if c != never_made]
        known = self._read or there
        return ", ".join(f"run {c.run} epoch {c.epoch}" for c in there if is_retained(c, self._in_order, known, self._last.retained))

    @property
    def _without_a_copy(self) -> bool:
        """The last run began with a copy, and has no checkpoint at all; it had none either, for no run raises the floor before that."""
        last = self._last
        imported = last.restored.imported if last and last.restored else None
        if last is None or imported is None or imported.run != last.run:
            return False
        return not self._listed and self._floor <= last.floor

    @property
    def _cut_short(self) -> bool:
        """It died between its claim and the `_metadata` of the copy, and has run nothing. One that has run something had the copy, and
        it is gone: numbers are used of which only the plans behind the claim tell."""
        return self._without_a_copy and self._tail - self._behind <= MOST_REQUESTS and not self._planned_behind

    @property
    def _behind(self) -> int:
        """The last claim's own number, behind which its run's entries are."""
        return self._last.claim if self._last else 0

    @property
    def _planned_behind(self) -> bool:
        return any(isinstance(entry, Plan) and n > self._behind for n, entry in self._entries.items())

    def _read_behind(self) -> list[Instruction]:
        """What the last run has appended, where it matters whether that is a plan, or requests of people."""
        if not self._without_a_copy or self._tail - self._behind > MOST_REQUESTS:
            return []
        wanted = [n for n in range(self._behind + 1, self._tail) if n not in self._entries]
        self.phase = StartPhase.READING_BEHIND if wanted else self.phase
        return [self._ask(do.ReadEntry(self.questions.ticket(), n)) for n in wanted]

    def _behind_read(self, event: ev.EntryRead) -> list[Instruction]:
        self._entry(event)
        return [] if self._outstanding else self._restore() or self._read_candidates()

    def _source_read(self, event: ev.SourceRead) -> list[Instruction]:
        self._answered(event.ticket)
        assert self._restoring is not None
        source = event.checkpoint
        if source is None:
            raise GivenUpError(ErrorKind.MISSING, f"{_OPTION}={self._restoring.path} cannot be restored: {event.problem}")
        self._source = source
        if source.log > self._tail or self._last is None:
            return self._source_known()
        if source.lowest_entry < self._floor:
            self.phase = StartPhase.DATING
            return [self._ask(do.DateEntries(self.questions.ticket(), (source.lowest_entry, self._tail)))]
        return self._read_its_plan()

    def _dated(self, event: ev.EntriesDated) -> list[Instruction]:
        """Entries below the floor that are younger than a day are on nobody's list: (1) whoever deletes lists what was a day old when it
        put its last entry, the log's tail at the latest; (2) this claim, which comes after that tail, says a floor below these.
        """
        self._answered(event.ticket)
        assert self._source is not None
        lowest, tail = event.stored_ms.get(self._source.lowest_entry), event.stored_ms.get(self._tail)
        if lowest is not None and tail is not None and lowest > tail - self._log_kept_ms:
            self._young = self._source.lowest_entry
        return self._read_its_plan()

    def _read_its_plan(self) -> list[Instruction]:
        source = self._source
        assert source is not None
        numbers = [n for n in dict.fromkeys((source.claim, source.log)) if n not in self._entries]
        if not numbers:
            return self._source_known()
        self.phase = StartPhase.READING_ITS_PLAN
        return [self._ask(do.ReadEntry(self.questions.ticket(), n)) for n in numbers]

    def _its_plan_read(self, event: ev.EntryRead) -> list[Instruction]:
        if event.data is None:
            self._answered(event.ticket)
        else:
            self._entry(event)
        return self._source_known() if not self._outstanding else []

    def _source_known(self) -> list[Instruction]:
        source, wanted = self._source, self._restoring
        assert source is not None
        assert wanted is not None
        claim, plan = self._entries.get(source.claim), self._entries.get(source.log)
        stream = self._last.stream if self._last else ""
        by_its_entries = is_of_this_stream(source, stream, claim, plan)
        if by_its_entries and self._young is not None:
            self._floor = self._young
        self._same_stream = self._last is not None and (by_its_entries or is_of_this_stream(source, stream, claim, plan, self._floor))
        self._forgotten = self._same_stream and source.lowest_entry < self._floor
        if self._forgotten and not wanted.discard:
            raise GivenUpError(
                ErrorKind.CONFLICT,
                f"{_OPTION}={wanted.path} is older than what the stream's log is sure to hold, so what was planned past it cannot run "
                "again; with "
                "spark.ckpt.restore.plans=DISCARD it runs anew under new numbers, and sinks get its rows twice; or restore it with a "
                "new checkpointLocation and a new output path",
            )
        if self._living and not self._same_stream and not self._cut_short:
            raise GivenUpError(
                ErrorKind.CONFLICT,
                f"{_OPTION}={wanted.path} belongs to another stream, and this one has epochs of its own, whose numbers sinks may have "
                "seen; give this query a new checkpointLocation, or start the query that the path belongs to before this one",
            )
        problems = misfits(source, self._request.job)
        if problems:
            raise GivenUpError(ErrorKind.CONFLICT, f"{_OPTION}={wanted.path} does not fit this query: {'; '.join(problems)}")
        if source.job.sink != self._request.job.sink:
            self._notes.append(f"the sink of {wanted.path} was {source.job.sink} and is {self._request.job.sink} now")
        seen = self._request.sink_seen
        if not self._same_stream and seen is not None and seen > source.id.epoch:
            raise GivenUpError(
                ErrorKind.CONFLICT,
                f"the sink ({self._request.job.sink}) has batch {seen} already and would skip what follows epoch {source.id.epoch} of "
                f"{wanted.path}; give the query an output path that is new, or was written up to that epoch only",
            )
        if not self._request.compared:
            return self._compare_first(source)
        return self._read_candidates() if self._candidates else self._copy_source()

    def _compare_first(self, source: Checkpoint) -> list[Instruction]:
        """The start ends here, having changed nothing."""
        wanted = self._restoring
        assert wanted is not None
        files = {path: content for path, content in source.files.items() if not path.startswith("sources/")}

        def compare() -> list[Instruction]:
            self.phase = StartPhase.REFUSED
            self.questions.forget_all()
            return [do.Compare(wanted.path, source.id.epoch, files)]

        def refuse(damage: str) -> list[Instruction]:
            raise self._refuse_chosen(damage)

        return self._fetch(files.values(), compare, refuse, wanted.path if wanted.own is None else None)

    def _chosen(self) -> list[Instruction]:
        """The checkpoints are read, and a person has chosen."""
        assert self._restoring is not None
        own = self._restoring.own
        if own is None:
            return self._copy_source()
        if own not in self._read:
            refused = self._refuse_chosen(self._bad.get(own) or "its _metadata is missing")
            raise UnlessMovedOnError(refused.kind, str(refused))
        if not self._is_retained(own):
            raise self._no_choice("is no longer retained, and may be deleted at any moment")
        if not self._request.compared:
            return self._compare_first(self._read[own])
        self._origin = self._read[own]
        self._set_aside(self._origin.log)
        self.phase = StartPhase.VERIFYING
        return [self._ask(do.VerifyObjects(self.questions.ticket(), self._origin))]

    def _refuse_chosen(self, damage: str) -> GivenUpError:
        """No other is taken in its place: a person has chosen."""
        assert self._restoring is not None
        return GivenUpError(
            ErrorKind.DAMAGED,
            f"{_OPTION}={self._restoring.path} cannot be restored: {without_way_out(damage)}; put that back, choose another checkpoint "
            "or a savepoint, or remove the option to go on from the newest",
        )

    def _set_aside(self, log: int) -> None:
        """What is past the origin, made by entry `log`, is never gone on from by accident: it is not inherited, and the run deletes it.

        The same for what the last run does not retain: with newer ones set aside, it would seem to be.
        """
        self._aside = tuple(c for c in self._read.values() if c.log > log or not self._is_retained(c.id))
        for checkpoint in self._aside:
            del self._read[checkpoint.id]

    def _copy_source(self) -> list[Instruction]:
        assert self._source is not None
        assert self._restoring is not None
        self.phase = StartPhase.COPYING
        return [self._ask(do.CopySource(self.questions.ticket(), self._restoring.path, self._source, self._next_run))]

    def _read_failed(self, event: ev.ReadFailed) -> list[Instruction]:
        asked = self._outstanding[event.ticket]
        last = event.hopeless or asked.attempt + 1 >= ATTEMPTS
        if isinstance(asked, do.CopySource) and event.kind is ErrorKind.DAMAGED and last:
            raise self._refuse_chosen(event.message)
        return super()._read_failed(event)

    def _source_copied(self, event: ev.SourceCopied) -> list[Instruction]:
        """`log` and `claim` are those it had here; from elsewhere, both are the new claim: there are no plans past it. The same for one
        that is older than the log."""
        self._answered(event.ticket)
        assert self._source is not None
        number = self._tail + 1
        in_log = self._same_stream and not self._forgotten
        self._imported = replace(
            self._source,
            id=CheckpointId(self._next_run, self._source.id.epoch),
            log=self._source.log if in_log else number,
            claim=self._source.claim if in_log else number,
            log_from=self._source.log_from if in_log else None,
            stream=self._last.stream if self._last and self._last.stream else self._request.nonce,
            query_id=self._request.query_id,
            job=self._request.job,
            snapshots=event.snapshots,
            files=event.files,
        )
        self._origin = self._imported
        self._set_aside(self._source.log if self._same_stream else number)
        self._read[self._imported.id] = self._imported
        return self._fetch_origin()

    def _restored(self) -> Restored | None:
        """What the claim says: a choice that is applied now, or one before that still matters."""
        wanted, last = self._restoring, self._living
        if wanted is not None:
            imported = self._imported
            return Restored(wanted.path, imported.id, wanted.owned) if imported else Restored(wanted.path)
        before = last.restored if last else None
        if before is None:
            return None
        said = self._request.restore if self._request.restore and self._request.restore.path == before.path else None
        owned = before.owned and said is not None and said.owned
        if before.owned and not owned and before.imported in self._read:
            self._notes.append(
                f"the stream took over {before.path} with {_OPTION} and restore.mode=CLAIM; the configuration does not say so any more, so "
                "that folder stays: delete it when it is not needed"
            )
        return replace(before, owned=owned) if said is not None else None

    # --- the copy's `_metadata`, under one's own claim

    def _import(self) -> list[Instruction]:
        assert self._imported is not None
        mine = self._imported
        self.phase = StartPhase.IMPORTING

        def judge(event: ev.MetadataRead) -> Seen:
            found = event.checkpoint
            return Seen.OURS if found is not None and replace(found, counters={}) == replace(mine, counters={}) else Seen.NOTHING

        self._put = DurablePut(
            self.questions,
            lambda ticket, attempt: do.StoreMetadata(ticket, mine, attempt),
            self._import_known,
            lambda ticket, attempt: do.ReadMetadata(ticket, mine.id, attempt),
            judge,
            ATTEMPTS,
        )
        return self._put.begin()

    def _import_known(self, known: Known, _event: ev.Answer) -> list[Instruction]:
        if known is Known.STORED:
            return self._done()
        assert self._put is not None
        raise GivenUpError(ErrorKind.STORAGE, f"the stream cannot be started, the copy of its origin is not complete: {self._put.cause}")

    def _to_put(self, event: ev.Answer) -> list[Instruction]:
        return self.questions.answer(event)

    # --- given by `Start`

    @abstractmethod
    def _read_candidates(self) -> list[Instruction]:
        """Look at the checkpoints that the start may begin from."""

    @abstractmethod
    def _fetch_origin(self) -> list[Instruction]:
        """Bring the origin's large files to the local disk, and go on."""

    @abstractmethod
    def _read_plans(self) -> list[Instruction]:
        """Look at what the log holds past the origin."""

    @abstractmethod
    def _done(self) -> list[Instruction]:
        """The claim stands, and what it begins with is there."""


def is_of_this_stream(source: Checkpoint, stream: str, claim: Entry | None, plan: Entry | None, floor: int = 0) -> bool:
    """Whether a log's entries `source.claim` and `source.log` are those it was made under: numbers alone prove nothing.

    One that was copied from elsewhere has no plan here, and names the claim instead. Where one of them is gone (None), the name of the
    `stream` proves it. What stands below the `floor` in the place of another may have been stored there by a run that slept until the
    entry was deleted: it proves nothing either.
    """
    copied = source.log == source.claim
    its_claim = isinstance(claim, Claim) and claim.query_id == source.query_id
    its_plan = copied or (isinstance(plan, Plan) and (plan.epoch, plan.claim) == (source.id.epoch, source.claim))
    if claim is not None and not its_claim and source.claim >= floor:
        return False
    if plan is not None and not its_plan and source.log >= floor:
        return False
    return (its_claim and its_plan) or (source.stream != "" and source.stream == stream)


def misfits(source: Checkpoint, job: Job) -> list[str]:
    """Why a query cannot go on from a checkpoint: what differs, and what the checkpoint lacks. Empty: it fits, as far as can be known here.

    The state's schemas are compared by Spark itself (`instructions.Compare`). The number of partitions is the checkpoint's own: Spark takes
    it from `offsets/N`.
    """
    problems = []
    for what, theirs, mine in (
        ("stateful operators", source.job.operators, job.operators),
        ("sources", source.job.sources, job.sources),
    ):
        if theirs != mine:
            problems.append(f"its {what} are {_listed(theirs)}, those of the query {_listed(mine)}")
    return problems + incomplete(source)


def incomplete(source: Checkpoint) -> list[str]:
    """What a checkpoint lacks of what it takes to restore it."""
    epoch = source.id.epoch
    problems = [f"it lacks the driver's file {name}" for name in (offsets_file(epoch), commits_file(epoch)) if name not in source.files]
    partitions = partitions_of(source)
    for operator in sorted({s.store.operator for s in source.snapshots}):
        there = {s.store.partition for s in source.snapshots if s.store.operator == operator}
        # As many as are shown, not all: the number comes out of the storage.
        lacking = (p for p in range(partitions or max(there) + 1) if p not in there)
        missing = [p for p, _ in zip(lacking, range(_SHOWN), strict=False)]
        if missing:
            problems.append(f"operator {operator} lacks partitions {_listed(str(p) for p in missing)}")
    return problems


def partitions_of(source: Checkpoint) -> int | None:
    """The number of state partitions that Spark recorded with the epoch (`spark.sql.shuffle.partitions`), None where it cannot be told."""
    lines = (source.file(offsets_file(source.id.epoch)) or b"").splitlines()
    try:
        return int(json.loads(lines[1])["conf"]["spark.sql.shuffle.partitions"])
    except (IndexError, KeyError, TypeError, ValueError, OverflowError, RecursionError):
        return None


def _listed(items: Iterable[str]) -> str:
    return ", ".join(items) or "none"
