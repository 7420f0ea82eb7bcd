"""What follows a query's completed checkpoints is told of the right offsets, in order: in a JVM without an application."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.drivers.spark.jvm import jvm

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200)]

MIB = 2**20


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    with jvm(callbacks=True) as started:
        yield started


class Follower:
    """Remembers what it is told. While `may_end` is not set, its end takes time."""

    class Java:
        implements = ("org.apache.spark.ckpt.SourceFollower",)

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.may_end = threading.Event()
        self.may_end.set()
        self.former: Any = None

    def after(self, former: Any) -> None:
        self.former = former
        self.told.append("after")

    def completed(self, epoch: int, offsets: bytes) -> None:
        self.told.append((epoch, bytes(offsets)))

    def lags(self) -> None:
        return None

    def end(self) -> None:
        self.told.append("ending")
        assert self.may_end.wait(60)
        self.told.append("ended")


class Ends:
    """Those of one start, and who follows it."""

    def __init__(self, java: Any, former: Any = None, most: int = 16 * MIB) -> None:
        self._java = java
        self.kept = java.org.apache.spark.ckpt.EpochEnds(java.scala.Option.apply(former), most)
        self.follower = Follower()

    def begin(self, origin: int, following: int, **files: bytes) -> None:
        """`offsets_7`: the content of offsets/7."""
        none = self._java.java.lang.Class.forName("scala.collection.immutable.HashMap$").getField("MODULE$").get(None)
        found = none.empty()
        for name, content in files.items():
            found = found.updated(name.replace("_", "/"), self._java.org.apache.spark.ckpt.InMessage(content))
        self.kept.begin(origin, following, found)

    def follow(self) -> None:
        self.kept.follow(self.follower)

    @property
    def told(self) -> list[Any]:
        return self.follower.told


def test_what_a_start_goes_on_from_is_told_also_under_new_numbers(java: Any) -> None:
    """With spark.ckpt.restore.plans=DISCARD, for example, epoch 51 follows checkpoint 10, whose offsets lie in offsets/50."""
    ends = Ends(java)
    ends.follow()
    ends.begin(10, 11, offsets_10=b"end of 10", offsets_9=b"end of 9")
    ends.begin(10, 51, offsets_50=b"end of 10", offsets_49=b"end of 9")
    ends.kept.complete(50)
    assert ends.told == [(10, b"end of 10"), (10, b"end of 10")]


def test_an_epoch_that_was_planned_before_the_start_is_told_when_it_is_complete(java: Any) -> None:
    ends = Ends(java)
    ends.begin(10, 11, offsets_10=b"end of 10", offsets_11=b"end of 11")
    ends.follow()
    ends.kept.complete(11)
    assert ends.told == [(10, b"end of 10"), (11, b"end of 11")]


def test_a_start_from_nothing_tells_nothing(java: Any) -> None:
    ends = Ends(java)
    ends.follow()
    ends.begin(-1, 7, offsets_6=b"v1\n\n-", offsets_5=b"v1\n\n-")
    assert ends.told == []


def test_a_checkpoint_that_takes_long_keeps_its_offsets_however_much_is_read_meanwhile(java: Any) -> None:
    """Each epoch's offsets take a tenth of what is kept."""
    ends = Ends(java, most=10_000)
    ends.begin(-1, 0)
    ends.follow()
    for epoch in range(100):
        if epoch % 30 == 0:
            ends.kept.trigger(epoch)
        ends.kept.plan(epoch, bytes([epoch]) * 1000)
    ends.kept.complete(0)
    ends.kept.abort(30)
    ends.kept.complete(60)
    assert ends.told == [(0, bytes(1000)), (60, bytes([60]) * 1000)]


def test_of_very_many_checkpoints_under_way_the_first_due_is_told(java: Any) -> None:
    ends = Ends(java, most=10_000)
    ends.begin(-1, 0)
    ends.follow()
    for epoch in range(100):
        ends.kept.trigger(epoch)
        ends.kept.plan(epoch, bytes([epoch]) * 1000)
    for epoch in range(100):
        ends.kept.complete(epoch)
    told = [epoch for epoch, _ in ends.told]
    assert told[0] == 0
    assert told[-1] == 99
    assert len(told) <= 10


def test_a_start_that_failed_at_once_does_not_hide_the_one_before_it(java: Any) -> None:
    """(1) A start is still ending; (2) the next one fails before anybody follows it; (3) a third one begins."""
    old = Ends(java)
    old.follow()
    failed = Ends(java, old.kept)
    new = Ends(java, failed.kept)
    new.follow()
    old.follower.may_end.clear()
    first = threading.Thread(target=old.kept.end)
    second = threading.Thread(target=new.follower.former.run)
    first.start()
    second.start()
    second.join(1)
    assert second.is_alive()
    old.follower.may_end.set()
    first.join(20)
    second.join(20)
    assert old.told == ["ending", "ended"]


def test_nothing_is_told_before_the_start_before_has_ended(java: Any) -> None:
    """Spark tells of that end when it likes: the new start's own thread ends what follows the old one, or waits until it has ended."""
    old = Ends(java)
    old.follow()
    old.begin(3, 4, offsets_3=b"end of 3")
    new = Ends(java, old.kept)
    new.begin(4, 5, offsets_4=b"end of 4")
    new.follow()
    assert new.told == ["after", (4, b"end of 4")]
    old.follower.may_end.clear()
    first = threading.Thread(target=old.kept.end)
    second = threading.Thread(target=new.follower.former.run)
    first.start()
    second.start()
    second.join(1)
    assert second.is_alive()
    assert old.told[1:] == ["ending"]
    old.follower.may_end.set()
    first.join(20)
    second.join(20)
    assert old.told[1:] == ["ending", "ended"]


def test_what_has_ended_keeps_nothing(java: Any) -> None:
    """As long as the application lives its stream stays known."""
    ends = Ends(java)
    ends.begin(3, 4, offsets_3=b"end of 3", offsets_4=b"end of 4")
    ends.kept.trigger(4)

    def kept() -> list[int]:
        found = []
        for name in ("planned", "triggered", "newest"):
            field = java.java.lang.Class.forName("org.apache.spark.ckpt.EpochEnds").getDeclaredField(name)
            field.setAccessible(True)
            found.append(field.get(ends.kept).toSeq().size() if name != "newest" else int(field.get(ends.kept).isDefined()))
        return found

    assert kept() == [1, 1, 1]
    ends.kept.end()
    ends.kept.plan(5, b"late")
    ends.kept.trigger(5)
    ends.begin(3, 4, offsets_3=b"end of 3", offsets_4=b"end of 4")
    assert kept() == [0, 0, 0]


def test_who_comes_after_the_end_is_ended_too(java: Any) -> None:
    ends = Ends(java)
    ends.begin(3, 4, offsets_3=b"end of 3")
    ends.kept.end()
    ends.follow()
    assert ends.told == ["ending", "ended"]
