"""One stream as an agent sees it: commits come in, acks and declines go out."""

from __future__ import annotations

import json
import queue
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from spark_ckpt import paths
from spark_ckpt.agent.bases import Bases
from spark_ckpt.agent.chains import Chain, Chains, Commit, Planner, missing_snapshot
from spark_ckpt.agent.changelog import changelog_name
from spark_ckpt.agent.fetches import Fetched, Fetcher
from spark_ckpt.agent.staging import Part, Staging
from spark_ckpt.agent.uploads import Uploader
from spark_ckpt.errors import CheckpointError, DamagedError, ObjectMissingError
from spark_ckpt.model import Ack, CheckpointId, Decline, HandleKind, Snapshot, StoreId
from spark_ckpt.pipe import describe
from spark_ckpt.storage.base import Storage

QUEUED_BYTES = 8 << 20
QUEUED_S = 1.0


class _Mark(Enum):
    FLUSH = "FLUSH"
    END = "END"


@dataclass(frozen=True, eq=False)
class _Arrived:
    commit: Commit
    changelog: Part | None
    at: float
    trouble: str = ""


@dataclass(frozen=True, eq=False)
class _Planned:
    """A commit whose parts are known: `fresh` are its own to upload, the others are stored or in another commit's hands."""

    commit: Commit
    chain: Chain
    fresh: tuple[Part, ...]
    at: float

    def ack(self, executor: str) -> Ack:
        c = self.commit
        handles = tuple(p.handle for p in self.chain.parts if p.handle is not None)
        snapshot = Snapshot(c.store, c.version, c.uid, handles, self.chain.num_keys)
        new_bytes = sum(p.length for p in self.fresh)
        async_ms = (time.monotonic() - self.at) * 1000
        return Ack(c.run, c.epoch, snapshot, c.base_uid, executor, new_bytes, c.sync_ms, async_ms, c.start_delay_ms)


class Stream:
    """One thread plans and packs what arrives, in its order; the uploader's threads store it; `send` gets the lines for the pipe."""

    def __init__(
        self,
        root: str,
        storage: Storage,
        staging: Staging,
        executor: str,
        retry_s: float,
        send: Callable[[dict[str, Any]], None],
        warn: Callable[[str], None],
    ) -> None:
        self.root = root
        self.storage = storage
        self._staging = staging
        self._executor = executor
        self._send = send
        self._warn = warn
        self._bases = Bases(storage)
        self._chains = Chains()
        self._planner = Planner(self._chains, staging, self._bases.find)
        self._uploader = Uploader(storage, retry_s, warn)
        self._inbox: queue.SimpleQueue[_Arrived | _Mark] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._settled = threading.Condition(self._lock)
        self._unsettled: dict[tuple[int, int, StoreId, str], _Planned] = {}
        self._answering = 0
        self._orphaned = False
        self._thread = threading.Thread(target=self._pack, name=f"pack {root}", daemon=True)
        self._thread.start()

    def commit(self, commit: Commit) -> None:
        """Take a commit in. Its changelog is linked before this returns."""
        at = time.monotonic()
        try:
            part = self._staging.stage(HandleKind.CHANGELOG, commit.folder, changelog_name(commit.version, commit.uid))
            self._inbox.put(_Arrived(commit, part, at))
        except FileNotFoundError:  # fine if there is a full snapshot of this version
            self._inbox.put(_Arrived(commit, None, at))
        except (CheckpointError, OSError) as error:
            self._inbox.put(_Arrived(commit, None, at, str(error)))

    def flush(self) -> None:
        """Upload what has been taken in so far."""
        self._inbox.put(_Mark.FLUSH)

    def fetch(self, fetcher: Fetcher, store: StoreId, version: int, uid: str, base: CheckpointId | None, folder: Path) -> Fetched:
        """Put the files of a version into the folder, and remember how it loads: the next commit is based on it."""
        known = self._chains.find(store, uid)
        if known is not None and known.durable and known.version == version:
            handles = tuple(p.handle for p in known.parts if p.handle is not None)
            try:
                return fetcher.fetch(self.storage, handles, folder, "the running query's last checkpoints")
            except (ObjectMissingError, DamagedError):
                self._chains.forget(store, uid)
                if base is None:
                    raise
        snapshot = self._bases.find(base, store) if base is not None else None
        if base is None or snapshot is None or (snapshot.version, snapshot.uid) != (version, uid):
            raise missing_snapshot(store, version, uid, base)
        fetched = fetcher.fetch(self.storage, snapshot.handles, folder, f"checkpoint {base.run}/{base.epoch}")
        self._chains.add(store, Chain.of(snapshot))
        return fetched

    def end(self, deadline: float) -> None:
        """The executor is gone. Upload what is queued, until `deadline` (monotonic seconds) at most; then take nothing more.

        What becomes durable now is left in the storage for the coordinator as well: it may be that nobody relays a line any more.
        """
        self._orphaned = True
        self._inbox.put(_Mark.END)
        self._thread.join(max(0.0, deadline - time.monotonic()))
        with self._settled:
            while (self._unsettled or self._answering) and (left := deadline - time.monotonic()) > 0:
                self._settled.wait(left)
        self._uploader.close()

    # -- the packing thread

    def _pack(self) -> None:
        queued: list[_Planned] = []
        size = 0
        while True:
            due = min((p.at for p in queued), default=None)
            try:
                item = self._inbox.get(timeout=None if due is None else max(0.0, due + QUEUED_S - time.monotonic()))
            except queue.Empty:
                item = _Mark.FLUSH
            if isinstance(item, _Arrived):
                planned = self._plan(item)
                if planned is not None:
                    queued.append(planned)
                    size += sum(part.length for part in planned.fresh)
                if size < QUEUED_BYTES:
                    continue
            self._upload(queued)
            queued, size = [], 0
            if item is _Mark.END:
                return

    def _plan(self, item: _Arrived) -> _Planned | None:
        commit = item.commit
        key = (commit.run, commit.epoch, commit.store, commit.uid)
        with self._lock:
            again = key in self._unsettled
        known = self._chains.find(commit.store, commit.uid)
        if again or known is not None:  # sent again: its ack is on its way, or is repeated
            if item.changelog is not None:
                item.changelog.fail("sent again")
            if again or known is None:
                return None
            return self._enter(key, _Planned(commit, known, (), item.at))
        try:
            if item.trouble:
                raise CheckpointError(item.trouble)
            chain, fresh = self._planner.plan(commit, item.changelog)
        except Exception as error:
            self._answer([], [self._decline(commit, describe(error)["message"])])
            return None
        self._chains.add(commit.store, chain)
        return self._enter(key, _Planned(commit, chain, fresh, item.at))

    def _enter(self, key: tuple[int, int, StoreId, str], planned: _Planned) -> _Planned:
        with self._lock:
            self._unsettled[key] = planned
        return planned

    def _upload(self, queued: list[_Planned]) -> None:
        """A segment holds the snapshots of one checkpoint only: it lives and dies with it."""
        if not queued:
            return
        for run, epoch in dict.fromkeys((p.commit.run, p.commit.epoch) for p in queued):
            parts = [part for p in queued if (p.commit.run, p.commit.epoch) == (run, epoch) for part in p.fresh]
            self._uploader.upload(run, epoch, parts, self._settle)
        if any(not p.fresh for p in queued):
            self._settle()

    def _settle(self) -> None:
        acks: list[Ack] = []
        declines: list[Decline] = []
        with self._settled:
            for key, planned in list(self._unsettled.items()):
                cause = planned.chain.broken
                if not cause and not planned.chain.durable:
                    continue
                del self._unsettled[key]
                if cause:
                    declines.append(self._decline(planned.commit, cause))
                else:
                    acks.append(planned.ack(self._executor))
            self._answering += 1
        try:
            self._answer(acks, declines)
        finally:
            with self._settled:
                self._answering -= 1
                self._settled.notify_all()

    def _decline(self, commit: Commit, cause: str) -> Decline:
        return Decline(commit.run, commit.epoch, commit.store, commit.uid, self._executor, cause)

    def _answer(self, acks: list[Ack], declines: list[Decline]) -> None:
        if self._orphaned:
            self._leave(acks)
        if acks or declines:
            self._send({"type": "acks", "root": self.root, "acks": [*(a.to_json() for a in acks), *(d.to_json() for d in declines)]})

    def _leave(self, acks: list[Ack]) -> None:
        for run, epoch in dict.fromkeys((a.run, a.epoch) for a in acks):
            document = {"acks": [a.to_json() for a in acks if (a.run, a.epoch) == (run, epoch)]}
            try:
                self.storage.put(paths.left_acks_key(run, epoch, uuid.uuid4().hex), json.dumps(document).encode())
            except CheckpointError as error:
                self._warn(f"acknowledgements of epoch {epoch} could not be left in {self.storage.url}: {error}")
