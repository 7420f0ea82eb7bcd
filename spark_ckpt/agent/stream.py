"""One stream as an agent sees it: commits come in, what is asked for is made durable, acks and declines go out."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from spark_ckpt.agent.ack_sender import AckSender
from spark_ckpt.agent.bases import Bases
from spark_ckpt.agent.chain_builder import ChainBuilder
from spark_ckpt.agent.chains import Chain
from spark_ckpt.agent.changelog import changelog_name
from spark_ckpt.agent.commits import Commit
from spark_ckpt.agent.fetches import Fetched, Fetcher, FetchRequest, missing_snapshot
from spark_ckpt.agent.history import History, UploadReason, Version
from spark_ckpt.agent.inbox import Inbox
from spark_ckpt.agent.restores import ALONE, ONE_OF_MANY, Restore
from spark_ckpt.agent.run_start import RunStart
from spark_ckpt.agent.spools import store_folder
from spark_ckpt.agent.staging import Staging, StateFile
from spark_ckpt.agent.upload_queue import Concluded, UploadQueue
from spark_ckpt.agent.uploads import Uploader
from spark_ckpt.errors import CheckpointError, DamagedError, ObjectMissingError
from spark_ckpt.model import Ack, CheckpointId, Decline, HandleKind, Snapshot, StoreId
from spark_ckpt.process.pipe import describe
from spark_ckpt.storage.base import Storage


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


DRIVER = "driver"
"""The executor of a local master (`SparkContext.DRIVER_IDENTIFIER`): there is no other one."""


class _Mark(Enum):
    FLUSH = "FLUSH"
    PRESSURE = "PRESSURE"
    EVACUATE = "EVACUATE"
    END = "END"
    OVER = "OVER"


@dataclass(frozen=True, eq=False, slots=True)
class _Arrived:
    commit: Commit
    changelog: StateFile | None
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
    files: list[StateFile]
    cause: str


_Item = _Arrived | _Late | _Handover | _Uploaded | _Mark


class AgentStream:
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
        self._relief_bytes = relief_bytes
        self._warn = warn
        self._broken = broken
        self._pauses = pauses
        self._bases = Bases(storage)
        self._history = History()
        self._chains = ChainBuilder(self._history, staging, self._bases.find)
        self._acks = AckSender(root, storage, executor, send, warn)
        self._uploader = Uploader(storage, retry_s, warn)
        self._queue = UploadQueue(self._history, self._uploader, self._uploaded, self._concluded)
        self._inbox: Inbox[_Item] = Inbox()
        self._taken: deque[_Item] = deque()
        self._start = RunStart(ALONE if executor == DRIVER else ONE_OF_MANY)
        self._relief_at = 0.0
        self._over: Callable[[AgentStream], None] | None = None
        self._thread = threading.Thread(target=self._work, name=f"stream {root}", daemon=True)
        self._thread.start()

    def report(self) -> dict[str, int]:
        """What was asked of the storage so far, and what waits to be stored (docs/pipes.md, `storage`). For any thread."""
        queued = {"queued_snapshots": self._queue.count, "queued_bytes": self._queue.bytes}
        return {**self.storage.traffic.to_json(), **queued, **self._start.report()}

    def commit(self, commit: Commit) -> None:
        """Take a commit in. Its changelog is linked before this returns."""
        at = time.monotonic()
        self._start.committed(commit.run, commit.epoch, commit.store)
        if commit.handles is not None:  # stored already
            self._inbox.put(_Arrived(commit, None, at), urgent=False)
            return
        try:
            file = self._staging.stage(HandleKind.CHANGELOG, commit.folder, changelog_name(commit.version, commit.uid))
            arrived = _Arrived(commit, file, at)
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

    def fetch(self, fetcher: Fetcher, request: FetchRequest) -> Fetched:
        """Put the files of a version into its folder, and remember how it loads: the next commit is based on it.

        Errors name the checkpoint only where it is `base` that does not give what it should.
        """
        store, version, uid, base = request.store, request.version, request.uid, request.base
        if request.handles is not None:
            handed = Snapshot(store, version, uid, request.handles)
            return self._fetch(fetcher, request, handed, "another executor's last snapshot", borrowed=True)
        snapshot = None
        if base is not None:
            try:
                snapshot = self._bases.find(base, store)
                if snapshot is not None and (snapshot.version, snapshot.uid) == (version, uid):
                    restore = self._restore(fetcher, request.run, base, request.folder.parents[2])
                    return self._fetch(fetcher, request, snapshot, f"checkpoint {base.run}/{base.epoch}", restore=restore)
            except (ObjectMissingError, DamagedError) as fault:
                fault.checkpoint = base
                raise
        known = self._history.find(store, uid)
        if known is None or not known.durable or known.version != version:
            error = missing_snapshot(store, version, uid, base)
            error.checkpoint = base if snapshot is None else None
            raise error
        try:
            return fetcher.fetch(self.storage, known.handles, request.folder, "the running query's last checkpoints")
        except (ObjectMissingError, DamagedError):
            self._history.forget(store, uid)
            raise

    def read_ahead(self, fetcher: Fetcher, run: int, base: CheckpointId, folder: Path) -> None:
        """A run starts from that checkpoint, and all of its stores will be loaded here. `folder`: the run's, in the spool."""
        with suppress(CheckpointError):  # whoever needs it says so
            if (restore := self._restore(fetcher, run, base, folder)) is not None:
                restore.go_on()

    def _restore(self, fetcher: Fetcher, run: int, base: CheckpointId, folder: Path) -> Restore | None:
        snapshots = self._bases.snapshots(base)
        place = (self.storage, snapshots, self._start.reach)
        return self._start.restore(run, base, lambda: fetcher.restore(*place, lambda store: store_folder(folder, store)))

    def _fetch(
        self, fetcher: Fetcher, to: FetchRequest, found: Snapshot, checkpoint: str, borrowed: bool = False, restore: Restore | None = None
    ) -> Fetched:
        self._start.asked(to.run, found)
        try:
            fetched = fetcher.fetch(self.storage, found.handles, to.folder, checkpoint, restore)
        except CheckpointError:
            self._start.failed(to.run, found.store)
            raise
        self._start.loaded(to.run, found.store)
        self._history.add(Version(found.store, Chain.of(found), borrowed=borrowed))
        return fetched

    def end(self, deadline: float) -> None:
        """The executor is gone. Upload what has been asked for, until `deadline` (monotonic seconds) at most; then take nothing more.

        What becomes durable now is left in the storage for the coordinator as well: it may be that nobody relays a line any more.
        """
        self._start.end()
        self._acks.orphaned = True
        self._inbox.put(_Mark.END)
        self._thread.join(max(0.0, deadline - time.monotonic()))
        self._uploader.close()

    def leave(self, over: Callable[[AgentStream], None]) -> None:
        """Its newest run is over, so no checkpoint will ever name what is not stored yet: drop all that, take nothing more, close the
        storage. `over` hears when that is done; a put in hand is waited for, not cut."""
        self._start.end()
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
        while not ending or self._queue.is_uploading:
            item = self._next()
            match item:
                case _Arrived():
                    self._take(item)
                case _Late():
                    self._ask_late(self._history.of_epoch(item.run, item.epoch))
                    self._queue.upload()
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
                    self._queue.upload()
                    ending = ending or item is _Mark.END
            if not ending:
                self._relieve()
        if self._over is not None:
            self._uploader.close()
            self.storage.close()
            self._over(self)

    def _drop_all(self) -> None:
        self._queue.drop_all()
        self._history.clear()

    def _next(self) -> _Item:
        if not self._taken:
            self._taken.extend(self._inbox.take(self._patience()) or [_Mark.FLUSH])
        return self._taken.popleft()

    def _patience(self) -> float | None:
        """Seconds after which something is to be done though nobody says so."""
        now = time.monotonic()
        oldest = self._queue.oldest
        waits = [] if oldest is None else [max(0.0, oldest + self._pauses.queued - now)]
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
            if version.reason is None:
                version.commit = commit
        else:
            built = self._build(item)
            if built is None:
                return
            version = built
            self._history.add(version)
        if commit.checkpoint:
            self._queue.add(version, UploadReason.CHECKPOINT, item.at)

    def _build(self, item: _Arrived) -> Version | None:
        try:
            if item.trouble:
                raise CheckpointError(item.trouble)
            return Version(item.commit.store, self._chains.build(item.commit, item.changelog), item.commit)
        except Exception as error:
            self._acks.send([], [self._acks.decline(item.commit, describe(error)["message"])])
            return None

    def _late_of(self, commit: Commit, epoch: int) -> list[Version]:
        """This store's version of that epoch that the commit builds on; the ones of attempts that have lost are nobody's business."""
        found = [v for v in self._history.of_epoch(commit.run, epoch, commit.store) if not v.late]
        named = [v for v in found if v.chain.uid == commit.base_uid]
        return named or found

    def _ask_late(self, versions: Sequence[Version]) -> None:
        for version in versions:
            version.late = True
            self._queue.add(version, UploadReason.LATE, time.monotonic())

    def _hand_over(self, item: _Handover) -> None:
        version = self._history.version(item.store, item.uid)
        if version is None or version.commit is None:
            self._acks.decline_unknown(item.store, item.uid)
            return
        self._queue.add(version, UploadReason.HANDOVER, time.monotonic())
        self._queue.upload()

    def _evacuate(self) -> None:
        for version in self._history.newest():
            self._queue.add(version, UploadReason.HANDOVER, time.monotonic())
        self._queue.upload()

    def _relieve(self) -> None:
        """Whatever is newest is uploaded like a checkpoint's; what is older has no right to the room."""
        now = time.monotonic()
        if self._staging.bytes <= self._relief_bytes or now < self._relief_at:
            return
        self._relief_at = now + self._pauses.relief
        for version in self._history.newest():
            if version.reason is None and not version.chain.broken:
                if version.chain.durable:
                    self._history.relieve(version.store)
                else:
                    self._queue.add(version, UploadReason.PRESSURE, now)
        self._queue.upload()

    def _uploaded(self, files: list[StateFile], cause: str) -> None:
        self._inbox.put(_Uploaded(files, cause))

    def _settle(self, item: _Uploaded) -> None:
        if self._over is not None:
            self._queue.settle_unanswered(item.files)
        else:
            self._queue.settle(item.files, item.cause)

    def _concluded(self, concluded: list[Concluded]) -> None:
        acks: list[Ack] = []
        declines: list[Decline] = []
        for one in concluded:
            version, commit = one.version, one.version.commit
            if commit is None:
                continue
            if not one.cause:
                acks.append(self._acks.ack(version, commit))
                if one.reason is UploadReason.PRESSURE:
                    self._history.relieve(version.store)
            elif one.reason is not UploadReason.PRESSURE:
                declines.append(self._acks.decline(commit, one.cause))
            else:
                self._relief_at = time.monotonic() + self._pauses.relief_failed
                self._warn(f"room in the spool {self._staging.spool} could not be made: {one.cause}")
            if version.chain.broken:
                self._history.remove(version)
        self._acks.send(acks, declines)
