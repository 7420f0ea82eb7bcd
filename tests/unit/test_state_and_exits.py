"""State that is being read when the program ends, by a thread that goes on when the main one has ended, or in a process that was forked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stored.earlier import HERE, place

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
reader_pool.made = reader_process.made
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
    """What was registered at the exit before may take long, and the thread runs on meanwhile."""
    late = "import atexit, time\natexit.register(lambda: time.sleep(3))\n"
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


@pytest.mark.parametrize("way", ["fork", "forkserver", "spawn"])
def test_a_process_of_multiprocessing_leaves_nothing(way: str, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "program.py").write_text(f"""
import multiprocessing, sys
sys.path.insert(0, {str(ROOT)!r})
import spark_ckpt
held = []
def work():
    from spark_ckpt.state import reading
    reading.BATCH_BYTES = 1
    held.append(iter(spark_ckpt.read_state({UPDATE!r})))
    next(held[0])
if __name__ == "__main__":
    process = multiprocessing.get_context({way!r}).Process(target=work)
    process.start()
    process.join()
    sys.exit(process.exitcode)
""")
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    subprocess.run([sys.executable, str(tmp_path / "program.py")], env=environment, check=True, timeout=60)
    assert [path for path in (tmp_path / "tmp").iterdir() if path.name.startswith(".spark-ckpt")] == []
