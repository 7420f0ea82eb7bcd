"""The coordinator over a storage that loses answers, fails, and is slow to delete."""

from __future__ import annotations

import errno
import io
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from spark_ckpt import __version__
from spark_ckpt.coordinator.actions import StorageActions
from spark_ckpt.coordinator.coordinator import Coordinator
from spark_ckpt.errors import CheckpointError, ErrorKind, StorageError
from spark_ckpt.paths import answer_key, log_key
from spark_ckpt.process.pipe import Pipe, describe
from spark_ckpt.protocol.durable_put import Known, put_entry
from spark_ckpt.protocol.entries import STOP, Claim, Request, encode
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.machine import Questions, Tickets
from spark_ckpt.storage import open_storage
from spark_ckpt.storage.memory import MemoryStorage
from spark_ckpt.stored.metadata import codec
from testbed.faulty import Fault, FaultyStorage, Moment
from tests.drivers.coordinator_process import b64
from tests.drivers.protocol_driving import JOB, ack, commit, offsets, uid_of

ROOT = "file:/data/ckpt/orders"
WAIT_S = 20
PUT = frozenset({"put_if_absent"})


class Application:
    """The handlers, called as `pipe.serve` would call them."""

    def __init__(self, **conf: str) -> None:
        self.storage = FaultyStorage(MemoryStorage(f"memory://{uuid4().hex}/data/ckpt/orders"))
        self.written = io.BytesIO()
        self.coordinator = Coordinator(Pipe(io.BytesIO(), self.written), lambda *_: self.storage)
        options = {"spark.ckpt.storage": "file:///replaced", **{f"spark.ckpt.{k}": v for k, v in conf.items()}}
        self.ask("hello", jar=__version__, conf=options, spark={}, spark_version="4.3.0", host="h")

    def send(self, kind: str, **fields: Any) -> Any:
        return self.coordinator.handlers()[kind]({"type": kind, "root": ROOT, **fields})

    def ask(self, kind: str, **fields: Any) -> Mapping[str, Any]:
        reply = self.send(kind, **fields)
        answer: Mapping[str, Any] = reply.result(WAIT_S) if isinstance(reply, Future) else reply
        return answer

    def start(self) -> Mapping[str, Any]:
        return self.ask("start", query_id="q", run_id="r", name="n", job=JOB.to_json(), files=[])

    def epoch(self, run: int, epoch: int) -> Mapping[str, Any]:
        self.ask("trigger", epoch=epoch, offsets=b64(offsets(epoch)), files={})
        made = [ack(run, epoch, p) for p in range(2)]
        for one in made:
            for handle in one.snapshot.handles:
                self.storage.put(handle.object, b"x" * handle.length)
        self.send("acks", acks=[one.to_json() for one in made])
        summary: Mapping[str, Any] = self.ask("seal", epoch=epoch, commit=b64(commit(uid_of(run, epoch, p) for p in range(2))), files={})[
            "checkpoint"
        ]
        return summary

    def keys(self, prefix: str) -> list[str]:
        return [stored.key for stored in MemoryStorage(self.storage.url).list(prefix)]

    def told(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.written.getvalue().splitlines()]

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline, self.told()
            time.sleep(0.01)


Begin = Callable[..., Application]


@pytest.fixture
def begin() -> Iterator[Begin]:
    with ExitStack() as ends:

        def made(**conf: str) -> Application:
            application = Application(**conf)
            ends.callback(application.coordinator.close, 1)
            return application

        yield made


@pytest.fixture
def application(begin: Begin) -> Application:
    return begin()


@pytest.mark.parametrize("moment", [Moment.LOSE_ANSWER, Moment.FAIL_BEFORE])
@pytest.mark.parametrize("pattern", ["*/_metadata", "log/*"])
def test_a_put_whose_answer_is_lost_or_that_fails_costs_nothing(application: Application, moment: Moment, pattern: str) -> None:
    application.storage.inject(Fault(moment, pattern, PUT, times=2))
    application.start()
    assert application.epoch(1, 0)["acked"] == 2
    assert application.epoch(1, 1)["acked"] == 2
    assert len(application.storage.hits) == 2
    assert len(application.keys("log/")) == 3
    assert len(application.keys("run-00000001/chk-")) == 2


def test_reads_that_fail_at_start_are_tried_again(application: Application) -> None:
    application.start()
    application.epoch(1, 0)
    application.storage.inject(Fault(Moment.FAIL_BEFORE, "*", frozenset({"get", "head", "list"}), skip=1, times=2))
    assert application.start()["origin"] == {"run": 1, "epoch": 0}


def test_a_final_put_that_never_succeeds_fails_the_query_within_the_timeout(begin: Begin) -> None:
    application = begin(timeout="1s")
    application.storage.inject(Fault(Moment.FAIL_BEFORE, "*/_metadata", PUT, times=None))
    application.start()
    with pytest.raises(CheckpointError, match=r"_metadata of checkpoint 0 could not be stored within 1000 ms") as caught:
        application.epoch(1, 0)
    assert caught.value.kind is ErrorKind.TIMEOUT
    assert application.keys("run-00000001/chk-") == []


class HeldDeletion:
    """The storage's next deletion, which does not go on before it is told to."""

    def __init__(self, storage: FaultyStorage) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        storage.inject(Fault(Moment.DELAY, "*", frozenset({"delete"}), pause=self._pause))

    def _pause(self) -> None:
        self.begun.set()
        assert self.go_on.wait(WAIT_S)


def test_no_epoch_waits_behind_a_deletion(begin: Begin) -> None:
    application = begin(retained="1")
    application.start()
    for epoch in range(2):
        application.epoch(1, epoch)
    deletion = HeldDeletion(application.storage)
    application.epoch(1, 2)
    assert deletion.begun.wait(WAIT_S)
    application.epoch(1, 3)
    application.epoch(1, 4)
    deletion.go_on.set()
    application.coordinator.close(WAIT_S)
    assert application.keys("run-00000001/chk-") == [f"run-00000001/chk-{epoch}/_metadata" for epoch in (3, 4)]


def test_a_stopped_stream_ends_with_its_last_deletion(begin: Begin) -> None:
    application = begin(retained="1")
    others = set(threading.enumerate())

    def threads() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == f"stream {ROOT}" and thread not in others]

    application.start()
    deletion = HeldDeletion(application.storage)
    for epoch in range(4):
        application.epoch(1, epoch)
    assert deletion.begun.wait(WAIT_S)
    application.ask("stop", failed=False)
    (thread,) = threads()
    deletion.go_on.set()
    thread.join(WAIT_S)
    assert application.keys("run-00000001/chk-") == [f"run-00000001/chk-{epoch}/_metadata" for epoch in (2, 3)]
    application.send("acks", acks=[ack(1, 3, 0).to_json()])
    application.send("damaged", object=None, message="late")
    assert threads() == []
    with pytest.raises(StorageError, match="was closed"):
        application.storage.get("log/x")


def test_an_answer_to_a_person_is_put_again_after_the_query_has_stopped(application: Application) -> None:
    application.start()
    application.epoch(1, 0)
    application.storage.put_if_absent(log_key(3), encode(Request(1, STOP, "", "me")))
    application.epoch(1, 1)
    application.storage.inject(Fault(Moment.FAIL_BEFORE, answer_key(1, 3), PUT, times=2))
    application.ask("stop", failed=False)
    application.until(lambda: application.keys(answer_key(1, 3)) != [])
    assert [hit.key for hit in application.storage.hits] == [answer_key(1, 3)] * 2


def test_a_stream_is_deleted_though_the_coordinator_ends_before_it_tries_a_put_again(begin: Begin) -> None:
    application = begin(onStop="DELETE")
    application.start()
    application.epoch(1, 0)
    application.storage.inject(Fault(Moment.FAIL_BEFORE, "*/_metadata", PUT, times=None))
    with ThreadPoolExecutor(1) as pool:
        sealed = pool.submit(application.epoch, 1, 1)
        application.until(lambda: len(application.storage.hits) >= 4)
        stopped = application.send("stop", failed=False, by_person=True)
        with pytest.raises(CheckpointError, match="stopped while epoch 1 was in hand"):
            sealed.result(WAIT_S)
    application.until(lambda: len(application.keys("log/")) == 4)
    application.coordinator.close(WAIT_S)
    assert stopped.result(WAIT_S) == {}
    assert application.keys("run-") == []


def test_a_damaged_metadata_is_left_out(application: Application) -> None:
    application.start()
    application.epoch(1, 0)
    application.epoch(1, 1)
    key = "run-00000001/chk-1/_metadata"
    stored = application.storage.inner.get(key)
    application.storage.inner.delete([key])
    application.storage.inner.put(key, stored[:50])
    assert application.start()["origin"] == {"run": 1, "epoch": 0}
    assert any("epoch 1 is damaged" in line.get("message", "") for line in application.told())


def test_a_newer_format_is_refused_and_nothing_is_claimed(application: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    application.start()
    with monkeypatch.context() as newer:
        newer.setattr(codec, "_WITHOUT_HOOKS", codec.FORMAT + 1)
        application.epoch(1, 0)
    entries = len(application.keys("log/"))
    with pytest.raises(CheckpointError, match="upgrade spark-ckpt"):
        application.start()
    assert len(application.keys("log/")) == entries


def test_a_fault_inside_the_coordinator_is_an_answer(application: Application) -> None:
    application.start()

    class Gone(FaultyStorage):
        def put_if_absent(self, key: str, data: bytes) -> Any:
            raise RuntimeError("a bug")

    application.coordinator._workers[ROOT].actions._opened = Gone(application.storage.inner)
    with pytest.raises(CheckpointError, match="RuntimeError: a bug") as caught:
        application.epoch(1, 0)
    assert caught.value.kind is ErrorKind.INTERNAL
    application.coordinator._workers[ROOT].actions._opened = application.storage
    assert application.start()["run"] == 2


def wanted(application: Application, uid: str) -> list[Any]:
    return [told["declined"] for told in application.told() if told["type"] == "wanted" and told["uid"] == uid]


@pytest.mark.parametrize("forged", ["query_id", "sink"])
def test_what_stands_in_the_log_of_the_stream_steers_no_terminal(begin: Begin, forged: str) -> None:
    application = begin()
    text = "q\x1b[2J\nERROR all is well"
    job = replace(JOB, sink=text) if forged == "sink" else JOB
    claim = Claim(1, 1, text if forged == "query_id" else "q", job, None, (), (), "h", {}, 1, "n")
    application.storage.put(log_key(1), encode(claim))
    if forged == "sink":
        application.start()
        told = [line["message"] for line in application.told() if line["type"] == "log"]
    else:
        with pytest.raises(CheckpointError) as error:
            application.ask("open", query_id="q")
        told = [describe(error.value)["message"]]
    assert any("q\\x1b[2J\\x0aERROR all is well" in message for message in told), told
    assert not any("\x1b" in message or "\n" in message for message in told)


def test_a_task_that_waits_for_state_is_told_of_a_fault_inside_the_coordinator(begin: Begin) -> None:
    application = begin(interval="1h")
    application.start()
    application.ask("trigger", epoch=0, offsets=b64(offsets(0)), files={})
    application.ask("seal", epoch=0, commit=b64(commit(uid_of(1, 0, p) for p in range(2))), files={})
    application.ask("trigger", epoch=1, offsets=b64(offsets(1)), files={})
    uid = uid_of(1, 0, 0)
    application.send("want", uid=uid, version=1, executors=["1"])

    def fault() -> None:
        raise RuntimeError("a bug")

    application.coordinator._workers[ROOT]._queue.put(fault)
    application.until(lambda: bool(wanted(application, uid)))
    (why,) = wanted(application, uid)
    assert "RuntimeError: a bug" in why
    (failed,) = [told for told in application.told() if told["type"] == "failed"]
    assert (failed["kind"], failed["message"]) == ("INTERNAL", why), "the query does not wait for its next request"


def test_a_question_for_state_after_the_runs_end_is_declined(application: Application) -> None:
    application.start()
    application.ask("stop", failed=False, by_person=False)
    application.send("want", uid="u", version=1, executors=["1"])
    application.until(lambda: bool(wanted(application, "u")))
    assert wanted(application, "u") == ["the query is not running"]


def test_what_a_network_file_system_did_without_an_answer_is_known_to_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry is named, the answer is lost, and the mount is away for long enough that whoever waits gives up."""
    url = f"file://{tmp_path}/stream"
    storage = open_storage(url)
    storage.put("before", b"v")
    actions = StorageActions(url, open_storage)
    questions = Questions(Tickets())
    told: list[Known] = []

    def known(what: Known, _event: object) -> list[Instruction]:
        told.append(what)
        return []

    def answered(asked: Any) -> Any:
        (following,) = questions.answer(actions.perform(asked)) or (None,)
        return following

    put = put_entry(questions, 1, b"entry", known)
    link, opened = os.link, os.open

    def lost(*args: Any, **named: Any) -> None:
        link(*args, **named)
        raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))

    def away(*args: Any, **named: Any) -> int:
        raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))

    (asked,) = put.begin()
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", lost)
        asked = answered(asked)
        patch.setattr(os, "open", away)
        for _ in range(4):
            asked = answered(asked)
        put.give_up()
        for _ in range(4):
            asked = answered(asked)
        assert told == []
    assert os.open is opened
    while asked is not None:
        asked = answered(asked)
    assert told == [Known.STORED]
    assert storage.get(log_key(1)) == b"entry"
    actions.close()


def test_a_query_that_is_analysed_while_the_one_before_ends_is_answered(application: Application) -> None:
    """(1) It looks at the stream with what the running one has; (2) that one stops; (3) the look goes on."""
    application.start()
    begun, goes_on = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        goes_on.wait(WAIT_S)

    application.storage.inject(Fault(Moment.DELAY, operations=frozenset({"list", "get"}), times=1, pause=hold))
    opened = application.send("open", query_id="q")
    assert begun.wait(WAIT_S)
    application.ask("stop", run_id="r", failed=False)
    time.sleep(0.2)
    goes_on.set()
    assert opened.result(WAIT_S)["query_id"] == "q"


def test_what_waits_to_be_deleted_when_the_application_ends_is_deleted(begin: Begin) -> None:
    """It comes with the next deletion, when the one that is under way is done."""
    application = begin(retained="1")
    begun, goes_on = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        goes_on.wait(WAIT_S)

    application.start()
    application.storage.inject(Fault(Moment.DELAY, operations=frozenset({"delete"}), times=1, pause=hold))
    for epoch in range(6):
        application.epoch(1, epoch)
    assert begun.wait(WAIT_S)
    with ThreadPoolExecutor(1) as end:
        closed = end.submit(application.coordinator.close, WAIT_S)
        time.sleep(0.2)
        for worker in application.coordinator._workers.values():
            worker._queue.put(lambda: time.sleep(0.5))  # the stream has something to do when the answer comes
        goes_on.set()
        closed.result(2 * WAIT_S)
    assert [key for key in application.keys("run-00000001/chk-") if key.endswith("_metadata")] == [
        f"run-00000001/chk-{epoch}/_metadata" for epoch in (4, 5)
    ]
