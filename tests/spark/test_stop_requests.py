"""People's requests to stop, as a driver meets them one after the other: in a JVM without an application."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.drivers.spark.driver_streams import Started
from tests.drivers.spark.jvm import jvm

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200)]

@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    with jvm(callbacks=True) as started:
        yield started


def test_each_request_to_stop_is_met_in_its_turn_and_says_whether_it_drained(java: Any, tmp_path: Path) -> None:
    """(1) A stop with a drain is asked for, and another one without; (2) a drain meets both and fails, and one more comes
    meanwhile; (3) that is met."""
    one = Started(java, tmp_path / "files")
    assert one.drains() is None
    one.asked(drain=True)
    one.asked(drain=False)
    assert one.drains() is True, "one that comes later does not take the drain away"
    met = one.met()
    one.asked(drain=False)
    one.stream.finish(True, True)
    told = one.coordinator.heard[-1]
    assert (told["stopping"], told["drained"]) == (True, True)
    one.stream.refuse(met)
    assert one.drains() is False, "one that came while the others were met is left"
    one.stream.refuse(one.met())
    assert one.drains() is None


def test_an_end_without_a_drain_leaves_who_asked_for_one(java: Any, tmp_path: Path) -> None:
    one = Started(java, tmp_path / "files")
    for drain in (False, True, False):
        one.asked(drain)
    assert one.drains() is False
    one.stream.refuse(one.met())
    assert one.drains() is True


def test_of_two_that_are_refused_together_none_is_drained_later(java: Any, tmp_path: Path) -> None:
    """(1) Before the first epoch two people ask for a stop with a drain; (2) there is nothing to save, and both are told; (3) an epoch
    ends."""
    one = Started(java, tmp_path / "files")
    one.asked(drain=True)
    one.asked(drain=True)
    one.stream.refuse(one.met())
    assert one.drains() is None


def test_who_was_told_to_ask_again_is_not_drained(java: Any, tmp_path: Path) -> None:
    """(1) A stop with a drain is asked for while an epoch runs; (2) the coordinator is replaced, and the new one answers that request with
    an error; (3) the epoch ends."""
    one = Started(java, tmp_path / "files")
    one.asked(drain=True)
    one.stream.retell(one.coordinator)
    assert one.coordinator.heard[-1]["type"] == "resume"
    assert one.drains() is None
    one.asked(drain=True)
    assert one.drains() is True


def test_a_request_that_is_heard_before_the_run_has_begun_here_is_met(java: Any, tmp_path: Path) -> None:
    """(1) A query goes back, as run 2; (2) its coordinator has begun, and somebody asks for a stop with a drain; (3) the driver hears of
    that before it has read all of the answer to its start. What it has of run 1 is over."""
    one = Started(java, tmp_path / "files")
    one.asked(drain=False)
    one.asked(drain=True, run=2)
    one.goes_back(2)
    assert one.drains() is True
    one.stream.refuse(one.met())
    assert one.drains() is None


def test_a_drains_plan_says_so(java: Any, tmp_path: Path) -> None:
    one = Started(java, tmp_path / "files")
    one.coordinator.answers["trigger"] = {"barrier": "{}"}
    for drains in (False, True):
        getattr(one.stream, "draining_$eq")(drains)
        one.stream.trigger(0, b"offsets")
        assert one.coordinator.heard[-1]["drain"] is drains
