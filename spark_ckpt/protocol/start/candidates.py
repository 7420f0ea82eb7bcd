"""The checkpoints that a start may go on from: which there are, which are intact, and which of them is the origin."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from spark_ckpt.errors import ErrorKind, without_way_out
from spark_ckpt.model import Checkpoint, CheckpointId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.driver_files import missing_files
from spark_ckpt.protocol.entries import Claim, Plan
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.retention.order import choosable, dropping_nothing, given_up, newest_first, sure, worth_keeping
from spark_ckpt.protocol.start.phases import StartPhase
from spark_ckpt.protocol.start.planned_before import copied_own
from spark_ckpt.protocol.start.recovery import Next, UnlessMovedOnError
from spark_ckpt.protocol.start.round import Round, named

MOST_REQUESTS = 10_000
"""Entries behind the claim of a run that has run nothing: what people ask while nobody answers."""


class Candidates:
    """`origin_known`: what follows when the origin is there, with all that it names; None: there is none."""

    def __init__(self, around: Round, origin_known: Callable[[Checkpoint | None], list[Instruction]]) -> None:
        self.listed: frozenset[CheckpointId] = frozenset()
        """The last run's own."""
        self.in_order: list[CheckpointId] = []
        """What the last run had, newest first, whether it is damaged or not."""
        self.to_try: list[CheckpointId] = []
        """Newest first."""
        self.read: dict[CheckpointId, Checkpoint] = {}
        self.bad: dict[CheckpointId, str] = dict(around.last.damaged)
        """Damaged or missing, and why, where that is known."""
        self.noted: set[CheckpointId] = set(around.last.damaged)
        """Found damaged by earlier runs, and not looked at by this start, but for what their `_metadata` says of others."""
        self._again: dict[CheckpointId, str] = {}
        """Found damaged by earlier runs, and looked at again; why."""
        self._going: set[CheckpointId] = set()
        """What the last run had given up, by what was read, also of those that are damaged (`Checkpoint.given_up`)."""
        self._round = around
        self._origin_known = origin_known

    def choosable(self) -> frozenset[CheckpointId]:
        """By a person, of those that were read."""
        return choosable(self._dropping, self.listed, self.read, self._going).intersection(self.read)

    @property
    def _dropping(self) -> Claim:
        """The last claim, and how many its run retains."""
        last = self._round.last.claim
        assert last is not None
        return dropping_nothing(last) if self.never_made is not None else last

    def newer_than(self, origin: Checkpoint | None) -> list[CheckpointId]:
        """What the last run had that is newer: none of these can be gone on from."""
        at = origin.id if origin is not None else None
        return self.in_order[: self.in_order.index(at)] if at in self.in_order else []

    # --- which there are

    def find(self, then: Next) -> list[Instruction]:
        """The last run's own are listed."""
        last = self._round.last.living
        assert last is not None
        run = last.run

        def found(event: ev.CheckpointsListed) -> list[Instruction]:
            self.listed = frozenset(event.found)
            self.in_order = newest_first(last, self.listed)
            self.to_try = [c for c in self.in_order if c not in self.bad]
            return then()

        return self._round.recovery.ask(StartPhase.LISTING, lambda ticket: do.ListCheckpoints(ticket, run), found)

    def read_all(self, then: Next) -> list[Instruction]:
        """`_metadata` of all that may be tried. Of the last run's own also where it was found damaged: its run deletes what it gives up."""
        ask_each, noted = self._round.recovery.ask_each, sorted(self.listed & self.noted)
        wanted = [*self.to_try, *noted]
        return ask_each(StartPhase.READING_METADATA, wanted, do.ReadMetadata, self._metadata_read, then, spared=frozenset(noted))

    def _metadata_read(self, event: ev.MetadataRead) -> None:
        if event.checkpoint is not None:
            self._going |= given_up([event.checkpoint])
        if event.id in self.noted:
            return
        if event.damage is not None:
            self.bad[event.id] = without_way_out(event.damage)
        elif event.checkpoint is not None:
            gone = missing_files(event.id.epoch, event.checkpoint.files)
            if gone:
                self.bad[event.id] = f"it lacks the driver's file {gone[0]}"
            else:
                self.read[event.id] = event.checkpoint

    # --- a copy that was cut short

    @property
    def without_a_copy(self) -> bool:
        """The last run began with a copy, and has no checkpoint at all; it had none either, for no run raises the floor before that."""
        last = self._round.last.claim
        return last is not None and last.copy is not None and not self.listed and self._round.last.floor <= last.floor

    @property
    def never_made(self) -> CheckpointId | None:
        """The copy with which the last run was to begin, if it died between its claim and the `_metadata` of that, and has run nothing. One
        that has run something had the copy, and it is gone: numbers are used of which only the plans behind the claim tell."""
        last = self._round.last
        if last.claim is None or not self.without_a_copy or last.tail - self.behind > MOST_REQUESTS or self._planned_behind:
            return None
        return last.claim.copy

    @property
    def cut_short(self) -> bool:
        """That copy was of what a person had chosen."""
        last, never_made = self._round.last.claim, self.never_made
        return never_made is not None and last is not None and last.restored is not None and last.restored.imported == never_made

    @property
    def behind(self) -> int:
        """The last claim's own number, behind which its run's entries are."""
        return self._round.last.claim.claim if self._round.last.claim else 0

    @property
    def _planned_behind(self) -> bool:
        return any(isinstance(entry, Plan) and n > self.behind for n, entry in self._round.log.entries.items())

    # --- the origin

    def choose(self) -> list[Instruction]:
        """The newest that is intact is the origin; newer ones are bad.

        One that was listed and is gone may also have been deleted meanwhile. Then the log has moved on, and the claim, which goes to the
        number after the tail as it was before the listing, is refused; so nothing wrong is ever written about it.
        """
        last = self._round.last.living
        for candidate in self.to_try:
            if candidate in self.read:
                return self._try(self.read[candidate])
            due = last is not None and candidate == last.origin and not self._is_yet_to_be_copied
            if candidate not in self.bad and (due or candidate in self.listed):
                self.bad[candidate] = "its _metadata is missing"
        if last is not None and (last.origin or last.inherits or self.listed):
            noted = [c for c in self.in_order if c in self.noted]
            if noted:
                return self.look_again(noted)
            raise self.none_intact
        return self._origin_known(None)

    @property
    def _is_yet_to_be_copied(self) -> bool:
        """Where its query had changed, the last run began from a copy of one of the stream's own, whose `_metadata` comes after the claim.
        If it is not there, what it is a copy of is as good."""
        last = self._round.last.living
        return last is not None and copied_own(last) is not None

    def _try(self, origin: Checkpoint) -> list[Instruction]:
        def damaged(damage: str) -> list[Instruction]:
            self.bad[origin.id] = damage
            self.read.pop(origin.id, None)
            return self.choose()

        told = [self._deep_look(origin)] if origin.id in self._again else []
        return [*told, *self.verify(origin, damaged)]

    @property
    def none_intact(self) -> UnlessMovedOnError:
        """True only if nobody has appended since, who could have completed newer ones.

        Rule: the last run has nothing of what an earlier start had left out, so only another stream can begin from that.
        """
        last = self._round.last.living
        never_made = last.origin if last is not None and self._is_yet_to_be_copied else None
        there_was = [c for c in self.in_order if c in self.bad or (c not in self.read and c != never_made)]
        had = {c: self.bad.get(c, "its _metadata is missing") for c in there_was}
        left_out = {c: why for c, why in self.bad.items() if c not in had}
        message = (
            f"no checkpoint of the stream can be restored: damaged or missing are {named(had)}; put their objects back, or start "
            "with a new checkpointLocation"
        )
        if left_out:
            message += (
                f". This stream cannot go on from what an earlier start left out, {named(left_out)}: put it back, and restore it with "
                "spark.ckpt.restore.path (its URL, from `spark-ckpt list`), a new checkpointLocation and a new output path"
            )
        return UnlessMovedOnError(ErrorKind.DAMAGED, message)

    def verify(self, origin: Checkpoint, damaged: Callable[[str], list[Instruction]]) -> list[Instruction]:
        """Whether all is there that the origin names. Then its large files are fetched."""
        deep = origin.id in self._again

        def verified(event: ev.ObjectsVerified) -> list[Instruction]:
            damage = self.found_damaged(event)
            if damage is not None:
                return damaged(damage)
            for checkpoint, cause in self._again.items():
                if checkpoint != event.id and checkpoint not in self.bad:
                    self.bad[checkpoint] = cause  # nobody has looked whether it is whole
                    self.read.pop(checkpoint, None)
            return self.fetch(origin, damaged)

        return self._round.recovery.ask(StartPhase.VERIFYING, lambda ticket: do.VerifyObjects(ticket, origin, deep=deep), verified)

    def found_damaged(self, event: ev.ObjectsVerified) -> str | None:
        """Rule: a start goes on from a checkpoint of which all is there, whatever its `_metadata` says."""
        return event.damage

    def fetch(self, origin: Checkpoint, damaged: Callable[[str], list[Instruction]]) -> list[Instruction]:
        """Its large files; then it is known."""
        return self._round.fetch(origin.files.values(), lambda: self._origin_known(origin), damaged)

    def look_at_newer(self, chosen: Checkpoint, then: Next) -> list[Instruction]:
        """Whether all is there that the newest of them names; as long as it is not, it is bad, and the next one is the newest."""
        newer = iter([self.read[c] for c in self.newer_than(chosen) if c in self.read])

        def look() -> list[Instruction]:
            newest = next(newer, None)
            if newest is None:
                return then()

            def verified(event: ev.ObjectsVerified) -> list[Instruction]:
                damage = self.found_damaged(event)
                if damage is None:
                    return then()
                self.bad[newest.id] = damage
                del self.read[newest.id]
                return look()

            return self._round.recovery.ask(StartPhase.VERIFYING, lambda ticket: do.VerifyObjects(ticket, newest, deep=False), verified)

        return look()

    def look_again(self, noted: Iterable[CheckpointId]) -> list[Instruction]:
        """At those that earlier runs found damaged: a person may have put their objects back, and nothing else is left. With checksums, for
        executors may have found what no size tells, and would again."""
        self.noted.clear()
        self._again = {checkpoint: self.bad.pop(checkpoint) for checkpoint in noted}
        self.to_try = [c for c in self.in_order if c in self._again or c in self.read]
        return self.read_all(self.choose)

    def _deep_look(self, checkpoint: Checkpoint) -> do.Log:
        found = f" ({self._again[checkpoint.id]})" if self._again[checkpoint.id] else ""
        return do.Log(
            do.Level.WARN,
            f"checkpoint run {checkpoint.id.run} epoch {checkpoint.id.epoch} was found damaged before{found}; it is looked at again, for "
            f"no other can be restored: all of it is read, {checkpoint.size} bytes",
        )

    # --- what the claim says of them

    @property
    def bad_of_last_run(self) -> tuple[CheckpointId, ...]:
        """Damaged or missing, of what the last run had. What that run's own start had left out was not its own any more: else the damage
        of years would be in every claim."""
        had = frozenset(self.in_order)
        return tuple(sorted(c for c in self.bad if c in had))

    def leave_uninherited(self, log: int) -> tuple[Checkpoint, ...]:
        """What is past the origin, made by entry `log`, is never gone on from by accident: it is not inherited, and the run deletes it.

        The same for what the last run does not retain: with newer ones left out, it would seem to be.
        """
        kept = worth_keeping(self.in_order, self.read, self._dropping.retained) if self.read else frozenset[CheckpointId]()
        not_inherited = tuple(c for c in self.read.values() if c.log > log or c.id not in kept)
        for checkpoint in not_inherited:
            del self.read[checkpoint.id]
        return not_inherited

    def unsure(self) -> frozenset[CheckpointId]:
        """What an earlier run may still delete, of what is inherited (`retention/order.py`)."""
        if self._round.last.living is None:
            return frozenset()
        return frozenset(self.read).intersection(self.in_order).difference(sure(self._dropping, self.listed, self._going))
