"""A one-threaded driver of the protocol over a dictionary: what the unit tests push events through."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from zlib import crc32

from spark_ckpt.errors import CheckpointError
from spark_ckpt.model import Ack, Checkpoint, CheckpointId, FileHandle, Handle, HandleKind, Job, Snapshot, StoreId, objects_of
from spark_ckpt.paths import copied_key, segment_key
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import Request, decode, encode
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.operators import OperatorChoice
from spark_ckpt.protocol.reasons import Outcome
from spark_ckpt.protocol.retention.planned_files import objects_by_entry
from spark_ckpt.protocol.settings import Settings
from spark_ckpt.protocol.stream import Stream
from spark_ckpt.state.operators import describe

CONTENT = b"x" * 10
"""Of every object that an ack names, where there is a storage."""
NO_CHOICE = OperatorChoice()
JOB = Job(("stateStoreSave key",), ("rate",), "memory")


class World:
    """The storage, as every driver sees it."""

    def __init__(self) -> None:
        self.log: dict[int, bytes] = {}
        self.stored_ms: dict[int, int] = {}
        self.clock_ms = 0
        """That of the storage."""
        self.checkpoints: dict[CheckpointId, Checkpoint] = {}
        self.objects: set[str] = set()
        self.damaged: dict[CheckpointId, str] = {}
        self.sources: dict[str, Checkpoint] = {}
        self.savepoints: dict[str, Checkpoint] = {}
        self.answers: dict[int, str] = {}

    def put(self, number: int, data: bytes) -> Outcome:
        if number in self.log:
            return Outcome.EXISTS
        self.log[number] = data
        self.stored_ms[number] = self.clock_ms
        return Outcome.STORED

    def past(self, number: int) -> int | None:
        return min((n for n in self.log if n > number), default=None)

    def old(self, floor: int, after: int) -> tuple[tuple[int, int], ...]:
        return tuple((n, self.stored_ms.get(n, 0)) for n in sorted(self.log) if after < n < floor)

    def store(self, checkpoint: Checkpoint) -> Outcome:
        if checkpoint.id in self.checkpoints:
            return Outcome.EXISTS
        self.checkpoints[checkpoint.id] = checkpoint
        return Outcome.STORED


def answer(world: World, i: Instruction) -> ev.Event | None:
    """What the storage says to an instruction; None for those that are not questions to it."""
    if isinstance(i, do.LocateTail):
        return ev.TailLocated(i.ticket, max(world.log, default=0))
    if isinstance(i, do.ReadEntry):
        return ev.EntryRead(i.ticket, i.number, world.log.get(i.number))
    if isinstance(i, do.PutEntry):
        outcome = world.put(i.number, i.data)
        return ev.EntryPut(i.ticket, i.number, outcome, stored_ms=world.clock_ms if outcome is Outcome.STORED else None)
    if isinstance(i, do.LookPast):
        past = world.past(i.number)
        return ev.PastSeen(i.ticket, i.number, past, world.log[past] if past else None)
    if isinstance(i, do.ListOldEntries):
        data = world.log.get(i.floor)
        return ev.OldEntriesListed(i.ticket, decode(i.floor, data).claim if data else None, world.old(i.floor, i.after))
    if isinstance(i, do.ReadPlans):
        entries = {n: decode(n, world.log[n]) for n in i.numbers if n in world.log}
        return ev.PlansRead(i.ticket, {**dict.fromkeys(i.numbers), **objects_by_entry(entries)})
    if isinstance(i, do.DateEntries):
        return ev.EntriesDated(i.ticket, {n: world.stored_ms.get(n, 0) for n in i.numbers if n in world.log})
    if isinstance(i, do.DeleteEntries):
        for n in i.numbers:
            world.log.pop(n, None)
        return ev.EntriesDeleted(i.ticket)
    if isinstance(i, do.CheckStorage):
        return ev.StorageChecked(i.ticket)
    if isinstance(i, do.ListCheckpoints):
        return ev.CheckpointsListed(i.ticket, i.run, tuple(sorted(c for c in world.checkpoints if c.run == i.run)))
    if isinstance(i, do.ReadMetadata):
        damage = world.damaged.get(i.id)
        return ev.MetadataRead(i.ticket, i.id, None if damage else world.checkpoints.get(i.id), damage)
    if isinstance(i, do.VerifyObjects):
        missing = sorted(i.checkpoint.objects - world.objects)
        return ev.ObjectsVerified(i.ticket, i.checkpoint.id, missing[0] if missing else None)
    if isinstance(i, do.StoreMetadata):
        return ev.MetadataPut(i.ticket, i.checkpoint.id, world.store(i.checkpoint), size=1000)
    if isinstance(i, do.ReadLeftAcks):
        return ev.LeftAcksRead(i.ticket, ())
    if isinstance(i, do.ReadRestorePath):
        found = world.sources.get(i.path)
        return ev.RestorePathRead(i.ticket, found, "" if found else f"nothing is at {i.path}")
    if isinstance(i, do.DescribeOperators):
        try:
            read = {path: content for path, content in i.files.items() if isinstance(content, bytes)}
            return ev.OperatorsDescribed(i.ticket, describe(read))
        except CheckpointError as error:
            return ev.OperatorsDescribed(i.ticket, None, str(error))
    if isinstance(i, do.ImportObjects):
        snapshots = tuple(replace(s, handles=tuple(copied(h, i.run) for h in s.handles)) for s in i.checkpoint.snapshots)
        world.objects.update(h.object for s in snapshots for h in s.handles)
        files = {
            path: replace(content, object=copied_key(content.object, 0, i.run)) if isinstance(content, FileHandle) else content
            for path, content in i.checkpoint.files.items()
        }
        world.objects.update(objects_of(files.values()))
        return ev.ObjectsImported(i.ticket, snapshots, files)
    if isinstance(i, do.StoreFile):
        world.objects.add(i.handle.object)
        return ev.FileStored(i.ticket, i.handle.object, Outcome.STORED)
    if isinstance(i, do.FetchFiles):
        lost = sorted({h.object for h in i.handles} - world.objects)
        return ev.FilesFetched(i.ticket, f"{lost[0]} is missing" if lost and i.path is None else None)
    if isinstance(i, do.StoreSavepoint):
        if not i.checkpoint.objects <= world.objects:
            return ev.SavepointStored(i.ticket, i.number, None, "an object of the checkpoint is missing", hopeless=True)
        url = f"{i.request.target}/{i.request.name or i.number}"
        world.savepoints[url] = i.checkpoint
        return ev.SavepointStored(i.ticket, i.number, url)
    if isinstance(i, do.AnswerRequest):
        done = f"checkpoint {i.checkpoint}" if i.checkpoint is not None else i.path
        world.answers.setdefault(i.number, done if done is not None else f"error: {i.error}")
        return ev.RequestAnswered(i.ticket, i.number, Outcome.STORED)
    if isinstance(i, do.Delete):
        if i.savepoint is not None:
            world.sources.pop(i.savepoint.path, None)
        for c in i.checkpoints:
            world.checkpoints.pop(c, None)
        world.objects.difference_update(i.objects)
        return ev.Deleted(i.ticket)
    return None


def copied(handle: Handle, run: int) -> Handle:
    return replace(handle, object=copied_key(handle.object, 0, run))


class Driver:
    """Answers every question at once, unless `hold` says to keep it in `held`."""

    def __init__(self, world: World, settings: Settings | None = None) -> None:
        self.world = world
        self.stream = Stream(settings)
        self.now = 1000
        self.said: list[Instruction] = []
        self.held: list[Instruction] = []
        self.hold: Callable[[Instruction], bool] = lambda _: False
        self.timers: dict[ev.Timer, int] = {}

    def push(self, event: ev.Event) -> list[Instruction]:
        """One event and all that follows; returns what was said to the outside."""
        said: list[Instruction] = []
        events = [event]
        while events:
            self.now += 1
            for i in self.stream.handle(events.pop(0), self.now):
                if isinstance(i, do.SetTimer):
                    self.timers[i.timer] = i.ticket
                elif self.hold(i):
                    self.held.append(i)
                else:
                    reply = answer(self.world, i)
                    if reply is not None:
                        events.append(reply)
                    elif not isinstance(i, do.CancelTimer):
                        said.append(i)
        self.said += said
        return said

    def release(self) -> list[Instruction]:
        """Answer what was held."""
        held, self.held = self.held, []
        said: list[Instruction] = []
        for i in held:
            reply = answer(self.world, i)
            assert reply is not None
            said += self.push(reply)
        return said

    def answer(self, i: Instruction) -> ev.Event | None:
        return answer(self.world, i)

    def fire(self, timer: ev.Timer) -> list[Instruction]:
        return self.push(ev.TimerFired(self.timers[timer], timer))

    def start(
        self,
        nonce: str,
        job: Job = JOB,
        local: Iterable[str] = (),
        query: str = "q",
        restore: ev.Restore | None = None,
        sink_seen: int | None = None,
        compared: bool = True,
        planned: Mapping[str, bytes] | None = None,
        operators: OperatorChoice = NO_CHOICE,
    ) -> list[Instruction]:
        request = ev.StartRequested(query, job, tuple(local), nonce, "host", sink_seen=sink_seen, restore=restore, compared=compared)
        return self.push(replace(request, planned=planned, operators=operators))

    def request(self, action: str, claim: int = 1, drain: bool = False) -> int:
        """A person's, at the log's tail; returns its number."""
        number = max(self.world.log) + 1
        self.world.log[number] = encode(Request(claim, action, "memory://savepoints", "me", "", drain, f"n{number}"))
        return number

    def trigger(self, epoch: int, files: Mapping[str, bytes | None] | None = None) -> list[Instruction]:
        return self.push(ev.TriggerRequested(epoch, offsets(epoch), files or {}))

    def ack(self, run: int, epoch: int, partition: int, uid: str | None = None) -> list[Instruction]:
        made = ack(run, epoch, partition, uid)
        self.world.objects.update(h.object for h in made.snapshot.handles)
        return self.push(ev.AcksReceived((made,)))

    def seal(self, run: int, epoch: int, partitions: int = 2) -> list[Instruction]:
        return self.push(ev.SealRequested(epoch, commit([uid_of(run, epoch, p) for p in range(partitions)])))

    def epoch(self, run: int, epoch: int, partitions: int = 2) -> list[Instruction]:
        """A whole epoch that was not planned before."""
        return self.trigger(epoch) + self.rest(run, epoch, partitions)

    def rest(self, run: int, epoch: int, partitions: int = 2) -> list[Instruction]:
        said: list[Instruction] = []
        for p in range(partitions):
            said += self.ack(run, epoch, p)
        return said + self.seal(run, epoch, partitions)


def offsets(epoch: int) -> bytes:
    return f'v1\n{{"batchWatermarkMs":0}}\n{{"offset":{epoch}}}'.encode()


def commit(uids: Iterable[str]) -> bytes:
    return b"v2\n" + json.dumps({"nextBatchWatermarkMs": 0, "stateUniqueIds": {"0": [[u] for u in uids]}}).encode()


def uid_of(run: int, epoch: int, partition: int) -> str:
    return f"u-{run}-{epoch}-{partition}"


def ack(run: int, epoch: int, partition: int, uid: str | None = None, obj: str | None = None) -> Ack:
    uid = uid or uid_of(run, epoch, partition)
    name = obj or segment_key(run, epoch, f"p{partition}")
    handle = Handle(HandleKind.CHANGELOG, f"{epoch + 1}_{uid}.changelog", name, 0, len(CONTENT), crc32(CONTENT))
    snapshot = Snapshot(StoreId(0, partition, "default"), epoch + 1, uid, (handle,))
    return Ack(run, epoch, snapshot, "1", 10, 1.0, 2.0, 0.0)
