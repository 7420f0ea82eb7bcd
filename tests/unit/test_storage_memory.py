"""Names and prefixes of `memory://`."""

from __future__ import annotations

import pytest

from spark_ckpt.errors import ConfigError
from spark_ckpt.storage import open_storage
from spark_ckpt.storage.base import Traffic
from spark_ckpt.storage.memory import wipe


def test_a_name_is_shared_and_a_prefix_is_a_view() -> None:
    whole, part = open_storage("memory://shared"), open_storage("memory://shared/data/ckpt/")
    assert (whole.url, part.url) == ("memory://shared", "memory://shared/data/ckpt")
    part.put("log/1", b"v")
    assert whole.get("data/ckpt/log/1") == b"v"
    assert list(open_storage("memory://other").list("")) == []
    whole.close()
    assert part.get("log/1") == b"v"
    wipe("shared")
    wipe("never opened")
    assert part.size("log/1") is None


def test_a_memory_without_a_name() -> None:
    with pytest.raises(ConfigError, match="memory://name"):
        open_storage("memory://")


def test_listings_of_many_are_several_requests() -> None:
    storage = open_storage("memory://many")
    for number in range(2001):
        storage.put(f"k{number}", b"")
    assert len(list(storage.list("k"))) == 2001
    storage.delete(stored.key for stored in storage.list(""))
    assert storage.requests["list"] == 6
    assert storage.requests["delete"] == 3


def test_why_requests_are_sent_again_is_told_now_and_then() -> None:
    now = [100.0]
    heard: list[str] = []
    traffic = Traffic(lambda: now[0])
    traffic.tell = heard.append
    for second in (0, 1, 9, 10, 11, 25):
        now[0] = 100.0 + second
        traffic.retried(f"at {second}")
    assert heard == ["at 0", "at 10", "at 25"]
    assert traffic.retries == 6
