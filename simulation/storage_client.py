"""A process's way to the storage: carries out the protocol's instructions, with delays, lost, late and failed answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol
from zlib import crc32

from simulation.claim_checks import own_path
from simulation.environment import Environment
from simulation.invariants import Invariant, ViolationError
from simulation.observed import Observed
from simulation.query import described
from simulation.source_sink import Span, state_at
from simulation.world import Saved
from spark_ckpt.errors import FormatError
from spark_ckpt.model import Checkpoint, CheckpointId, FileHandle, Snapshot
from spark_ckpt.paths import copied_key
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.driver_files import offsets_file
from spark_ckpt.protocol.entries import STOP, Request, decode
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.reasons import Outcome
from spark_ckpt.protocol.start.gallop import Gallop

PUT_TIMEOUT = 60
LATE = 400
RETRY_PAUSE = 10


class Process(Protocol):
    """Who asked: answers to one that died meanwhile go nowhere, what it had not sent yet is never sent, and a sleeper sends nothing."""

    @property
    def name(self) -> str: ...

    @property
    def alive(self) -> bool: ...

    @property
    def sleeps_until(self) -> int: ...

    def answer(self, event: ev.Event) -> None: ...


class StorageClient:
    """One process's way to the storage."""

    def __init__(self, env: Environment, process: Process, settle: Callable[[Outcome], Outcome]) -> None:
        """`settle`: what the runtime reports for a put's outcome; the identity, unless a test leaves out a rule."""
        self._env = env
        self._process = process
        self._settle = settle
        self.listed_at = 0
        self.looked_at: dict[tuple[int, int], int] = {}
        """When the acks were read last that agents of lost executors had left, by run and epoch."""
        self.fetched: dict[FileHandle, bytes] = {}
        """Large files of the driver that were brought to its disk."""

    @property
    def alive(self) -> bool:
        return self._process.alive

    def execute(self, i: Instruction) -> bool:
        """False if the instruction is no question to the storage."""
        world, pause = self._env.world, RETRY_PAUSE * getattr(i, "attempt", 0)
        if isinstance(i, do.LocateTail):
            self._locate(i, pause)
        elif isinstance(i, do.ReadEntry):
            number, ticket = i.number, i.ticket
            self._read(ticket, lambda: ev.EntryRead(ticket, number, world.log.read(number)), pause)
        elif isinstance(i, do.PutEntry):
            self._put_entry(i, pause)
        elif isinstance(i, do.LookPast):
            past, looked = i.number, i.ticket
            self._read(looked, lambda: ev.PastSeen(looked, past, *world.log.past(past)), pause)
        elif isinstance(i, do.DateEntries):
            dating, numbers = i.ticket, i.numbers
            self._read(dating, lambda: ev.EntriesDated(dating, {n: world.log.times[n] for n in numbers if world.log.there(n)}), pause)
        elif isinstance(i, do.ListOldEntries):
            self._trim(i.ticket, partial(world.log.old_entries, i))
        elif isinstance(i, do.ReadPlans):
            self._trim(i.ticket, partial(world.log.plans_of, i))
        elif isinstance(i, do.DeleteEntries):
            self._delete_entries(i)
        elif isinstance(i, do.CheckStorage):
            checked = ev.StorageChecked(i.ticket)
            self._read(i.ticket, lambda: checked, pause)
        elif isinstance(i, do.ListCheckpoints):
            self._list(i, pause)
        elif isinstance(i, do.ReadMetadata):
            asked = i
            self._read(i.ticket, lambda: self._metadata(asked), pause)
        elif isinstance(i, do.VerifyObjects):
            named, verify, deep = i.checkpoint, i.ticket, i.deep
            self._read(verify, lambda: ev.ObjectsVerified(verify, named.id, world.missing(named, deep)), pause)
        elif isinstance(i, do.StoreMetadata):
            self._store(i.ticket, i.checkpoint, pause)
        elif isinstance(i, do.StoreFile):
            self._store_file(i, pause)
        elif isinstance(i, do.FetchFiles):
            self._fetch_files(i, pause)
        elif isinstance(i, do.ReadLeftAcks):
            run, epoch, left = i.run, i.epoch, i.ticket
            self._read(left, lambda: self._left_acks(left, run, epoch), pause)
        elif isinstance(i, do.ReadRestorePath):
            path, source = i.path, i.ticket
            self._read(source, lambda: self._source(source, path), pause)
        elif isinstance(i, do.DescribeOperators):
            self._answer(ev.OperatorsDescribed(i.ticket, described(i.files)))
        elif isinstance(i, do.ImportObjects):
            self._import(i, pause)
        elif isinstance(i, do.StoreSavepoint):
            self._copy(i, pause)
        elif isinstance(i, do.AnswerRequest):
            self._answer_request(i, pause)
        elif isinstance(i, do.Delete):
            self._delete(i)
        else:
            return False
        return True

    def _metadata(self, i: do.ReadMetadata) -> ev.Event:
        """What is damaged is read a second time: bytes can be lost on the way."""
        found = self._env.world.read_metadata(i.id)
        if not isinstance(found, str):
            return ev.MetadataRead(i.ticket, i.id, found)
        return ev.ReadFailed(i.ticket, found) if i.attempt == 0 else ev.MetadataRead(i.ticket, i.id, None, found)

    def _left_acks(self, ticket: int, run: int, epoch: int) -> ev.Event:
        found = {key: ack for key, ack in sorted(self._env.world.left_acks.items()) if (ack.run, ack.epoch) == (run, epoch)}
        self.looked_at[run, epoch] = self._env.clock.now
        return ev.LeftAcksRead(ticket, tuple(found.values()), tuple(found))

    # --- ways

    def send(self, call: Callable[[], None], pause: int = 0) -> None:
        """Make a call take effect at the storage, later; a process that died may not have sent it, one that sleeps sends it afterwards."""

        def arrive() -> None:
            if not self._process.alive and self._env.rng.random() < 0.5:
                return
            if self._process.alive and self._process.sleeps_until > self._env.clock.now and self._env.rng.random() < 0.7:
                self._env.clock.after(self._process.sleeps_until - self._env.clock.now + self._env.delay(), arrive)
                return
            call()

        self._env.clock.after(pause + self._env.delay(), arrive)

    def _answer(self, event: ev.Event) -> None:
        self._env.clock.after(self._env.delay(), lambda: self._process.answer(event))

    def _read(self, ticket: int, look: Callable[[], ev.Event], pause: int) -> None:
        if self._env.down or self._env.chance(self._env.faults.read_failed, Observed.READ_FAILED):
            self._env.clock.after(pause + PUT_TIMEOUT, lambda: self._process.answer(ev.ReadFailed(ticket, "no answer")))
            return
        self.send(lambda: self._answer(look()), pause)

    def _list(self, i: do.ListCheckpoints, pause: int) -> None:
        def look() -> ev.Event:
            self.listed_at = self._env.clock.now
            return ev.CheckpointsListed(i.ticket, i.run, self._env.world.of_run(i.run))

        self._read(i.ticket, look, pause)

    def _locate(self, i: do.LocateTail, pause: int) -> None:
        """The real search, a question at a time; the log may grow meanwhile. It begins where the newest checkpoint was planned."""
        checkpoints = self._env.world.checkpoints.values()
        hint = max((c.log for c in checkpoints if c.log in self._env.world.log.entries), default=0)
        self._gallop(i, Gallop(hint), pause)

    def _gallop(self, i: do.LocateTail, gallop: Gallop, pause: int) -> None:
        probe = gallop.probe
        if probe is None:
            following, _ = self._env.world.log.past(gallop.found)
            if following is None:
                self._answer(ev.TailLocated(i.ticket, gallop.found))
            else:
                self._gallop(i, Gallop(following), 0)
            return

        def look() -> None:
            gallop.tell(probe, self._env.world.log.read(probe) is not None)
            self._gallop(i, gallop, 0)

        if self._env.down or self._env.chance(self._env.faults.read_failed, Observed.READ_FAILED):
            self._answer(ev.ReadFailed(i.ticket, "no answer"))
            return
        self.send(look, pause)

    # --- puts

    def _put(self, put: Callable[[], Outcome], answer: Callable[[Outcome], ev.Event], pause: int) -> None:
        a, f = self._env, self._env.faults

        def unknown() -> None:
            self._process.answer(answer(self._settle(Outcome.UNKNOWN)))

        def land() -> None:
            if put() is Outcome.STORED:
                a.observed[Observed.LANDED_LATE] += 1

        if a.down and a.rng.random() < 0.5:
            a.clock.after(pause + PUT_TIMEOUT, unknown)
        elif a.down or a.chance(f.put_failed, Observed.PUT_FAILED):
            a.clock.after(pause + RETRY_PAUSE, lambda: self._process.answer(answer(Outcome.FAILED)))
        elif a.chance(f.request_lost, Observed.REQUEST_LOST):
            a.clock.after(pause + PUT_TIMEOUT, unknown)
        elif a.chance(f.late):
            a.clock.after(pause + PUT_TIMEOUT, unknown)
            a.clock.after(pause + PUT_TIMEOUT + a.rng.randrange(LATE), land)
        elif a.chance(f.answer_lost, Observed.ANSWER_LOST):
            self.send(lambda: (put(), None)[1], pause)
            a.clock.after(pause + PUT_TIMEOUT, unknown)
        else:
            self.send(lambda: self._answer(answer(put())), pause)

    def _put_entry(self, i: do.PutEntry, pause: int) -> None:
        listed_at = self.listed_at

        def put() -> Outcome:
            outcome = self._env.world.put_entry(i.number, i.data, listed_at)
            self._env.tell(f"    log {i.number}: {outcome.name} {i.data[:60]!r}")
            return outcome

        def answer(outcome: Outcome) -> ev.EntryPut:
            dated = outcome is Outcome.STORED and not self._env.chance(self._env.faults.undated)
            return ev.EntryPut(i.ticket, i.number, outcome, "injected", self._env.clock.now if dated else None)

        self._put(put, answer, pause)

    def _trim(self, ticket: int, look: Callable[[], ev.Event]) -> None:
        """A step of a pass over the log's old entries."""
        failing = self._env.down or self._env.chance(self._env.faults.delete_failed, Observed.DELETE_FAILED)

        def arrive() -> None:
            try:
                self._answer(ev.TrimFailed(ticket, "injected") if failing else look())
            except FormatError as error:
                self._answer(ev.TrimFailed(ticket, str(error)))

        self.send(arrive)

    def _delete_entries(self, i: do.DeleteEntries) -> None:
        failing = self._env.down or self._env.chance(self._env.faults.delete_failed, Observed.DELETE_FAILED)
        going = i.numbers[: self._env.rng.randrange(len(i.numbers))] if failing else i.numbers

        def delete() -> None:
            self._env.tell(f"    log: {', '.join(map(str, going)) or 'none'} deleted")
            self._env.world.log.delete(going)
            self._answer(ev.TrimFailed(i.ticket, "injected") if failing else ev.EntriesDeleted(i.ticket))

        self.send(delete)

    def _store(self, ticket: int, checkpoint: Checkpoint, pause: int) -> None:
        def put() -> Outcome:
            outcome = self._env.world.put_metadata(checkpoint, self._env.clock.now, orphan=not self._process.alive)
            self._env.tell(f"    _metadata of {checkpoint.id}: {outcome.name}")
            return outcome

        self._put(put, lambda outcome: ev.MetadataPut(ticket, checkpoint.id, outcome, 100, "injected"), pause)

    def _store_file(self, i: do.StoreFile, pause: int) -> None:
        """What the simulated driver hands over as a path is the content."""
        content = i.source if isinstance(i.source, bytes) else i.source.encode()

        def put() -> Outcome:
            self._env.world.put_file(i.handle.object, content)
            self._env.tell(f"    {i.handle.object} is stored")
            return Outcome.STORED

        self._put(put, lambda outcome: ev.FileStored(i.ticket, i.handle.object, outcome, "injected"), pause)

    def _fetch_files(self, i: do.FetchFiles, pause: int) -> None:
        def look() -> ev.Event:
            world = self._env.world
            found = {h: world.file(h.object, world.savepoints.get(i.path) if i.path is not None else None) for h in i.handles}
            files = {h: content for h, content in found.items() if content is not None and crc32(content) == h.checksum}
            wrong = [h.object for h in i.handles if h not in files]
            if wrong:
                return ev.FilesFetched(i.ticket, f"{wrong[0]} is missing or damaged")
            self._env.observed[Observed.FILE_FETCHED] += len(i.handles)
            self.fetched.update(files)
            return ev.FilesFetched(i.ticket)

        self._read(i.ticket, look, pause)

    # --- savepoints

    def _copy(self, i: do.StoreSavepoint, pause: int) -> None:
        """Object after object, each as it is then; at last the savepoint's `_metadata`."""
        values: dict[str, dict[int, int]] = {}
        rest = sorted(i.checkpoint.objects)
        failing = self._env.down or self._env.chance(self._env.faults.put_failed, Observed.PUT_FAILED)

        def more() -> None:
            for key in rest[:2]:
                content = self._env.world.read_object(key)
                if content is None or key in self._env.world.damage.objects:  # copies are compared with checksums
                    self._gone(i, key)
                    return
                values[key] = dict(content)
            del rest[:2]
            if rest:
                self.send(more)
            elif failing:
                self._answer(ev.SavepointStored(i.ticket, i.number, None, "injected"))
            else:
                self._keep(i, values)

        self.send(more, pause)

    def _gone(self, i: do.StoreSavepoint, key: str) -> None:
        needed = self._process.alive and not self._env.world.log.over(i.checkpoint.id.run)
        if needed and key not in self._env.world.damage.objects:
            raise ViolationError(Invariant.SAVEPOINT, f"{key} of {i.checkpoint.id} is gone while it is copied")
        self._answer(ev.SavepointStored(i.ticket, i.number, None, f"{key} is gone", hopeless=True))

    def _keep(self, i: do.StoreSavepoint, values: dict[str, dict[int, int]]) -> None:
        end = Span.decode(i.checkpoint.file(offsets_file(i.checkpoint.id.epoch)) or b"").end
        for snapshot in i.checkpoint.snapshots:
            partition = snapshot.store.partition
            if sum(values[h.object][h.offset] for h in snapshot.handles) != state_at(partition, self._env.begins, end):
                raise ViolationError(Invariant.SAVEPOINT, f"partition {partition} of {i.checkpoint.id}, copied, is not the sum up to {end}")
        name = f"savepoint-{i.number}"
        objects = {key: tuple(sorted(held.items())) for key, held in values.items()}
        self._env.world.savepoints.setdefault(name, Saved(i.checkpoint, objects))
        self._env.observed[Observed.SAVEPOINT] += 1
        self._env.tell(f"    {name} holds {i.checkpoint.id}")
        self._answer(ev.SavepointStored(i.ticket, i.number, name))

    def _source(self, ticket: int, path: str) -> ev.Event:
        saved = self._env.world.savepoints.get(path)
        return ev.RestorePathRead(ticket, saved.checkpoint) if saved else ev.RestorePathRead(ticket, None, "there is none")

    def _import(self, i: do.ImportObjects, pause: int) -> None:
        """Under the prefix of a run that is not there yet, and that somebody else may begin."""

        def copy() -> None:
            saved = self._env.world.savepoints.get(i.path)
            if saved is None or self._env.down or self._env.chance(self._env.faults.read_failed, Observed.READ_FAILED):
                self._answer(ev.ReadFailed(i.ticket, "injected", hopeless=saved is None))
                return
            for key, content in saved.objects.items():
                self._env.world.copy_object(copied_key(key, 0, i.run), content)
            files = {
                path: replace(content, object=copied_key(content.object, 0, i.run)) if isinstance(content, FileHandle) else content
                for path, content in i.checkpoint.files.items()
            }
            self._answer(ev.ObjectsImported(i.ticket, tuple(copied(s, i.run) for s in i.checkpoint.snapshots), files))

        self.send(copy, pause)

    def _answer_request(self, i: do.AnswerRequest, pause: int) -> None:
        self._env.answering.add(i.number)

        def store() -> None:
            if self._env.down or self._env.chance(self._env.faults.put_failed, Observed.PUT_FAILED):
                self._answer(ev.RequestAnswered(i.ticket, i.number, Outcome.FAILED, "injected"))
                return
            path = i.path if i.checkpoint is None else own_path(i.checkpoint)
            self._env.world.answer(i.run, i.number, path, i.error)
            asked = self._env.world.log.entries.get(i.number)
            request = decode(i.number, asked) if asked is not None else None
            if path is not None and isinstance(request, Request) and request.action == STOP:
                self._env.ended_as_asked[i.run] = path
            self._env.observed[Observed.NOT_SAVED] += path is None
            self._env.observed[Observed.MET] += i.checkpoint is not None
            self._env.tell(f"    entry {i.number} is answered: {path or i.error}")
            self._answer(ev.RequestAnswered(i.ticket, i.number, Outcome.STORED))

        self.send(store, pause)

    # --- deletes

    def _delete(self, i: do.Delete) -> None:
        failing = self._env.down or self._env.chance(self._env.faults.delete_failed, Observed.DELETE_FAILED)
        total = len(i.checkpoints) + len(i.objects)
        stop = self._env.rng.randrange(total) if failing and total else total

        def objects() -> None:
            self.delete_objects(i.objects[: max(0, stop - len(i.checkpoints))])
            if failing and total:
                self._answer(ev.Deleted(i.ticket, "injected"))
            elif i.savepoint is not None and (failing or self._env.chance(self._env.faults.delete_failed, Observed.DELETE_FAILED)):
                self._answer(ev.Deleted(i.ticket, savepoint_failure="injected"))
            else:
                if i.savepoint is not None:
                    self._env.world.take_over(i.savepoint.path)
                self._answer(ev.Deleted(i.ticket))

        def metadata() -> None:
            self.delete_metadata(i.checkpoints[:stop])
            self.send(objects)

        self.send(metadata)

    def delete_metadata(self, checkpoints: tuple[CheckpointId, ...]) -> None:
        for checkpoint in checkpoints:
            self._env.tell(f"    delete {checkpoint}")
            self._env.world.delete_metadata(checkpoint)

    def delete_objects(self, objects: tuple[str, ...]) -> None:
        for key in objects:
            self._env.tell(f"    delete {key}")
            self._env.world.delete_object(key)


def copied(snapshot: Snapshot, run: int) -> Snapshot:
    return replace(snapshot, handles=tuple(replace(h, object=copied_key(h.object, 0, run)) for h in snapshot.handles))
