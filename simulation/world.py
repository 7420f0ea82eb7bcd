"""The storage that all simulated drivers share, and what must hold of it after every change."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from simulation.claim_checks import ClaimChecks
from simulation.clock import Clock
from simulation.invariants import Invariant, ViolationError
from simulation.log import SimulatedLog, objects_of
from simulation.observed import Observed
from simulation.stored_damage import DamageKind, StoredDamage
from spark_ckpt import paths
from spark_ckpt.model import Ack, Checkpoint, CheckpointId
from spark_ckpt.protocol.entries import Claim, Damage, Plan, decode
from spark_ckpt.protocol.reasons import Outcome
from spark_ckpt.protocol.retention.garbage import entry_before_barrier
from spark_ckpt.protocol.retention.order import newest_first

Content = tuple[tuple[int, int], ...]
"""What an object holds: (offset, value)."""

ELSEWHERE = "elsewhere"
"""Where another stream's savepoint is, and that stream's name."""


@dataclass(frozen=True)
class Saved:
    """A savepoint: a checkpoint and what its objects hold."""

    checkpoint: Checkpoint
    objects: Mapping[str, Content]


class World:
    """Put-if-absent storage: each call is the moment it takes effect. `retained` is what runs are told to keep."""

    def __init__(self, retained: int, observed: Counter[Observed], clock: Clock) -> None:
        self._clock = clock
        self.damage = StoredDamage()
        self._stored: dict[str, int] = {}
        self.log = SimulatedLog(clock, self.damage.entries, observed)
        self.checkpoints: dict[CheckpointId, Checkpoint] = {}
        self.known: dict[CheckpointId, Checkpoint] = {}
        """Those that are deleted too: a run remembers them until their objects are gone."""
        self.objects: dict[str, Content] = {}
        self.left_acks: dict[str, Ack] = {}
        self.retained = retained
        self._observed = observed
        self.savepoints: dict[str, Saved] = {}
        self.taken_over: set[str] = set()
        """Savepoints that the stream was given, and deleted."""
        self.answers: dict[int, tuple[str | None, str | None]] = {}
        """Log entry of a request -> the savepoint's name, or what went wrong; whoever asked has read it by the time that it is deleted."""
        self.stored_answers: set[str] = set()
        self.aborted: set[CheckpointId] = set()
        """What a run has announced as aborted; its `_metadata` may land all the same."""
        self._unreliable: set[CheckpointId] = set()
        """Whose `_metadata` is there, and from which nobody can go on: it landed after all, or nobody can know of it."""
        self._orphans: set[CheckpointId] = set()
        self.completed: dict[int, dict[int, int]] = {}
        """Run -> epoch -> when its checkpoint was completed, deleted ones among them."""
        self._claim_checks = ClaimChecks(self, observed)
        self._copied: set[str] = set()
        """Large files of the driver: a driver that lost the claim may have left some, which are garbage once the run is superseded."""

    # --- what happened so far, for the checks

    @property
    def cut_short(self) -> Claim | None:
        """The last claim, if its run died before it had the copy that it was to begin with, or that is gone and nothing has run."""
        claim = self.log.last_claim
        imported = claim.restored.imported if claim and claim.restored else None
        if claim is None or imported is None or imported.run != claim.run:
            return None
        gone = self.damage.metadata.get(imported) is DamageKind.GONE and not self.log.has_run(claim.claim)
        return claim if gone or not self.was_completed(imported) else None

    def newest_of_lineage(self, claim: Claim | None, at: int) -> CheckpointId | None:
        """The newest checkpoint that was ever completed, before the time `at`, by the claim's run; else its origin."""
        if claim is None:
            return None
        own = [epoch for epoch, time in self.completed.get(claim.run, {}).items() if time < at]
        return CheckpointId(claim.run, max(own)) if own else self.begun_from(claim, at)

    def begun_from(self, claim: Claim, at: float = math.inf) -> CheckpointId | None:
        """The origin; where that is to be a copy of one of the stream's own, and was not there before `at`, what it is a copy of."""
        origin = claim.origin
        if origin is None or origin.run != claim.run or self.completed.get(origin.run, {}).get(origin.epoch, math.inf) < at:
            return origin
        return next((c for c in sorted(claim.inherits, reverse=True) if c.epoch == origin.epoch and c != origin), origin)

    def reached(self, claim: Claim, at: int) -> int:
        """The newest epoch that is durable, under the claim's own numbers; -1 for none."""
        newest = self.newest_of_lineage(claim, at)
        if claim.first is not None and newest == claim.origin:
            return claim.first - 1
        return newest.epoch if newest else -1

    def is_reliable(self, checkpoint: CheckpointId) -> bool:
        """Whether it is there, and did not land when its objects may have been deleted."""
        return checkpoint in self.checkpoints and checkpoint not in self._unreliable

    def was_completed(self, checkpoint: CheckpointId) -> bool:
        return checkpoint.epoch in self.completed.get(checkpoint.run, {})

    def restorable(self, checkpoint: CheckpointId) -> bool:
        """Whether a start could choose it.

        Not so what a fenced run completes after the claim that fenced it, as planned before: nobody looks for it any more, it may
        name what its successor deleted, and it is garbage itself.
        """
        claim = self.log.last_claim
        if self.log.ended:
            return False
        if checkpoint in self._unreliable or (checkpoint in self._orphans and self._newer_than(checkpoint)):
            return False
        return claim is None or checkpoint.run == claim.run or checkpoint == claim.origin or checkpoint in claim.inherits

    def dropped_by(self, claim: Claim) -> set[CheckpointId]:
        """What the claim's run has gone past, as it knows what it has completed and aborted; of its own and of what it began with."""
        own = [CheckpointId(claim.run, epoch) for epoch in self.completed.get(claim.run, {})]
        kept = [c for c in newest_first(claim, own) if c not in self.aborted][: claim.retained]
        return {*own, *claim.inherits, *([claim.origin] if claim.origin else [])}.difference(kept)

    # --- changes

    def put_entry(self, number: int, data: bytes, listed_at: int) -> Outcome:
        """`listed_at`: when the driver that writes this listed the checkpoints."""
        log = self.log
        if number in log.entries:
            if log.entries[number] != data and isinstance(decode(number, data), Claim):
                self._observed[Observed.CLAIM_TAKEN] += 1
            return Outcome.EXISTS
        if number < log.floor:
            log.fill_hole(number, data)
            return Outcome.STORED
        ended = log.ended
        entry = log.append(number, data)
        if isinstance(entry, Damage):
            self._claim_checks.check_damaged(number, entry.bad)
            self._observed[Observed.DAMAGE_NOTED] += 1
        if isinstance(entry, Claim):
            self._claim_checks.check(entry, ended, listed_at)
            log.claims.append(entry)
            self._check_retained(f"at claim {number}")
        self._check_planned(f"entry {number} was stored", {number})
        return Outcome.STORED

    def _check_planned(self, when: str, numbers: Set[int] | None = None) -> None:
        missing = sorted(self.log.planned_objects(self.log.needed(numbers)) - self.objects.keys())
        if missing and not self.log.ended:
            raise ViolationError(Invariant.PLANNED_EXIST, f"{when}: {missing[0]} is not there")

    def put_metadata(self, checkpoint: Checkpoint, now: int, orphan: bool = False) -> Outcome:
        """`orphan`: who sent this is dead, and may have a successor that does not know of it."""
        if checkpoint.id in self.checkpoints and self.damage.metadata.get(checkpoint.id) is not DamageKind.GONE:
            return Outcome.EXISTS
        self.damage.named(checkpoint, now)
        self._check_log(checkpoint)
        missing = sorted(checkpoint.objects - self.objects.keys())
        newer = self._newer_than(checkpoint.id)
        if orphan:
            # Its run may have a new coordinator that has listed before it lands. Then that one deletes what only this one needs, with the
            # next append after a newer one is complete; so nobody can begin from it any more.
            self._orphans.add(checkpoint.id)
            self.aborted.add(checkpoint.id)
        again = self.was_completed(checkpoint.id) and checkpoint.id not in self.checkpoints
        if again or (newer and (missing or orphan)):
            # (1) a put is not answered, and not there when it is looked for; (2) a second one is stored; (3) that checkpoint is
            # subsumed and deleted; (4) the first one lands. It is never the newest, and a start looks at the objects first. The same
            # for one that was given up while nobody knew whether it was stored, or that was on its way when its coordinator died, and
            # that lands when a newer one is there.
            self._observed[Observed.RESURFACED] += 1
            self._unreliable.add(checkpoint.id)
            self.aborted.add(checkpoint.id)
        elif missing and not self.log.over(checkpoint.id.run) and not self.log.ended:
            raise ViolationError(Invariant.OBJECTS_EXIST, f"{checkpoint.id} was completed without {missing}")
        self.checkpoints[checkpoint.id] = self.known[checkpoint.id] = checkpoint
        self.completed.setdefault(checkpoint.id.run, {})[checkpoint.id.epoch] = now
        self._check_retained(f"when {checkpoint.id} was completed")
        return Outcome.STORED

    def _newer_than(self, checkpoint: CheckpointId) -> bool:
        return any(epoch > checkpoint.epoch for epoch in self.completed.get(checkpoint.run, ()))

    def put_object(self, key: str, content: Content) -> None:
        if key in self.objects:
            raise ViolationError(Invariant.SAME_DATA, f"object {key} was stored twice")
        self._stored[key] = self._clock.now
        self.objects[paths.check_object(key)] = content

    def put_file(self, key: str, content: bytes) -> None:
        """A large file of the driver: its key has its content's digest in it."""
        self._observed[Observed.FILE_STORED] += 1
        self.damage.forget(key, self._clock.now)
        self._stored[key] = self._clock.now
        if self.objects.setdefault(paths.check_driver_object(key), tuple(enumerate(content))) != tuple(enumerate(content)):
            raise ViolationError(Invariant.SAME_DATA, f"object {key} was stored twice, with different contents")

    def file(self, key: str, saved: Saved | None = None) -> bytes | None:
        """A large file of the driver, as a reader finds it; `saved`: in that savepoint."""
        found = self.read_object(key) if saved is None else saved.objects.get(key)
        return None if found is None else bytes(value % 256 for _, value in found)

    def copy_object(self, key: str, content: Content) -> None:
        """Of a savepoint: the same run may be told twice to begin with the same one, by several drivers."""
        self.damage.forget(key, self._clock.now)
        if paths.parse_driver_file_key(key) is not None:
            self._copied.add(key)
        self._stored[key] = self._clock.now
        if self.objects.setdefault(paths.check_object(key), content) != content:
            raise ViolationError(Invariant.SAME_DATA, f"object {key} was copied twice, from different ones")

    def leave_ack(self, ack: Ack) -> None:
        """For whoever looks for the snapshots of a lost executor."""
        key = paths.left_acks_key(ack.run, ack.epoch, ack.snapshot.uid)
        self._stored[key] = self._clock.now
        self.left_acks[key] = ack

    def left_of(self, uid: str) -> list[tuple[int, Ack]]:
        """Acks that were left for it, and when, as far as all is there that they name."""
        found = [(self._stored[key], ack) for key, ack in sorted(self.left_acks.items()) if ack.snapshot.uid == uid]
        return [(left, ack) for left, ack in found if all(handle.object in self.objects for handle in ack.snapshot.handles)]

    def answer(self, run: int, number: int, path: str | None, error: str | None) -> None:
        """Put if absent."""
        if number not in self.answers:
            self.answers[number] = (path, error)
            key = paths.answer_key(run, number)
            self._stored[key] = self._clock.now
            self.stored_answers.add(key)

    def take_over(self, name: str) -> None:
        """A savepoint goes with the checkpoint that was copied from it (CLAIM)."""
        if self.savepoints.pop(name, None) is not None:
            self.taken_over.add(name)
            self._observed[Observed.SOURCE_GONE] += 1

    def delete_metadata(self, checkpoint: CheckpointId) -> None:
        self.damage.forget(checkpoint, self._clock.now)
        if self.checkpoints.pop(checkpoint, None) is not None:
            self._observed[Observed.DROPPED] += 1
            self._check_retained(f"when {checkpoint} was deleted")

    def delete_object(self, key: str) -> None:
        self.damage.forget(key, self._clock.now)
        self.left_acks.pop(key, None)
        self.stored_answers.discard(key)
        if self.objects.pop(key, None) is None:
            return
        self._observed[Observed.DELETED] += 1
        for checkpoint in self.checkpoints.values():
            if key in checkpoint.objects and self.restorable(checkpoint.id):
                raise ViolationError(Invariant.NOTHING_NEEDED_DELETED, f"{key} was deleted, {checkpoint.id} references it")
        if paths.parse_driver_file_key(key) is not None:
            self._check_planned(f"{key} was deleted")

    def collect(self, run: int, checkpoints: Iterable[CheckpointId], objects: Iterable[str]) -> None:
        """A collector of garbage, to which run `run` was the last, deletes these: `_metadata` first."""
        for checkpoint in checkpoints:
            self.delete_metadata(checkpoint)
        going = list(objects)
        claim = self.log.claims[-1]
        own = [c for c in self.checkpoints if c.run == claim.run]
        unsure = set(claim.unsure) - (set() if own else {claim.origin})
        sure = set(newest_first(claim, own)[: claim.retained]) - unsure
        for c in self.checkpoints.values():
            # Of one that has vanished nobody can know that this run has completed it, or that it was not deleted, being past `retained`.
            unknown = c.id in self.damage.vanished and (c.id.run == run or c.id not in sure)
            if unknown and c.objects & set(going):
                self._unreliable.add(c.id)
                self.damage.collected |= c.objects & set(going)
        for key in going:
            self._observed[Observed.COLLECTED] += 1
            self.delete_object(key)

    def found(self, run: int, listed_at: int) -> None:
        """A coordinator that takes another one's place knows of no abort: what was there is complete."""
        there = {c for c in self.of_run(run) if self.completed[run][c.epoch] < listed_at}
        # What it cannot read, and is not what the run goes on from, it does not know: it spares nothing for it.
        base = max(there, default=self.log.claims[-1].origin)
        self._unreliable |= {c for c in self.checkpoints if c in self.damage.ever and c != base}
        self.aborted -= there
        self._orphans -= there

    # --- reads

    def of_run(self, run: int) -> tuple[CheckpointId, ...]:
        return tuple(sorted(c for c in self.checkpoints if c.run == run and self.damage.metadata.get(c) is not DamageKind.GONE))

    def read_metadata(self, checkpoint: CheckpointId) -> Checkpoint | str | None:
        """None: it is not there. Text: what is there cannot be read."""
        damage = self.damage.metadata.get(checkpoint)
        if damage is not None:
            return None if damage is DamageKind.GONE else f"_metadata of {checkpoint} is damaged"
        return self.checkpoints.get(checkpoint)

    def read_object(self, key: str) -> Content | None:
        found, damage = self.objects.get(key), self.damage.objects.get(key)
        if found is None or damage is DamageKind.GONE:
            return None
        return found if damage is None else tuple((offset, value + 1) for offset, value in found)

    def keys(self) -> list[str]:
        """Every key but the log's."""
        return sorted([*self.objects, *self.left_acks, *self.stored_answers, *map(paths.metadata_key, self.checkpoints)])

    def stored(self) -> dict[str, int]:
        """When each object was stored; `_metadata` left out."""
        return {key: self._stored[key] for key in [*self.objects, *self.left_acks, *self.stored_answers]}

    def missing(self, checkpoint: Checkpoint, deep: bool = False) -> str | None:
        """As somebody finds it who looks at what is there, and does not read it; `deep`: who does."""
        seen = set(DamageKind) if deep else {DamageKind.GONE}
        return next((o for o in sorted(checkpoint.objects) if o not in self.objects or self.damage.objects.get(o) in seen), None)

    @property
    def whole_left(self) -> bool:
        """Whether there is a checkpoint to go on from that was never damaged."""
        return any(self.restorable(c) and c not in self.damage.ever for c in self.checkpoints)

    @property
    def stranded(self) -> bool:
        """All that the last run's predecessor retains was damaged; what its start went back to instead was being deleted by that
        predecessor, and is gone, as is all else that it could go on from. Putting back helps no more: what was damaged is left out."""
        claim = self.log.last_claim
        if claim is None or not claim.bad or claim.origin is None or self.log.ended:
            return False
        there = {c for c in (claim.origin, *claim.inherits) if c in self.checkpoints}
        return not there and not any(c.run == claim.run for c in self.checkpoints)

    # --- checks

    def _check_log(self, checkpoint: Checkpoint) -> None:
        """The log entry that it names is the plan of its epoch: from there on a start looks for later ones."""
        if checkpoint.log < self.log.floor:
            return  # it lands long after its run was fenced
        plan = self.log.entry(checkpoint.log) if checkpoint.log in self.log.entries else None
        adopted = isinstance(plan, Claim) and checkpoint.id.epoch in plan.adopted_past(-1).values()
        imported = plan.restored.imported if isinstance(plan, Claim) and plan.restored else None
        if imported is not None and imported.epoch == checkpoint.id.epoch:
            # From elsewhere, or older than the log; or a copy of that copy.
            self._observed[Observed.FORGOTTEN] += imported == checkpoint.id and ELSEWHERE not in self.savepoints
            adopted = True
        own = isinstance(plan, Plan) and plan.epoch == checkpoint.id.epoch
        if plan is None or plan.claim != checkpoint.claim or not (adopted or own):
            raise ViolationError(
                Invariant.PLAN_FIRST, f"{checkpoint.id} was stored, log entry {checkpoint.log} is not the plan of its epoch"
            )

    def check_whole(self, named: CheckpointId) -> None:
        """One that a run takes for completed."""
        checkpoint = self.checkpoints.get(named)
        missing = next((o for o in sorted(checkpoint.objects) if o not in self.objects), None) if checkpoint else None
        if checkpoint and missing and not self.log.over(checkpoint.id.run):
            raise ViolationError(Invariant.OBJECTS_EXIST, f"{named} is taken for completed without {missing}")

    def _check_retained(self, when: str) -> None:
        claim = self.log.last_claim
        if claim is None or self.log.ended:
            return
        completed = self.completed.get(claim.run, {})
        kept = [epoch for epoch in completed if epoch == max(completed) or CheckpointId(claim.run, epoch) not in self.aborted]
        newest = sorted(kept, reverse=True)[: self.retained]
        begun_from = self.begun_from(claim)
        origin = [begun_from] if begun_from and (self.cut_short is None or self.was_completed(begun_from)) else []
        due = [CheckpointId(claim.run, epoch) for epoch in newest] or origin
        for checkpoint in due:
            if checkpoint not in self.checkpoints and not (checkpoint == begun_from and checkpoint in self._claim_checks.fallen_back):
                raise ViolationError(Invariant.RETAINED_EXIST, f"{when}: {checkpoint} is gone, run {claim.run} needs it")

    def check_clean(self, claim: Claim, waiting: int) -> None:
        """After the quiet: only the last run's checkpoints, at most so many that still wait for their deletion, and what they name."""
        strange = sorted(c for c in self.checkpoints if c.run != claim.run)
        if strange or len(self.checkpoints) > self.retained + waiting:
            raise ViolationError(Invariant.GARBAGE_GONE, f"checkpoints {strange or sorted(self.checkpoints)} are left")
        named = frozenset[str]().union(*(c.objects for c in self.checkpoints.values()))
        # What was stored since the newest checkpoint was triggered waits: answers for who asked, objects for the run's next append.
        newest = self.checkpoints[max(self.checkpoints)]
        log = self.log
        since = log.times[entry_before_barrier(claim, newest, log.floor, lambda n: log.entry(n) if n in log.entries else None)]
        young = {key for key in (*self.objects, *self.stored_answers) if self._stored[key] >= since}
        planned = frozenset[str]().union(*(objects_of(n, data) for n, data in log.entries.items()))
        appended = sorted(log.times[n] for n in log.entries if isinstance(log.entry(n), Plan))
        freed = {key for key, time in log.freed.items() if time >= appended[-2]}  # goes with the next append
        rest = sorted({*self.objects, *self.left_acks, *self.stored_answers} - named - young - planned - freed - self._copied)
        if rest:
            raise ViolationError(Invariant.GARBAGE_GONE, f"{len(rest)} objects are left that nothing names: {rest[:5]}")

    def check_deleted(self, heard: Iterable[str]) -> None:
        """`heard`: objects that the acks named which reached the run in time. What was on its way to the storage then may stay."""
        left = [*map(paths.metadata_key, sorted(self.checkpoints)), *sorted(self.objects.keys() & set(heard))]
        if not self.log.ended or left:
            raise ViolationError(
                Invariant.DELETED, f"the end is {'noted' if self.log.ended else 'missing'}, {len(left)} are left: {left[:5]}"
            )

    def check_empty(self) -> None:
        """After garbage of a deleted stream was collected."""
        if self.keys():
            raise ViolationError(Invariant.GARBAGE_GONE, f"{len(self.keys())} keys of the deleted stream are left: {self.keys()[:5]}")


class OverwritingWorld(World):
    """A storage without put-if-absent."""

    def put_entry(self, number: int, data: bytes, listed_at: int) -> Outcome:
        if number in self.log.entries:
            self.log.overwrite(number, data)
            return Outcome.STORED
        return super().put_entry(number, data, listed_at)
