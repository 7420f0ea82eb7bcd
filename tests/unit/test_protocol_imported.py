"""Going on from a checkpoint that was imported from stock Spark, and from the epoch that stock Spark had begun and not finished."""

from __future__ import annotations

from dataclasses import replace

from spark_ckpt.model import Checkpoint, CheckpointId, Imported, Job
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from tests.drivers.planned_operators import a_total
from tests.drivers.protocol_driving import JOB, Driver, World, offsets
from tests.drivers.protocol_starts import elsewhere, numbers, refusal, started

BEGUN = offsets(3)
PATH = ev.Restore("s3://b/moved/savepoints/import-2")


def imported(planned: bytes | None = BEGUN) -> tuple[World, Checkpoint]:
    """Epoch 2 is the newest that stock Spark has committed. Nothing is known of the query's keys, sources and sink."""
    source = elsewhere()
    source = replace(source, job=Job(("stateStoreSave",), (), ""), imported=Imported("file:///stock", planned))
    world = World()
    world.sources[PATH.path] = source
    return world, source


def planned_by(world: World, nonce: str, restore: ev.Restore | None = None) -> do.Started:
    return started(Driver(world).start(nonce, restore=restore))


def test_a_query_goes_on_from_it_whatever_its_operators_are_called() -> None:
    world, _ = imported(None)
    found = planned_by(world, "a", PATH)
    assert (found.origin, numbers(found), found.version) == (CheckpointId(1, 2), [3], None)
    assert world.checkpoints[CheckpointId(1, 2)].imported is None


def test_the_epoch_that_stock_spark_had_begun_runs_as_it_was_planned_and_gets_an_entry() -> None:
    world, _ = imported()
    driver = Driver(world)
    found = started(driver.start("a", restore=PATH))
    assert (found.epoch, found.rerun, [(p.epoch, p.offsets) for p in found.planned]) == (3, False, [(3, BEGUN)])
    driver.trigger(3)
    again = planned_by(world, "b", PATH)
    assert (again.epoch, again.rerun, again.planned) == (3, True, ())


def test_it_still_does_when_the_run_ends_before_it_has_planned_it() -> None:
    world, _ = imported()
    for nonce in ("a", "b", "c"):
        found = planned_by(world, nonce, PATH)
        assert [(p.epoch, p.offsets) for p in found.planned] == [(3, BEGUN)]
    assert [p.offsets for p in planned_by(world, "d").planned] == [BEGUN]


def test_the_querys_id_may_stay_what_it_was() -> None:
    """Somebody has copied the file `metadata`: the stream is another one all the same."""
    world, source = imported()
    for nonce in ("a", "b"):
        found = started(Driver(world).start(nonce, query=source.query_id, restore=PATH))
        assert [(p.epoch, p.offsets) for p in found.planned] == [(3, BEGUN)]


def test_another_plan_for_that_epoch_is_refused() -> None:
    world, _ = imported()
    driver = Driver(world)
    driver.start("a", restore=PATH)
    said = driver.push(ev.TriggerRequested(3, offsets(4), {}))
    assert any(isinstance(i, do.Refused) for i in said)


def test_it_still_does_where_the_copy_was_cut_short() -> None:
    world, _ = imported()
    Driver(world).start("a", restore=PATH)
    del world.checkpoints[CheckpointId(1, 2)]
    found = planned_by(world, "b", PATH)
    assert [(p.epoch, p.offsets) for p in found.planned] == [(3, BEGUN)]


def test_a_sink_may_have_that_epoch_and_no_later_one() -> None:
    world, _ = imported()
    assert numbers(started(Driver(world).start("a", restore=PATH, sink_seen=3))) == [3, 4]
    refused = refusal(Driver(imported()[0]).start("a", restore=PATH, sink_seen=4))
    assert "has batch 4 already and would skip what follows epoch 3" in refused.message
    refused = refusal(Driver(imported(None)[0]).start("a", restore=PATH, sink_seen=3))
    assert "would skip what follows epoch 2" in refused.message


def test_what_follows_it_is_not_what_stock_spark_had_begun() -> None:
    world, _ = imported()
    driver = Driver(world)
    driver.start("a", restore=PATH)
    driver.trigger(3)
    driver.rest(1, 3)
    found = planned_by(world, "b")
    assert (found.origin, numbers(found)) == (CheckpointId(1, 3), [4])
    assert world.checkpoints[CheckpointId(1, 3)].imported is None


def test_a_query_that_changes_before_the_first_epoch_has_ended_is_looked_at_like_any_other() -> None:
    """The stream's only checkpoint is the copy of what was imported, and that has the operators of the query that it was copied for."""
    world, source = imported()
    world.sources[PATH.path] = replace(source, files={**source.files, **a_total(0)})
    driver = Driver(world)
    asked = driver.start("a", restore=PATH, compared=False)
    assert isinstance(asked[-1], do.Compare)
    started(driver.start("a", restore=PATH, planned=a_total(0)))
    assert world.checkpoints[CheckpointId(1, 2)].imported is not None
    said = Driver(world).start("b", Job(("dedupe id", *JOB.operators), JOB.sources, JOB.sink), compared=False)
    assert isinstance(said[-1], do.Compare), said
    assert said[-1].plan
