"""Large state is read by processes: the same batches, whatever becomes of them."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pyarrow as pa
import pytest

import spark_ckpt
from benchmarks.filled import filled
from spark_ckpt.errors import DamagedError
from spark_ckpt.model import CheckpointId
from spark_ckpt.paths import metadata_key
from spark_ckpt.process import at_exit
from spark_ckpt.state import contents, reader_pool, reader_process, reading
from spark_ckpt.state.reader_process import Task
from spark_ckpt.storage import open_storage
from spark_ckpt.stored.metadata.codec import encode_metadata
from spark_ckpt.stored.reading import StreamReader
from tests.drivers.killed_starter import left
from tests.drivers.stored_stream import flip
from tests.stored.earlier import HERE, place

pytestmark = pytest.mark.campaign

ROOT = Path(__file__).parents[2]
UPDATE = f"file://{HERE}/states/update"
READS_FOR_EVER = f"""
import os, sys, time, spark_ckpt
from spark_ckpt.api import state
from spark_ckpt.state import reading
reading.MANY_BYTES, reading.BATCH_BYTES, state.default_threads = 0, 1, lambda: 3
batches = iter(spark_ckpt.read_state({UPDATE!r}))
next(batches)
if sys.argv[1].endswith("forked") and os.fork() == 0:
    time.sleep(20)
    os._exit(0)
print("reading", flush=True)
time.sleep(60)
"""
DIES_OF_BROKEN_PIPES = """
import signal
from spark_ckpt.state import reader_pool
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
class Task:
    class decoder:
        schema = None
with reader_pool._Readers(1) as readers:
    readers._free.get()
    (helper,) = readers._helpers
    assert readers._free.get(timeout=30) is helper
    helper._process.kill()
    helper._process.wait()
    try:
        list(helper.batches(Task))
    except reader_pool._HelperEndedError:
        print("ended")
"""


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little there is to read, and however few processors there are."""
    monkeypatch.setattr(reading, "MANY_BYTES", 0)
    monkeypatch.setattr("spark_ckpt.api.state.default_threads", lambda: 3)


@pytest.fixture
def by_processes(wanted: None, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """So little is read here before a helper has started: this process waits until one has given a batch. The partitions that they read."""
    began, read = Event(), list[int]()
    there = reader_pool._Helper.batches

    def made(task: Task) -> Iterator[pa.RecordBatch]:
        assert began.wait(60)
        yield from reader_process.made(task)

    def batches(helper: reader_pool._Helper, task: Task) -> Iterator[pa.RecordBatch]:
        try:
            read.append(task.partition)
            for batch in there(helper, task):
                began.set()
                yield batch
        finally:
            began.set()

    monkeypatch.setattr(reader_pool, "made", made)
    monkeypatch.setattr(reader_pool._Helper, "batches", batches)
    return read


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "BATCH_BYTES", 1)


@pytest.fixture
def stream(tmp_path: Path) -> str:
    """An aggregation: changelogs and no full snapshot."""
    place("1", tmp_path / "stream")
    return f"file://{tmp_path}/stream"


def batches_of(state: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """A partition's come in their order."""
    return sorted(state, key=partition_of)


def partition_of(batch: pa.RecordBatch) -> int:
    return int(batch.column("partition_id")[0].as_py())


def children() -> list[int]:
    """Those that have ended and were not waited for, too."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            parent = (process / "stat").read_text().rpartition(") ")[2].split()[1]
            if int(parent) == os.getpid():
                found.append(int(process.name))
    return found


def helpers(count: int) -> list[int]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = [pid for pid in children() if b"spark_ckpt.state.reader_process" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        if len(found) == count:
            return found
        time.sleep(0.01)
    raise AssertionError(f"there are no {count} helpers")


@pytest.mark.parametrize(("state", "operator", "store"), [
    ("update", None, None),
    ("outer", 0, "left-keyWithIndexToValue"),
    ("sessions", None, None),
    ("transform", None, "best"),
    ("transform", None, "count"),
    ("transform", None, "parity"),
    ("ttl", None, "timers"),
])
def test_the_same_batches_as_of_one_process(state: str, operator: int | None, store: str | None, request: pytest.FixtureRequest) -> None:
    state_of = spark_ckpt.read_state(f"file://{HERE}/states/{state}", operator=operator, store=store)
    alone = batches_of(state_of)
    assert sum(batch.num_rows for batch in alone) > 0
    read = request.getfixturevalue("by_processes")
    assert batches_of(state_of) == alone
    assert read
    assert children() == []


def test_changelogs_without_a_full_snapshot(stream: str, request: pytest.FixtureRequest) -> None:
    alone = batches_of(spark_ckpt.read_state(stream))
    read = request.getfixturevalue("by_processes")
    assert batches_of(spark_ckpt.read_state(stream)) == alone
    assert read


@pytest.fixture(scope="module")
def many_keys(tmp_path_factory: pytest.TempPathFactory) -> str:
    return filled(UPDATE, 60_000, tmp_path_factory.mktemp("filled"))


@pytest.fixture
def many_batches(many_keys: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of each partition more than a socket holds."""
    monkeypatch.setattr(reading, "BATCH_BYTES", 1 << 15)
    return many_keys


@pytest.mark.parametrize("taken", [0, 1, 5, 20])
def test_a_helper_that_is_killed_costs_time_only(taken: int, many_batches: str, request: pytest.FixtureRequest) -> None:
    """Before it has given a batch, and when it has given some."""
    alone = batches_of(spark_ckpt.read_state(many_batches))
    assert len(alone) > 100
    read = request.getfixturevalue("by_processes")
    batches = iter(spark_ckpt.read_state(many_batches))
    found = [next(batches)]
    (helper,) = helpers(1)
    while taken and sum(partition_of(batch) in read for batch in found) < taken:
        found.append(next(batches))
    os.kill(helper, signal.SIGKILL)
    assert batches_of([*found, *batches]) == alone
    assert len(read) == 1
    assert children() == []


def test_a_helper_that_is_killed_when_the_query_has_deleted_the_checkpoint(
    many_batches: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """All that is read is on this disk by then."""
    copied = tmp_path / "copied"
    shutil.copytree(many_batches.removeprefix("file://"), copied)
    alone = batches_of(spark_ckpt.read_state(many_batches))
    read = request.getfixturevalue("by_processes")
    batches, found = iter(spark_ckpt.read_state(f"file://{copied}")), list[pa.RecordBatch]()
    while len({partition_of(batch) for batch in found}) < 2:
        found.append(next(batches))
    shutil.rmtree(copied)
    (helper,) = helpers(1)
    os.kill(helper, signal.SIGKILL)
    assert batches_of([*found, *batches]) == alone
    assert len(read) == 1


def test_nobody_downloads_for_who_has_stopped(by_processes: list[int], many_batches: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Callable[[], None]] = []

    def fetch(*what: Any) -> contents.FetchedStore:
        asked.append(what[-1])
        return contents.fetch(*what)

    monkeypatch.setattr(reader_pool, "fetch", fetch)
    batches = iter(spark_ckpt.read_state(many_batches))
    next(batches)
    asked[0]()
    batches.close()  # type: ignore[attr-defined]  # it is a generator
    with pytest.raises(reader_pool._HelperEndedError):
        asked[0]()


@pytest.mark.parametrize("at", [0, 1, 3])
def test_a_download_can_be_ended_before_each_file(at: int, stream: str, tmp_path: Path) -> None:
    storage = open_storage(stream)
    checkpoint = StreamReader(storage).read(CheckpointId(2, 5))
    begun = count(1)

    def ends() -> None:
        if next(begun) > at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        contents.fetch(storage, checkpoint, checkpoint.snapshots[0], tmp_path / "0", ends)
    assert sum(path.is_file() for path in tmp_path.rglob("0*/*")) == at


def test_a_helper_that_hangs_holds_nobody_up_who_stops(by_processes: list[int], many_batches: str) -> None:
    batches = iter(spark_ckpt.read_state(many_batches))
    next(batches)
    (helper,) = helpers(1)
    os.kill(helper, signal.SIGSTOP)
    batches.close()  # type: ignore[attr-defined]  # it is a generator
    assert children() == []


@pytest.mark.parametrize("killed", [True, False])
def test_who_forks_while_a_helper_starts_holds_nobody_up(
    killed: bool, by_processes: list[int], many_batches: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread can fork at any time. What is forked has both ends of the socket."""
    forked: list[int] = []
    pair = socket.socketpair

    def made() -> tuple[socket.socket, socket.socket]:
        both = pair()
        forked.append(os.fork())
        if not forked[-1]:
            time.sleep(120)
            os._exit(0)
        return both

    monkeypatch.setattr(socket, "socketpair", made)
    try:
        batches = iter(spark_ckpt.read_state(many_batches))
        next(batches)
        if killed:
            (helper,) = helpers(1)
            os.kill(helper, signal.SIGKILL)
            assert 1 + sum(1 for _ in batches) > 100
        batches.close()  # type: ignore[attr-defined]  # it is a generator
        assert children() == forked
    finally:
        for child in forked:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def in_a_fork(action: Callable[[], None]) -> None:
    """It ends there, within 30 s."""
    if not (forked := os.fork()):
        status = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(30)
            action()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(forked, 0)[1] == 0


def test_who_was_forked_while_reading_leaves_folder_and_helpers_alone(many_batches: str, request: pytest.FixtureRequest) -> None:
    """And ends, though the threads that wait for the helper are not in it."""
    alone = batches_of(spark_ckpt.read_state(many_batches))
    read = request.getfixturevalue("by_processes")
    batches = iter(spark_ckpt.read_state(many_batches))
    found = [next(batches)]
    time.sleep(0.5)  # no thread makes a batch
    in_a_fork(batches.close)  # type: ignore[attr-defined]  # it is a generator
    assert batches_of([*found, *batches]) == alone
    assert len(read) == 1
    assert children() == []


def open_files() -> set[str]:
    return {os.readlink(file) for file in Path("/proc/self/fd").iterdir() if os.path.lexists(file)}


def test_who_is_interrupted_while_it_ends_holds_nothing(small_batches: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file that is removed stays open."""
    before = open_files()  # errors of other tests may hold some
    batches = iter(spark_ckpt.read_state(UPDATE))
    next(batches)
    time.sleep(0.5)  # no thread makes a batch
    interrupted: list[bool] = []
    shutdown = ThreadPoolExecutor.shutdown

    def once(pool: ThreadPoolExecutor, **how: bool) -> None:
        if not interrupted:
            interrupted.append(True)
            raise KeyboardInterrupt
        shutdown(pool, **how)

    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", once)
    with pytest.raises(KeyboardInterrupt):
        batches.close()  # type: ignore[attr-defined]  # it is a generator
    del batches
    gc.collect()  # what the error has held
    deadline = time.monotonic() + 30
    while [name for name in open_files() - before if name.endswith("(deleted)") and "spark-ckpt" in name]:
        assert time.monotonic() < deadline, "removed files stay open"
        time.sleep(0.01)  # a thread of the pool ends by itself
    assert at_exit._actions == {}


@pytest.mark.parametrize("how", ["closes", "forgets"])
def test_who_was_forked_writes_nothing_into_what_is_read(
    how: str, stream: str, small_batches: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store whose changelogs are too large for memory is a database that can be written to. It writes when it is closed, by threads that
    are not there."""
    monkeypatch.setattr(contents, "SPILL_BYTES", 1)
    alone = batches_of(spark_ckpt.read_state(stream))
    batches = iter(spark_ckpt.read_state(stream))
    found = [next(batches)]
    time.sleep(0.5)  # no thread makes a batch
    held = [batches]

    def gives_up() -> None:
        if how == "closes":
            held[0].close()  # type: ignore[attr-defined]  # it is a generator
        held.clear()
        gc.collect()

    del batches
    in_a_fork(gives_up)
    assert batches_of([*found, *held[0]]) == alone


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("begun", [False, True])
def test_who_is_interrupted_while_helpers_start_leaves_none(
    error: type[BaseException], begun: bool, wanted: None, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the second one is to have a thread. RuntimeError: there can be no more threads."""
    start, threads = Thread.start, list[Thread]()

    def once(thread: Thread) -> None:
        if thread.name != "state-helper" or len(threads) == 0 or begun:
            start(thread)
        if thread.name == "state-helper":
            threads.append(thread)
            if len(threads) == 2:
                raise error

    monkeypatch.setattr(Thread, "start", once)
    if error is RuntimeError:
        with reader_pool._Readers(2) as readers:
            assert len(readers._helpers) == 1
    else:
        with pytest.raises(KeyboardInterrupt):
            reader_pool._Readers(2)
    assert children() == []
    for thread in threads:
        if thread.ident is not None:
            thread.join(30)
            assert not thread.is_alive()


def test_an_application_that_may_have_no_sockets(wanted: None, stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise RuntimeError("no sockets here")

    monkeypatch.setattr(socket, "socketpair", refused)
    assert spark_ckpt.read_state(stream).to_table().num_rows > 0


def test_what_a_helper_is_given(many_batches: str, by_processes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark by which it is known, this process's way with bytecode, and where the package is, whatever the path says."""
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry and Path(entry) != ROOT])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    batches = iter(spark_ckpt.read_state(many_batches))
    next(batches)
    (helper,) = helpers(1)
    assert b"SPARK_CKPT_READER=1" in Path(f"/proc/{helper}/environ").read_bytes().split(b"\0")
    command = Path(f"/proc/{helper}/cmdline").read_bytes().split(b"\0")
    assert command[1:3] == [b"-I", b"-B"]
    assert str(ROOT) in json.loads(command[command.index(b"-c") + 2])
    batches.close()  # type: ignore[attr-defined]  # it is a generator


def test_a_socket_that_does_not_wait_loses_no_helper(by_processes: list[int], many_batches: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """gevent's do not, and whoever is given one."""
    start = subprocess.Popen

    def started(command: list[str], pass_fds: tuple[int, ...], **given: Any) -> subprocess.Popen[bytes]:
        os.set_blocking(pass_fds[0], False)
        return start(command, pass_fds=pass_fds, **given)

    monkeypatch.setattr(subprocess, "Popen", started)
    batches = iter(spark_ckpt.read_state(many_batches))
    next(batches)
    (helper,) = helpers(1)
    time.sleep(0.5)  # it has long filled the socket
    assert Path(f"/proc/{helper}/stat").read_text().rpartition(") ")[2][0] in "SR"
    batches.close()  # type: ignore[attr-defined]  # it is a generator


def test_a_helper_of_another_version_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package was upgraded under a running process."""
    monkeypatch.setattr(reader_pool, "__version__", "0.0.1")
    with reader_pool._Readers(1) as readers:
        assert [readers._free.get(timeout=30) for _ in range(2)] == [None, None]


def test_a_helper_that_has_died_does_not_end_an_application_that_dies_of_broken_pipes(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", DIES_OF_BROKEN_PIPES], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr


def test_modules_of_the_folder_that_the_reader_is_in_are_nobodys(
    by_processes: list[int], stream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "signal.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'x')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    spark_ckpt.read_state(stream).to_table()
    assert by_processes
    assert not (tmp_path / "imported").exists()


def test_what_python_passes_over_on_its_path_is_passed_over(by_processes: list[int], stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, Path("/nowhere"), b"/nowhere"])
    spark_ckpt.read_state(stream).to_table()
    assert by_processes


@pytest.mark.parametrize("interpreter", ["/no/such/python", "/bin/false", "", None])
def test_no_helper_is_needed(interpreter: str | None, stream: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """In another program that Python is part of, its own name is no interpreter's."""
    alone = batches_of(spark_ckpt.read_state(stream))
    request.getfixturevalue("wanted")
    monkeypatch.setattr(sys, "executable", interpreter)
    assert batches_of(spark_ckpt.read_state(stream)) == alone


def test_an_application_that_is_its_own_interpreter_is_not_started_again(
    wanted: None, stream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    application = tmp_path / "application"
    application.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    application.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(application))
    spark_ckpt.read_state(stream).to_table()
    assert (tmp_path / "started").exists()
    (tmp_path / "started").unlink()
    with monkeypatch.context() as frozen:
        frozen.setattr(sys, "frozen", True, raising=False)  # so PyInstaller and others say
        spark_ckpt.read_state(stream).to_table()
    monkeypatch.setenv("SPARK_CKPT_READER", "1")  # others do not, but what was started again is not started a third time
    spark_ckpt.read_state(stream).to_table()
    assert not (tmp_path / "started").exists()


def test_an_application_with_a_timeout_for_all_of_its_sockets(by_processes: list[int], many_batches: str) -> None:
    """With it the helper's end would not wait for room either."""
    socket.setdefaulttimeout(30)
    try:
        batches = iter(spark_ckpt.read_state(many_batches))
        next(batches)
        (helper,) = helpers(1)
        time.sleep(0.5)  # it has long filled the socket
        assert Path(f"/proc/{helper}/stat").read_text().rpartition(") ")[2][0] in "SR"
        assert sum(batch.num_rows for batch in batches) > 50_000
    finally:
        socket.setdefaulttimeout(None)


def test_who_stops_reading_leaves_nothing(
    by_processes: list[int], small_batches: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    files = len(os.listdir("/proc/self/fd"))
    batches = iter(spark_ckpt.read_state(UPDATE))
    assert next(batches).num_rows == 1
    assert list(tmp_path.iterdir()) != []
    assert children() != []
    batches.close()  # type: ignore[attr-defined]  # it is a generator
    assert list(tmp_path.iterdir()) == []
    assert children() == []
    assert len(os.listdir("/proc/self/fd")) == files


def test_who_is_killed_while_reading_leaves_no_process(tmp_path: Path) -> None:
    assert left(READS_FOR_EVER, tmp_path) == []


def test_nor_does_who_has_forked_meanwhile(tmp_path: Path) -> None:
    """What was forked holds the socket to the helper open. Of the two processes that are left then, the other one goes on."""
    assert len(left(READS_FOR_EVER, tmp_path / "forked")) == 1


def test_what_is_damaged_is_named_as_ever(wanted: None, stream: str) -> None:
    storage = open_storage(stream)
    newest = StreamReader(storage).read(CheckpointId(2, 5))
    log = newest.snapshots[1].handles[-1]
    flip(storage, log.object, log.offset + 30)
    with pytest.raises(DamagedError, match=r"run-2/chk-5: operator 0, partition 1, store default: .*CRC-32"):
        spark_ckpt.read_state(stream).to_table()


def test_what_only_a_helper_can_find_damaged_is_named_as_ever(by_processes: list[int], stream: str) -> None:
    """The changelog is what was stored; what is in it is nobody's."""
    storage = open_storage(stream)
    newest = StreamReader(storage).read(CheckpointId(2, 5))
    changed = []
    for snapshot in newest.snapshots:
        *others, last = snapshot.handles
        cut = replace(last, length=1, checksum=zlib.crc32(storage.get(last.object, last.offset, 1)))
        changed.append(replace(snapshot, handles=(*others, cut)))
    storage.put(metadata_key(newest.id), encode_metadata(replace(newest, snapshots=tuple(changed))))
    with pytest.raises(DamagedError, match=r"run-2/chk-5: operator 0, partition [01], store default: "):
        spark_ckpt.read_state(stream).to_table()


def test_an_interrupt_while_one_helper_is_ended_leaves_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    end, ended = reader_pool._Helper.end, count(1)

    def interrupted(helper: reader_pool._Helper) -> None:
        end(helper)
        if next(ended) == 1:
            raise KeyboardInterrupt

    readers = reader_pool._Readers(3)
    monkeypatch.setattr(reader_pool._Helper, "end", interrupted)
    with pytest.raises(KeyboardInterrupt):
        readers.end()
    assert children() == []
    readers.close()
