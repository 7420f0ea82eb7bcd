"""State that is being read when the program ends, by a thread that goes on when the main one has ended, or in a process that was forked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from spark_ckpt.errors import StorageError
from spark_ckpt.state.reading import gathered
from tests.stored.earlier import HERE, place

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(120)]

ROOT = Path(__file__).parents[2]
UPDATE = f"file://{HERE}/states/update"
NOT_CLOSED = f"""
import spark_ckpt, time
from spark_ckpt.api import state
from spark_ckpt.state import reader_pool, reader_process, reading
reading.MANY_BYTES, reading.BATCH_BYTES, state.default_threads = 0, 1, lambda: 3
def slowly(task):
    time.sleep(2)
    yield from reader_process.made(task)
reader_pool.made = slowly
def read():
    batches = iter(spark_ckpt.read_state({UPDATE!r}))
    next(batches)
    time.sleep(1)
    return batches
"""
ENDINGS = {
    "a name of the module": "batches = read()",
    "an error that nobody catches": """
def fail():
    batches = read()
    raise SystemError("that nobody catches")
fail()
""",
    "Arrow's reader": f"""
def fail():
    reader = spark_ckpt.read_state({UPDATE!r}).to_reader()
    reader.read_next_batch()
    time.sleep(1)
    raise SystemError("that nobody catches")
fail()
""",
}
"""How a program ends that has not read all, nor closed it."""


def ended(code: str, tmp_path: Path, many: int = 0) -> subprocess.CompletedProcess[str]:
    """With what it leaves in `tmp_path`. `many`: from so many bytes on helpers read, too."""
    command = [sys.executable, "-c", f"{NOT_CLOSED}\nreading.MANY_BYTES = {many}\n{code}"]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True, check=False, timeout=90
    )


HELPERS = pytest.mark.parametrize("many", [0, 1 << 40], ids=["helpers", "none"])


@HELPERS
@pytest.mark.parametrize("how", ENDINGS)
def test_a_program_that_has_not_closed_it_ends_and_leaves_nothing(how: str, many: int, tmp_path: Path) -> None:
    done = ended(ENDINGS[how], tmp_path, many)
    assert done.returncode == (1 if "SystemError" in ENDINGS[how] else 0), done.stderr
    assert "ignored" not in done.stderr
    assert list(tmp_path.iterdir()) == []


THREAD = f"""
import threading
begun = threading.Event()
def work():
    rows = 0
    try:
        for batch in spark_ckpt.read_state({UPDATE!r}):
            rows += batch.num_rows
            if not begun.is_set():
                begun.set()
                time.sleep(1)
        print("all", rows, flush=True)
    except Exception as e:
        print(type(e).__name__, flush=True)
"""


@HELPERS
def test_a_thread_that_the_program_waits_for_reads_all(many: int, tmp_path: Path) -> None:
    done = ended(f"{THREAD}\nthreading.Thread(target=work).start()\nbegun.wait()", tmp_path, many)
    assert (done.returncode, done.stdout) == (0, "all 5\n"), done.stderr
    assert list(tmp_path.iterdir()) == []


@HELPERS
def test_who_reads_when_the_program_ends_reads_all(many: int, tmp_path: Path) -> None:
    done = ended(f"{THREAD}\nimport atexit\nbegun.set()\natexit.register(work)", tmp_path, many)
    assert (done.returncode, done.stdout) == (0, "all 5\n"), done.stderr
    assert list(tmp_path.iterdir()) == []


@HELPERS
def test_a_thread_that_nobody_waits_for_is_not_told_that_this_was_all(many: int, tmp_path: Path) -> None:
    """What was registered at the exit before may take long, and the thread runs on meanwhile: it takes batches, or waits for one."""
    late = "import atexit, time\natexit.register(lambda: time.sleep(4))\n"
    code = f"{THREAD}\nthreading.Thread(target=work, daemon=True).start()\nbegun.wait()"
    command = [sys.executable, "-c", f"{late}{NOT_CLOSED}\nreading.MANY_BYTES = {many}\n{code}"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=90)
    assert done.stdout == "StorageError\n", done.stderr


def test_a_process_that_was_forked_from_a_reader_comes_to_its_end(tmp_path: Path) -> None:
    """What RocksDB does then is RocksDB's: it may end by a signal of its own. It does not wait for threads that it has not."""
    place("1", tmp_path / "stream")
    code = f"""
import os, sys, time
from spark_ckpt.state import contents
contents.SPILL_BYTES = 1
batches = iter(spark_ckpt.read_state("file://{tmp_path}/stream"))
next(batches)
time.sleep(1)
if not (forked := os.fork()):
    sys.exit(0)
deadline = time.monotonic() + 30
while os.waitpid(forked, os.WNOHANG) == (0, 0):
    if time.monotonic() > deadline:
        os.kill(forked, 9)
        sys.exit("it hangs")
    time.sleep(0.01)
print(1 + sum(1 for _ in batches))
"""
    done = ended(code, tmp_path, 1 << 40)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 1


WAYS = pytest.mark.parametrize("way", ["fork", "forkserver", "spawn"])


def in_a_child(way: str, work: str, tmp_path: Path) -> str:
    """What it prints. It leaves nothing in `tmp_path / "tmp"` of this package."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "program.py").write_text(f"""
import multiprocessing, sys, threading
sys.path.insert(0, {str(ROOT)!r})
import spark_ckpt
held = []
def read():
    from spark_ckpt.state import reading
    reading.BATCH_BYTES = 1
    return iter(spark_ckpt.read_state({UPDATE!r}))
{work}
if __name__ == "__main__":
    process = multiprocessing.get_context({way!r}).Process(target=work)
    process.start()
    process.join()
    sys.exit(process.exitcode)
""")
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    command = [sys.executable, str(tmp_path / "program.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert [path for path in (tmp_path / "tmp").iterdir() if path.name.startswith(".spark-ckpt")] == []
    return done.stdout


@WAYS
def test_a_process_of_multiprocessing_leaves_nothing(way: str, tmp_path: Path) -> None:
    in_a_child(way, "def work():\n    held.append(read())\n    next(held[0])", tmp_path)


@WAYS
def test_a_thread_that_such_a_process_waits_for_reads_all(way: str, tmp_path: Path) -> None:
    work = """
import time
def slowly():
    rows = 0
    for batch in read():
        rows += batch.num_rows
        time.sleep(0.2)
    print(rows, flush=True)
def work():
    threading.Thread(target=slowly).start()
    time.sleep(1)
"""
    assert in_a_child(way, work, tmp_path) == "5\n"


def ten_each(snapshot: Any, _folder: Path) -> Generator[Any, None, None]:
    for number in range(10):
        time.sleep(0.01)
        yield snapshot, number


STORES: Any = ["a", "b", "c"]


@pytest.mark.parametrize("in_order", [True, False])
def test_who_was_forked_meanwhile_is_told_to_read_anew(in_order: bool) -> None:
    """Nobody makes anything there, and what it takes from a helper would be missing here."""
    read = gathered(ten_each, STORES, 3, in_order=in_order)
    taken: list[Any] = [next(read)]
    if not (forked := os.fork()):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(30)
        try:
            list(read)
        except StorageError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) == 7
    taken += read
    assert sorted(taken) == [(store, number) for store in STORES for number in range(10)]


@pytest.mark.parametrize("in_order", [True, False])
def test_who_is_interrupted_while_there_are_no_threads_hears_of_it_at_once(in_order: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(snapshot: Any, folder: Path) -> Generator[Any, None, None]:
        if snapshot == "b":
            raise KeyboardInterrupt
        yield from ten_each(snapshot, folder)

    def refused(_thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Thread, "start", refused)
    with pytest.raises(KeyboardInterrupt):
        next(gathered(make, STORES, 3, in_order=in_order))


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize(
    "refused", [{1}, {1, 2}, {2, 3}, {1, 2, 3, 4}, set(range(1, 100))], ids=["the first", "two", "the next two", "four", "all"]
)
def test_threads_that_cannot_be_started_cost_no_row(refused: set[int], in_order: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of processes. A pool has taken the work all the same, and may do it when it can start a thread again."""
    asked, start = count(1), Thread.start

    def limited(thread: Thread) -> None:
        if next(asked) in refused:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(Thread, "start", limited)
    read: list[Any] = list(gathered(ten_each, STORES, 3, in_order=in_order))
    assert sorted(read) == [(store, number) for store in STORES for number in range(10)]
