"""`spark-ckpt gc` and what it deletes, also while runs go on between any two of its reads."""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spark_ckpt import paths
from spark_ckpt.cli.main import run
from spark_ckpt.errors import ConflictError, DamagedError, StorageError
from spark_ckpt.model import Checkpoint, CheckpointId, FileHandle, Handle, HandleKind, Snapshot, StoreId
from spark_ckpt.protocol import entries
from spark_ckpt.protocol.entries import Claim, Plan
from spark_ckpt.protocol.retention.garbage import entry_before_barrier, kept_checkpoints
from spark_ckpt.storage import Storage, open_storage
from spark_ckpt.storage.base import LARGEST_READ, Stored
from spark_ckpt.storage.file import FileStorage
from spark_ckpt.storage.memory import MemoryStorage, wipe
from spark_ckpt.stored.deletion import delete_checkpoints
from spark_ckpt.stored.gc import Collector, WhatIsNeeded
from spark_ckpt.stored.metadata.codec import encode_metadata
from spark_ckpt.stored.reading import StreamReader
from spark_ckpt.stored.standing import Standing
from testbed.faulty import Fault, FaultyStorage, Moment
from tests.drivers.garbage import HOUR, crashed_once, expected_garbage, gc, keys, now
from tests.drivers.stored_stream import JOB, StreamWriter

SEEDS = 80


@pytest.fixture
def writer(storage: Storage, tmp_path: Path) -> StreamWriter:
    return crashed_once(storage, tmp_path)


def test_a_dry_run_says_what_would_go_and_changes_nothing(
    writer: StreamWriter, storage: Storage, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before, garbage = keys(storage), expected_garbage(writer)
    status, doc = gc(capsys, url, "--min-age", "0")
    assert (status, doc["deleted"], doc["newest_run"], doc["checkpoints"]) == (0, False, 2, ["run-1/chk-0"])
    assert set(doc["keys"]) == garbage
    assert doc["garbage"] == {"objects": len(garbage), "bytes": sum(storage.size(key) or 0 for key in garbage)}
    assert doc["referenced"]["objects"] == len(writer.checkpoints[1].objects) + 1
    assert keys(storage) == before
    assert run(["gc", url, "--min-age", "0"]) == 0
    assert "--delete deletes them" in capsys.readouterr().out


def test_probes_that_a_crash_left_go_when_they_are_old(
    writer: StreamWriter, storage: Storage, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    key = paths.probe_key(uuid.uuid4().hex)
    storage.put(key, b"first")
    assert run(["gc", url]) == 0
    assert "probes" in capsys.readouterr().out
    assert gc(capsys, url, "--delete")[1]["probes"] == {"garbage": {"objects": 0, "bytes": 0}, "young": {"objects": 1, "bytes": 5}}
    status, doc = gc(capsys, url, "--min-age", "0", "--delete")
    assert (status, set(doc["keys"])) == (0, expected_garbage(writer)), "the test may still go on"
    collector = Collector(storage, 0, now(storage) + 601_000)
    found = collector.look()
    assert (found.objects, found.probes.garbage.objects, found.total().garbage.objects) == ((key,), 1, 1)
    collector.delete(found)
    assert storage.size(key) is None


@pytest.mark.usefixtures("writer")
def test_a_stream_in_a_folder_that_is_called_like_that_of_probes_is_not_taken_for_them(storage: Storage) -> None:
    inner = StreamWriter(open_storage(f"{storage.url.rstrip('/')}/probe"))
    inner.begin(1)
    inner.complete(1, 0, [])
    assert len(keys(inner.storage)) > 2
    found = Collector(storage, 0, now(storage) + 10 * HOUR).look()
    assert found.probes.garbage.objects == 0
    assert not any(key.startswith("probe/") for key in found.objects)


def test_nothing_goes_where_a_savepoint_lies_in_the_streams_own_folder(
    writer: StreamWriter, storage: Storage, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Earlier releases made one there. The folder is read as the stream; what the savepoint refers to looks like what runs have left."""
    before = run(["list", url]), capsys.readouterr().out
    storage.put(paths.METADATA_NAME, encode_metadata(writer.checkpoints[0]))
    assert (run(["list", url]), capsys.readouterr().out) == before
    status, doc = gc(capsys, url, "--min-age", "0", "--delete")
    assert (status, "a savepoint lies in the folder of the stream" in str(doc)) == (1, True)
    storage.delete([paths.METADATA_NAME])
    assert gc(capsys, url, "--min-age", "0", "--delete")[0] == 0


def test_delete(writer: StreamWriter, storage: Storage, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    before, garbage = keys(storage), expected_garbage(writer)
    status, doc = gc(capsys, url, "--min-age", "0", "--delete")
    assert (status, doc["deleted"], set(doc["keys"])) == (0, True, garbage)
    assert keys(storage) == before - garbage
    assert run(["verify", url]) == 0
    assert gc(capsys_after(capsys), url, "--min-age", "0", "--delete")[1]["garbage"] == {"objects": 0, "bytes": 0}
    assert run(["gc", url]) == 0
    assert "nothing to delete" in capsys.readouterr().out


def capsys_after(capsys: pytest.CaptureFixture[str]) -> pytest.CaptureFixture[str]:
    capsys.readouterr()
    return capsys


def test_what_is_young_stays(writer: StreamWriter, storage: Storage, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = keys(storage)
    status, doc = gc(capsys, url, "--delete")
    assert (status, doc["min_age_ms"], doc["garbage"]["objects"]) == (0, 3_600_000, 0)
    assert doc["young"]["objects"] == len(expected_garbage(writer))
    assert keys(storage) == before


def test_a_checkpoint_that_stays_for_its_age_keeps_its_older_objects(writer: StreamWriter, storage: Storage) -> None:
    first = writer.checkpoints[0]
    now = max(stored.modified_ms for stored in storage.list(""))

    class Aged(MemoryStorage):
        """All is older than an hour but the one `_metadata`."""

        def list(self, prefix: str, start_after: str = "") -> Iterator[Stored]:
            for stored in storage.list(prefix, start_after):
                yield Stored(stored.key, stored.size, now if stored.key == paths.metadata_key(first.id) else now - 7_200_000)

        def list_folders(self, prefix: str) -> Iterator[str]:
            return storage.list_folders(prefix)

        def get(self, key: str, offset: int = 0, length: int | None = None, limit: int = LARGEST_READ) -> bytes:
            return storage.get(key, offset, length, limit)

        def size(self, key: str) -> int | None:
            return storage.size(key)

    found = Collector(Aged(f"memory://{uuid.uuid4().hex}"), 3_600_000, now).look()
    assert found.metadata == ()
    assert set(found.objects) == expected_garbage(writer) - first.objects - {paths.metadata_key(first.id)}
    assert found.total().young.objects == len(first.objects) + 1


def test_what_is_referred_to_by_a_damaged_checkpoint_is_not_known(
    writer: StreamWriter, storage: Storage, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    storage.put(paths.metadata_key(CheckpointId(2, 2)), b"PAR1 is not all")
    before = keys(storage)
    status, doc = gc(capsys, url, "--min-age", "0", "--delete")
    assert (status, doc["error"]["kind"]) == (1, "DAMAGED")
    assert "run-2/chk-2" in doc["error"]["message"]
    assert "start the stream once" in doc["error"]["message"]
    assert keys(storage) == before


def test_a_stream_that_cannot_go_on_is_left_alone(
    writer: StreamWriter, storage: Storage, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    storage.delete([paths.metadata_key(CheckpointId(1, 1)), paths.metadata_key(CheckpointId(2, 2))])
    before = keys(storage)
    status, doc = gc(capsys, url, "--min-age", "0", "--delete")
    assert (status, doc["error"]["kind"]) == (1, "DAMAGED")
    assert "run-1/chk-1" in doc["error"]["message"]
    assert keys(storage) == before


def test_while_a_checkpoint_that_nobody_has_deleted_is_missing_nothing_goes(
    storage: Storage, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its `_metadata` may be put back, and what it names has to be there then."""
    writer = StreamWriter(storage)
    writer.begin(1)
    writer.complete(1, 0, [], changelogs_only=1)
    newest = writer.complete(1, 1, [], changelogs_only=1)
    writer.begin(2, origin=newest.id, inherits=(CheckpointId(1, 0), newest.id))
    data = storage.get(paths.metadata_key(newest.id))
    storage.delete([paths.metadata_key(newest.id)])
    before = keys(storage)
    status = run(["gc", url, "--min-age", "0", "--delete"])
    assert (status, keys(storage)) == (1, before)
    assert "is not there, and its run has not deleted it; nothing is deleted" in capsys.readouterr().err
    storage.put(paths.metadata_key(newest.id), data)
    assert run(["gc", url, "--min-age", "0", "--delete"]) == 0
    assert keys(storage) >= newest.objects


def test_where_a_run_has_died_before_it_had_the_copy_from_which_it_was_to_go_on_that_is_said(
    storage: Storage, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is nothing to put back."""
    writer = StreamWriter(storage)
    writer.begin(1)
    newest = writer.complete(1, 0, [], changelogs_only=1)
    copy = CheckpointId(2, 0)
    writer.begin(2, origin=copy, inherits=(newest.id, copy))
    before = keys(storage)
    status = run(["gc", url, "--min-age", "0", "--delete"])
    assert (status, keys(storage)) == (1, before)
    said = capsys.readouterr().err
    assert "run-2/chk-0, the copy from which run 2" in said
    assert "is not there: not yet, or it is lost; nothing is deleted" in said


def test_a_checkpoint_that_completes_and_vanishes_between_the_two_looks_is_missed(storage: Storage) -> None:
    """(1) The run has no checkpoint when `gc` looks; (2) it completes one, records the log's new floor and deletes older plans;
    (3) somebody removes that checkpoint; (4) `gc` reads the plans that are left, and looks for checkpoints once more: nothing names the
    large file any more, and a person may put back what does."""
    file = FileHandle(paths.driver_file_key(1, 0, "0" * 32), 3, 0)
    storage.put(file.object, b"abc")
    writer = StreamWriter(storage)
    writer.begin(1)
    writer.append(Plan(writer.claim, 1, 0, b"v1\n{}", {"sources/0/0": file}))
    writer.begin(2)

    class Meanwhile(WhatIsNeeded):
        def planned(self) -> frozenset[str]:
            writer.append(Plan(writer.claim, 2, 1, b"v1\n{}", floor=writer.claim))
            storage.delete([paths.log_key(n) for n in (1, 2)])
            return super().planned()

    assert Collector(storage, 0, 1 << 60).look().objects == ()
    with pytest.raises(DamagedError, match=r"the checkpoints of run 2 .* are gone; nothing is deleted"):
        Collector(storage, 0, 1 << 60, needed=Meanwhile).look()


def test_of_a_deleted_stream_everything_goes(writer: StreamWriter, storage: Storage, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Its last run had not heard of everything, or ended before all was deleted."""
    writer.append(entries.End(writer.claim, 2))
    status, doc = gc(capsys, url, "--delete", "--min-age", "0s")
    assert (status, doc["checkpoints"]) == (0, ["run-1/chk-0", "run-1/chk-1", "run-2/chk-2"])
    assert {key.split("/")[0] for key in keys(storage)} == {"log", "savepoints"}
    assert run(["gc", url]) == 0
    assert "nothing is left of the deleted stream" in capsys.readouterr().out
    writer.begin(3)
    storage.put(paths.segment_key(3, 0, "running"), b"y")
    assert gc(capsys, url, "--min-age", "0s")[1]["garbage"]["objects"] == 0


def test_without_a_log_nothing_is_known(writer: StreamWriter, storage: Storage, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    storage.delete([stored.key for stored in storage.list(paths.LOG_PREFIX)])
    status, doc = gc(capsys, url, "--delete")
    assert (status, doc["error"]["kind"]) == (1, "DAMAGED")
    assert "has no log" in doc["error"]["message"]


def test_status_of_what_is_not_there_and_of_wrong_usage(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["gc", url]) == 1
    assert run(["gc", url, "--min-age", "soon"]) == 2
    assert "a duration such as" in capsys.readouterr().err


# --- while runs go on


class World:
    """Runs of one stream that begin, upload, complete, drop, crash and are fenced, each by the rules of the protocol."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.name = uuid.uuid4().hex
        self.storage = MemoryStorage(f"memory://{self.name}")
        self.log = 0
        self.alive: dict[CheckpointId, Checkpoint] = {}
        self.dropped: list[CheckpointId] = []
        self.late: list[tuple[Claim, Checkpoint | None, int]] = []
        self.begin(None, {})

    def append(self, entry: entries.Entry) -> None:
        self.log += 1
        self.storage.put(paths.log_key(self.log), entries.encode(entry))

    def begin(self, last: Claim | None, restorable: dict[CheckpointId, Checkpoint]) -> None:
        """The newest by log entry is the origin, and all that is there is inherited."""
        newest = max(restorable.values(), key=lambda c: c.log, default=None)
        number = self.log + 1
        inherits = tuple(sorted(restorable))
        run_number = last.run + 1 if last else 1
        self.claim = Claim(number, run_number, "q", JOB, newest.id if newest else None, inherits, (), "h", {}, 1, str(number))
        self.append(self.claim)
        self.alive, self.dropped, self.newest = dict(restorable), [], newest
        self.epoch = newest.id.epoch + 1 if newest else 0

    def restorable(self) -> dict[CheckpointId, Checkpoint]:
        """What a start would find."""
        reader = StreamReader(self.storage)
        wanted = [*(c for c, _ in reader.checkpoints_of(self.claim.run)), *kept_checkpoints(self.claim)]
        return {c: reader.read(c) for c in wanted if self.storage.size(paths.metadata_key(c)) is not None}

    def completed(self, claim: Claim, base: Checkpoint | None, epoch: int) -> Checkpoint:
        """Some files of the one before are still in use, others are new."""
        handles = [h for s in (base.snapshots if base else ()) for h in s.handles if self.rng.random() < 0.7]
        for _ in range(self.rng.randrange(1, 3)):
            unique = f"{epoch}-{self.rng.getrandbits(64):x}"
            handles.append(Handle(HandleKind.SST, f"SSTs/{unique}.sst", paths.sst_key(claim.run, unique), 0, 1, 0))
            self.storage.put(handles[-1].object, b"s")
        snapshots = (Snapshot(StoreId(0, 0, "default"), 1, "u", tuple(handles)),)
        checkpoint = Checkpoint(CheckpointId(claim.run, epoch), self.log, claim.claim, "q", 1, JOB, {}, snapshots, {})
        self.storage.put(paths.metadata_key(checkpoint.id), encode_metadata(checkpoint))
        return checkpoint

    def step(self) -> None:
        what = self.rng.random()
        if what < 0.15:
            self.late.append((self.claim, self.newest, self.epoch))
            self.begin(self.claim, self.restorable())
        elif what < 0.25:
            self.storage.put(paths.segment_key(self.claim.run, self.epoch, f"{self.rng.getrandbits(64):x}"), b"never acknowledged")
        elif what < 0.35 and self.late:
            # The fenced run still completes what it had planned; whether all that it names is still there, nobody asks.
            self.completed(*self.late.pop())
        else:
            self.append(Plan(self.claim.claim, self.claim.run, self.epoch, b"v1\n{}"))
            self.delete_dropped()
            done = self.completed(self.claim, self.newest, self.epoch)
            self.dropped += list(self.alive)
            self.alive[done.id] = self.newest = done
            self.epoch += 1

    def delete_dropped(self) -> None:
        """After an append that was issued when the completion was known; one retained."""
        going = [self.alive.pop(c) for c in self.dropped]
        named = frozenset[str]().union(*(c.objects for c in self.alive.values()))
        self.storage.delete([paths.metadata_key(c.id) for c in going])
        self.storage.delete(sorted(frozenset[str]().union(*(c.objects for c in going)) - named))
        self.dropped = []


class Moving(MemoryStorage):
    """Before each request the runs may take a few steps."""

    def __init__(self, world: World, pace: float) -> None:
        super().__init__(world.storage.url)
        self._world, self._pace = world, pace

    def _move(self) -> None:
        while self._world.rng.random() < self._pace:
            self._world.step()

    def get(self, key: str, offset: int = 0, length: int | None = None, limit: int = LARGEST_READ) -> bytes:
        self._move()
        return super().get(key, offset, length, limit)

    def size(self, key: str) -> int | None:
        self._move()
        return super().size(key)

    def list(self, prefix: str, start_after: str = "") -> Iterator[Stored]:
        self._move()
        return super().list(prefix, start_after)


def violations(seed: int, kind: Callable[..., Collector]) -> list[str]:
    """What a collection under way destroyed of what a restart could use, and what a quiet one left."""
    world = World(seed)
    for _ in range(world.rng.randrange(3, 25)):
        world.step()
    collector = kind(Moving(world, world.rng.choice([0.1, 0.2, 0.3])), 0, 1 << 60)
    try:
        found = collector.look()
        for _ in range(world.rng.randrange(4)):
            world.step()
        collector.delete(found)
    except ConflictError:
        pass  # too much happened meanwhile: nothing was deleted
    wrong = [f"{c} lost {o}" for c, content in world.restorable().items() for o in content.objects if world.storage.size(o) is None]

    quiet = kind(world.storage, 0, 1 << 60)
    quiet.delete(quiet.look())
    restorable = world.restorable()
    wanted = {o for c in restorable.values() for o in c.objects} | {paths.metadata_key(c) for c in restorable}
    prefix = paths.run_prefix(world.claim.run)
    left = {stored.key for stored in world.storage.list(paths.RUN_PREFIX) if not stored.key.startswith(prefix)}
    wrong += [f"left {key}" for key in left - wanted]
    wrong += [f"{c} lost {o}" for c, content in restorable.items() for o in content.objects if world.storage.size(o) is None]
    wipe(world.name)
    return wrong


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_that_a_restart_could_use_is_ever_deleted(seed: int) -> None:
    assert violations(seed, Collector) == []


class OwnFirst(WhatIsNeeded):
    """The run's own checkpoints are read before the kept ones."""

    def restorable(self, standing: Standing) -> list[Checkpoint]:
        own = [content for c, _ in self.reader.checkpoints_of(standing.claim.run) if (content := self.read(c)) is not None]
        return own + [content for c in sorted(kept_checkpoints(standing.claim)) if (content := self.read(c)) is not None]

    def check(self, standing: Standing, restorable: list[Checkpoint]) -> None:
        """What is missing is not asked about either: that would hide the wrong order in most schedules."""


class ClaimOnce(Collector):
    """Nobody looks whether the claim is still the last."""

    def look(self) -> Any:
        standing = self.needed.standing(0)
        return self.garbage_under(standing, self.needed.restorable(standing))


@pytest.mark.parametrize("wrong", [partial(Collector, needed=OwnFirst), ClaimOnce], ids=["OwnFirst", "ClaimOnce"])
def test_the_order_of_the_reads_matters(wrong: Callable[..., Collector]) -> None:
    assert any("lost" in line for seed in range(5000) for line in violations_or_none(seed, wrong)), "the test has lost its point"


def violations_or_none(seed: int, kind: Callable[..., Collector]) -> list[str]:
    try:
        return violations(seed, kind)
    except DamagedError:
        return []


# --- garbage of the run that lives


@pytest.fixture
def on_disk(tmp_path: Path) -> Storage:
    """Where an object's time can be changed."""
    return FileStorage(f"file://{tmp_path / 'stream'}")


@pytest.fixture
def living(on_disk: Storage) -> tuple[StreamWriter, set[str]]:
    """A run that has completed 0 and 3; stored before 3 was planned: what nobody will ever name. Sorted by what becomes of it."""
    writer = StreamWriter(on_disk)
    writer.begin(1)
    writer.complete(1, 0, [], changelogs_only=1)
    left = {
        paths.segment_key(1, 2, "orphan"),
        paths.sst_key(1, "orphan"),
        paths.left_acks_key(1, 2, "orphan"),
        paths.answer_key(1, 1),
        paths.copied_key(paths.sst_key(7, "refused"), 3, 1),
    }
    kept = {paths.segment_key(1, 4, "savepoint-to-come"), paths.left_acks_key(1, 4, "wanted"), "run-00000001/drv/large"}
    for key in left | kept:
        on_disk.put(key, b"x")
    return writer, left


def test_a_run_with_the_number_0_is_called_so(writer: StreamWriter, storage: Storage, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    storage.put(paths.segment_key(0, 1, "strange"), b"x")
    assert run(["gc", url, "--min-age", "0ms"]) == 0
    said = capsys.readouterr().out
    assert "run-0 " in said
    assert "probes" not in said


def test_names_that_no_storage_takes_do_not_keep_garbage_from_going(
    living: tuple[StreamWriter, set[str]], on_disk: Storage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer, left = living
    writer.begin(2)
    for name in ("run-00000001/seg/1-a\nb", "run-00000001/ack/1-\x1b", "run-00000001/sst/c\x7f.sst", "probe/p\nq", "run-00000002/seg/0-\n"):
        path = tmp_path / "stream" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    on_disk.put(paths.probe_key(uuid.uuid4().hex), b"x")
    status, found = gc(capsys, f"file://{tmp_path}/stream", "--min-age", "0ms", "--delete")
    assert status == 0
    assert left <= set(found["keys"])
    assert not left & keys(on_disk)


def dated(storage: Storage, ages: dict[str, int]) -> None:
    """As if these objects had been stored so many milliseconds earlier."""
    for key, age_ms in ages.items():
        path = Path(storage.url.removeprefix("file://")) / key
        stored_s = path.stat().st_mtime - age_ms / 1000
        os.utime(path, (stored_s, stored_s))


def test_of_a_living_run_goes_what_a_later_checkpoint_has_passed_over(living: tuple[StreamWriter, set[str]], on_disk: Storage) -> None:
    writer, left = living
    before = keys(on_disk)
    writer.complete(1, 3, [], changelogs_only=1)
    dated(on_disk, dict.fromkeys(before, 2 * HOUR))
    collector = Collector(on_disk, HOUR, now(on_disk))
    found = collector.look()
    assert set(found.objects) == left
    assert found.metadata == ()
    assert [r.garbage.objects for r in found.runs] == [len(left)]
    collector.delete(found)
    assert keys(on_disk) >= before - left
    assert not keys(on_disk) & left
    assert Collector(on_disk, HOUR, now(on_disk)).look().runs == ()


def test_of_a_living_run_stays_what_was_stored_shortly_before_its_newest_checkpoint_began(
    living: tuple[StreamWriter, set[str]], on_disk: Storage
) -> None:
    """However old it is by now: its acknowledgement may have been on its way."""
    writer, _ = living
    before = keys(on_disk)
    writer.complete(1, 3, [], changelogs_only=1)
    dated(on_disk, dict.fromkeys(before, HOUR // 2))
    assert Collector(on_disk, HOUR, now(on_disk) + 100 * HOUR).look().runs == ()


def test_of_a_living_run_stays_what_may_be_on_its_way_for_its_timeout_whatever_the_age_that_was_asked_for(
    living: tuple[StreamWriter, set[str]], on_disk: Storage
) -> None:
    writer, left = living
    before = keys(on_disk)
    writer.complete(1, 3, [], changelogs_only=1)
    dated(on_disk, dict.fromkeys(before, HOUR // 2))
    claim = StreamReader(on_disk).standing().claim  # type: ignore[union-attr]
    on_disk.put(paths.log_key(claim.claim), entries.encode(replace(claim, timeout_ms=HOUR)))
    dated(on_disk, {paths.log_key(claim.claim): HOUR // 2})
    assert Collector(on_disk, 0, now(on_disk) + 100 * HOUR).look().objects == ()
    on_disk.put(paths.log_key(claim.claim), entries.encode(replace(claim, timeout_ms=HOUR // 3)))
    dated(on_disk, {paths.log_key(claim.claim): HOUR // 2})
    assert set(Collector(on_disk, 0, now(on_disk) + 100 * HOUR).look().objects) == left


def test_a_living_run_without_a_checkpoint_of_its_own_keeps_all(storage: Storage) -> None:
    writer = StreamWriter(storage)
    writer.begin(1)
    storage.put(paths.segment_key(1, 0, "first"), b"x")
    assert Collector(storage, 0, now(storage) + HOUR).look().objects == ()


@pytest.mark.parametrize("ahead", [0, 2])
def test_the_time_that_counts_is_that_of_a_plan_which_was_stored_before_the_checkpoints_epoch_ran(storage: Storage, ahead: int) -> None:
    writer = StreamWriter(storage)
    writer.begin(1)
    for epoch in range(6):
        checkpoint = writer.complete(1, epoch, [], changelogs_only=1)
    claim = replace(StreamReader(storage).standing().claim, ahead=ahead)  # type: ignore[union-attr]
    entry = {n: entries.decode(n, storage.get(paths.log_key(n))) for n in range(1, 8)}
    found = entry_before_barrier(claim, checkpoint, 0, entry.get)
    assert found == checkpoint.log - ahead
    assert entry_before_barrier(claim, writer.checkpoints[0], 0, entry.get) == (2 if ahead == 0 else 1)


def test_a_checkpoint_goes_before_its_objects() -> None:
    storage = FaultyStorage(MemoryStorage("memory://deletion/s"), [Fault(Moment.FAIL_BEFORE, "*/seg/*", frozenset({"delete"}))])
    metadata, segment = paths.metadata_key(CheckpointId(1, 0)), paths.segment_key(1, 0, "a")
    for key in (metadata, segment):
        storage.put(key, b"x")
    with pytest.raises(StorageError):
        delete_checkpoints(storage, [metadata], [segment])
    assert [stored.key for stored in storage.list("")] == [segment]
    wipe("deletion")
