"""A Python process beside the JVM: what becomes of questions and of the application when it dies, hangs or cannot be started."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from tests.drivers.spark.jvm import jvm

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200)]

WAIT_S = 60
CHILD = """#!{python}
import json, os, pathlib, signal, sys, time
folder = pathlib.Path({folder!r})
starts = folder / "starts"
number = len(starts.read_text()) if starts.exists() else 0
starts.write_text("." * (number + 1))
while (folder / "wait").exists():
    time.sleep(0.01)
if (folder / "kill").exists() and number < int((folder / "kill").read_text()):
    os.kill(os.getpid(), signal.SIGKILL)
if (folder / "shout").exists():
    for _ in range(300):
        os.write(2, b"x" * (1 << 20))
    os.write(2, (folder / "shout").read_bytes())
    os._exit(1)
if (folder / "refuse").exists():
    sys.exit("no memory")
(folder / "pid").write_text(str(os.getpid()))
heard = (folder / "heard").open("a")
for line in sys.stdin:
    message = json.loads(line)
    print(message["type"], message.get("replaces", ""), message.get("number", ""), file=heard, flush=True)
    if message["type"] == "die":
        sys.exit(3)
    if message["type"] == "die once" and number == 0:
        (folder / "refuse").touch() if message.get("refuse") else None
        sys.exit(3)
    if message["type"] == "garble":
        print('{{"re":' + str(message["id"]) + ',"ok":', flush=True)
    elif message["type"] == "sleep":
        signal.pause()  # until it is ended
    elif "id" in message:
        print(json.dumps({{"re": message["id"], "ok": True, "number": number}}), flush=True)
"""


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    with jvm() as started:
        yield started


class Child:
    """A PythonChild over a Python of our own, and what was seen of it."""

    def __init__(self, java: Any, folder: Path) -> None:
        program = folder / "python"
        program.write_text(CHILD.format(python=sys.executable, folder=str(folder)))
        program.chmod(0o755)
        self.folder, self._java, self._program = folder, java, str(program)
        self.made: list[Any] = []

    def __call__(
        self,
        *,
        ping_ms: int = 10_000,
        greeting_ms: int = 60_000,
        pause_ms: int = 20,
        give_up_ms: int = 60_000,
        proven_ms: int = 60_000,
        on_serving: Any = None,
    ) -> Any:
        longest = max(pause_ms, 100)
        patience = self._java.org.apache.spark.ckpt.ChildPatience(greeting_ms, ping_ms, 3, pause_ms, longest, give_up_ms, proven_ms)
        nothing = getattr(self._java.scala.Predef, "$conforms")()
        made = self._java.org.apache.spark.ckpt.PythonChild
        child = made("fake.agent", self._program, self.line(type="hello"), nothing, on_serving or nothing, patience)
        self.made.append(child)
        return child

    def too_deep(self) -> Any:
        """A function of the JVM that ends with a StackOverflowError."""
        nothing = getattr(self._java.scala.Predef, "$conforms")()
        function = getattr(getattr(self._java.scala.collection.immutable, "HashSet$"), "MODULE$").empty()
        for _ in range(40_000):
            function = function.andThen(nothing)
        return function

    def line(self, **fields: Any) -> Any:
        return self._java.org.apache.spark.ckpt.Json.parse(json.dumps(fields))

    def ask(self, child: Any, kind: str, **fields: Any) -> Future[int]:
        """In a thread of its own: the number of the process that answers."""
        answer: Future[int] = Future()

        def asked() -> None:
            try:
                answer.set_result(child.request(self.line(type=kind, **fields)).get("number").asInt())
            except Py4JJavaError as error:
                answer.set_exception(error)

        threading.Thread(target=asked, daemon=True).start()
        return answer

    @property
    def starts(self) -> int:
        file = self.folder / "starts"
        return len(file.read_text()) if file.exists() else 0

    @property
    def pid(self) -> int:
        return int((self.folder / "pid").read_text())

    @property
    def heard(self) -> list[str]:
        return (self.folder / "heard").read_text().splitlines()

    def close(self) -> None:
        for child in self.made:
            child.close(0)


@pytest.fixture
def child(java: Any, tmp_path: Path) -> Iterator[Child]:
    made = Child(java, tmp_path)
    yield made
    made.close()


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def failed(answer: Future[int]) -> Any:
    error = answer.exception(WAIT_S)
    assert isinstance(error, Py4JJavaError), error
    return error.java_exception


def test_a_question_survives_the_death_of_the_process(child: Child) -> None:
    one = child()
    assert one.start().get("number").asInt() == 0
    assert child.ask(one, "die once").result(WAIT_S) == 1
    assert one.failure().isEmpty()
    assert child.heard == ["hello False ", "die once  ", "hello True ", "die once  "]


def test_the_very_first_process_that_does_not_serve_is_a_matter_of_configuration(child: Child) -> None:
    (child.folder / "refuse").touch()
    one = child()
    with pytest.raises(Py4JJavaError) as caught:
        one.start()
    assert caught.value.java_exception.kind() == "CONFIG"
    assert "no memory" in caught.value.java_exception.getMessage()
    assert child.starts == 1


def test_the_very_first_process_may_be_killed_before_it_serves(child: Child) -> None:
    (child.folder / "kill").write_text("2")
    one = child()
    assert one.start().get("number").asInt() == 2
    assert child.starts == 3


def test_a_first_process_that_is_killed_again_and_again_ends_the_start(child: Child) -> None:
    (child.folder / "kill").write_text("9")
    one = child()
    with pytest.raises(Py4JJavaError) as caught:
        one.start()
    assert caught.value.java_exception.kind() == "CONFIG"
    assert "it was killed, 3 times now" in caught.value.java_exception.getMessage()
    assert child.starts == 3


def test_closing_between_two_launches_ends_the_start(child: Child) -> None:
    (child.folder / "kill").write_text("9")
    one = child(pause_ms=600_000)
    error: list[Py4JJavaError] = []

    def start() -> None:
        with pytest.raises(Py4JJavaError) as caught:
            one.start()
        error.append(caught.value)

    starting = threading.Thread(target=start)
    starting.start()
    until(lambda: child.starts == 2, "the second is killed too")
    one.close(0)
    starting.join(WAIT_S)
    assert error, "nobody is left to wait for"


def test_a_question_that_comes_before_the_first_process_serves_is_answered(child: Child) -> None:
    (child.folder / "wait").touch()
    one = child()
    answer = child.ask(one, "anything")
    one.begin()
    until(lambda: child.starts == 1, "it is being started")
    assert not answer.done()
    (child.folder / "wait").unlink()
    assert answer.result(WAIT_S) == 0


def test_a_question_that_races_with_a_launch_that_fails_ends_and_a_later_launch_serves(child: Child) -> None:
    for name in ("wait", "refuse"):
        (child.folder / name).touch()
    one = child()
    one.begin()
    until(lambda: child.starts == 1, "it is being started")
    answer = child.ask(one, "anything")
    (child.folder / "wait").unlink()
    assert failed(answer).kind() == "CONFIG"
    assert one.failure().isDefined()
    (child.folder / "refuse").unlink()
    until(lambda: bool(one.failure().isEmpty()), "a later launch serves")
    assert child.ask(one, "anything").result(WAIT_S) > 0


def test_a_python_that_cannot_be_started_again_fails_what_is_asked_and_is_tried_again(child: Child) -> None:
    one = child(give_up_ms=300)
    one.start()
    failure = failed(child.ask(one, "die once", refuse=True))
    assert failure.kind() == "INTERNAL"
    assert "has not served for" in failure.getMessage()
    assert "no memory" in failure.getMessage()
    assert failed(child.ask(one, "anything")).kind() == "INTERNAL"
    (child.folder / "refuse").unlink()

    def served() -> bool:
        answer = child.ask(one, "anything")
        return answer.exception(WAIT_S) is None

    until(served, "one that can be started again serves")


def test_replacements_are_started_with_growing_pauses(child: Child) -> None:
    one = child(give_up_ms=1500)
    one.start()
    failed(child.ask(one, "die once", refuse=True))
    # At once, then after 20, 40, 80, 100, 100 … ms: without pauses a process of some 20 ms would have been started many times more.
    assert 4 < child.starts < 22


def test_a_question_that_kills_whoever_is_asked_is_not_asked_for_ever(child: Child) -> None:
    one = child()
    one.start()
    failure = failed(child.ask(one, "die"))
    assert "6 processes" in failure.getMessage()
    assert child.starts in (6, 7)
    assert child.ask(one, "anything").result(WAIT_S) == 6


def test_a_process_that_does_not_answer_a_ping_is_ended_and_replaced(child: Child) -> None:
    one = child(ping_ms=100)
    one.start()
    stopped = child.pid
    os.kill(stopped, signal.SIGSTOP)
    assert child.ask(one, "anything").result(WAIT_S) == 1
    until(lambda: not Path(f"/proc/{stopped}").exists() or "Z" in Path(f"/proc/{stopped}/stat").read_text(), "it is gone")


def test_a_process_that_is_busy_with_a_long_question_and_answers_pings_is_left_alone(child: Child) -> None:
    one = child(ping_ms=20)
    one.start()
    for _ in range(20):
        child.ask(one, "anything").result(WAIT_S)
        time.sleep(0.02)
    assert child.starts == 1
    assert any(line.startswith("ping") for line in child.heard)


def test_a_replacement_that_hangs_at_its_greeting_is_not_waited_for_for_ever(child: Child) -> None:
    one = child(greeting_ms=300, give_up_ms=900)
    one.start()
    (child.folder / "wait").touch()
    answer = child.ask(one, "die once")
    assert "did not answer within 300 ms" in failed(answer).getMessage()
    (child.folder / "wait").unlink()


def test_an_error_of_the_jvm_ends_a_process_and_not_what_starts_the_next_one(child: Child) -> None:
    """As a want of memory or of threads would be, at the moment at which a process is told what matters."""
    one = child(give_up_ms=900, on_serving=child.too_deep())
    one.begin()
    assert "StackOverflowError" in failed(child.ask(one, "anything")).getMessage()
    seen = child.starts
    until(lambda: child.starts > seen + 1, "further processes")


def test_an_answer_that_cannot_be_read_is_an_error(child: Child) -> None:
    one = child()
    one.start()
    assert "cannot be read" in failed(child.ask(one, "garble")).getMessage()
    assert child.ask(one, "anything").result(WAIT_S) == 0


@pytest.mark.parametrize("last", ["\nno memory\n", "\nno memory"])
def test_a_line_on_stderr_that_hardly_ends_takes_no_memory_and_what_follows_is_read(child: Child, last: str) -> None:
    (child.folder / "shout").write_text(last)
    with pytest.raises(Py4JJavaError) as caught:
        child().start()
    assert "no memory" in caught.value.java_exception.getMessage()
    assert child.starts == 1


def test_closing_does_not_wait_for_a_process_that_does_not_read(child: Child) -> None:
    one = child()
    one.start()
    os.kill(child.pid, signal.SIGSTOP)
    text = "x" * 100_000
    for number in range(20):
        one.tell(child.line(type="told", number=number, text=text), True)
    answer = child.ask(one, "anything")
    closing = threading.Thread(target=one.close, args=(200,), daemon=True)
    closing.start()
    closing.join(WAIT_S)
    assert not closing.is_alive()
    assert "was closed with its application" in failed(answer).getMessage()
    assert "was closed with its application" in failed(child.ask(one, "anything")).getMessage()


def test_closing_does_not_wait_for_a_launch(child: Child) -> None:
    (child.folder / "wait").touch()
    one = child()
    one.begin()
    until(lambda: child.starts == 1, "it is being started")
    one.close(100)
    assert child.starts == 1


def test_what_was_told_before_the_end_is_heard(child: Child) -> None:
    one = child()
    one.start()
    for number in range(1000):
        one.tell(child.line(type="told", number=number), False)
    one.close(WAIT_S * 1000)
    assert [line for line in child.heard if line.startswith("told")] == [f"told  {number}" for number in range(1000)]


def test_what_a_process_does_not_read_is_bounded(child: Child) -> None:
    one = child()
    one.start()
    os.kill(child.pid, signal.SIGSTOP)
    text = "x" * 4_000_000
    message = child.line(type="told", text=text)
    # No more than one process cannot read: the next one is told what follows, and may be slower than it is told.
    for _ in range((256 << 20) // len(text) + 1):
        one.tell(message, True)
    until(lambda: child.starts == 2, "one that is told more than it can ever read is replaced")
    assert child.ask(one, "anything").result(WAIT_S) == 1
