"""The driver's large files in the protocol: stored once, before whatever names them, and kept while anything does."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from zlib import crc32

import pytest

from spark_ckpt.errors import ErrorKind
from spark_ckpt.model import CheckpointId, FileHandle
from spark_ckpt.paths import driver_file_key
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import LIMITS, Plan, decode
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.large_files import DIGITS, LARGE, TOGETHER
from spark_ckpt.protocol.reasons import Outcome
from spark_ckpt.protocol.retention.deletion import Deletions
from spark_ckpt.protocol.retention.shared_state import SharedStateRegistry
from spark_ckpt.protocol.settings import Settings
from spark_ckpt.stored.metadata.codec import encode_metadata
from tests.drivers.protocol_driving import Driver, World, ack, commit, uid_of
from tests.drivers.protocol_starts import own, refusal, started

BIG = b"v1\n" + b"x" * LARGE
COMPACT = "sources/0/9.compact"


def handed(content: bytes, path: str = "/handed/over") -> ev.LocalFile:
    return ev.LocalFile(path, len(content), crc32(content), sha256(content).hexdigest()[:DIGITS])


def plans(world: World) -> list[Plan]:
    return [entry for n, data in sorted(world.log.items()) if isinstance(entry := decode(n, data), Plan)]


def of_kind(said: list[Instruction], kind: type[Instruction]) -> list[Instruction]:
    return [i for i in said if isinstance(i, kind)]


def running(interval_ms: int = 0, ahead: int = 0) -> Driver:
    driver = Driver(World(), Settings(interval_ms=interval_ms, ahead=ahead))
    driver.start("a")
    return driver


def test_a_large_file_is_stored_before_its_plan_and_both_refer_to_it() -> None:
    driver = running()
    driver.hold = lambda i: isinstance(i, do.StoreFile)
    driver.trigger(0, {COMPACT: handed(BIG), "sources/0/10": b"small"})  # type: ignore[dict-item]
    (put,) = driver.held
    assert isinstance(put, do.StoreFile)
    assert (put.source, put.handle.length) == ("/handed/over", len(BIG))
    assert plans(driver.world) == [], "the plan waits for what it names"
    driver.release()
    (plan,) = plans(driver.world)
    assert plan.files == {COMPACT: put.handle, "sources/0/10": b"small"}
    driver.rest(1, 0)
    checkpoint = driver.world.checkpoints[CheckpointId(1, 0)]
    assert checkpoint.files[COMPACT] == put.handle
    assert put.handle.object in checkpoint.objects
    # It is there already: neither the next checkpoint nor the same content once more puts it again.
    driver.hold = lambda _: False
    stored = set(driver.world.objects)
    driver.trigger(1, {"sources/0/19.compact": BIG})
    driver.rest(1, 1)
    files = driver.world.checkpoints[CheckpointId(1, 1)].files
    assert files["sources/0/19.compact"] == put.handle
    assert {name for name in driver.world.objects - stored if "/drv/" in name} == set()


def test_what_grows_with_the_input_is_neither_in_the_log_nor_in_the_metadata() -> None:

    driver = running()
    sizes = []
    for epoch in range(30):
        compact = epoch % 10 == 9
        name = f"sources/0/{epoch}.compact" if compact else f"sources/0/{epoch}"
        driver.trigger(epoch, {name: handed(b"line\n" * 1_000_000 * epoch) if compact else b"v1\n" + b"y" * 100})  # type: ignore[dict-item]
        driver.rest(1, epoch)
        entry = driver.world.log[max(driver.world.log)]
        sizes.append((len(entry), len(encode_metadata(driver.world.checkpoints[CheckpointId(1, epoch)]))))
    assert max(entry for entry, _ in sizes) < 1000
    assert max(document for _, document in sizes) < 16_000


@pytest.mark.parametrize(("interval_ms", "ahead"), [(0, 0), (1000, 0), (1000, 64)])
def test_a_put_that_fails_is_tried_again_until_the_time_is_up(interval_ms: int, ahead: int) -> None:
    driver = running(interval_ms, ahead)
    driver.hold = lambda i: isinstance(i, do.StoreFile)
    driver.trigger(0, {COMPACT: BIG})
    for attempt in range(3):
        (put,) = driver.held
        assert isinstance(put, do.StoreFile)
        assert put.attempt == attempt
        driver.held.clear()
        driver.push(ev.FileStored(put.ticket, put.handle.object, (Outcome.FAILED, Outcome.UNKNOWN)[attempt % 2], "away"))
    said = driver.fire(ev.Timer.PLAN)
    assert any(isinstance(i, do.Refused) and i.kind is ErrorKind.TIMEOUT and "away" in i.message for i in said)
    assert plans(driver.world) == []


def test_a_file_that_cannot_be_stored_fails_the_query_with_a_sentence() -> None:
    driver = running()
    driver.hold = lambda i: isinstance(i, do.StoreFile)
    driver.trigger(0, {COMPACT: BIG})
    (put,) = driver.held
    assert isinstance(put, do.StoreFile)
    said = driver.push(ev.FileStored(put.ticket, put.handle.object, Outcome.HOPELESS, "the file is gone"))
    assert any(isinstance(i, do.Refused) and "the file is gone" in i.message for i in said)


def test_a_file_written_while_the_epoch_ran_is_stored_before_the_metadata() -> None:
    driver = running()
    driver.trigger(0)
    for partition in (0, 1):
        driver.push(ev.AcksReceived((ack(1, 0, partition),)))

    driver.hold = lambda i: isinstance(i, do.StoreFile)
    driver.push(ev.SealRequested(0, commit([uid_of(1, 0, 0), uid_of(1, 0, 1)]), {"state/0/_metadata/schema": BIG}))
    assert driver.world.checkpoints == {}
    driver.release()
    assert isinstance(driver.world.checkpoints[CheckpointId(1, 0)].files["state/0/_metadata/schema"], FileHandle)


def test_small_files_become_objects_too_when_there_are_very_many() -> None:
    driver = running()
    size = LARGE - 10
    for epoch in range(TOGETHER // size + 3):
        driver.trigger(epoch, {f"sources/0/{epoch}": epoch.to_bytes(2, "big") + b"s" * size})
        driver.rest(1, epoch)
    inline = [len(c) for p, c in driver.world.checkpoints[max(driver.world.checkpoints)].files.items() if isinstance(c, bytes)]
    assert sum(inline) < TOGETHER + 10_000


def test_a_start_brings_them_back_before_it_claims() -> None:
    driver = running()
    driver.trigger(0, {COMPACT: BIG})
    driver.rest(1, 0)
    driver.trigger(1, {"sources/0/19.compact": BIG + b"1"})
    two = Driver(driver.world)
    two.hold = lambda i: isinstance(i, do.FetchFiles)
    two.start("b")
    (of_origin,) = two.held
    assert isinstance(of_origin, do.FetchFiles)
    assert [h.length for h in of_origin.handles] == [len(BIG)]
    two.release()
    (of_plan,) = two.held
    assert isinstance(of_plan, do.FetchFiles)
    assert [h.length for h in of_plan.handles] == [len(BIG) + 1]
    one = started(two.release())
    assert set(one.files) >= {COMPACT, "sources/0/19.compact"}
    # The run goes on with references: nothing is put again.
    two.hold = lambda i: isinstance(i, do.StoreFile)
    two.rest(2, 1)
    assert two.held == []
    assert two.world.checkpoints[CheckpointId(2, 1)].files[COMPACT] == one.files[COMPACT]


def test_a_damaged_one_is_damage_of_its_checkpoint() -> None:
    driver = running()
    driver.epoch(1, 0)
    driver.trigger(1, {COMPACT: BIG})
    driver.rest(1, 1)
    two = Driver(driver.world)
    two.hold = lambda i: isinstance(i, do.FetchFiles)
    two.start("b")
    (fetch,) = two.held
    two.held.clear()
    two.hold = lambda _: False
    assert isinstance(fetch, do.FetchFiles)
    said = two.push(ev.FilesFetched(fetch.ticket, "it has another checksum"))
    assert (started(said).origin, started(said).epoch) == (CheckpointId(1, 0), 1), "the one before it, and its epoch runs again"


def test_a_missing_one_of_a_plan_refuses_the_start_and_names_the_way_out() -> None:
    driver = running()
    driver.epoch(1, 0)
    driver.trigger(1, {COMPACT: BIG})
    driver.world.objects = {name for name in driver.world.objects if "/drv/" not in name}
    two = Driver(driver.world)
    refused = refusal(two.start("b"))
    assert refused.kind is ErrorKind.DAMAGED
    assert "restore.plans=DISCARD" in refused.message
    assert max(driver.world.log) == 3, "nothing was claimed"


def test_they_stay_while_a_plan_in_the_log_names_them() -> None:
    driver = running()
    driver.trigger(0, {COMPACT: BIG})
    driver.rest(1, 0)
    for epoch in range(1, 8):
        driver.trigger(epoch, {COMPACT: None} if epoch == 1 else {})
        driver.rest(1, epoch)
    assert CheckpointId(1, 0) not in driver.world.checkpoints
    assert any("/drv/" in name for name in driver.world.objects)


def test_they_go_when_no_plan_and_no_checkpoint_names_them() -> None:
    driver = running()
    driver.trigger(0, {COMPACT: BIG})
    driver.rest(1, 0)
    (plan,) = plans(driver.world)
    (name,) = plan.objects
    deletions = Deletions(registry := SharedStateRegistry())
    checkpoint = driver.world.checkpoints[CheckpointId(1, 0)]
    registry.register(checkpoint)
    deletions.planned.add(2, plan.objects)
    deletions.planned.add(5, plan.objects)
    deletions.planned.all_known = True
    deletions.drop([checkpoint.id])
    deletions.append_issued(6)
    batch = deletions.append_stored(6)
    assert batch is not None
    assert name not in batch.objects
    deletions.deleted(batch)
    deletions.planned.gone([2])
    assert deletions.planned.take_free(frozenset()) == frozenset(), "the one in entry 5 names it"
    deletions.planned.gone([5])
    assert deletions.planned.take_free(frozenset([name])) == frozenset(), "the driver's folder has it"
    assert deletions.planned.take_free(frozenset()) == frozenset([name])
    assert deletions.planned.take_free(frozenset()) == frozenset(), "once"


def test_a_deleted_stream_takes_them_with_it() -> None:
    driver = running()
    driver.trigger(0, {COMPACT: BIG})
    driver.rest(1, 0)
    driver.push(ev.StopRequested(failed=False, delete=True))
    assert driver.world.objects == set()


def test_a_coordinator_that_takes_over_knows_them_and_what_it_is_sent_again() -> None:
    driver = running()
    driver.trigger(0, {COMPACT: BIG})
    driver.rest(1, 0)
    driver.trigger(1, {"sources/0/19.compact": BIG + b"1"})
    two = Driver(driver.world)
    two.hold = lambda i: isinstance(i, do.StoreFile)
    two.push(ev.ResumeRequested(1, 1, 1))
    two.trigger(1, {"sources/0/19.compact": BIG + b"1"})
    assert two.held == [], "it was stored before the plan"
    two.rest(1, 1)
    assert len(two.world.checkpoints[CheckpointId(1, 1)].objects) == 4


def test_a_comparison_needs_no_file_of_a_source() -> None:
    driver = running()
    driver.trigger(0, {COMPACT: BIG, "state/0/_metadata/schema": BIG + b"s"})
    driver.rest(1, 0)
    two = Driver(driver.world)
    two.hold = lambda i: isinstance(i, do.FetchFiles)
    two.start("b", restore=own(1, 0), compared=False)
    (fetch,) = two.held
    assert isinstance(fetch, do.FetchFiles)
    assert [h.length for h in fetch.handles] == [len(BIG) + 1]
    (compare,) = two.release()
    assert isinstance(compare, do.Compare)
    assert COMPACT not in compare.files


def test_a_plan_that_could_not_be_read_is_not_written() -> None:
    driver = running()
    said = driver.trigger(0, {f"sources/0/{n}": None for n in range(LIMITS.items + 1)})
    assert any(isinstance(i, do.Refused) and f"at most {LIMITS.items}" in i.message for i in said)
    assert plans(driver.world) == []


@pytest.mark.parametrize("interval_ms", [0, 1000])
def test_a_coordinator_that_takes_over_stores_what_came_with_a_seal_and_is_in_no_plan(interval_ms: int) -> None:
    """It comes by its path, however large it is, and the coordinator that died may have stored and removed it."""
    settings = Settings(interval_ms=interval_ms)
    one = Driver(World(), settings)
    one.start("a")
    one.trigger(0)
    one.ack(1, 0, 0)
    one.ack(1, 0, 1)
    schema = "state/0/0/_metadata/schema"
    local = ev.LocalFile("/handed/over", 100 << 20, 7, sha256(b"large").hexdigest()[:DIGITS])
    one.push(ev.SealRequested(0, commit([uid_of(1, 0, 0), uid_of(1, 0, 1)]), {schema: local}))
    two = Driver(one.world, settings)
    two.hold = lambda i: isinstance(i, do.StoreFile)
    sent: ev.Changes = {"commits/0": commit([uid_of(1, 0, 0), uid_of(1, 0, 1)]), schema: replace(local, path="/kept")}
    two.push(ev.ResumeRequested(1, 1, 0, sealed=0, files=sent))
    stored = FileHandle(driver_file_key(1, 0, local.digest), local.length, local.checksum)
    if interval_ms:
        (put,) = two.held
        assert isinstance(put, do.StoreFile)
        assert (put.handle, put.source) == (stored, "/kept"), "under the name that it had for the one that died"
        two.trigger(1)
        assert not any(isinstance(i, do.Triggered) for i in two.said), "a plan waits for what it names"
        two.release()
    else:
        assert two.held == [], "the checkpoint of the epoch names it already"
        two.trigger(1)
    assert any(isinstance(i, do.Triggered) for i in two.said)
    plan = decode(max(two.world.log), two.world.log[max(two.world.log)])
    assert isinstance(plan, Plan)
    assert plan.files[schema] == stored


def test_what_cannot_be_stored_then_fails_the_query() -> None:
    one = Driver(World())
    one.start("a")
    one.trigger(0)
    one.rest(1, 0)
    two = Driver(one.world)
    two.hold = lambda i: isinstance(i, do.StoreFile)
    local = ev.LocalFile("/gone", 1 << 20, 7, "0" * DIGITS)
    two.push(ev.ResumeRequested(1, 1, 0, sealed=0, files={"state/0/0/_metadata/schema": local}))
    (put,) = two.held
    assert isinstance(put, do.StoreFile)
    two.push(ev.FileStored(put.ticket, put.handle.object, Outcome.HOPELESS, "/gone is gone"))
    refused = [i.message for i in two.trigger(1) if isinstance(i, do.Refused)]
    assert refused
    assert "/gone is gone" in refused[0]
