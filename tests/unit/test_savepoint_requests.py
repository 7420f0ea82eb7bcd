"""What people ask of a stream: the request's place in the log, the answer, and everything that prevents one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import spark_ckpt
from spark_ckpt import paths
from spark_ckpt.api import requests
from spark_ckpt.api.requests import Wish
from spark_ckpt.api.savepoints import SavepointRequest
from spark_ckpt.coordinator.actions import StorageActions
from spark_ckpt.errors import (
    CheckpointError,
    ConfigError,
    ConflictError,
    FormatError,
    ObjectMissingError,
    OutcomeUnknownError,
    TimeoutExpiredError,
)
from spark_ckpt.model import CheckpointId
from spark_ckpt.progress import Step, Unit
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import CHECKPOINT, SAVEPOINT, STOP, Claim, End, Plan, Request, decode, encode
from spark_ckpt.protocol.retention.log_trim import DAY_MS
from spark_ckpt.storage import PutResult, Storage, open_storage
from spark_ckpt.storage.memory import MemoryStorage, wipe
from tests.drivers.protocol_driving import JOB, offsets

URL = "memory://requests/s"


@pytest.fixture
def stream() -> Iterator[Storage]:
    storage = MemoryStorage(URL)
    begin(storage, 1, 1)
    yield storage
    wipe("requests")


def begin(storage: Storage, number: int, run: int) -> None:
    claim = Claim(number, run, "q", JOB, None, (), (), "h", {}, 0, f"n{run}", savepoint_dir="s3://b/t")
    assert storage.put_if_absent(paths.log_key(number), encode(claim)) is PutResult.STORED


@dataclass
class Clock:
    """Time passes only while somebody sleeps; `plan` says what else happens at a sleep."""

    plan: dict[int, Callable[[], None]] = field(default_factory=dict)
    sleeps: int = 0

    def now(self) -> float:
        return self.sleeps * 0.25

    def sleep(self, _seconds: float) -> None:
        self.sleeps += 1
        self.plan.get(self.sleeps, lambda: None)()


def ask(storage: Storage, plan: dict[int, Callable[[], None]], wanted: SavepointRequest | None = None, patience_s: float = 60) -> str:
    clock = Clock(plan)
    return requests.ask(storage, (wanted or SavepointRequest()).wish, patience_s, clock.now, clock.sleep)


def answered(number: int, run: int = 1, path: str | None = "s3://b/x", error: str | None = None, url: str = URL) -> Callable[[], None]:
    def answer() -> None:
        actions = StorageActions(url, open_storage)
        actions.perform(do.AnswerRequest(1, run, number, path, error))
        actions.close()

    return answer


def request_in(storage: Storage, number: int) -> Request:
    entry = decode(number, storage.get(paths.log_key(number)))
    assert isinstance(entry, Request)
    return entry


def test_the_request_goes_to_the_tail_and_the_answer_is_waited_for(stream: Storage) -> None:
    stream.put(paths.log_key(2), encode(Plan(1, 1, 0, offsets(0))))
    assert ask(stream, {3: answered(3)}, SavepointRequest("s3://b/t", "n", stop=True, drain=True)) == "s3://b/x"
    found = request_in(stream, 3)
    assert (found.claim, found.action, found.target, found.name, found.drain) == (1, STOP, "s3://b/t", "n", True)
    assert "@" in found.by


def test_a_target_that_the_running_driver_does_not_allow_is_refused_before_it_is_in_the_log(stream: Storage) -> None:
    for target in ("s3://other/t", "s3://b/t2", "file:///tmp/x", f"{URL}/log"):
        with pytest.raises(ConfigError, match=f"is not made in {target}: its driver writes to {URL}/savepoints and s3://b/t and"):
            ask(stream, {}, SavepointRequest(target))
    with pytest.raises(ConfigError) as refused:
        ask(stream, {}, SavepointRequest("az://b/t?sig=SECRET"))
    assert "SECRET" not in str(refused.value)
    assert stream.size(paths.log_key(2)) is None
    assert ask(stream, {1: answered(2)}, SavepointRequest("s3://b/t/of/mine")) == "s3://b/x"


def test_nobody_waits_for_longer_than_an_answer_stays(stream: Storage) -> None:
    assert requests.LONGEST_S * 1000 * 2 == DAY_MS
    with pytest.raises(ConfigError, match=r"an answer is waited for 12 hours at most.*ask for less, and once more later"):
        ask(stream, {}, patience_s=requests.LONGEST_S + 1)
    assert stream.size(paths.log_key(2)) is None
    assert ask(stream, {1: answered(2)}, patience_s=requests.LONGEST_S) == "s3://b/x"


def test_two_requests_are_two(stream: Storage) -> None:
    for number in (2, 3):
        ask(stream, {1: answered(number)})
    assert request_in(stream, 2).action == SAVEPOINT
    assert request_in(stream, 2).nonce != request_in(stream, 3).nonce


def test_a_stream_that_is_faster_is_followed(stream: Storage) -> None:
    class Busy(MemoryStorage):
        """A plan takes the number each of the first times."""

        left = 3

        def put_if_absent_dated(self, key: str, data: bytes) -> tuple[PutResult, int | None]:
            if self.left:
                self.left -= 1
                super().put_if_absent_dated(key, encode(Plan(1, 1, 3 - self.left, offsets(0))))
            return super().put_if_absent_dated(key, data)

    assert ask(Busy(URL), {1: answered(5)}) == "s3://b/x"
    assert request_in(stream, 5).claim == 1


def test_a_new_run_that_claims_first_is_the_one_that_is_asked(stream: Storage) -> None:
    class Claimed(MemoryStorage):
        def put_if_absent_dated(self, key: str, data: bytes) -> tuple[PutResult, int | None]:
            if key == paths.log_key(2):
                super().put_if_absent_dated(key, encode(Claim(2, 2, "q", JOB, None, (), (), "h", {}, 0, "n2")))
            return super().put_if_absent_dated(key, data)

    assert ask(Claimed(URL), {1: answered(3, run=2)}) == "s3://b/x"
    assert request_in(stream, 3).claim == 2


def test_no_request_lands_where_an_entry_is_missing(stream: Storage) -> None:
    for number in (2, 3, 4):
        stream.put(paths.log_key(number), encode(Plan(1, 1, number - 2, b"v1")))
    stream.delete([paths.log_key(3)])
    assert ask(stream, {1: answered(5)}) == "s3://b/x"
    assert stream.size(paths.log_key(3)) is None
    assert request_in(stream, 5).claim == 1


@pytest.mark.parametrize("arrives", [True, False])
def test_a_put_with_a_lost_answer_is_looked_at(stream: Storage, arrives: bool) -> None:
    class Unsure(MemoryStorage):
        times = 0

        def put_if_absent_dated(self, key: str, data: bytes) -> tuple[PutResult, int | None]:
            self.times += 1
            if self.times > 1:
                return super().put_if_absent_dated(key, data)
            if arrives:
                super().put_if_absent_dated(key, data)
            raise OutcomeUnknownError("the answer was lost")

    storage = Unsure(URL)
    assert ask(storage, {1: answered(2)}) == "s3://b/x"
    assert storage.times == (1 if arrives else 2)
    assert stream.size(paths.log_key(3)) is None


def test_what_the_run_says_is_told(stream: Storage) -> None:
    with pytest.raises(CheckpointError, match="could not make the savepoint: there is another one"):
        ask(stream, {2: answered(2, path=None, error="there is another one")})


def test_a_checkpoint_is_asked_for_in_the_same_way(stream: Storage) -> None:
    def answer() -> None:
        actions = StorageActions(URL, open_storage)
        actions.perform(do.AnswerRequest(1, 1, 2, None, checkpoint=CheckpointId(1, 7)))
        actions.close()

    clock = Clock({2: answer})
    told: list[tuple[int, str]] = []
    found = requests.ask(stream, Wish(CHECKPOINT), 60, clock.now, clock.sleep, lambda number, place: told.append((number, place)))
    assert (found, told) == (f"{URL}/run-00000001/chk-7", [(2, URL)])
    assert (request_in(stream, 2).action, request_in(stream, 2).target) == (CHECKPOINT, "")


def test_what_went_wrong_is_said_of_the_checkpoint(stream: Storage) -> None:
    for plan, says in (
        ({2: answered(2, path=None, error="expired")}, "could not make the checkpoint: expired"),
        ({}, "may still make the checkpoint; a run that begins later does not answer$"),
    ):
        clock = Clock(plan)
        with pytest.raises(CheckpointError, match=says):
            requests.ask(stream, Wish(CHECKPOINT), 5, clock.now, clock.sleep)


def test_half_a_character_in_an_answer_or_a_name_is_stored(stream: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file's or a person's name may have one (surrogateescape), and what a hook raises may name such a file."""
    monkeypatch.setattr("getpass.getuser", lambda: "andr\udce9")
    with pytest.raises(CheckpointError, match="could not make the savepoint: /data/\udcff is gone"):
        ask(stream, {1: answered(2, path=None, error="/data/\udcff is gone")})
    assert request_in(stream, 2).by.startswith("andr\\xdce9@")


def test_a_release_that_does_not_know_a_request_says_so(stream: Storage) -> None:
    """Version 3 has had requests from its beginning: an entry of a newer version would end the running query of that release."""
    clock = Clock({1: answered(2, path=None, error="this release does not know the request 'checkpoint'")})
    with pytest.raises(CheckpointError, match="does not know the request 'checkpoint'"):
        requests.ask(stream, Wish(CHECKPOINT), 5, clock.now, clock.sleep)
    assert b'"v":3' in stream.get(paths.log_key(2))


def test_how_long_is_waited_is_told_and_nothing_of_what_is_left(stream: Storage) -> None:
    """A savepoint may be there in a second: the time that a person would wait at most says nothing of how far it is."""
    told: list[Step] = []
    clock = Clock({9: answered(2)})
    requests.ask(stream, SavepointRequest().wish, 600, clock.now, clock.sleep, tell=told.append)
    assert {(step.what, step.total, step.unit) for step in told} == {("waiting for the savepoint", None, Unit.SECONDS)}
    assert [step.done for step in told] == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]


def test_what_is_waited_includes_all_that_it_takes_to_ask(stream: Storage) -> None:
    clock = Clock()

    class Slow(MemoryStorage):
        """Each put takes two seconds."""

        def put_if_absent_dated(self, key: str, data: bytes) -> tuple[PutResult, int | None]:
            clock.sleeps += 8
            return super().put_if_absent_dated(key, data)

    with pytest.raises(TimeoutExpiredError, match="within 5 s"):
        requests.ask(Slow(URL), Wish(SAVEPOINT), 5, clock.now, clock.sleep)
    assert clock.now() == 5


def test_nobody_answers(stream: Storage) -> None:
    with pytest.raises(TimeoutExpiredError, match=r"nothing has answered the request in log entry 2 .* within 5 s; is its query running"):
        ask(stream, {}, patience_s=5)


def test_a_run_that_ends_meanwhile_is_named(stream: Storage) -> None:
    with pytest.raises(ConflictError, match="run 1 ended, and another one took over, before it had met the request in log entry 2"):
        ask(stream, {3: lambda: begin(stream, 3, 2)})


def test_a_stop_that_came_just_before_is_named(stream: Storage) -> None:
    """The run has ended, and does not look at its log any more."""
    stream.put(paths.log_key(2), encode(Request(1, STOP, "", "somebody", "x", False, "nonce", 0)))
    said = "run 1 was stopped, as log entry 2 had asked, before it had met the request in log entry 3"
    with pytest.raises(ConflictError, match=said):
        ask(stream, {1: answered(2)}, patience_s=600)


def test_so_is_one_before_many_plans(stream: Storage) -> None:
    """It was asked for right after a start, when epochs that had been planned before ran again: each has a plan behind it."""
    stream.put(paths.log_key(2), encode(Request(1, STOP, "", "somebody", "x", False, "nonce", 0)))
    for number in range(3, 103):
        stream.put(paths.log_key(number), encode(Plan(1, 1, number, offsets(number), {})))
    with pytest.raises(ConflictError, match="run 1 was stopped, as log entry 2 had asked, before it had met the request in log entry 103"):
        ask(stream, {1: answered(2)}, patience_s=600)


def test_a_stop_that_ends_the_run_may_answer_both(stream: Storage) -> None:
    stream.put(paths.log_key(2), encode(Request(1, STOP, "", "somebody", "x", False, "nonce", 0)))
    assert ask(stream, {1: answered(2), 20: answered(3)}, patience_s=600) == "s3://b/x"


def test_a_stop_that_failed_ends_nothing(stream: Storage) -> None:
    stream.put(paths.log_key(2), encode(Request(1, STOP, "", "somebody", "x", False, "nonce", 0)))
    with pytest.raises(TimeoutExpiredError, match="nothing has answered the request in log entry 3"):
        ask(stream, {1: answered(2, path=None, error="the storage is away")}, patience_s=60)


def test_an_answer_before_the_end_counts(stream: Storage) -> None:
    def both() -> None:
        answered(2)()
        begin(stream, 3, 2)

    assert ask(stream, {8: both}) == "s3://b/x"


def test_a_stream_that_is_deleted_meanwhile_is_named(stream: Storage) -> None:
    with pytest.raises(ConflictError, match="its stream deleted"):
        ask(stream, {3: lambda: stream.put(paths.log_key(3), encode(End(1, 1)))})


def test_a_stream_that_was_deleted_cannot_be_asked(stream: Storage) -> None:
    stream.put(paths.log_key(2), encode(End(1, 1)))
    with pytest.raises(ConflictError, match="was deleted on purpose"):
        ask(stream, {})


def test_where_no_stream_is_nobody_is_asked() -> None:
    with pytest.raises(ObjectMissingError, match="there is no stream at memory://requests/none"):
        ask(MemoryStorage("memory://requests/none"), {})


@pytest.mark.parametrize("data", [b"{}", b'{"path": "file:///sp", "more": [' + b"[]," * 1000 + b"0]}"])
def test_an_answer_that_is_none(stream: Storage, data: bytes) -> None:
    with pytest.raises(FormatError, match="is not an answer"):
        ask(stream, {1: lambda: stream.put(paths.answer_key(1, 2), data)})


def test_what_cannot_be_asked_for() -> None:
    with pytest.raises(ConfigError, match="drain without stop"):
        SavepointRequest(drain=True)
    with pytest.raises(ConfigError, match="cannot be the name"):
        SavepointRequest(name="../x")
    with pytest.raises(ConfigError, match="absolute path"):
        spark_ckpt.savepoint("/stream", target="relative")
    with pytest.raises(ConfigError, match="duration"):
        spark_ckpt.savepoint("/stream", timeout="soon")
    with pytest.raises(ConfigError, match="nothing would be stored"):
        spark_ckpt.savepoint("/stream", target="memory://x")
    with pytest.raises(ConfigError, match="the stream's URL cannot be used; write"):
        spark_ckpt.savepoint("relative")
    with pytest.raises(ConfigError, match="the stream's URL cannot be used; write"):
        spark_ckpt.checkpoint("relative")
    with pytest.raises(ConfigError, match="the checkpoint cannot be asked for, write its timeout as a duration"):
        spark_ckpt.checkpoint("/stream", timeout="soon")


def test_a_stream_is_asked_by_its_url(tmp_path: Path) -> None:
    with open_storage(tmp_path.as_uri()) as storage:
        begin(storage, 1, 1)
        answered(2, url=storage.url)()
        assert spark_ckpt.savepoint(storage.url, timeout="5s") == "s3://b/x"
        assert request_in(storage, 2).target == ""
        answered(3, url=storage.url)()
        assert spark_ckpt.checkpoint(storage.url, timeout="5s") == "s3://b/x"
        assert request_in(storage, 3).action == CHECKPOINT


def test_a_query_of_spark_connect_is_asked_by_its_url_only() -> None:
    with pytest.raises(ConfigError, match="Spark Connect"):
        spark_ckpt.savepoint(object(), timeout="5s")  # type: ignore[arg-type]
