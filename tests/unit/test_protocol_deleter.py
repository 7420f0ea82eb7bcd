"""Deletions are asked for one at a time, and what is to go is known until it has gone."""

from __future__ import annotations

import pytest

from spark_ckpt.model import CheckpointId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import Claim, Restored
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.machine import Questions, Tickets
from spark_ckpt.protocol.retention.deleter import REMEMBERED, Deleter
from spark_ckpt.protocol.retention.deletion import Batch
from tests.drivers.protocol_driving import JOB

SAVEPOINT = Restored("savepoints/mine", CheckpointId(1, 0), owned=True)


class Storage:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.gone: list[Batch] = []
        self.asked: list[do.Delete] = []
        self.warned = 0
        self._questions = Questions(Tickets())
        claim = Claim(0, 1, "q", JOB, None, (), (), "host", {}, 1, "nonce", restored=SAVEPOINT)
        self.deleter = Deleter(claim, self._questions, self._gone)

    def delete(self, epoch: int, *objects: str, at_last: bool = False) -> None:
        self._take(self.deleter.delete(Batch((CheckpointId(1, epoch),), objects), at_last))

    def go_on(self) -> None:
        self._take(self.deleter.delete(None))

    def answer(self, failure: str | None = None, savepoint: str | None = None, kept: str | None = None) -> do.Delete:
        asked = self.asked.pop(0)
        self._take(self._questions.answer(ev.Deleted(asked.ticket, failure, savepoint, kept)))
        return asked

    def _take(self, told: list[Instruction]) -> None:
        self.asked += [i for i in told if isinstance(i, do.Delete)]
        self.warned += sum(isinstance(i, do.Log) for i in told)

    def _gone(self, batch: Batch) -> list[Instruction]:
        self.gone.append(batch)
        return []

    @property
    def names(self) -> list[tuple[str, ...]]:
        return [asked.objects for asked in self.asked]


def test_what_comes_while_one_is_under_way_goes_together_when_that_is_done() -> None:
    storage = Storage()
    for epoch in range(1, 5):
        storage.delete(epoch, f"seg/{epoch}")
        assert storage.names == [("seg/1",)]
    storage.answer()
    assert storage.names == [("seg/2", "seg/3", "seg/4")]
    assert storage.asked[0].checkpoints == tuple(CheckpointId(1, epoch) for epoch in range(2, 5))
    storage.answer()
    assert (storage.names, len(storage.gone)) == ([], 2)
    storage.delete(5, "seg/5")
    assert storage.names == [("seg/5",)]


def test_what_failed_goes_with_what_has_come_meanwhile_once_some_calls_have_passed() -> None:
    storage = Storage()
    storage.delete(1, "seg/1")
    storage.delete(2, "seg/2")
    storage.answer("away")
    assert (storage.names, storage.warned) == ([], 1)
    storage.go_on()
    assert storage.names == [("seg/1", "seg/2")]
    storage.answer("away")
    for _ in range(2):
        storage.go_on()
        assert storage.names == []
    storage.go_on()
    assert storage.names == [("seg/1", "seg/2")]
    storage.answer()
    assert storage.gone == [Batch((CheckpointId(1, 1), CheckpointId(1, 2)), ("seg/1", "seg/2"))]
    storage.delete(3, "seg/3")
    storage.answer("away")
    storage.go_on()
    assert storage.names == [("seg/3",)], "what had failed before counts no more"


def test_the_last_call_asks_for_all_that_is_left() -> None:
    """Also beside one that is under way."""
    storage = Storage()
    storage.delete(1, "seg/1")
    storage.delete(2, "seg/2")
    storage.delete(3, "seg/3", at_last=True)
    assert storage.names == [("seg/1",), ("seg/2", "seg/3")]
    assert len(storage.deleter.open) == 2
    storage.answer("away")
    storage.answer()
    assert storage.names == [("seg/1",)], "once more, as the storage has answered since"
    storage.answer("away")
    assert (storage.names, storage.deleter.open) == ([], frozenset())


def test_a_savepoint_that_the_stream_took_over_goes_with_the_checkpoint_that_was_copied_from_it() -> None:
    storage = Storage()
    storage.delete(5, "seg/5")
    for epoch in (1, 0):
        storage.delete(epoch, f"seg/{epoch}")
    assert [asked.savepoint for asked in storage.asked] == [None]
    storage.answer()
    assert [(asked.objects, asked.savepoint) for asked in storage.asked] == [(("seg/1", "seg/0"), SAVEPOINT)]
    storage.answer()
    storage.delete(2, "seg/2")
    assert [asked.savepoint for asked in storage.asked] == [None]
    storage.answer()
    assert (storage.asked, len(storage.gone)) == ([], 3)


def test_where_damage_was_found_nothing_more_is_asked_for() -> None:
    storage = Storage()
    storage.delete(0, "seg/0")
    storage.answer(savepoint="denied")
    for epoch in range(1, 4):
        storage.delete(epoch, f"seg/{epoch}")
    assert [asked.savepoint for asked in storage.asked] == [None, SAVEPOINT]
    storage.answer()
    storage.answer(savepoint="denied")
    assert storage.names == [("seg/2", "seg/3")]
    storage.delete(4, "seg/4")
    storage.deleter.keep_rest()
    storage.answer("away")
    for _ in range(3):
        storage.go_on()
    assert (storage.asked, len(storage.gone)) == ([], 2), "nor what has failed since"
    assert storage.deleter.has_deleted("seg/4"), "an acknowledgement that names it is still refused"


@pytest.mark.parametrize("answers", [0, 1])
def test_an_object_that_is_still_to_go_is_known_however_many_there_are(answers: int) -> None:
    """An acknowledgement that names it has to be refused."""
    storage = Storage()
    for epoch in range(REMEMBERED // 10 + 2):
        storage.delete(epoch + 1, *(f"seg/{epoch}-{n}" for n in range(10)))
    for _ in range(answers):
        storage.answer()
    assert storage.deleter.has_deleted("seg/0-0")
    assert storage.deleter.has_deleted("seg/1-0")
    assert storage.deleter.has_deleted(f"seg/{REMEMBERED // 10 + 1}-9")
    while storage.asked:
        storage.answer()
    assert not storage.deleter.has_deleted("seg/0-0"), "as many as are remembered have gone since"
    assert storage.deleter.has_deleted(f"seg/{REMEMBERED // 10 + 1}-9")


def test_of_what_has_gone_together_the_oldest_is_forgotten_first() -> None:
    """As after an hour in which the storage refused: an acknowledgement may still name what was let go last."""
    storage = Storage()
    storage.delete(1, "sst/0")
    for epoch in range(2, 302):
        storage.delete(epoch, *(f"{'sst' if epoch < 201 else 'seg'}/{epoch}-{n:02}" for n in range(REMEMBERED // 100)))
    storage.answer()
    storage.answer()
    assert (storage.asked, len(storage.gone)) == ([], 2)
    assert storage.deleter.has_deleted("seg/301-00")
    assert storage.deleter.has_deleted("seg/202-00")
    assert not storage.deleter.has_deleted("sst/201-00")
    assert not storage.deleter.has_deleted("sst/2-00")


def test_a_savepoint_that_cannot_be_deleted_is_asked_for_less_and_less_often() -> None:
    """The right to delete may be that of the stream's own bucket. All else goes at once."""
    storage, denied = Storage(), 0
    for epoch in range(200):
        storage.delete(epoch, f"seg/{epoch}")
        while storage.asked:
            mine = storage.asked[0].savepoint is not None
            denied += mine
            storage.answer(savepoint="denied" if mine else None)
        assert len(storage.gone) == epoch + 1
    assert 5 < denied <= 10
    assert storage.warned == denied
    for _ in range(64):
        storage.go_on()
    storage.answer()
    for _ in range(100):
        storage.go_on()
    assert storage.asked == []


def test_a_savepoint_that_is_another_by_now_is_left_and_told_once() -> None:
    storage = Storage()
    storage.delete(0, "seg/0")
    storage.answer(kept="another is there")
    for epoch in range(1, 200):
        storage.delete(epoch, f"seg/{epoch}")
        assert [asked.savepoint for asked in storage.asked] == [None]
        storage.answer()
    assert (storage.warned, len(storage.gone)) == (1, 200)
