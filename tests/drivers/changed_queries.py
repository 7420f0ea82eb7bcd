"""Starts of a query whose stateful operators have changed, in the driven protocol."""

from __future__ import annotations

from spark_ckpt.model import Job
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.operators import OperatorChoice
from spark_ckpt.protocol.settings import Settings
from spark_ckpt.state.operators import describe
from tests.drivers.planned_operators import a_deduplication, a_total
from tests.drivers.protocol_driving import JOB, NO_CHOICE, Driver, World

SAVEPOINT = "s3://b/savepoints/x"
CHANGED = Job(("dedupe id", "stateStoreSave key"), JOB.sources, JOB.sink)
MORE = {**a_deduplication(0), **a_total(1)}
"""The query gets a deduplication before its aggregation."""
DROP = OperatorChoice(may_drop=True)


def a_stream(epochs: int = 3, settings: Settings | None = None) -> World:
    """With one operator, and its files in the plan of the first epoch behind the one that Spark has written them in."""
    world = World()
    driver = Driver(world, settings)
    driver.start("a")
    driver.epoch(1, 0)
    driver.trigger(1, a_total(0))
    driver.rest(1, 1)
    for epoch in range(2, epochs):
        driver.epoch(1, epoch)
    return world


def change(
    driver: Driver,
    restore: ev.Restore | None = None,
    planned: dict[str, bytes] = MORE,
    operators: OperatorChoice = NO_CHOICE,
    job: Job = CHANGED,
) -> list[Instruction]:
    """The three rounds of a start, or as many as it takes."""
    said = driver.start("b", job, restore=restore, compared=False, operators=operators)
    if isinstance(said[-1], do.Compare):
        assert said[-1].plan
        said = driver.start("b", job, restore=restore, compared=False, operators=operators, planned=planned)
    if isinstance(said[-1], do.Compare):
        assert not said[-1].plan
        said = driver.start("b", job, restore=restore, operators=operators, planned=planned)
    return said


def operators_of(files: object) -> list[str]:
    assert isinstance(files, dict)
    return [str(one) for one in describe({path: content for path, content in files.items() if path.startswith("state/")})]
