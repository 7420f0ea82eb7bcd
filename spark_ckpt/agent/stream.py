"""One stream as an agent sees it: commits come in, what is asked for is made durable, acks and declines go out."""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from spark_ckpt.agent.bases import Bases
from spark_ckpt.agent.chains import Chain
from spark_ckpt.agent.changelog import changelog_name
from spark_ckpt.agent.commits import Commit
from spark_ckpt.agent.fetches import Fetched, Fetcher, Wanted, missing_snapshot
from spark_ckpt.agent.history import History, Version, Why
from spark_ckpt.agent.inbox import Inbox
from spark_ckpt.agent.planner import Planner
from spark_ckpt.agent.staging import Part, PartState, Staging
from spark_ckpt.agent.uploads import Uploader
from spark_ckpt.errors import CheckpointError, DamagedError, ObjectMissingError
from spark_ckpt.model import Ack, Decline, HandleKind, Snapshot, StoreId
from spark_ckpt.process.pipe import describe
from spark_ckpt.storage.base import Storage
from spark_ckpt.stored.left_acks import leave_acks

QUEUED_BYTES = 8 << 20
"""What has to be durable is uploaded when so many bytes of it have come, if no flush comes before."""
HANDLES_AT_ONCE = 50_000
"""Of acks in one message, some 10 MB."""


@dataclass(frozen=True)
class Pauses:
    """Seconds."""

    queued: float = 10.0
    """After which what has to be durable is uploaded, if no flush comes before."""
    relief: float = 1.0
    """Between two looks at a full spool."""
    relief_failed: float = 10.0
    """After an upload that was to make room and failed, before the next one."""


PAUSES = Pauses()


class _Mark(Enum):
    FLUSH = "FLUSH"
    PRESSURE = "PRESSURE"
    EVACUATE = "EVACUATE"
    END = "END"
    OVER = "OVER"


@dataclass(frozen=True, eq=False, slots=True)
class _Arrived:
    commit: Commit
    changelog: Part | None
    at: float
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class _Late:
    run: int
    epoch: int


@dataclass(frozen=True, slots=True)
class _Handover:
    store: StoreId
    uid: str


@dataclass(frozen=True, eq=False, slots=True)
class _Uploaded:
    parts: list[Part]
    cause: str


_Item = _Arrived | _Late | _Handover | _Uploaded | _Mark


class Stream:
    """One thread does everything but the uploads themselves, in the order in which it was told; `send` gets the lines for the pipe.
    `broken` hears of a fault of this package that has ended the thread: nothing more will be acknowledged.

    A commit that is not a checkpoint's is kept, staged, until a later one, a late checkpoint, another executor or a spool above
    `relief_bytes` needs it.
    """

    def __init__(
        self,
        root: str,
        storage: Storage,
        staging: Staging,
        executor: str,
        retry_s: float,
        relief_bytes: int,
        send: Callable[[dict[str, Any]], None],
        warn: Callable[[str], None],
        broken: Callable[[Exception], None],
        pauses: Pauses,
    ) -> None:
        self.root = root
        self.storage = storage
        self.run = 0
        """The newest run that commits or fetches have come from."""
        self._staging = staging
        self._executor = executor
        self._relief_bytes = relief_bytes
        self._send = send
        self._warn = warn
        self._broken = broken
        self._pauses = pauses
        self._bases = Bases(storage)
        self._history = History()
        self._planner = Planner(self._history, staging, self._bases.find)
        self._uploader = Uploader(storage, retry_s, warn)
        self._inbox: Inbox[_Item] = Inbox()
        self._taken: deque[_Item] = deque()
        self._queued: list[Version] = []
        self._size = 0
        self._waiting: dict[Version, int] = {}
        self._waiting_bytes = 0
        self._flying: dict[Part, tuple[StoreId, list[Version]]] = {}
        """Parts that are being uploaded, with their store and who waits for them."""
        self._relief_at = 0.0
        self._orphaned = False
        self._over: Callable[[Stream], None] | None = None
        self._thread = threading.Thread(target=self._work, name=f"pack {root}", daemon=True)
        self._thread.start()

    def report(self) -> dict[str, int]:
        """What was asked of the storage so far, and what waits to be stored (docs/pipes.md, `storage`). For any thread."""
        return {**self.storage.traffic.to_json(), "queued_snapshots": len(self._waiting), "queued_bytes": self._waiting_bytes}

    def commit(self, commit: Commit) -> None:
        """Take a commit in. Its changelog is linked before this returns."""
        at = time.monotonic()
        try:
            part = self._staging.stage(HandleKind.CHANGELOG, commit.folder, changelog_name(commit.version, commit.uid))
            arrived = _Arrived(commit, part, at)
        except FileNotFoundError:  # fine if there is a full snapshot of this version
            arrived = _Arrived(commit, None, at)
        except (CheckpointError, OSError) as error:
            arrived = _Arrived(commit, None, at, str(error))
        self._inbox.put(arrived, urgent=False)

    def late(self, run: int, epoch: int) -> None:
        """Make the commits of an epoch durable that was not a checkpoint when it ran."""
        self._inbox.put(_Late(run, epoch))

    def hand_over(self, store: StoreId, uid: str) -> None:
        """Make a commit durable that another executor needs."""
        self._inbox.put(_Handover(store, uid))

    def evacuate(self) -> None:
        """The executor is about to go: make durable what its stores' states are, for the executors that take over."""
        self._inbox.put(_Mark.EVACUATE)

    def relieve(self) -> None:
        """The spool fills: make durable what lies there."""
        self._inbox.put(_Mark.PRESSURE)

    def flush(self) -> None:
        """Upload what has been asked for so far."""
        self._inbox.put(_Mark.FLUSH)

    def fetch(self, fetcher: Fetcher, wanted: Wanted) -> Fetched:
        """Put the files of a version into its folder, and remember how it loads: the next commit is based on it.

        Errors name the checkpoint only where it is `base` that does not give what it should.
        """
        store, version, uid, base = wanted.store, wanted.version, wanted.uid, wanted.base
        if wanted.handles is not None:
            handed = Snapshot(store, version, uid, wanted.handles)
            return self._fetch(fetcher, handed, wanted.folder, "another executor's last snapshot", borrowed=True)
        snapshot = None
        if base is not None:
            try:
                snapshot = self._bases.find(base, store)
                if snapshot is not None and (snapshot.version, snapshot.uid) == (version, uid):
                    return self._fetch(fetcher, snapshot, wanted.folder, f"checkpoint {base.run}/{base.epoch}")
            except (ObjectMissingError, DamagedError) as fault:
                fault.checkpoint = base
                raise
        known = self._history.find(store, uid)
        if known is None or not known.durable or known.version != version:
            error = missing_snapshot(store, version, uid, base)
            error.checkpoint = base if snapshot is None else None
            raise error
        try:
            return fetcher.fetch(self.storage, known.handles, wanted.folder, "the running query's last checkpoints")
        except (ObjectMissingError, DamagedError):
            self._history.forget(store, uid)
            raise

    def _fetch(self, fetcher: Fetcher, snapshot: Snapshot, folder: Path, checkpoint: str, borrowed: bool = False) -> Fetched:
        fetched = fetcher.fetch(self.storage, snapshot.handles, folder, checkpoint)
        self._history.add(Version(snapshot.store, Chain.of(snapshot), borrowed=borrowed))
        return fetched

    def end(self, deadline: float) -> None:
        """The executor is gone. Upload what has been asked for, until `deadline` (monotonic seconds) at most; then take nothing more.

        What becomes durable now is left in the storage for the coordinator as well: it may be that nobody relays a line any more.
        """
        self._orphaned = True
        self._inbox.put(_Mark.END)
        self._thread.join(max(0.0, deadline - time.monotonic()))
        self._uploader.close()

    def leave(self, over: Callable[[Stream], None]) -> None:
        """Its newest run is over, so no checkpoint will ever name what is not stored yet: drop all that, take nothing more, close the
        storage. `over` hears when that is done; a put in hand is waited for, not cut."""
        self._over = over
        self._inbox.put(_Mark.OVER)

    # -- the stream's own thread

    def _work(self) -> None:
        try:
            self._serve()
        except Exception as error:
            self._broken(error)

    def _serve(self) -> None:
        ending = False
        while not ending or self._flying:
            item = self._next()
            match item:
                case _Arrived():
                    self._take(item)
                case _Late():
                    self._ask_late(self._history.of_epoch(item.run, item.epoch))
                    self._upload()
                case _Handover():
                    self._hand_over(item)
                case _Uploaded():
                    self._settle(item)
                case _Mark.PRESSURE:
                    continue  # awake now, and looks again before long
                case _Mark.EVACUATE:
                    self._evacuate()
                case _Mark.OVER:
                    self._drop_all()
                    ending = True
                case _Mark():
                    self._upload()
                    ending = ending or item is _Mark.END
            if not ending:
                self._relieve()
        if self._over is not None:
            self._uploader.close()
            self.storage.close()
            self._over(self)

    def _drop_all(self) -> None:
        self._uploader.end()
        self._queued, self._waiting, self._waiting_bytes = [], {}, 0
        self._history.clear()

    def _next(self) -> _Item:
        if not self._taken:
            self._taken.extend(self._inbox.take(self._patience()) or [_Mark.FLUSH])
        return self._taken.popleft()

    def _patience(self) -> float | None:
        """Seconds after which something is to be done though nobody says so."""
        now = time.monotonic()
        waits = [max(0.0, min(v.at for v in self._queued) + self._pauses.queued - now)] if self._queued else []
        if self._staging.bytes > self._relief_bytes:
            waits.append(self._pauses.relief)
        return min(waits, default=None)

    def _take(self, item: _Arrived) -> None:
        commit = item.commit
        self._history.begin(commit.run)
        self._history.complete(commit.base)
        if commit.late is not None:
            self._ask_late(self._late_of(commit, commit.late))
        version = self._history.version(commit.store, commit.uid)
        if version is not None and not version.chain.broken:  # sent again: its ack is on its way, or is repeated
            if item.changelog is not None:
                item.changelog.drop("sent again")
            if version.why is None:
                version.commit = commit
        else:
            planned = self._plan(item)
            if planned is None:
                return
            version = planned
            self._history.add(version)
        if commit.checkpoint:
            self._ask(version, Why.CHECKPOINT, item.at)

    def _plan(self, item: _Arrived) -> Version | None:
        try:
            if item.trouble:
                raise CheckpointError(item.trouble)
            return Version(item.commit.store, self._planner.plan(item.commit, item.changelog), item.commit)
        except Exception as error:
            self._answer([], [self._decline(item.commit, describe(error)["message"])])
            return None

    def _late_of(self, commit: Commit, epoch: int) -> list[Version]:
        """This store's version of that epoch that the commit builds on; the ones of attempts that have lost are nobody's business."""
        found = [v for v in self._history.of_epoch(commit.run, epoch, commit.store) if not v.late]
        named = [v for v in found if v.chain.uid == commit.base_uid]
        return named or found

    def _ask_late(self, versions: Sequence[Version]) -> None:
        for version in versions:
            version.late = True
            self._ask(version, Why.LATE, time.monotonic())

    def _hand_over(self, item: _Handover) -> None:
        version = self._history.version(item.store, item.uid)
        if version is None or version.commit is None:
            # The one who waits for it learns that nobody has it.
            self._answer([], [Decline(0, 0, item.store, item.uid, self._executor, "this executor does not hold it any more")])
            return
        self._ask(version, Why.HANDOVER, time.monotonic())
        self._upload()

    def _evacuate(self) -> None:
        for version in self._history.newest():
            self._ask(version, Why.HANDOVER, time.monotonic())
        self._upload()

    def _relieve(self) -> None:
        """Whatever is newest is uploaded like a checkpoint's; what is older has no right to the room."""
        now = time.monotonic()
        if self._staging.bytes <= self._relief_bytes or now < self._relief_at:
            return
        self._relief_at = now + self._pauses.relief
        for version in self._history.newest():
            if version.why is None and not version.chain.broken:
                if version.chain.durable:
                    self._history.relieve(version.store)
                else:
                    self._ask(version, Why.PRESSURE, now)
        self._upload()

    def _ask(self, version: Version, why: Why, at: float) -> None:
        if version.why is not None:  # in hand already; but room that was not made need not be told to anybody
            version.why = why if version.why is Why.PRESSURE else version.why
            return
        version.why, version.at = why, at
        self._queued.append(version)
        size = sum(p.length for p in version.chain.parts if p.state is PartState.STAGED)
        self._size += size
        self._waiting[version] = size
        self._waiting_bytes += size
        if self._size >= QUEUED_BYTES:
            self._upload()

    def _upload(self) -> None:
        """A segment holds the snapshots of one checkpoint only: it lives and dies with it."""
        queued, self._queued, self._size = self._queued, [], 0
        uploads: dict[tuple[int, int], list[Part]] = defaultdict(list)
        settled: list[Version] = []
        for version in queued:
            parts = () if version.chain.broken else version.chain.parts
            claimed = self._history.claim(parts)
            self._flying.update((part, (version.store, [])) for part in claimed)
            version.own, version.new_bytes = set(claimed), sum(p.length for p in claimed)
            version.missing = {part for part in parts if part in self._flying}
            for part in version.missing:
                self._flying[part][1].append(version)
            if not version.missing:
                settled.append(version)
            uploads[_epoch_of(version)] += claimed
        for (run, epoch), own in uploads.items():
            self._uploader.upload(run, epoch, own, self._uploaded)
        self._conclude(settled, {})

    def _uploaded(self, parts: list[Part], cause: str) -> None:
        self._inbox.put(_Uploaded(parts, cause))

    def _settle(self, item: _Uploaded) -> None:
        """An object's parts are stored, gone or back. Who asked for those that are back is declined, who only waited takes them over."""
        if self._over is not None:
            for part in item.parts:
                self._history.unclaim(self._flying.pop(part)[0], [part])
            return
        landed = [(part, *self._flying.pop(part)) for part in item.parts]
        failed = {v: item.cause for part, _, versions in landed if part.state is PartState.UPLOADING for v in versions if part in v.own}
        for version in failed:
            for part in version.missing:
                if part in self._flying:
                    self._flying[part][1].remove(version)
        settled: dict[Version, None] = {}
        again: dict[tuple[int, int], list[Part]] = defaultdict(list)
        for part, store, versions in landed:
            heirs = [v for v in versions if v not in failed]
            if part.state is not PartState.UPLOADING:
                for version in heirs:
                    version.missing.discard(part)
                    if not version.missing:
                        settled[version] = None
            elif heirs:
                heirs[0].own.add(part)
                heirs[0].new_bytes += part.length
                self._flying[part] = (store, heirs)
                again[_epoch_of(heirs[0])].append(part)
            else:
                self._history.unclaim(store, [part])
        for (run, epoch), parts in again.items():
            self._uploader.upload(run, epoch, parts, self._uploaded)
        self._conclude(list(settled), failed)

    def _conclude(self, settled: Sequence[Version], failed: dict[Version, str]) -> None:
        acks: list[Ack] = []
        declines: list[Decline] = []
        for version in [*settled, *failed]:
            why, version.why = version.why, None
            self._waiting_bytes -= self._waiting.pop(version, 0)
            version.own, version.missing = set(), set()
            cause = failed.get(version) or version.chain.broken
            commit = version.commit
            if commit is None:
                continue
            if not cause:
                acks.append(self._ack(version, commit))
                if why is Why.PRESSURE:
                    self._history.relieve(version.store)
            elif why is not Why.PRESSURE:
                declines.append(self._decline(commit, cause))
            else:
                self._relief_at = time.monotonic() + self._pauses.relief_failed
                self._warn(f"room in the spool {self._staging.spool} could not be made: {cause}")
            if version.chain.broken:
                self._history.remove(version)
        self._answer(acks, declines)

    def _ack(self, version: Version, commit: Commit) -> Ack:
        chain = version.chain
        snapshot = Snapshot(commit.store, commit.version, commit.uid, chain.handles, chain.num_keys)
        async_ms = (time.monotonic() - version.at) * 1000
        return Ack(
            commit.run,
            commit.epoch,
            snapshot,
            self._executor,
            version.new_bytes,
            commit.sync_ms,
            async_ms,
            commit.start_delay_ms,
            commit.commit_delay_ms,
        )

    def _decline(self, commit: Commit, cause: str) -> Decline:
        return Decline(commit.run, commit.epoch, commit.store, commit.uid, self._executor, cause)

    def _answer(self, acks: list[Ack], declines: list[Decline]) -> None:
        if self._orphaned:
            self._leave_acks(acks)
        for portion in _portions(acks):
            self._send({"type": "acks", "root": self.root, "acks": [a.to_json() for a in portion]})
        if declines:
            self._send({"type": "acks", "root": self.root, "acks": [d.to_json() for d in declines]})

    def _leave_acks(self, acks: list[Ack]) -> None:
        for run, epoch in dict.fromkeys((a.run, a.epoch) for a in acks):
            for portion in _portions([a for a in acks if (a.run, a.epoch) == (run, epoch)]):
                try:
                    leave_acks(self.storage, run, epoch, portion)
                except CheckpointError as error:
                    self._warn(f"acknowledgements of epoch {epoch} could not be left in {self.storage.url}: {error}")


def _portions(acks: Sequence[Ack]) -> Iterator[list[Ack]]:
    """So many at a time that they fit a line of the pipe, and an object that is read whole."""
    portion: list[Ack] = []
    handles = 0
    for ack in acks:
        if portion and handles + len(ack.snapshot.handles) > HANDLES_AT_ONCE:
            yield portion
            portion, handles = [], 0
        portion.append(ack)
        handles += len(ack.snapshot.handles)
    if portion:
        yield portion


def _epoch_of(version: Version) -> tuple[int, int]:
    return (version.commit.run, version.commit.epoch) if version.commit else (0, 0)
