"""Old entries of the log go from every kind of storage, by its own times, and whoever looks at the stream finds its end."""

from __future__ import annotations

import time

from spark_ckpt.coordinator.actions import StorageActions
from spark_ckpt.model import CheckpointId
from spark_ckpt.paths import LOG_PREFIX, log_key, parse_log_key, run_prefix
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import CHECKPOINT, Claim, End, Request, encode
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.settings import Settings
from spark_ckpt.protocol.stream import Stream
from spark_ckpt.storage import Storage
from spark_ckpt.storage.base import PAGE
from spark_ckpt.stored.log import StreamLog
from spark_ckpt.stored.reading import StreamReader
from tests.drivers.protocol_driving import JOB, commit, offsets

LONG = 3.5
"""More than a second, in seconds: S3 tells seconds apart, and of the clouds a put's date is known to the second only."""
SHORT = {"file": 1.2, "memory": 1.2}
"""Where times are exact."""
SETTINGS = Settings(retained=1, log_kept_ms=1000, trim_every=1)


class Query:
    """One run of a query without state, over a real storage."""

    def __init__(self, storage: Storage, nonce: str) -> None:
        self._stream = Stream(SETTINGS)
        self._actions = StorageActions(storage.url, lambda _: storage)
        self.said: list[Instruction] = []
        self.push(ev.StartRequested("q", JOB, (), nonce, "host"))

    def push(self, event: ev.Event) -> None:
        events = [event]
        while events:
            for i in self._stream.handle(events.pop(0), int(time.time() * 1000)):
                self.said.append(i)
                if isinstance(i, (do.Delete, do.Trimming, do.Question)):
                    events.append(self._actions.perform(i))

    def epochs(self, first: int, last: int) -> None:
        for epoch in range(first, last + 1):
            self.push(ev.TriggerRequested(epoch, offsets(epoch)))
            self.push(ev.SealRequested(epoch, commit([])))

    @property
    def started(self) -> do.Started:
        return next(i for i in self.said if isinstance(i, do.Started))


def a_second(storage: Storage) -> None:
    time.sleep(SHORT.get(storage.url.partition(":")[0], LONG))


def numbers(storage: Storage) -> list[int]:
    return [n for stored in storage.list(LOG_PREFIX) if (n := parse_log_key(stored.key)) is not None]


def test_they_go_and_the_stream_goes_on(storage: Storage) -> None:
    one = Query(storage, "a")
    one.epochs(0, 5)
    assert numbers(storage)[:2] == [1, 2], "none is old enough"
    a_second(storage)
    one.epochs(6, 12)
    left = numbers(storage)
    assert left[0] == 1, "the claim"
    assert min(left[1:]) >= 8
    assert left[-1] == 14
    assert not any(isinstance(i, (do.Refused, do.Log)) for i in one.said)

    standing = StreamReader(storage).standing()
    assert standing is not None
    assert (standing.tail, standing.claim.run) == (14, 1)
    assert StreamLog(storage).tail() == 14

    two = Query(storage, "b")
    assert (two.started.run, two.started.origin, two.started.epoch) == (2, CheckpointId(1, 12), 13)
    a_second(storage)
    two.epochs(13, 19)
    assert numbers(storage)[0] == 15, "the claim before is not in force any more"


def test_an_answer_goes_with_its_request(storage: Storage) -> None:
    """Who has asked waits for half of the time that entries stay, at most (`LONGEST_S`)."""

    def answers() -> list[int]:
        return sorted(int(stored.key.rpartition("/")[2]) for stored in storage.list(f"{run_prefix(1)}answer/"))

    query = Query(storage, "a")
    query.epochs(0, 2)
    for number, epoch in ((5, 3), (7, 4)):
        request = Request(1, CHECKPOINT, "", "somebody", nonce=str(number))
        storage.put_if_absent(log_key(number), encode(request))
        query.epochs(epoch, epoch)
    assert answers() == [5, 7]
    query.epochs(5, 7)
    assert answers() == [5, 7], "none is old enough"
    a_second(storage)
    storage.put_if_absent(log_key(12), encode(Request(1, CHECKPOINT, "", "somebody", nonce="12")))
    query.epochs(8, 14)
    assert answers() == [12]
    assert min(numbers(storage)[1:]) > 7


def test_the_first_entry_past_one_is_found_behind_a_hole(storage: Storage) -> None:
    log = StreamLog(storage)
    for number in (1, 2, 900_000):
        entry = End(1, 1, floor=900_000) if number > 2 else Claim(number, number, "q", JOB, None, (), (), "h", {}, 0, "n")
        storage.put_if_absent(f"{LOG_PREFIX}{number:020d}", encode(entry))
    assert log.tail() == 900_000, "the gap is below the floor"
    found = log.past(2)
    assert found is not None
    assert found[0] == 900_000
    assert log.past(900_000) is None
    old, more = log.old(900_000, 0)
    assert ([number for number, _ in old], more) == ([1, 2], False)
    assert len(old) <= PAGE
