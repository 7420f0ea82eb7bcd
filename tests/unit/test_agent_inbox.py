"""What can wait, waits for company; what is urgent takes it along; the order stays."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from spark_ckpt.agent.inbox import Inbox

FOREVER_S = 60.0


def test_what_can_wait_comes_with_what_is_urgent() -> None:
    box: Inbox[int] = Inbox(FOREVER_S)
    with ThreadPoolExecutor(1) as pool:
        taken = pool.submit(box.take, None)
        for item in range(5):
            box.put(item, urgent=False)
        box.put(5)
        assert taken.result(FOREVER_S / 2) == [0, 1, 2, 3, 4, 5]
        box.put(6)
        box.put(7, urgent=False)
        assert box.take(None) == [6, 7]


def test_what_can_wait_does_not_wait_for_ever() -> None:
    box: Inbox[int] = Inbox(0.01)
    box.put(1, urgent=False)
    assert box.take(None) == [1]
    box.put(2)
    assert box.take(None) == [2]
    assert box.take(0.0) == []


def test_an_urgent_item_is_not_urgent_for_those_after_it() -> None:
    box: Inbox[int] = Inbox(FOREVER_S)
    box.put(1)
    assert box.take(None) == [1]
    with ThreadPoolExecutor(1) as pool:
        box.put(2, urgent=False)
        taken = pool.submit(box.take, None)
        box.put(3)
        assert taken.result(FOREVER_S / 2) == [2, 3]
