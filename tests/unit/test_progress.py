"""Work that takes long tells how far it is: to a terminal, and to nothing else."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from spark_ckpt.cli import progress_bars
from spark_ckpt.cli.main import run
from spark_ckpt.progress import Step, Task, Unit
from spark_ckpt.storage import Storage
from spark_ckpt.stored.gc import Collector
from spark_ckpt.stored.preflight import without_objects
from spark_ckpt.stored.verify import Verifier
from tests.drivers.stored_stream import StreamWriter, make_store


@pytest.fixture
def writer(storage: Storage, tmp_path: Path) -> StreamWriter:
    writer = StreamWriter(storage)
    writer.begin(1)
    writer.complete(1, 0, [make_store(tmp_path, 40, "a"), make_store(tmp_path, 50, "b")])
    return writer


def last(steps: list[Step]) -> dict[str, tuple[int, int | None, Unit]]:
    return {step.what: (step.done, step.total, step.unit) for step in steps}


def test_verify_tells_bytes_of_bytes_and_stores_of_stores(storage: Storage, writer: StreamWriter) -> None:
    steps: list[Step] = []
    verifier, checkpoint = Verifier(storage, tell=steps.append), writer.checkpoints[0]
    found = verifier.verify(checkpoint)
    verifier.open_stores(found)
    size = sum(h.length for h in dict.fromkeys(checkpoint.handles))
    objects = len(checkpoint.objects)
    assert last(steps) == {
        "looking for objects": (objects, objects, Unit.THINGS),
        "reading run-1/chk-0": (size, size, Unit.BYTES),
        "opening stores of run-1/chk-0": (2, 2, Unit.THINGS),
    }
    assert steps[0].done == 0
    assert all(step.total is None or step.done <= step.total for step in steps)


def test_a_preflight_tells_objects_of_objects(storage: Storage, writer: StreamWriter) -> None:
    steps: list[Step] = []
    without_objects(writer.checkpoints[0], storage, steps.append)
    count = len(writer.checkpoints[0].objects)
    assert last(steps) == {"looking for objects": (count, count, Unit.THINGS)}


def test_gc_tells_what_it_lists_reads_and_deletes(storage: Storage, writer: StreamWriter) -> None:
    writer.begin(2)
    storage.put("run-00000001/seg/9-left", b"nobody's")
    for name in ("a", "b"):
        storage.put(f"savepoints/savepoint-{name}/run-00000001/seg/0-left", b"nobody's")
    steps: list[Step] = []
    collector = Collector(storage, 0, 1 << 60, steps.append)
    found = collector.look()
    collector.delete(found)
    told = last(steps)
    assert told["listing objects"][0] > 0
    assert told["reading checkpoints"][1] is None
    assert told["reading savepoints"] == (2, 2, Unit.THINGS)
    deleted = len(found.metadata) + len(found.objects)
    assert deleted > 0
    assert told["deleting objects"] == (deleted, deleted, Unit.THINGS)


def test_tasks_of_several_threads_lose_no_count() -> None:
    steps: list[Step] = []
    task = Task(steps.append, "work", 400)
    threads = [threading.Thread(target=lambda: list(task.each(range(100)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [step.done for step in steps] == list(range(401))


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> _Terminal:
    """In the place of stderr. No fixture: pytest puts its own there between a test's fixtures and the test."""
    shown = _Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setenv("TERM", "xterm")
    return shown


def test_a_terminal_shows_how_much_of_how_much_and_how_long_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_bars, "AFTER_S", 0.0)
    shown = terminal(monkeypatch)
    with progress_bars.progress_bars() as tell:
        for done in (0, 1 << 20):
            tell(Step("reading [bold]it", done, 4 << 20, Unit.BYTES))
        tell(Step("opening stores", 3, 7, Unit.THINGS))
        tell(Step("listing objects", 12, None, Unit.THINGS))
        deadline = time.monotonic() + 30
        while "12" not in shown.getvalue() and time.monotonic() < deadline:
            time.sleep(0.02)
    assert all(text in shown.getvalue() for text in ("reading [bold]it", "1.0 MiB of 4.0 MiB", "3 of 7", "listing objects"))
    assert "--:--" in shown.getvalue()  # how long it still takes is not known after a moment


def test_nothing_is_shown_where_a_person_wants_none_or_nothing_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    for quiet, after_s in ((True, 0.0), (False, 60.0)):
        monkeypatch.setattr(progress_bars, "AFTER_S", after_s)
        shown = terminal(monkeypatch)
        with progress_bars.progress_bars(quiet) as tell:
            tell(Step("reading", 1, 2, Unit.BYTES))
            time.sleep(0.1)
        assert "reading" not in shown.getvalue()


@pytest.mark.parametrize("arguments", [["verify"], ["verify", "--deep"], ["gc"], ["verify", "--quiet"]])
def test_where_output_is_no_terminal_nothing_but_the_result_comes(
    writer: StreamWriter, url: str, arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert writer.checkpoints
    monkeypatch.setattr(progress_bars, "AFTER_S", 0.0)
    assert run([*arguments, url]) == 0
    assert capsys.readouterr().err == ""


_WITH_PROGRESS_AT_ONCE = """
import sys, time
from spark_ckpt.cli import main, progress_bars
from spark_ckpt.stored import verify
progress_bars.AFTER_S, look = 0.0, verify.Verifier._check
verify.Verifier._check = lambda self, group: time.sleep(0.5) or look(self, group)
sys.exit(main.run(sys.argv[1:]))
"""


def test_on_a_terminal_the_result_stands_behind_the_progress(writer: StreamWriter, url: str) -> None:
    """A real one: what is drawn goes, and what was found is all there."""
    assert writer.checkpoints
    near, far = pty.openpty()
    command = [sys.executable, "-c", _WITH_PROGRESS_AT_ONCE, "verify", "--deep", url]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=far, env={**os.environ, "TERM": "xterm"})
    os.close(far)
    drawn = b""
    try:
        while block := os.read(near, 4096):
            drawn += block
    except OSError:  # the other end is closed
        pass
    os.close(near)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"INTACT" in out
    assert b"reading" not in out
    assert b"reading run-1/chk-0" in drawn
    assert b"INTACT" not in drawn


def test_what_begins_when_the_work_is_done_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timer has gone off, and its thread comes after the end."""
    shown = terminal(monkeypatch)
    monkeypatch.setattr(progress_bars, "AFTER_S", 60.0)
    with progress_bars._bars() as bars:
        bars.tell(Step("reading", 1, 2, Unit.BYTES))
    bars._begin()
    time.sleep(0.2)
    assert "reading" not in shown.getvalue()
