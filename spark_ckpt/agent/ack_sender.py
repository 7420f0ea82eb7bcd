"""Acknowledgements and declines of one stream, on their way to the coordinator."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from spark_ckpt.agent.commits import Commit
from spark_ckpt.agent.history import Version
from spark_ckpt.errors import CheckpointError
from spark_ckpt.model import Ack, Decline, Snapshot, StoreId
from spark_ckpt.storage.base import Storage
from spark_ckpt.stored.left_acks import leave_acks

HANDLES_AT_ONCE = 50_000
"""Of acks in one message, some 10 MB."""


class AckSender:
    """`send` gets the lines for the pipe."""

    def __init__(
        self, root: str, storage: Storage, executor: str, send: Callable[[dict[str, Any]], None], warn: Callable[[str], None]
    ) -> None:
        self.orphaned = False
        """The executor is gone, and it may be that nobody relays a line any more: acks are left in the storage as well."""
        self._root = root
        self._storage = storage
        self._executor = executor
        self._send = send
        self._warn = warn

    def ack(self, version: Version, commit: Commit) -> Ack:
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

    def decline(self, commit: Commit, cause: str) -> Decline:
        return Decline(commit.run, commit.epoch, commit.store, commit.uid, self._executor, cause)

    def decline_unknown(self, store: StoreId, uid: str) -> None:
        """The one who waits for it learns that nobody has it."""
        self.send([], [Decline(0, 0, store, uid, self._executor, "this executor does not hold it any more")])

    def send(self, acks: list[Ack], declines: list[Decline]) -> None:
        if self.orphaned:
            self._leave(acks)
        for portion in _portions(acks):
            self._send({"type": "acks", "root": self._root, "acks": [a.to_json() for a in portion]})
        if declines:
            self._send({"type": "acks", "root": self._root, "acks": [d.to_json() for d in declines]})

    def _leave(self, acks: list[Ack]) -> None:
        for run, epoch in dict.fromkeys((a.run, a.epoch) for a in acks):
            for portion in _portions([a for a in acks if (a.run, a.epoch) == (run, epoch)]):
                try:
                    leave_acks(self._storage, run, epoch, portion)
                except CheckpointError as error:
                    self._warn(f"acknowledgements of epoch {epoch} could not be left in {self._storage.url}: {error}")


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
