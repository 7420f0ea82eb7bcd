"""A hook as Python users write it, and the lines of JSON with which the JVM calls it."""

from __future__ import annotations

import base64
import json
import logging
import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from py4j.java_gateway import JavaClass
from two_phase_sink import TwoPhaseSink

import spark_ckpt
from spark_ckpt.api.hooks import _Callback, answer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Recording(spark_ckpt.CheckpointHook):
    def __init__(self, state: Any = b"\0\xff") -> None:
        self.state = state
        self.calls: list[tuple[str, Any]] = []

    def snapshot(self, epoch: int) -> bytes | None:
        self.calls.append(("snapshot", epoch))
        return self.state  # type: ignore[no-any-return]

    def restore(self, state: bytes | None) -> None:
        self.calls.append(("restore", state))

    def completed(self, epoch: int) -> None:
        self.calls.append(("completed", epoch))
        if epoch == 13:
            raise ValueError("no luck")


def ask(hook: spark_ckpt.CheckpointHook, **message: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_Callback("mine", hook).apply(json.dumps(message)))
    return found


def test_a_state_goes_there_and_back() -> None:
    hook = Recording()
    given = ask(hook, call="snapshot", epoch=7)
    assert base64.b64decode(given["state"]) == b"\0\xff"
    assert ask(hook, call="restore", **given) == {}
    assert ask(hook, call="restore", state=None) == {}
    assert hook.calls == [("snapshot", 7), ("restore", b"\0\xff"), ("restore", None)]


def test_what_is_not_overridden_does_nothing() -> None:
    hook = spark_ckpt.CheckpointHook()
    for call in ("snapshot", "completed", "aborted"):
        assert ask(hook, call=call, epoch=1) == {}
    assert ask(hook, call="restore", state="AA==") == {}
    assert ask(hook, call="begin", stream="s3://b/q", start=3) == {}


def began(hook: spark_ckpt.CheckpointHook, stream: str, start: int, state: bytes | None = None) -> str:
    """What the hook says to a start: nothing, or why it refuses it."""
    assert ask(hook, call="begin", stream=stream, start=start) == {}
    encoded = None if state is None else base64.b64encode(state).decode()
    return str(ask(hook, call="restore", state=encoded).get("error", ""))


def staged(sink: TwoPhaseSink, *epochs: int) -> None:
    for epoch in epochs:
        row = SimpleNamespace(asDict=lambda epoch=epoch: {"epoch": epoch})
        sink.stage(cast("DataFrame", SimpleNamespace(collect=lambda row=row: [row], sparkSession=SimpleNamespace(version=""))), epoch)


def test_a_two_phase_sink_goes_on_where_its_stream_was_moved_to_and_not_for_another_one(tmp_path: Path) -> None:
    sink = TwoPhaseSink(str(tmp_path / "sink.db"))
    assert began(sink, "s3://b/old", 500) == ""
    assert ask(sink, call="completed", epoch=40) == {}
    assert began(sink, "s3://b/old", 501) == "", "the query had no hook until now, and ended before its first checkpoint with one"
    assert began(sink, "s3://b/new", 1, b"40") == "", "from a savepoint, in another place"
    assert "another stream has published" in began(TwoPhaseSink(str(tmp_path / "sink.db")), "s3://b/other", 9)


def test_a_two_phase_sink_does_not_take_the_epochs_of_a_fork_for_those_that_another_stream_has_published(tmp_path: Path) -> None:
    """(1) A stream publishes up to epoch 40; (2) its savepoint of epoch 20 goes on elsewhere: epochs 21 to 40 have other rows there."""
    sink = TwoPhaseSink(str(tmp_path / "sink.db"))
    assert began(sink, "s3://b/old", 5) == ""
    assert ask(sink, call="completed", epoch=40) == {}
    fork = TwoPhaseSink(str(tmp_path / "sink.db"))
    assert "another stream has published up to epoch 40" in began(fork, "s3://b/fork", 1, b"20")
    assert ask(sink, call="completed", epoch=41) == {}, "the database is still the first one's"
    assert began(fork, "s3://b/old", 6, b"20") == "", "the same stream runs the same epochs again"


def test_a_two_phase_sink_does_not_go_forward_to_epochs_that_it_has_dropped(tmp_path: Path) -> None:
    """(1) Epochs up to 22 are staged, and a savepoint is taken; (2) the stream goes back to epoch 18; (3) a person restores the savepoint:
    what was staged of 19 to 22 is gone, and would never be published."""
    sink = TwoPhaseSink(str(tmp_path / "sink.db"))
    assert began(sink, "s3://b/q", 1) == ""
    staged(sink, *range(23))
    assert began(sink, "s3://b/q", 2, b"22") == ""
    assert began(sink, "s3://b/q", 3, b"18") == ""
    assert "counts on the rows of epoch 19, which" in began(sink, "s3://b/q", 4, b"22")
    assert began(sink, "s3://b/q", 5, b"18") == ""
    assert "has rows up to epoch 22 only" in began(sink, "s3://b/q", 6, b"23"), "another database, or an older copy of it"


def test_nor_where_other_numbers_have_been_staged_meanwhile(tmp_path: Path) -> None:
    """(1) Epochs up to 10 are staged, and 5 is published; (2) back to 5, and what follows has new numbers, from 11 on; (3) a person
    restores a savepoint of epoch 10; (4) what goes on from 11 is right, however often it starts, and in a new database too."""
    sink = TwoPhaseSink(str(tmp_path / "sink.db"))
    assert began(sink, "s3://b/q", 1) == ""
    staged(sink, *range(11))
    assert ask(sink, call="completed", epoch=5) == {}
    savepoint, back = sink.snapshot(10), sink.snapshot(5)
    assert began(sink, "s3://b/q", 2, back) == ""
    staged(sink, 11)
    new = sink.snapshot(11)
    assert "counts on the rows of epoch 6, which" in began(sink, "s3://b/q", 3, savepoint)
    assert began(sink, "s3://b/q", 4, new) == ""
    staged(sink, 12)
    assert began(sink, "s3://b/q", 5, sink.snapshot(12)) == ""
    fork = TwoPhaseSink(str(tmp_path / "other.db"))
    assert began(fork, "s3://b/fork", 1, new) == began(fork, "s3://b/fork", 2, new) == ""
    assert json.loads(fork.snapshot(11)) == {"epoch": 11, "stream": "s3://b/fork", "skipped": [[6, 10]]}


def test_what_runs_again_under_its_own_numbers_is_there_again(tmp_path: Path) -> None:
    sink = TwoPhaseSink(str(tmp_path / "sink.db"))
    assert began(sink, "s3://b/q", 1) == ""
    staged(sink, *range(11))
    savepoint, back = sink.snapshot(10), sink.snapshot(5)
    assert began(sink, "s3://b/q", 2, back) == ""
    staged(sink, *range(6, 11))
    assert began(sink, "s3://b/q", 3, savepoint) == ""


def test_a_stream_whose_database_a_fork_has_taken_over_does_not_publish_the_rows_of_the_fork(tmp_path: Path) -> None:
    sink = TwoPhaseSink(str(tmp_path / "sink.db"))
    assert began(sink, "s3://b/q", 1) == ""
    staged(sink, *range(11))
    newest, middle = sink.snapshot(10), sink.snapshot(5)
    fork = TwoPhaseSink(str(tmp_path / "sink.db"))
    assert began(fork, "s3://b/fork", 1, middle) == ""
    staged(fork, *range(6, 11))
    assert "has been taken over by the stream s3://b/fork" in began(sink, "s3://b/q", 2, newest)
    assert began(sink, "s3://b/q", 3, fork.snapshot(10)) == "", "back with what the other one has"


def test_a_start_that_reaches_the_two_phase_sink_after_a_later_one_drops_nothing_of_it(tmp_path: Path) -> None:
    late, newer = (TwoPhaseSink(str(tmp_path / "sink.db")) for _ in range(2))
    assert began(newer, "s3://b/q", 4) == ""
    with sqlite3.connect(tmp_path / "sink.db") as db:
        db.execute("INSERT INTO staged VALUES (0, 'a row')")
    assert "a later start of the query owns" in began(late, "s3://b/q", 3)
    assert ask(newer, call="completed", epoch=0) == {}
    with sqlite3.connect(tmp_path / "sink.db") as db:
        assert db.execute("SELECT row FROM published").fetchall() == [("a row",)]
    assert "has taken over" in ask(late, call="completed", epoch=0)["error"]


def test_a_two_phase_sink_whose_query_has_not_begun_says_so(tmp_path: Path) -> None:
    """It was registered for a query of another name: what it staged would never be published."""
    sink = TwoPhaseSink(str(tmp_path / "sink.db"))
    assert "register it as a hook of this query" in ask(sink, call="completed", epoch=0)["error"]


def test_what_a_hook_raises_is_told_by_type_and_message_and_its_trace_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        assert answer("mine", Recording(), {"call": "completed", "epoch": 13}) == {"error": "ValueError: no luck"}
    assert "the hook 'mine' failed in completed" in caplog.text
    assert "Traceback" in caplog.text


class SilentError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt: "),
        (SilentError(), "SilentError: its message raises RuntimeError"),
        (ValueError("x" * 100_000), "ValueError: " + "x" * 2000 + "…"),
    ],
)
def test_whatever_a_hook_raises_is_answered(raised: BaseException, told: str) -> None:
    """py4j would answer nothing to some of them, and the query would wait for the time-out."""

    class Raising(spark_ckpt.CheckpointHook):
        def completed(self, epoch: int) -> None:
            raise raised

    assert ask(Raising(), call="completed", epoch=1) == {"error": told}


def test_a_query_without_a_name_is_not_named() -> None:
    with pytest.raises(spark_ckpt.ConfigError, match="no query has that name"):
        spark_ckpt.register_hook("mine", Recording(), query="")


@pytest.mark.parametrize("state", ["text", 5, ["a"]])
def test_a_state_that_is_no_bytes_is_said(state: object) -> None:
    told = ask(Recording(state), call="snapshot", epoch=1)
    assert told == {"error": f"TypeError: snapshot returned a {type(state).__name__}; return bytes, or None"}


@pytest.mark.parametrize("state", [bytearray(b"x"), memoryview(b"x")])
def test_other_kinds_of_bytes_will_do(state: object) -> None:
    assert ask(Recording(state), call="snapshot", epoch=1) == {"state": base64.b64encode(b"x").decode()}


@pytest.mark.parametrize("state", [bytes(2**20 + 1), bytearray(2**27), memoryview(bytes(2**21)).cast("q")])
def test_a_state_that_is_too_large_does_not_leave_python(state: bytes) -> None:
    """100 MB of it were 133 MB of text, several times over, in the driver's JVM before it refused them."""
    told = ask(Recording(state), call="snapshot", epoch=1)
    assert list(told) == ["error"]
    assert told["error"].startswith(f"ValueError: its state has {memoryview(state).nbytes} bytes, more than 1048576; keep what is large")


def test_the_largest_state_is_taken() -> None:
    assert len(base64.b64decode(ask(Recording(bytes(2**20)), call="snapshot", epoch=1)["state"])) == 2**20


def test_half_a_character_in_what_a_hook_raises_is_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file's name may have one; it cannot be stored as the answer to a request for a checkpoint."""
    # What is logged goes into pytest's report, and pytest-xdist cannot send that.
    monkeypatch.setattr(logging.getLogger("spark_ckpt.api.hooks"), "disabled", True)

    class Raising(spark_ckpt.CheckpointHook):
        def snapshot(self, epoch: int) -> bytes:
            raise FileNotFoundError("/data/\udcff")

    assert ask(Raising(), call="snapshot", epoch=1) == {"error": "FileNotFoundError: /data/\\udcff"}


class Half:
    def snapshot(self, epoch: int) -> bytes:
        return b"x"


@pytest.mark.parametrize(("hook", "why"), [(Half(), "has no restore()"), (Recording, "is a class, not an object")])
def test_what_is_no_hook_is_refused(hook: Any, why: str) -> None:
    with pytest.raises(spark_ckpt.ConfigError, match=f"the hook 'mine' {why}".replace("(", r"\(").replace(")", r"\)")):
        spark_ckpt.register_hook("mine", hook)


def test_without_a_session_there_is_nothing_to_register_with() -> None:
    with pytest.raises(spark_ckpt.ConfigError, match="there is no Spark session of this process"):
        spark_ckpt.register_hook("mine", Recording())


@pytest.mark.parametrize("name", ["", "a b", "a\n", "x" * 101, None, 5, b"mine"])
def test_a_name_that_is_none_is_refused(name: Any) -> None:
    with pytest.raises(spark_ckpt.ConfigError, match="is no name of a hook; use letters, digits"):
        spark_ckpt.register_hook(name, Recording())


def test_the_name_of_a_query_is_text() -> None:
    query: Any = Recording()
    with pytest.raises(spark_ckpt.ConfigError, match="which is no name; give the query's queryName"):
        spark_ckpt.register_hook("mine", Recording(), query=query)


def test_a_session_with_the_jar_and_without_the_plugin_has_no_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook would be taken, and never called."""
    client = SimpleNamespace(gateway_property=SimpleNamespace(pool=None), converters=None)
    hooks = JavaClass("org.apache.spark.ckpt.CheckpointHooks", client)
    jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(spark=SimpleNamespace(ckpt=SimpleNamespace(CheckpointHooks=hooks)))))
    conf = {"spark.plugins": "com.example.Other"}
    monkeypatch.setattr("spark_ckpt.api.hooks._context", lambda: SimpleNamespace(_jvm=jvm, getConf=lambda: conf))
    with pytest.raises(spark_ckpt.ConfigError, match="this session has no checkpoints; enable them first"):
        spark_ckpt.register_hook("mine", Recording())


def test_a_stream_that_has_taken_a_database_over_and_done_nothing_with_it_keeps_nobody_out(tmp_path: Path) -> None:
    """(1) A stream ends with a savepoint; (2) somebody starts that in a place that is the wrong one, and ends it before its first epoch."""
    sink = TwoPhaseSink(str(tmp_path / "sink.db"))
    assert began(sink, "s3://b/q", 1) == ""
    staged(sink, *range(11))
    savepoint = sink.snapshot(10)
    assert ask(sink, call="completed", epoch=10) == {}
    for stream in ("s3://b/wrong", "s3://b/right", "s3://b/q", "s3://b/right"):
        assert began(sink, stream, 2, savepoint) == ""
    staged(sink, 11)
    assert "has been taken over by the stream s3://b/right" in began(sink, "s3://b/wrong", 3, savepoint)


def test_only_what_was_staged_is_dropped(tmp_path: Path) -> None:
    """A hook that a long stream gets late begins with no state, and epochs far from 0."""
    sink = TwoPhaseSink(str(tmp_path / "sink.db"))
    assert began(sink, "s3://b/q", 1) == ""
    staged(sink, 3_000_000)
    assert began(sink, "s3://b/q", 2) == ""
    staged(sink, 3_000_001)
    assert json.loads(sink.snapshot(3_000_001))["skipped"] == [[3_000_000, 3_000_000]]
