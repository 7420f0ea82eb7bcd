"""The storage that all simulated drivers share, and what must hold of it after every change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from simulation.clock import Clock
from simulation.invariants import Invariant, ViolationError
from simulation.observed import Observed
from simulation.stored_damage import DamageKind, StoredDamage
from spark_ckpt import paths
from spark_ckpt.errors import FormatError
from spark_ckpt.model import Ack, Checkpoint, CheckpointId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import Claim, Damage, End, Plan, decode
from spark_ckpt.protocol.reasons import Outcome
from spark_ckpt.protocol.retention.garbage import entry_before_barrier
from spark_ckpt.protocol.retention.log_trim import DAY_MS
from spark_ckpt.protocol.retention.order import newest_first

Content = tuple[tuple[int, int], ...]
"""What an object holds: (offset, value)."""

LISTED = 4
"""Log entries that one LIST of the old ones shows."""


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
        self.logged: dict[int, int] = {}
        """When each log entry was stored."""
        self.log: dict[int, bytes] = {}
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
        self._ghosts: set[CheckpointId] = set()
        self._orphans: set[CheckpointId] = set()
        self.ended = False
        """Whether the stream was deleted on purpose."""
        self._claims: list[Claim] = []
        self._plans: dict[tuple[int, int], int] = {}
        self._highest: dict[int, int] = {}
        self._completed: dict[int, dict[int, int]] = {}
        self.floor = 0
        """What the log's last entry says."""
        self.log_kept_ms = DAY_MS
        """How long entries stay, for young savepoints rest on those below the floor too."""
        self._last_end = 0
        """Entry by which the stream was deleted, and with it the files that entries before it name."""
        self._in_holes: set[int] = set()
        """Entries that a sleeper has stored where others had deleted theirs."""
        self._freed: dict[str, int] = {}
        """What plans have named -> when the last of these was deleted."""
        self._copied: set[str] = set()
        """Large files of the driver: a driver that lost the claim may have left some, which are garbage once the run is superseded."""

    # --- what happened so far, for the checks

    @property
    def tail(self) -> int:
        return max(self.log, default=0)

    @property
    def last_claim(self) -> Claim | None:
        return self._claims[-1] if self._claims else None

    def claim(self, number: int) -> Claim:
        return next(c for c in self._claims if c.claim == number)

    def claim_before(self, number: int) -> Claim | None:
        return next((c for c in reversed(self._claims) if c.claim < number), None)

    def superseded(self, claim: int) -> bool:
        """Whether a newer claim than this one is in the log."""
        return bool(self._claims) and self._claims[-1].claim > claim

    def over(self, run: int) -> bool:
        """Whether a newer run has claimed the stream."""
        return bool(self._claims) and self._claims[-1].run > run

    @property
    def renumbered(self) -> bool:
        """Whether any run began under new numbers."""
        return any(claim.first is not None for claim in self._claims)

    @property
    def cut_short(self) -> Claim | None:
        """The last claim, if its run died before it had the copy that it was to begin with, or that is gone and nothing has run."""
        claim = self.last_claim
        imported = claim.restored.imported if claim and claim.restored else None
        if claim is None or imported is None or imported.run != claim.run:
            return None
        ran = any(of == claim.claim and number > of for (of, _), number in self._plans.items())
        gone = self.damage.metadata.get(imported) is DamageKind.GONE and not ran
        return claim if gone or not self.was_completed(imported) else None

    def highest_planned(self, claim: int) -> int | None:
        """The newest epoch whose plan is in the log under that claim."""
        return self._highest.get(claim)

    def planned(self, claim: int, epoch: int) -> bool:
        """Whether the plan of an epoch is in the log under that claim."""
        return (claim, epoch) in self._plans

    def newest_of_lineage(self, claim: Claim | None, at: int) -> CheckpointId | None:
        """The newest checkpoint that was ever completed, before the time `at`, by the claim's run; else its origin."""
        if claim is None:
            return None
        own = [epoch for epoch, time in self._completed.get(claim.run, {}).items() if time < at]
        return CheckpointId(claim.run, max(own)) if own else claim.origin

    def reached(self, claim: Claim, at: int) -> int:
        """The newest epoch that is durable, under the claim's own numbers; -1 for none."""
        newest = self.newest_of_lineage(claim, at)
        if claim.first is not None and newest == claim.origin:
            return claim.first - 1
        return newest.epoch if newest else -1

    def was_completed(self, checkpoint: CheckpointId) -> bool:
        return checkpoint.epoch in self._completed.get(checkpoint.run, {})

    def restorable(self, checkpoint: CheckpointId) -> bool:
        """Whether a start could choose it.

        Not so what a fenced run completes after the claim that fenced it, as planned before: nobody looks for it any more, it may
        name what its successor deleted, and it is garbage itself.
        """
        claim = self.last_claim
        if self.ended:
            return False
        if checkpoint in self._ghosts or (checkpoint in self._orphans and self._newer_than(checkpoint)):
            return False
        return claim is None or checkpoint.run == claim.run or checkpoint == claim.origin or checkpoint in claim.inherits

    # --- changes

    def put_entry(self, number: int, data: bytes, listed_at: int) -> Outcome:
        """`listed_at`: when the driver that writes this listed the checkpoints."""
        if number in self.log:
            if self.log[number] != data and isinstance(decode(number, data), Claim):
                self._observed[Observed.CLAIM_TAKEN] += 1
            return Outcome.EXISTS
        if number < self.floor:
            # Nobody reads it. Who wrote it has to find that out before it does anything on the strength of it.
            self._observed[Observed.HOLE] += 1
            self._in_holes.add(number)
            self.log[number] = data
            self.logged[number] = self._clock.now
            return Outcome.STORED
        self._append(number, data, listed_at)
        self._check_planned(f"entry {number} was stored", self.log.keys() & {number})
        return Outcome.STORED

    def past(self, number: int) -> tuple[int | None, bytes | None]:
        """The first entry past that one, and its content."""
        found = min((n for n in self.log if n > number and self.damage.entries.get(n) is not DamageKind.GONE), default=None)
        return found, None if found is None else self.read_entry(found)

    def old_entries(self, i: do.ListOldEntries) -> ev.OldEntriesListed:
        """Raises `FormatError` where the entry at the floor is damaged."""
        at_floor = self.read_entry(i.floor)
        found = [
            (n, self.logged[n]) for n in sorted(self.log) if i.after < n < i.floor and self.damage.entries.get(n) is not DamageKind.GONE
        ]
        in_force = None if at_floor is None else decode(i.floor, at_floor).claim
        return ev.OldEntriesListed(i.ticket, in_force, tuple(found[:LISTED]), len(found) > LISTED)

    def plans_of(self, i: do.ReadPlans) -> ev.PlansRead:
        return ev.PlansRead(i.ticket, {n: self._read_plan(n) for n in i.numbers})

    def _read_plan(self, number: int) -> frozenset[str] | None:
        data = self.read_entry(number)
        try:
            return None if data is None else _objects_of(number, data)
        except FormatError:
            return None

    def there(self, number: int) -> bool:
        return number in self.log and self.damage.entries.get(number) is not DamageKind.GONE

    def delete_entries(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            data = self.log.pop(number, None)
            if data is not None:
                self._observed[Observed.TRIMMED] += 1
                self._freed.update(dict.fromkeys(_objects_of(number, data), self._clock.now))

    def planned_objects(self, numbers: Iterable[int] | None = None) -> frozenset[str]:
        """What the plans in the log name."""
        entries = (decode(n, self.log[n]) for n in (self.log if numbers is None else numbers))
        return frozenset().union(*(entry.objects for entry in entries if isinstance(entry, Plan)))

    def _check_planned(self, when: str, numbers: Set[int] | None = None) -> None:
        young = self.logged[self.tail] - self.log_kept_ms if self.log else 0
        there = (self.log.keys() if numbers is None else numbers) - self._in_holes
        asked_for = [n for n in there if n >= self.floor or (self.logged[n] > young and n > self._last_end)]
        missing = sorted(self.planned_objects(asked_for) - self.objects.keys())
        if missing and not self.ended:
            raise ViolationError(Invariant.PLANNED_EXIST, f"{when}: {missing[0]} is not there")

    def _append(self, number: int, data: bytes, listed_at: int) -> None:
        if number != self.tail + 1:
            raise ViolationError(Invariant.LOG_WHOLE, f"entry {number} was stored when the tail was {self.tail}")
        self.log[number] = data
        self.logged[number] = self._clock.now
        entry = decode(number, data)
        if entry.floor < self.floor and not (isinstance(entry, Claim) and entry.restored):
            raise ViolationError(Invariant.LOG_WHOLE, f"entry {number} lowers the floor from {self.floor} to {entry.floor}")
        self.floor = entry.floor
        if isinstance(entry, Damage):
            self._check_damaged(number, entry.bad)
            self._observed[Observed.DAMAGE_NOTED] += 1
        before, self.ended = self.ended, isinstance(entry, End)
        self._last_end = number if self.ended else self._last_end
        if isinstance(entry, Plan):
            self._plans[(entry.claim, entry.epoch)] = number
            self._highest[entry.claim] = max(entry.epoch, self._highest.get(entry.claim, -1))
        if isinstance(entry, Claim):
            self._check_damaged(number, entry.bad)
            self._observed[Observed.PASSED_OVER] += len(set(entry.bad) - {c for claim in self._claims for c in claim.bad})
            self._check_origin(entry, listed_at)
            for adopted, epoch in entry.adopted_past(-1).items():
                plan = decode(adopted, self.log[adopted]) if adopted in self.log else None
                if not isinstance(plan, Plan) or plan.epoch != epoch:
                    raise ViolationError(Invariant.LOG_WHOLE, f"claim {number} adopts entry {adopted} for epoch {epoch}, which is {plan}")
                self._plans[(number, epoch)] = number
                self._highest[number] = max(epoch, self._highest.get(number, -1))
            if before:
                self._check_anew(entry)
            elif self._chosen(entry, listed_at):
                self._check_chosen(entry)
            else:
                self._check_newest(entry, listed_at)
            new = entry.first is not None and entry.first not in {c.first for c in self._claims}
            self._observed[Observed.ANEW if before else Observed.RENUMBERED] += new
            self._claims.append(entry)
            self._check_retained(f"at claim {number}")

    def _chosen(self, claim: Claim, listed_at: int) -> bool:
        """Whether a person's choice is applied with this claim: the first that names it, or again because the one before was cut short."""
        last = self.last_claim
        before = last.restored if last else None
        if claim.restored is None or last is None or before is None or before.path != claim.restored.path:
            return claim.restored is not None
        imported = before.imported
        own = imported is not None and imported.run == last.run
        gone = claim.restored.imported != imported  # it was when somebody looked
        return own and (gone or not any(time < listed_at for time in self._completed.get(last.run, {}).values()))

    def _check_anew(self, claim: Claim) -> None:
        chosen = (claim.origin,) if claim.restored is not None and claim.restored.imported == claim.origin else ()
        if claim.origin not in (None, *chosen) or claim.inherits != chosen:
            raise ViolationError(Invariant.NEWEST_RESTORED, f"claim {claim.claim} begins from {claim.origin}, the stream was deleted")

    def _check_damaged(self, number: int, bad: Iterable[CheckpointId]) -> None:
        whole = sorted(set(bad) - self.damage.ever)
        if whole:
            raise ViolationError(Invariant.LOG_WHOLE, f"entry {number} says that {whole} are damaged, which never were")

    def _check_origin(self, claim: Claim, listed_at: int) -> None:
        origin = self.checkpoints.get(claim.origin) if claim.origin else None
        if origin is not None and self.damage.seen_before(origin, listed_at):
            raise ViolationError(Invariant.ORIGIN_WHOLE, f"claim {claim.claim} begins from {origin.id}, damaged before it was looked at")

    def _passed_over(self, claim: Claim, origin: CheckpointId | None, at: int) -> bool:
        """Whether all that is newer in the lineage was damaged. Without an origin everything runs again as planned, from the beginning."""
        own = sorted((epoch for epoch, time in self._completed.get(claim.run, {}).items() if time < at), reverse=True)
        order = [*(CheckpointId(claim.run, epoch) for epoch in own), *([claim.origin] if claim.origin else [])]
        order += sorted(claim.inherits, reverse=True)
        newer = order[: order.index(origin)] if origin in order else order
        passed = self.damage.ever & set(newer)
        return bool(passed) and (origin is None or origin in order) and not (set(newer) - passed) & self.checkpoints.keys()

    def _check_newest(self, claim: Claim, listed_at: int) -> None:
        last, origin = self.last_claim, claim.origin
        due = self.newest_of_lineage(last, listed_at)
        if last and self._passed_over(last, origin, listed_at):
            return
        newer = last and origin and origin.run == last.run and (due is None or due.run != last.run or origin.epoch > due.epoch)
        if origin != due and not newer:
            raise ViolationError(Invariant.NEWEST_RESTORED, f"claim {claim.claim} begins from {origin}, the newest was {due}")

    def _check_chosen(self, claim: Claim) -> None:
        assert claim.restored is not None
        self._observed[Observed.CHOSEN] += 1
        path, imported = claim.restored.path, claim.restored.imported
        if imported is None:
            right = claim.origin is not None and own_path(claim.origin) == path
        else:
            saved = self.savepoints[path].checkpoint.id
            right = claim.origin == imported == CheckpointId(claim.run, saved.epoch)
            self._observed[Observed.IMPORTED] += 1
        if not right:
            raise ViolationError(Invariant.NEWEST_RESTORED, f"claim {claim.claim} begins from {claim.origin}, a person chose {path}")

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
            self._observed[Observed.GHOST] += 1
            self._ghosts.add(checkpoint.id)
            self.aborted.add(checkpoint.id)
        elif missing and not self.over(checkpoint.id.run) and not self.ended:
            raise ViolationError(Invariant.OBJECTS_EXIST, f"{checkpoint.id} was completed without {missing}")
        self.checkpoints[checkpoint.id] = self.known[checkpoint.id] = checkpoint
        self._completed.setdefault(checkpoint.id.run, {})[checkpoint.id.epoch] = now
        self._check_retained(f"when {checkpoint.id} was completed")
        return Outcome.STORED

    def _newer_than(self, checkpoint: CheckpointId) -> bool:
        return any(epoch > checkpoint.epoch for epoch in self._completed.get(checkpoint.run, ()))

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

    def file(self, key: str) -> bytes | None:
        """A large file of the driver, as a reader finds it."""
        found = self.read_object(key)
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
        claim = self._claims[-1]
        sure = newest_first(claim, (c for c in self.checkpoints if c.run == claim.run))[: claim.retained]
        for c in self.checkpoints.values():
            # Of one that has vanished nobody can know that this run has completed it, or that it was not deleted, being past `retained`.
            unknown = c.id in self.damage.vanished and (c.id.run == run or c.id not in sure)
            if unknown and c.objects & set(going):
                self._ghosts.add(c.id)
        for key in going:
            self._observed[Observed.COLLECTED] += 1
            self.delete_object(key)

    def found(self, run: int, listed_at: int) -> None:
        """A coordinator that takes another one's place knows of no abort: what was there is complete."""
        there = {c for c in self.of_run(run) if self._completed[run][c.epoch] < listed_at}
        # What it cannot read, and is not what the run goes on from, it does not know: it spares nothing for it.
        base = max(there, default=self._claims[-1].origin)
        self._ghosts |= {c for c in self.checkpoints if c in self.damage.ever and c != base}
        self.aborted -= there
        self._orphans -= there

    # --- reads

    def of_run(self, run: int) -> tuple[CheckpointId, ...]:
        return tuple(sorted(c for c in self.checkpoints if c.run == run and self.damage.metadata.get(c) is not DamageKind.GONE))

    def read_entry(self, number: int) -> bytes | None:
        found, damage = self.log.get(number), self.damage.entries.get(number)
        return None if found is None or damage is DamageKind.GONE else found if damage is None else found[:-1]

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

    # --- checks

    def _check_log(self, checkpoint: Checkpoint) -> None:
        """The log entry that it names is the plan of its epoch: from there on a start looks for later ones."""
        if checkpoint.log < self.floor:
            return  # it lands long after its run was fenced
        data = self.log.get(checkpoint.log)
        plan = decode(checkpoint.log, data) if data is not None else None
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
        if checkpoint and missing and not self.over(checkpoint.id.run):
            raise ViolationError(Invariant.OBJECTS_EXIST, f"{named} is taken for completed without {missing}")

    def _check_retained(self, when: str) -> None:
        claim = self.last_claim
        if claim is None or self.ended:
            return
        completed = self._completed.get(claim.run, {})
        kept = [epoch for epoch in completed if epoch == max(completed) or CheckpointId(claim.run, epoch) not in self.aborted]
        newest = sorted(kept, reverse=True)[: self.retained]
        origin = [claim.origin] if claim.origin and self.cut_short is None else []
        due = [CheckpointId(claim.run, epoch) for epoch in newest] or origin
        for checkpoint in due:
            if checkpoint not in self.checkpoints and not (checkpoint == claim.origin and claim.bad):
                # Past one that is damaged the start goes back to what may just be deleted.
                raise ViolationError(Invariant.RETAINED_EXIST, f"{when}: {checkpoint} is gone, run {claim.run} needs it")

    def check_clean(self, claim: Claim, waiting: int) -> None:
        """After the quiet: only the last run's checkpoints, at most so many that still wait for their deletion, and what they name."""
        strange = sorted(c for c in self.checkpoints if c.run != claim.run)
        if strange or len(self.checkpoints) > self.retained + waiting:
            raise ViolationError(Invariant.GARBAGE_GONE, f"checkpoints {strange or sorted(self.checkpoints)} are left")
        named = frozenset[str]().union(*(c.objects for c in self.checkpoints.values()))
        # What was stored since the newest checkpoint was triggered waits: answers for who asked, objects for the run's next append.
        newest = self.checkpoints[max(self.checkpoints)]
        since = self.logged[entry_before_barrier(claim, newest, self.floor, lambda n: decode(n, self.log[n]) if n in self.log else None)]
        young = {key for key in (*self.objects, *self.stored_answers) if self._stored[key] >= since}
        planned = frozenset[str]().union(*(_objects_of(n, data) for n, data in self.log.items()))
        appended = sorted(self.logged[n] for n, data in self.log.items() if isinstance(decode(n, data), Plan))
        freed = {key for key, time in self._freed.items() if time >= appended[-2]}  # goes with the next append
        rest = sorted({*self.objects, *self.left_acks, *self.stored_answers} - named - young - planned - freed - self._copied)
        if rest:
            raise ViolationError(Invariant.GARBAGE_GONE, f"{len(rest)} objects are left that nothing names: {rest[:5]}")

    def check_deleted(self, heard: Iterable[str]) -> None:
        """`heard`: objects that the acks named which reached the run in time. What was on its way to the storage then may stay."""
        left = [*map(paths.metadata_key, sorted(self.checkpoints)), *sorted(self.objects.keys() & set(heard))]
        if not self.ended or left:
            raise ViolationError(Invariant.DELETED, f"the end is {'noted' if self.ended else 'missing'}, {len(left)} are left: {left[:5]}")

    def check_empty(self) -> None:
        """After garbage of a deleted stream was collected."""
        if self.keys():
            raise ViolationError(Invariant.GARBAGE_GONE, f"{len(self.keys())} keys of the deleted stream are left: {self.keys()[:5]}")


def _objects_of(number: int, data: bytes) -> frozenset[str]:
    entry = decode(number, data)
    return entry.objects if isinstance(entry, Plan) else frozenset()


def own_path(checkpoint: CheckpointId) -> str:
    """What a person types to choose it."""
    return f"stream/run-{checkpoint.run}/chk-{checkpoint.epoch}"


class OverwritingWorld(World):
    """A storage without put-if-absent."""

    def put_entry(self, number: int, data: bytes, listed_at: int) -> Outcome:
        if number in self.log:
            self.log[number] = data
            entry = decode(number, data)
            if isinstance(entry, Claim):
                self._claims = [*[c for c in self._claims if c.claim != number], entry]
            elif isinstance(entry, Plan):
                self._plans[(entry.claim, entry.epoch)] = number
            return Outcome.STORED
        return super().put_entry(number, data, listed_at)
