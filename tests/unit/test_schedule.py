"""What a stream's thread is to do later."""

from __future__ import annotations

from spark_ckpt.coordinator.schedule import Schedule


def test_what_is_due_is_done_in_its_order() -> None:
    schedule, done = Schedule(), list[str]()
    schedule.later(0, lambda: done.append("first"))
    schedule.later(0, lambda: done.append("second"), ticket=1)
    schedule.later(3600, lambda: done.append("later"), ticket=2)
    schedule.run_due()
    assert done == ["first", "second"]
    assert not schedule.is_empty


def test_what_is_cancelled_is_neither_done_nor_waited_for() -> None:
    """Else every epoch left a timer of ten minutes behind."""
    schedule, done = Schedule(), list[str]()
    schedule.later(0, lambda: done.append("cancelled"), ticket=1)
    schedule.later(3600, lambda: done.append("later"), ticket=2)
    schedule.cancel(1)
    schedule.run_due()
    assert (done, schedule.is_empty) == ([], False)
    schedule.cancel(2)
    schedule.cancel(3)
    assert (schedule.wait, schedule.is_empty) == (None, True)


def test_once_closed_it_takes_nothing() -> None:
    schedule, done = Schedule(), list[str]()
    schedule.later(0, lambda: done.append("before"))
    schedule.close()
    schedule.later(0, lambda: done.append("after"))
    schedule.run_due()
    assert (done, schedule.wait) == ([], None)
