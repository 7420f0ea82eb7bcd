"""A query whose stateful operators have changed goes on from a checkpoint of what it was."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from spark_ckpt.errors import ErrorKind
from spark_ckpt.model import Checkpoint, CheckpointId, FileHandle, Job
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import Claim, Entry, Restored, decode
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.operators import Matched, OperatorChoice
from spark_ckpt.protocol.reasons import Outcome
from spark_ckpt.protocol.start.planned_before import CopyOf, past_all_plans, planned_before, reach
from spark_ckpt.protocol.start.renumbering import renumbered
from tests.drivers.changed_queries import CHANGED, DROP, MORE, SAVEPOINT, a_stream, change, operators_of
from tests.drivers.planned_operators import a_count, a_deduplication, a_total
from tests.drivers.protocol_driving import JOB, Driver, World
from tests.drivers.protocol_starts import own, refusal, started


def a_fork() -> World:
    """A stream yet to begin, and a savepoint of another one."""
    world, of = World(), a_stream()
    world.sources[SAVEPOINT] = of.checkpoints[CheckpointId(1, 2)]
    return world


def begins(said: list[Instruction]) -> tuple[int, ...]:
    """What a barrier says."""
    return next(i for i in said if isinstance(i, do.Triggered)).begins


def ids_of(commit: object) -> dict[str, object]:
    assert isinstance(commit, bytes)
    ids: dict[str, object] = json.loads(commit.split(b"\n")[1])["stateUniqueIds"]
    return ids


CASES = {
    "fork": (a_fork, ev.Restore(SAVEPOINT), CheckpointId(1, 2)),
    "own": (a_stream, own(1, 2), CheckpointId(2, 2)),
    "in place": (a_stream, None, CheckpointId(2, 2)),
}


@pytest.mark.parametrize("case", CASES)
def test_its_state_goes_on_under_another_number_and_a_new_operator_begins_empty(case: str) -> None:
    make, chosen, origin = CASES[case]
    world = make()
    objects, before = set(world.objects), dict(world.log)
    driver = Driver(world)
    said = driver.start("b", CHANGED, restore=chosen, compared=False)
    assert isinstance(said[-1], do.Compare)
    assert (said[-1].plan, world.log, world.objects) == (True, before, objects)
    said = change(driver, chosen)
    one = started(said)
    assert (one.origin, one.epoch, one.begins, one.version) == (origin, 3, (0,), None)
    assert operators_of(one.files) == ["0 dedupe(id bigint)", "1 stateStoreSave(key string)"]
    assert list(ids_of(one.files["commits/2"])) == ["1"]
    copy = world.checkpoints[origin]
    assert {s.store.operator for s in copy.snapshots} == {1}
    assert (copy.begins, copy.job) == ((0,), CHANGED)
    if case != "fork":
        assert world.objects == objects, "the objects of its state stay where they are"
    told = next(i.message for i in said if isinstance(i, do.Log) and "operators are not those" in i.message)
    assert "0 dedupe(id bigint) begins empty; 1 stateStoreSave(key string) goes on from 0" in told
    assert begins(driver.trigger(3)) == (0,)


@pytest.mark.parametrize("case", CASES)
def test_as_long_as_the_first_epoch_has_not_ended_it_begins_empty(case: str) -> None:
    make, chosen, origin = CASES[case]
    world = make()
    driver = Driver(world)
    change(driver, chosen)
    driver.trigger(3)
    again = Driver(world)
    one = started(again.start("c", CHANGED, restore=chosen, compared=False))
    assert (one.origin, one.begins, one.rerun) == (origin, (0,), True)
    again.rest(one.run, 3)
    assert begins(again.trigger(4)) == ()
    one = started(Driver(world).start("d", CHANGED, restore=chosen, compared=False))
    assert (one.origin, one.begins) == (CheckpointId(one.run - 1, 3), ())


@pytest.mark.parametrize("case", CASES)
def test_a_copy_that_was_cut_short_is_made_again(case: str) -> None:
    make, chosen, origin = CASES[case]
    world = make()
    driver = Driver(world)
    driver.hold = lambda i: isinstance(i, do.StoreMetadata)
    change(driver, chosen)
    assert origin not in world.checkpoints, "the claim stands, and the process dies"
    one = started(change(Driver(world), chosen))
    assert one.origin == CheckpointId(origin.run + 1, 2)
    assert one.begins == (0,)
    claim = decode(one.claim, world.log[one.claim])
    assert isinstance(claim, Claim)
    assert claim.bad == (), "what was never made is no damage"


def copying(number: int, run: int, first: int, of: CheckpointId, restored: Restored | None = None) -> Claim:
    """The claim of a changed query, which goes on under new numbers from a copy of the stream's own checkpoint."""
    copy = CheckpointId(run, of.epoch)
    claim = Claim(number, run, "q", JOB, copy, (of, copy), (), "h", {}, 0, f"n{run}", first=first, ahead=2, used=first - 1, adopts=())
    return replace(claim, restored=restored)


@pytest.mark.parametrize("restored", [None, Restored(SAVEPOINT, CheckpointId(1, 0))], ids=["began here", "began with a savepoint"])
def test_who_began_with_a_copy_of_the_same_checkpoint_went_on_from_nothing_else(restored: Restored | None) -> None:
    """(1) Run 2 has a copy of checkpoint 1-2, and run 3 one of that, which was never made; (2) run 4 begins with another copy of 2-2."""
    last = copying(12, 3, 9, CheckpointId(2, 2), restored)
    claims: dict[int, Entry] = {10: copying(10, 2, 6, CheckpointId(1, 2), restored), 12: last}
    origin = replace(a_stream().checkpoints[CheckpointId(1, 2)], id=CheckpointId(4, 2))
    within = reach(origin, last, None)
    found = planned_before(claims, origin, 12, last, within, CopyOf(CheckpointId(2, 2), ""))
    assert (found.first, found.crossed) == (9, False)
    of_another = planned_before(claims, origin, 12, last, within, CopyOf(CheckpointId(1, 1), ""))
    assert of_another.crossed


def test_a_copy_is_not_past_all_plans() -> None:
    """(1) A changed query begins with a copy of the newest checkpoint, and runs nothing; (2) that copy is damaged, and an older one is gone
    on from: no entry plans what the copy holds."""
    last = copying(12, 3, 9, CheckpointId(2, 8))
    origin = replace(a_stream().checkpoints[CheckpointId(1, 2)], log=4)
    assert past_all_plans(origin, [CheckpointId(3, 8)], {12: last}, 12, last) is None
    assert past_all_plans(origin, [CheckpointId(3, 9)], {12: last}, 12, last) == CheckpointId(3, 9)


def test_what_was_cut_short_is_done_again_without_saying_discard_once_more() -> None:
    """(1) Another stream's savepoint takes the place of what was cut short, with DISCARD; (2) that is cut short too."""
    world = a_stream(4)
    world.sources[SAVEPOINT] = replace(a_stream().checkpoints[CheckpointId(1, 2)], stream="another", query_id="another")
    for chosen in (own(1, 2), ev.Restore(SAVEPOINT, discard=True)):
        driver = Driver(world)
        driver.hold = lambda i: isinstance(i, do.StoreMetadata)
        change(driver, chosen)
    one = started(change(Driver(world), ev.Restore(SAVEPOINT)))
    assert (one.origin, one.epoch) == (CheckpointId(4, 2), 4)


def test_in_the_place_of_a_copy_of_its_own_another_streams_state_is_taken_only_with_discard() -> None:
    """(1) Epoch 3 is planned, and runs again from checkpoint 2; (2) that start dies before it has its copy; (3) somebody starts the query
    from another stream's savepoint: epoch 3 would run never again, and what sinks have of epochs 0 to 2 is not of that state."""
    world = a_stream(4)
    world.sources[SAVEPOINT] = replace(a_stream().checkpoints[CheckpointId(1, 2)], stream="another", query_id="another")
    driver = Driver(world)
    driver.hold = lambda i: isinstance(i, do.StoreMetadata)
    change(driver, own(1, 2))
    before = dict(world.log)
    refused = refusal(change(Driver(world), ev.Restore(SAVEPOINT)))
    assert "belongs to another stream, and this one has epochs of its own" in refused.message
    assert world.log == before
    one = started(change(Driver(world), ev.Restore(SAVEPOINT, discard=True)))
    assert (one.origin, one.epoch, one.planned) == (CheckpointId(3, 2), 4, ())


@pytest.mark.parametrize("case", CASES)
def test_state_is_dropped_only_with_the_option(case: str) -> None:
    make, chosen, _ = CASES[case]
    world = make()
    objects, before = set(world.objects), dict(world.log)
    driver = Driver(world)
    job = Job(("dedupe id",), JOB.sources, JOB.sink)
    refused = refusal(change(driver, chosen, a_deduplication(0), job=job))
    assert refused.kind is ErrorKind.CONFLICT
    assert "no operator of the query takes the state of the checkpoint's 0 stateStoreSave(key string)" in refused.message
    assert (world.log, world.objects) == (before, objects)
    one = started(change(driver, chosen, a_deduplication(0), DROP, job))
    assert one.begins == (0,)
    assert operators_of(one.files) == ["0 dedupe(id bigint)"]
    assert ids_of(one.files["commits/2"]) == {}
    assert one.origin is not None
    assert world.checkpoints[one.origin].snapshots == ()


def test_an_initial_state_that_nobody_would_read_is_refused() -> None:
    world = a_stream()
    before = dict(world.log)
    request = ev.StartRequested("q", CHANGED, (), "b", "host", compared=False, planned=MORE, initial=(0,))
    refused = refusal(Driver(world).push(request))
    assert "it has no state of the query's 0 dedupe(id bigint), whose initial state Spark reads in a query" in refused.message
    assert world.log == before
    assert isinstance(Driver(world).push(replace(request, initial=(1,)))[-1], do.Compare)


def test_what_a_plan_says_of_operators_is_not_taken_when_it_runs_again() -> None:
    """Spark had written it under the old numbers."""
    world = a_stream(1)
    driver = Driver(world)
    driver.start("a2")
    driver.trigger(1, a_total(0))
    driver.rest(2, 1)
    driver.trigger(2, a_total(0, "stale"))
    one = started(change(Driver(world)))
    assert (one.epoch, one.rerun) == (2, True)
    assert operators_of(one.files) == ["0 dedupe(id bigint)", "1 stateStoreSave(key string)"]


def test_what_spark_takes_as_it_is_goes_on_as_it_is() -> None:
    """In place, another name of a column is none of our business; where a person chooses, it is."""
    world = a_stream()
    job = Job(("stateStoreSave name",), JOB.sources, JOB.sink)
    one = started(change(Driver(world), None, a_total(0, "name"), job=job))
    assert (one.origin, one.begins) == (CheckpointId(1, 2), ())
    assert "1 stateStoreSave" not in refusal(change(Driver(a_stream()), own(1, 2), a_total(0, "name"), job=job)).message
    one = started(change(Driver(a_stream()), own(1, 2), a_total(0, "name"), OperatorChoice({0: 0}), job))
    assert (one.origin, one.begins) == (CheckpointId(1, 2), ())


def test_two_of_a_kind_are_swapped_where_a_person_says_so() -> None:
    world = World()
    driver = Driver(world)
    driver.start("a")
    driver.epoch(1, 0)
    driver.trigger(1, {**a_count(0), **a_count(1)})
    driver.rest(1, 1)
    one = started(change(Driver(world), own(1, 1), {**a_count(0), **a_count(1)}, OperatorChoice({0: 1, 1: 0}), JOB))
    assert list(ids_of(one.files["commits/1"])) == ["1"]
    assert one.begins == ()
    assert started(Driver(world).start("c", restore=own(1, 1), operators=OperatorChoice({0: 1, 1: 0}))).origin == one.origin, "once"


@pytest.mark.parametrize("wrong", [b"v1\nno json", b"v1\n{}", b"v3\n{}"])
def test_where_files_cannot_be_read_the_names_have_to_be_the_same(wrong: bytes) -> None:
    """The rest is left to Spark."""
    world = a_fork()
    source = world.sources[SAVEPOINT]
    world.sources[SAVEPOINT] = replace(source, files={**source.files, "state/0/_metadata/metadata": wrong})
    refused = refusal(change(Driver(world), ev.Restore(SAVEPOINT)))
    assert "its stateful operators are stateStoreSave key, those of the query dedupe id, stateStoreSave key" in refused.message
    said = Driver(world).start("b", restore=ev.Restore(SAVEPOINT), compared=False, planned=MORE)
    assert isinstance(said[-1], do.Compare)
    assert said[-1].files == world.sources[SAVEPOINT].files
    refused = refusal(change(Driver(world), ev.Restore(SAVEPOINT), operators=OperatorChoice({1: 0})))
    assert refused.message.startswith(f"spark.ckpt.restore.operators cannot be applied to spark.ckpt.restore.path={SAVEPOINT}: state/0/")


def test_a_file_that_is_too_large_to_be_edited_is_named() -> None:
    source = a_stream().checkpoints[CheckpointId(1, 2)]
    large = FileHandle("run-00000001/drv/1-x", 70_000, 1)
    source = replace(source, files={**source.files, "state/0/_metadata/metadata": large})
    with pytest.raises(Exception, match="70000 bytes, too many for its operator to get another number"):
        renumbered(source, Matched({1: 0}), {})
    assert renumbered(source, Matched({0: 0}, (1,)), {}).files["state/0/_metadata/metadata"] == large


def test_an_operator_that_has_yet_to_begin_still_has_when_the_query_changes_once_more() -> None:
    source = replace(a_stream().checkpoints[CheckpointId(1, 2)], begins=(1, 2))
    assert renumbered(source, Matched({3: 1, 1: 0}, (0,), (2,)), {}).begins == (0, 3)


def test_paths_of_schema_files_move_with_their_operator() -> None:
    path = "file:/old/state/0/_stateSchema/default/0_a"
    document = {"operatorInfo": {"operatorId": 0, "operatorName": "x"}, "stateStoreInfo": [{"stateSchemaFilePaths": [path]}, {}]}
    files = {"state/0/_metadata/v2/0": b"v2\n" + json.dumps(document).encode(), "state/0/_stateSchema/default/0_a": b"schema"}
    source = replace(a_stream().checkpoints[CheckpointId(1, 2)], files=files)
    moved: Checkpoint = renumbered(source, Matched({3: 0}), {})
    assert set(moved.files) == {"state/3/_metadata/v2/0", "state/3/_stateSchema/default/0_a"}
    content = moved.files["state/3/_metadata/v2/0"]
    assert isinstance(content, bytes)
    edited = json.loads(content.split(b"\n")[1])
    assert edited["operatorInfo"]["operatorId"] == 3
    assert edited["stateStoreInfo"][0]["stateSchemaFilePaths"] == ["file:/old/state/3/_stateSchema/default/0_a"]


def test_a_coordinator_that_takes_over_in_the_first_epoch_says_so_again() -> None:
    world = a_stream()
    driver = Driver(world)
    one = started(change(driver))
    driver.trigger(3)
    other = Driver(world)
    other.push(ev.ResumeRequested(one.run, one.claim, 3, sealed=2))
    assert begins(other.trigger(3)) == (0,)


def test_a_claim_that_another_run_was_faster_with_is_looked_for_again() -> None:
    world = a_stream()
    driver = Driver(world)
    lost = iter([True])

    def rival(i: Instruction) -> bool:
        if isinstance(i, do.PutEntry) and next(lost, False):
            Driver(world).start("z")
        return False

    driver.hold = rival
    one = started(change(driver))
    claim = decode(one.claim, world.log[one.claim])
    assert isinstance(claim, Claim)
    assert (one.run, claim.origin, one.begins) == (3, CheckpointId(3, 2), (0,))
    assert world.store(world.checkpoints[CheckpointId(3, 2)]) is Outcome.EXISTS


@pytest.mark.parametrize("case", ["fork", "own"])
def test_another_expression_does_not_take_the_state_of_a_key_that_is_one(case: str) -> None:
    """Spark calls both `_groupingexpression`; the queries say by which columns they group."""
    make, chosen, _ = CASES[case]
    world = make()
    found = world.sources[SAVEPOINT] if case == "fork" else world.checkpoints[CheckpointId(1, 2)]
    expression = replace(
        found, files={**found.files, **a_total(0, "_groupingexpression")}, job=replace(found.job, operators=("aggregate(user)",))
    )
    if case == "fork":
        world.sources[SAVEPOINT] = expression
    else:
        world.checkpoints[CheckpointId(1, 2)] = expression
    planned = a_total(0, "_groupingexpression")
    job = Job(("aggregate(country)",), JOB.sources, JOB.sink)
    before = dict(world.log)
    refused = refusal(change(Driver(world), chosen, planned, job=job))
    assert "is an expression, of which Spark's files do not say which one" in refused.message
    assert world.log == before
    one = started(change(Driver(world), chosen, planned, OperatorChoice({0: 0}), job))
    assert one.begins == ()
