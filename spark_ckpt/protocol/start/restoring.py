"""Going on from what a person chose, instead of from the newest checkpoint (`spark.ckpt.restore.path`).

A checkpoint of the stream itself becomes the origin as it is. Anything else, a savepoint or a checkpoint of another stream, is first
copied under the new run's prefix, so that the stream depends on nothing outside of it. The copy's `_metadata` is stored after the claim:
before it, another run might get the same number, and its successor would take the copy for one of that run's checkpoints.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import replace

from spark_ckpt.errors import ErrorKind, FormatError, without_way_out
from spark_ckpt.model import Checkpoint, CheckpointId, Job
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.checkpoints.required_ids import required_ids
from spark_ckpt.protocol.driver_files import commits_file, missing_files
from spark_ckpt.protocol.entries import Claim, Entry, Plan, Restored
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.offsets_conf import drains_again, is_drain, partitions_of
from spark_ckpt.protocol.start.candidates import MOST_REQUESTS, Candidates
from spark_ckpt.protocol.start.changing import Changing, Then
from spark_ckpt.protocol.start.phases import StartPhase
from spark_ckpt.protocol.start.recovery import GivenUpError, Next, UnlessMovedOnError
from spark_ckpt.protocol.start.renumbering import without_gone
from spark_ckpt.protocol.start.round import Round
from spark_ckpt.protocol.start.sources import same_sources

_OPTION = "spark.ckpt.restore.path"
_SHOWN = 10
"""Of the JSON of an epoch's configuration."""
TO_APPLY_AGAIN = "To go back to it once more, start the query once without the option, and then with it"


class Restoring:
    """What a person chose, if that is applied now, and what comes of it. Nothing is written before all that can be refused has been."""

    def __init__(self, around: Round, candidates: Candidates) -> None:
        self.wanted: ev.Restore | None = None
        """None: the stream goes on from its newest checkpoint."""
        self.source: Checkpoint | None = None
        """What is copied from elsewhere."""
        self.same_stream = False
        """It was made here."""
        self.forgotten = False
        """It is older than what the log is sure to hold."""
        self.copy: Checkpoint | None = None
        self.not_inherited: tuple[Checkpoint, ...] = ()
        self.young: int | None = None
        """The lowest entry of a savepoint that is restored from below the log's floor."""
        self._round = around
        self._last = around.last
        self._candidates = candidates
        self._changing = Changing(around)

    @property
    def discards(self) -> bool:
        return self.wanted is not None and self.wanted.discard

    def drain_among(self, again: Sequence[Plan]) -> str | None:
        """What a person is told who goes back to before a drain: one of the epochs that run again."""
        epoch = next((plan.epoch for plan in again if is_drain(plan.offsets)), None)
        if self.wanted is None or epoch is None:
            return None
        return f"after {self.wanted.path} {drains_again(epoch)}, stop it, and set restore.plans=DISCARD. {TO_APPLY_AGAIN}"

    @property
    def floor(self) -> int:
        """Below it nothing is sure to be there."""
        return self._last.floor if self.young is None else self.young

    def begin(self) -> list[Instruction]:
        """What follows from the option; nothing where the stream goes on from its newest checkpoint."""
        wanted, last = self._round.request.restore, self._last.living
        if wanted is None:
            if last and last.restored and self._candidates.cut_short:
                return self._candidates.read_all(functools.partial(self._refuse_without_a_copy, last.restored.path))
            return []
        if last and last.restored and last.restored.path == wanted.path and not self._candidates.cut_short:
            self._round.notes.append(
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
        self.wanted = wanted
        if wanted.own is None:
            ask = self._round.recovery.ask
            return ask(
                StartPhase.READING_RESTORE_PATH,
                lambda t: do.ReadRestorePath(t, wanted.path),
                lambda event: self._restore_path_read(event, wanted),
            )
        return self._candidates.read_all(self._chosen)

    def begins_from_what_was_applied(self, origin: Checkpoint | None) -> bool:
        """The option names what an earlier run has restored, and nothing newer can be gone on from."""
        wanted, last = self._round.request.restore, self._last.living
        if wanted is None or self.wanted is not None or last is None or last.restored is None or origin is None:
            return False
        return last.restored.path == wanted.path and self.named(origin) in (wanted.own, last.restored.imported)

    def named(self, origin: Checkpoint) -> CheckpointId:
        """The origin, as people know it: a copy that the stream makes of one of its own is not there yet."""
        return self.source.id if self.source is not None and self.same_stream and origin is self.copy else origin.id

    def _no_choice(self, why: str) -> GivenUpError:
        assert self.wanted is not None
        path = self.wanted.path
        others = self._choices or "none"
        goes_on = self._last.living is not None and not self._candidates.cut_short
        without = ", or remove the option to go on from the newest" if goes_on else ""
        return GivenUpError(ErrorKind.MISSING, f"{_OPTION}={path} {why}; choose one of its others ({others}) or a savepoint{without}")

    @property
    def _choices(self) -> str:
        """Checkpoints that a person may choose, when they are read."""
        choosable = self._candidates.choosable() if self._last.claim is not None else frozenset[CheckpointId]()
        return ", ".join(f"run {c.run} epoch {c.epoch}" for c in self._candidates.to_try if c in choosable)

    # --- a copy that was cut short

    def _refuse_without_a_copy(self, path: str) -> list[Instruction]:
        choices = self._choices
        others = (
            f" and restore.plans as it was, or go on from one of the stream's checkpoints ({choices}) with {_OPTION} and "
            "restore.plans=DISCARD, or start it"
        )
        raise UnlessMovedOnError(
            ErrorKind.CONFLICT,
            f"the restore of {path} was cut short before the stream had a copy of it; start the query with {_OPTION}={path} again"
            f"{others if choices else ', or'} with a new checkpointLocation",
        )

    def read_behind(self, then: Next) -> list[Instruction]:
        """What the last run has appended, where it matters whether that is a plan, or requests of people."""
        tail = self._last.tail
        if not self._candidates.without_a_copy or tail - self._candidates.behind > MOST_REQUESTS:
            return then()
        return self._round.log.read(StartPhase.READING_BEHIND, range(self._candidates.behind + 1, tail), then)

    # --- from elsewhere

    def _restore_path_read(self, event: ev.RestorePathRead, wanted: ev.Restore) -> list[Instruction]:
        source, last = event.checkpoint, self._last
        if source is None:
            raise GivenUpError(ErrorKind.MISSING, f"{_OPTION}={wanted.path} cannot be restored: {event.problem}")
        self.source = source
        if source.log > last.tail or last.claim is None:
            return self._source_known(source, wanted)
        if source.lowest_entry >= last.floor:
            return self._read_its_plan(source, wanted)
        return self._round.recovery.ask(
            StartPhase.DATING,
            lambda ticket: do.DateEntries(ticket, (source.lowest_entry, last.tail)),
            lambda dated: self._read_its_plan(source, wanted, young=self._is_young(source, dated)),
        )

    def _is_young(self, source: Checkpoint, event: ev.EntriesDated) -> bool:
        """Entries below the floor that are younger than a day are on nobody's list: (1) whoever deletes lists what was a day old when it
        put its last entry, the log's tail at the latest; (2) this claim, which comes after that tail, says a floor below these.
        """
        lowest, tail = event.stored_ms.get(source.lowest_entry), event.stored_ms.get(self._last.tail)
        return lowest is not None and tail is not None and lowest > tail - self._round.settings.log_kept_ms

    def _read_its_plan(self, source: Checkpoint, wanted: ev.Restore, young: bool = False) -> list[Instruction]:
        numbers = dict.fromkeys((source.claim, source.log))
        known = functools.partial(self._source_known, source, wanted, young)
        return self._round.log.read(StartPhase.READING_ITS_PLAN, numbers, known, may_be_gone=lambda _: True)

    def _source_known(self, source: Checkpoint, wanted: ev.Restore, young: bool = False) -> list[Instruction]:
        last, request = self._last, self._round.request
        claim, plan = self._round.log.entries.get(source.claim), self._round.log.entries.get(source.log)
        by_its_entries = is_of_this_stream(source, last.stream, claim, plan)
        if by_its_entries and young:
            self.young = source.lowest_entry
        self.same_stream = last.claim is not None and (by_its_entries or is_of_this_stream(source, last.stream, claim, plan, self.floor))
        self.forgotten = self.same_stream and source.lowest_entry < self.floor
        if self.forgotten and not wanted.discard:
            raise GivenUpError(
                ErrorKind.CONFLICT,
                f"{_OPTION}={wanted.path} is older than what the stream's log is sure to hold, so what was planned past it cannot run "
                "again; with "
                "spark.ckpt.restore.plans=DISCARD it runs anew under new numbers, and sinks get its rows twice; or restore it with a "
                "new checkpointLocation and a new output path",
            )
        instead = self._candidates.cut_short and last.living and may_take_its_place(last.living, wanted.path, wanted.discard)
        if last.living and not self.same_stream and not instead:
            raise GivenUpError(
                ErrorKind.CONFLICT,
                f"{_OPTION}={wanted.path} belongs to another stream, and this one has epochs of its own, whose numbers sinks may have "
                "seen; give this query a new checkpointLocation, or start the query that the path belongs to before this one",
            )
        problems = misfits(source, request.job) if request.compared and request.planned is None else unfit(source, request.job)
        if problems:
            raise GivenUpError(ErrorKind.CONFLICT, f"{_OPTION}={wanted.path} does not fit this query: {'; '.join(problems)}")
        if source.job_known and source.job.sink != request.job.sink:
            self._round.notes.append(f"the sink of {wanted.path} was {source.job.sink} and is {request.job.sink} now")
        seen = request.sink_seen
        last_epoch = source.id.epoch + (1 if source.imported is not None and source.imported.planned is not None else 0)
        if not self.same_stream and seen is not None and seen > last_epoch:
            raise GivenUpError(
                ErrorKind.CONFLICT,
                f"the sink ({request.job.sink}) has batch {seen} already and would skip what follows epoch {last_epoch} of "
                f"{wanted.path}; give the query an output path that is new, or was written up to that epoch only",
            )
        return self._look_for_changes(source, wanted, lambda _: self._candidates.read_all(self._chosen))

    def _look_for_changes(self, source: Checkpoint, wanted: ev.Restore, then: Then) -> list[Instruction]:
        def refuse(damage: str) -> list[Instruction]:
            raise self._refused(damage)

        elsewhere = wanted.path if wanted.own is None else None
        return self._changing.look(source, f"{_OPTION}={wanted.path}", refuse, then, elsewhere)

    def changed(self, origin: Checkpoint, then: Then) -> list[Instruction]:
        """The stream goes on from its newest checkpoint. If that has other operators than the query, `then` gets a copy, as with a
        choice. The copy of one that was imported has the operators of the query that it was copied for."""
        if self.wanted is not None:
            return then(origin)
        self._forget_copy_of_another()
        if origin.job.operators == self._round.request.job.operators:
            return then(origin)
        way_out = "if another job made it, take another checkpointLocation"
        named = f"checkpoint run {origin.id.run} epoch {origin.id.epoch} of this stream ({way_out})"

        def looked(found: Checkpoint) -> list[Instruction]:
            return then(self._copy_own(found) if self._changing.matched is not None else found)

        def refuse(damage: str) -> list[Instruction]:
            raise UnlessMovedOnError(ErrorKind.DAMAGED, f"{named} cannot be gone on from: {damage}")

        return self._changing.look(origin, named, refuse, looked, choice=False)

    def _forget_copy_of_another(self) -> None:
        """What was planned past the origin before could not run again, and a newer one is looked at."""
        if self.copy is not None:
            del self._candidates.read[self.copy.id]
        self.copy = self.source = None
        self.same_stream = False
        self._changing.forget()

    # --- what was chosen is the origin

    def _chosen(self) -> list[Instruction]:
        """The checkpoints are read, and a person has chosen."""
        assert self.wanted is not None
        own = self.wanted.own
        if own is None:
            return self._copy_source(self.wanted)
        if own not in self._candidates.to_try:
            raise self._no_choice("was found damaged" if own in self._candidates.bad else "is not one that the stream can go back to")
        chosen = self._candidates.read.get(own)
        if chosen is None and own == self._candidates.never_made:
            refused = self._no_choice("is not there: its run has not made it yet, or it is lost")
            raise UnlessMovedOnError(refused.kind, str(refused))
        if chosen is None:
            raise self._unless_moved_on(self._candidates.bad.get(own) or "its _metadata is missing")
        if own in self._candidates.choosable():
            return self._look_for_changes(chosen, self.wanted, self._own_known)
        return self._candidates.look_at_newer(chosen, functools.partial(self._chosen_at_last, chosen, self.wanted))

    def _chosen_at_last(self, chosen: Checkpoint, wanted: ev.Restore) -> list[Instruction]:
        """What was newer may have lacked objects, for which nobody had looked."""
        if chosen.id not in self._candidates.choosable():
            raise self._no_choice("is no longer retained, and may be deleted at any moment")
        return self._look_for_changes(chosen, wanted, self._own_known)

    def _own_known(self, chosen: Checkpoint) -> list[Instruction]:
        self.not_inherited = self._candidates.leave_uninherited(chosen.log)
        origin = chosen if self._changing.matched is None else self._copy_own(chosen)
        return self._candidates.verify(origin, self._damaged)

    def _copy_own(self, source: Checkpoint) -> Checkpoint:
        """One of the stream's own, as the query has it. The objects of its state stay where they are."""
        last, request = self._last, self._round.request
        named = replace(source, id=CheckpointId(last.next_run, source.id.epoch), stream=last.stream or request.nonce, job=request.job)
        self.copy = copy = self._changing.applied(named)
        self.source, self.same_stream = source, True
        self._candidates.read[copy.id] = copy
        return copy

    def _refused(self, damage: str) -> GivenUpError:
        """No other is taken in its place: a person has chosen."""
        assert self.wanted is not None
        return GivenUpError(
            ErrorKind.DAMAGED,
            f"{_OPTION}={self.wanted.path} cannot be restored: {without_way_out(damage)}; put that back, choose another checkpoint "
            "or a savepoint, or remove the option to go on from the newest",
        )

    def _unless_moved_on(self, damage: str) -> UnlessMovedOnError:
        refused = self._refused(damage)
        return UnlessMovedOnError(refused.kind, str(refused))

    def _damaged(self, damage: str) -> list[Instruction]:
        raise self._unless_moved_on(damage)

    def _copy_source(self, wanted: ev.Restore) -> list[Instruction]:
        run, matched = self._last.next_run, self._changing.matched
        assert self.source is not None
        source = self.source if matched is None else without_gone(self.source, matched)

        def unanswered(event: ev.ReadFailed) -> None:
            if event.kind is ErrorKind.DAMAGED:
                raise self._refused(event.message)

        return self._round.recovery.ask(
            StartPhase.COPYING,
            lambda ticket: do.ImportObjects(ticket, wanted.path, source, run),
            lambda event: self._objects_imported(event, source),
            unanswered,
        )

    def _objects_imported(self, event: ev.ObjectsImported, source: Checkpoint) -> list[Instruction]:
        """`log` and `claim` are those it had here; from elsewhere, both are the new claim: there are no plans past it. The same for one
        that is older than the log."""
        last, request = self._last, self._round.request
        number = last.tail + 1
        in_log = self.same_stream and not self.forgotten
        copy = replace(
            source,
            id=CheckpointId(last.next_run, source.id.epoch),
            log=source.log if in_log else number,
            claim=source.claim if in_log else number,
            log_from=source.log_from if in_log else None,
            stream=last.stream or request.nonce,
            query_id=request.query_id,
            job=request.job,
            snapshots=event.snapshots,
            files=event.files,
            # What is known of the job from here on is what this query says. The epoch that stock Spark had begun is still to be run.
            imported=source.imported if source.imported is not None and source.imported.planned is not None else None,
        )
        self.copy = copy = self._changing.applied(copy)
        self.not_inherited = self._candidates.leave_uninherited(source.log if self.same_stream else number)
        self._candidates.read[copy.id] = copy
        return self._candidates.fetch(copy, self._damaged)

    # --- what the claim says

    def unsure(self) -> tuple[CheckpointId, ...]:
        """A copy of one of the stream's own that is still there names the same objects."""
        found, copy, source = self._candidates.unsure(), self.copy, self.source
        in_place = self.wanted is None or self.wanted.own is not None
        return tuple(sorted(found | {copy.id} if copy and source and in_place and source.id in found else found))

    def restored(self) -> Restored | None:
        """A choice that is applied now, or one before that still matters."""
        wanted, last = self.wanted, self._last.living
        if wanted is not None:
            return Restored(wanted.path, self.copy.id, wanted.owned) if self.copy else Restored(wanted.path)
        before = last.restored if last else None
        if before is None:
            return None
        option = self._round.request.restore
        said = option if option and option.path == before.path else None
        owned = before.owned and said is not None and said.owned
        if before.owned and not owned and before.imported in self._candidates.read:
            self._round.notes.append(
                f"the stream took over {before.path} with {_OPTION} and restore.mode=CLAIM; the configuration does not say so any more, so "
                "that folder stays: delete it when it is not needed"
            )
        return replace(before, owned=owned) if said is not None else None


def may_take_its_place(last: Claim, path: str, discard: bool) -> bool:
    """That of the copy with which the `last` claim's run was to begin, and which it has not made. What is of another stream may not, unless
    a person says so (`discard`), where this one has a checkpoint that the claim keeps, or a plan that it adopts; to have done what was cut
    short is no other choice. What lies at its path can be another one by now: plans are adopted with none but the stream's own."""
    again = last.restored is not None and last.restored.path == path
    return discard or (not last.adopts and (again or not any(c.run < last.run for c in last.inherits)))


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
    it from `offsets/N`. Of one that was imported, Spark's own comparison is all there is: its job is not known.
    """
    theirs, mine = source.job.operators, job.operators
    differ = source.job_known and theirs != mine
    return [*([f"its stateful operators are {_listed(theirs)}, those of the query {_listed(mine)}"] if differ else []), *unfit(source, job)]


def unfit(source: Checkpoint, job: Job) -> list[str]:
    """The same, whatever the stateful operators are."""
    theirs, mine = source.job.sources, job.sources
    differ = source.job_known and not same_sources(theirs, mine)
    return [*([f"its sources are {_listed(theirs)}, those of the query {_listed(mine)}"] if differ else []), *incomplete(source)]


def incomplete(source: Checkpoint) -> list[str]:
    """What a checkpoint lacks of what it takes to restore it."""
    epoch = source.id.epoch
    problems = [f"it lacks the driver's file {name}" for name in missing_files(epoch, source.files)]
    partitions, named = partitions_of(source), _partitions_named(source)
    for operator in sorted({s.store.operator for s in source.snapshots} | named.keys()):
        there = {s.store.partition for s in source.snapshots if s.store.operator == operator}
        # As many as are shown, not all: the number comes out of the storage.
        wanted = named.get(operator) or range(partitions or max(there) + 1)
        lacking = (p for p in wanted if p not in there)
        missing = [p for p, _ in zip(lacking, range(_SHOWN), strict=False)]
        if missing:
            problems.append(f"operator {operator} lacks partitions {_listed(str(p) for p in missing)}")
    return problems


def _partitions_named(source: Checkpoint) -> dict[int, list[int]]:
    """By operator, as `commits/N` has them: an operator of its own kind, a limit for one, has not as many as others. Empty where it does
    not say."""
    epoch = source.id.epoch
    named: dict[int, set[int]] = {}
    try:
        slots = required_ids(epoch, source.file(commits_file(epoch)) or b"").values()
    except FormatError:
        return {}
    for slot in slots:
        named.setdefault(slot.operator, set()).add(slot.partition)
    return {operator: sorted(found) for operator, found in named.items()}


def _listed(items: Iterable[str]) -> str:
    return ", ".join(items) or "none"
