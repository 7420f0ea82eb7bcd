"""What an agent goes on to upload for a checkpoint that was aborted, measured: how much of it the next checkpoint names.

Agents are not told of aborts. The storage takes nothing while a checkpoint is made, so that it is given up; then it is back.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_ckpt.storage import open_storage
from testbed.faulty import Fault, FaultyStorage, Moment
from tests.drivers.agent_stores import FakeStore, LocalAgent

STORES, BYTES = 8, 20_000
URL = "memory://x"


def next_epoch(store: FakeStore) -> None:
    store.commit(BYTES)


def next_epoch_is_a_full_snapshot(store: FakeStore) -> None:
    store.commit(BYTES)
    store.snapshot(store.version, (BYTES,))


def same_epoch_again(store: FakeStore) -> None:
    """As after LOST: another attempt, which builds on what the aborted one has built on."""
    del store.lineage[store.version]
    store.commit(BYTES)


@pytest.mark.parametrize(
    ("follows", "attempt", "superfluous"),
    [(next_epoch, 2, 0), (next_epoch_is_a_full_snapshot, 2, STORES), (same_epoch_again, 1, STORES)],
    ids=lambda what: getattr(what, "__name__", ""),
)
@pytest.mark.parametrize("outage", [Moment.DELAY, Moment.FAIL_BEFORE], ids=lambda moment: moment.name)
def test_what_is_uploaded_after_an_abort(
    spool: Path, follows: Callable[[FakeStore], None], attempt: int, superfluous: int, outage: Moment
) -> None:
    """Changelogs are of use to the next checkpoint unless a full snapshot, or another attempt, takes their place: then those of one epoch
    go up once for nobody, and are discarded."""
    back, tried = threading.Event(), threading.Event()

    def away() -> None:
        tried.set()
        back.wait(30)

    memory = open_storage(f"memory://{uuid.uuid4()}/orders")
    storage = FaultyStorage(memory, [Fault(Moment.DELAY, operations=frozenset({"put"}), pause=away)])
    if outage is Moment.FAIL_BEFORE:
        storage = FaultyStorage(storage, [Fault(outage, operations=frozenset({"put"}))])
    agent = LocalAgent(spool, lambda *_: storage)
    stores = [FakeStore(spool / f"0-{p}", partition=p) for p in range(STORES)]
    for store in stores:
        store.commit(BYTES)
        agent.send(store.message(URL, 1, None))
    agent.send({"type": "flush"})
    assert tried.wait(30)
    aborted = {store.uid for store in stores}
    for store in stores:
        follows(store)
        agent.send(store.message(URL, attempt, None))
    agent.send({"type": "flush"})
    back.set()
    named = {h.object: 0 for store in stores for h in agent.ack(store.uid).snapshot.handles}
    for uid in aborted:
        agent.ack(uid)
    for store in stores:
        for handle in agent.ack(store.uid).snapshot.handles:
            named[handle.object] += handle.length
    uploaded = {stored.key: stored.size for stored in memory.list("run-")}
    for_nobody = sum(uploaded.values()) - sum(named.values())
    print(f"{follows.__name__}: {sum(uploaded.values())} bytes uploaded, {for_nobody} of them named by no checkpoint")
    assert for_nobody // BYTES == superfluous
    agent.close()
