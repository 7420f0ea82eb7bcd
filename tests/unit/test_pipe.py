"""The pipe that both processes use."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from spark_ckpt.errors import ConflictError
from spark_ckpt.process.pipe import Message, Pipe, Reply, serve


def talk(handlers: Mapping[str, Any], *lines: object) -> list[dict[str, Any]]:
    text = b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines)
    out = io.BytesIO()
    serve(Pipe(io.BytesIO(text), out), handlers)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def fenced(message: Message) -> Reply:
    raise ConflictError("run 2 has claimed the stream")


def broken(message: Message) -> Reply:
    raise KeyError("root")


def test_a_request_is_answered() -> None:
    assert talk({"add": lambda m: {"sum": m["a"] + 1}}, {"id": 7, "type": "add", "a": 1}) == [{"re": 7, "ok": True, "sum": 2}]


def test_an_answer_without_fields() -> None:
    assert talk({"stop": lambda _: None}, {"id": 7, "type": "stop"}) == [{"re": 7, "ok": True}]


def test_a_one_way_message_gets_no_answer() -> None:
    assert talk({"flush": lambda _: None}, {"type": "flush"}) == []


def test_errors_carry_their_kind() -> None:
    assert talk({"x": fenced}, {"id": 1, "type": "x"}) == [
        {"re": 1, "ok": False, "error": {"kind": "CONFLICT", "message": "run 2 has claimed the stream"}}
    ]


def test_a_fault_of_ours_is_internal_and_the_loop_goes_on(capsys: Any) -> None:
    first, second = talk({"x": broken, "y": lambda _: {}}, {"id": 1, "type": "x"}, {"id": 2, "type": "y"})
    assert first["error"]["kind"] == "INTERNAL"
    assert "KeyError" in first["error"]["message"]
    assert "Traceback" in capsys.readouterr().err
    assert second == {"re": 2, "ok": True}


def test_an_error_of_a_one_way_message_is_logged() -> None:
    assert talk({"x": fenced}, {"type": "x"}) == [{"type": "log", "level": "ERROR", "message": "x: run 2 has claimed the stream"}]


def test_an_unknown_type_is_an_error() -> None:
    (answer,) = talk({}, {"id": 1, "type": "dance"})
    assert "'dance' is unknown" in answer["error"]["message"]


def test_an_unhashable_type_is_an_error() -> None:
    (answer,) = talk({}, {"id": 1, "type": ["a"]})
    assert answer["ok"] is False


def test_lines_that_are_no_objects_are_reported_and_skipped() -> None:
    deep = b'{"id":1,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    lines = talk({"x": lambda _: None}, b"not json", b"[1]", b"\xff\xfe", b"", deep, {"id": 1, "type": "x"})
    assert [line.get("level") for line in lines] == ["ERROR", "ERROR", "ERROR", "ERROR", None]
    assert lines[-1]["re"] == 1


def test_a_cut_last_line_is_the_end() -> None:
    out = io.BytesIO()
    serve(Pipe(io.BytesIO(b'{"id":1,"type":"x"}'), out), {"x": lambda _: None})
    assert out.getvalue() == b""


def test_an_answer_that_json_cannot_hold_is_an_error() -> None:
    (answer,) = talk({"x": lambda _: {"v": float("nan")}}, {"id": 1, "type": "x"})
    assert answer["error"]["kind"] == "INTERNAL"


def test_futures_are_answered_in_any_order() -> None:
    slow: Future[Mapping[str, Any]] = Future()
    failed: Future[Mapping[str, Any]] = Future()
    failed.set_exception(ConflictError("gone"))

    def quick(message: Message) -> Reply:
        slow.set_result({"v": 1})
        return {}

    handlers = {"slow": lambda _: slow, "failed": lambda _: failed, "quick": quick}
    answers = talk(handlers, *({"id": k, "type": k} for k in handlers))
    assert [a["re"] for a in answers] == ["failed", "slow", "quick"]
    assert answers[1]["v"] == 1


def test_a_cancelled_future_is_answered() -> None:
    future: Future[Mapping[str, Any]] = Future()
    future.cancel()
    (answer,) = talk({"x": lambda _: future}, {"id": 1, "type": "x"})
    assert answer["ok"] is False


def test_lines_of_many_threads_stay_whole() -> None:
    reader, writer = os.pipe()
    pipe = Pipe(io.BytesIO(), os.fdopen(writer, "wb", buffering=0))

    def write(n: int) -> None:
        for _ in range(20):
            pipe.send({"n": n, "text": "ü" * 5000})

    threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    with os.fdopen(reader, "rb") as lines:
        got = [json.loads(lines.readline())["n"] for _ in range(160)]
    for t in threads:
        t.join()
    assert sorted(got) == sorted(list(range(8)) * 20)


def test_a_peer_that_no_longer_reads_is_not_an_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    pipe = Pipe(io.BytesIO(), os.fdopen(writer, "wb", buffering=0))
    pipe.send({"a": 1})
    pipe.send({"a": 2})


def test_prints_do_not_reach_the_pipe_and_reads_do_not_steal_from_it() -> None:
    code = """
import os, signal, sys
from spark_ckpt.process.pipe import Pipe, serve
pipe = Pipe.standard()
def x(message):
    print("noise")
    os.system("echo more noise; cat")
    os.kill(os.getpid(), signal.SIGINT)
    return {"read": sys.stdin.read()}
serve(pipe, {"x": x})
"""
    lines = b'{"id":1,"type":"x"}\n{"id":2,"type":"x"}\n'
    done = subprocess.run([sys.executable, "-c", code], input=lines, capture_output=True, timeout=60, check=True)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [{"re": n, "ok": True, "read": ""} for n in (1, 2)]
    assert done.stderr.count(b"more noise") == 2


def test_what_is_said_after_the_pipe_was_closed_is_nobodys_error() -> None:
    """A thread that reports while the process ends."""
    written = io.BytesIO()
    pipe = Pipe(io.BytesIO(), written)
    written.close()
    pipe.send({"type": "storage"})
    pipe.log("INFO", "late")
