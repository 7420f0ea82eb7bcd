"""A stream that another Spark has run: a newer one goes on, an older one is told, or refused where it is known that it cannot read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_ckpt.errors import ErrorKind
from spark_ckpt.model import Job
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.instructions import Instruction
from tests.drivers.protocol_driving import JOB, Driver, World
from tests.drivers.protocol_starts import own, refusal, started

IN_PYTHON = replace(JOB, operators=("TransformWithStateInPySpark",))


def start(world: World, spark: str, nonce: str, job: Job = JOB, restore: ev.Restore | None = None) -> tuple[Driver, list[Instruction]]:
    driver = Driver(world)
    versions = {"spark": spark} if spark else {}
    return driver, driver.push(ev.StartRequested("q", job, (), nonce, "host", versions, restore=restore))


def run_by(spark: str, job: Job = JOB) -> World:
    world = World()
    driver, _ = start(world, spark, "a", job)
    for epoch in range(2):
        driver.epoch(1, epoch)
    return world


def warnings(said: list[Instruction]) -> list[str]:
    return [i.message for i in said if isinstance(i, do.Log)]


GOES_ON = [("4.0.5", "4.3.0"), ("4.3.0", "4.3.0"), ("4.3.1", "4.3.0"), ("", "4.0.5"), ("4.3.0", ""), ("?", "x")]
IS_TOLD = [("4.3.0", "4.1.4", JOB), ("4.3.0", "4.2.1", IN_PYTHON), ("4.1.4", "4.0.5", IN_PYTHON)]


@pytest.mark.parametrize(("before", "now"), GOES_ON)
@pytest.mark.parametrize("job", [JOB, IN_PYTHON], ids=["aggregation", "transformWithState"])
def test_a_newer_spark_goes_on_and_so_does_one_of_the_same_line(before: str, now: str, job: Job) -> None:
    _, said = start(run_by(before, job), now, "b", job)
    assert (started(said).epoch, warnings(said)) == (2, [])


@pytest.mark.parametrize(("before", "now", "job"), IS_TOLD)
def test_an_older_one_is_told_what_it_goes_on_from(before: str, now: str, job: Job) -> None:
    _, said = start(run_by(before, job), now, "b", job)
    assert started(said).epoch == 2
    assert warnings(said) == [
        f"the stream was last run by Spark {before}, and this is Spark {now}: Spark promises nothing of state that a newer one has written"
    ]


@pytest.mark.parametrize("now", ["4.0.5", "4.1.4"])
@pytest.mark.parametrize("before", ["4.2.1", "4.3.0", "5.0.0", "10.1.0"])
def test_what_it_cannot_read_is_refused_before_anything_is_written(before: str, now: str) -> None:
    world = run_by(before, IN_PYTHON)
    log = dict(world.log)
    _, said = start(world, now, "b", IN_PYTHON)
    refused = refusal(said)
    assert refused.kind is ErrorKind.CONFLICT
    assert refused.message.startswith(f"the stream was last run by Spark {before}, and this is Spark {now}, which does not read")
    assert "spark.ckpt.restore.path" in refused.message
    assert world.log == log


def test_who_goes_back_to_what_the_older_one_made_may_do_so() -> None:
    world = run_by("4.1.4", IN_PYTHON)
    driver, _ = start(world, "4.3.0", "b", IN_PYTHON)
    driver.epoch(2, 2)
    _, said = start(world, "4.1.4", "c", IN_PYTHON, own(1, 1))
    assert started(said).epoch == 2
    # From then on it is that one's, also with the option still there.
    _, said = start(world, "4.1.4", "d", IN_PYTHON, own(1, 1))
    assert started(said).epoch == 2


def test_who_was_replaced_by_a_newer_one_hears_that_and_not_how_to_take_the_stream_back() -> None:
    world = run_by("4.1.4", IN_PYTHON)
    start(world, "4.3.0", "b", IN_PYTHON)
    again = ev.StartRequested("q", IN_PYTHON, (), "c", "host", {"spark": "4.1.4"}, spark_run_id="the first", again=True)
    refused = refusal(Driver(world).push(again))
    assert (refused.kind, "restore.path" in refused.message) == (ErrorKind.FENCED, False)


def test_another_job_hears_of_that_first() -> None:
    refused = refusal(start(run_by("4.3.0", IN_PYTHON), "4.1.4", "b", replace(IN_PYTHON, sources=("another",)))[1])
    assert "another job uses this checkpointLocation" in refused.message
