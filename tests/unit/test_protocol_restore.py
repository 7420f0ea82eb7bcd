"""Restore: what a person chose becomes the origin, once, or is refused before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from spark_ckpt.errors import ErrorKind
from spark_ckpt.model import Checkpoint, CheckpointId, FileHandle, Job
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import Adopted, End, Plan, Restored, decode, encode
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.offsets_conf import partitions_of
from spark_ckpt.protocol.reasons import Outcome
from spark_ckpt.protocol.settings import Settings
from spark_ckpt.protocol.start.restoring import misfits
from tests.drivers.planned_operators import a_total
from tests.drivers.protocol_driving import JOB, Driver, World
from tests.drivers.protocol_starts import after, claim_of, elsewhere, own, refusal, started

SAVEPOINT = "s3://b/savepoints/x"


def with_source(world: World, source: Checkpoint | None = None) -> World:
    world.sources[SAVEPOINT] = source or elsewhere()
    return world


# --- a checkpoint of the stream itself


def test_an_older_checkpoint_is_the_origin_and_what_was_planned_past_it_runs_again() -> None:
    world = after(4)
    one = started(Driver(world).start("b", restore=own(1, 1)))
    assert (one.run, one.origin, one.epoch, one.rerun) == (2, CheckpointId(1, 1), 2, True)
    assert [p.epoch for p in one.planned] == [3]
    claim = claim_of(world, one.claim)
    assert claim.inherits == (CheckpointId(1, 1),), "the run had dropped checkpoint 0, and may yet delete it"
    assert claim.bad == ()
    assert claim.restored == Restored(own(1, 1).path)
    assert claim.adopts == (Adopted(4, 2, 2),), "the plans of the epochs 2 and 3 in the entries 4 and 5"
    assert max(world.log) == one.claim, "nothing is appended before it runs"


def test_what_lies_past_it_is_never_gone_on_from_by_accident() -> None:
    """Not even if the run that went back dies at once, and its origin is found damaged."""
    world = after(4)
    Driver(world).start("b", restore=own(1, 2))
    world.damaged[CheckpointId(1, 2)] = "broken"
    one = started(Driver(world).start("c"))
    assert (one.origin, one.epoch) == (CheckpointId(1, 1), 2)
    assert [p.epoch for p in one.planned] == [3]


def test_the_same_value_is_applied_once() -> None:
    world = after(4)
    driver = Driver(world)
    driver.start("b", restore=own(1, 1))
    driver.rest(2, 2)
    driver.trigger(3)
    driver.rest(2, 3)
    said = Driver(world).start("c", restore=replace(own(1, 1), discard=True))
    assert started(said).origin == CheckpointId(2, 3)
    told = next(i.message for i in said if isinstance(i, do.Log) and "was applied by an earlier run" in i.message)
    assert "restore.plans=DISCARD counts only where that would be refused" in told
    assert "start the query once without the option, and then with it" in told
    assert claim_of(world, started(said).claim).restored == Restored(own(1, 1).path)


def test_another_value_is_applied_and_so_is_the_same_after_a_start_without_it() -> None:
    world = after(4)
    Driver(world).start("b", restore=own(1, 2))
    assert started(Driver(world).start("c", restore=own(1, 1))).origin == CheckpointId(1, 1)
    assert claim_of(world, started(Driver(world).start("d")).claim).restored is None
    assert started(Driver(world).start("e", restore=own(1, 1))).origin == CheckpointId(1, 1)


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda world: world.damaged.update({CheckpointId(1, 1): "broken"}), r"cannot be restored: broken"),
        (lambda world: world.objects.discard("run-00000001/seg/1-p0"), r"cannot be restored: run-00000001/seg/1-p0"),
    ],
)
def test_a_damaged_choice_is_refused_and_no_other_is_taken(prepare: Callable[[World], None], message: str) -> None:
    world = after(4)
    prepare(world)
    before = dict(world.log)
    refused = refusal(Driver(world).start("b", restore=own(1, 1)))
    assert refused.kind is ErrorKind.DAMAGED
    assert message in refused.message
    assert world.log == before


def test_a_choice_that_is_not_there_is_refused_with_what_is() -> None:
    world = after(2)
    before = dict(world.log)
    refused = refusal(Driver(world).start("b", restore=own(1, 7)))
    assert refused.kind is ErrorKind.MISSING
    assert "choose one of its others (run 1 epoch 1, run 1 epoch 0)" in refused.message
    assert world.log == before


def test_a_choice_that_was_found_damaged_before_is_refused() -> None:
    world = after(3)
    world.damaged[CheckpointId(1, 2)] = "broken"
    Driver(world).start("b")
    del world.damaged[CheckpointId(1, 2)]
    assert "was found damaged" in refusal(Driver(world).start("c", restore=own(1, 2))).message


def test_a_choice_that_the_old_run_drops_meanwhile_is_looked_for_again() -> None:
    world = after(4)
    slow = Driver(world)
    slow.hold = lambda i: isinstance(i, do.ReadMetadata)
    slow.start("b", restore=own(1, 2))
    old = Driver(world)
    old.start("c")
    old.epoch(2, 4)
    gone = world.checkpoints.pop(CheckpointId(1, 2))
    asked: list[Instruction] = []

    def comes_back(i: Instruction) -> bool:
        asked.append(i)
        if isinstance(i, do.LocateTail):
            world.checkpoints[gone.id] = gone
        return False

    slow.hold = comes_back
    assert started(slow.release()).origin == CheckpointId(1, 2)
    assert sum(isinstance(i, do.LocateTail) for i in asked) == 1


def test_what_the_last_run_does_not_retain_cannot_be_chosen_although_it_is_there() -> None:
    """Found by the simulation: (1) the answer to its last append is late; (2) a successor goes on from it; (3) the old run deletes it."""
    world = after(4)
    before = dict(world.log)
    assert CheckpointId(1, 0) in world.checkpoints
    refused = refusal(Driver(world).start("b", restore=own(1, 0)))
    assert refused.kind is ErrorKind.MISSING
    assert "is no longer retained" in refused.message
    assert "(run 1 epoch 3, run 1 epoch 2, run 1 epoch 1)" in refused.message
    assert world.log == before


def test_what_one_run_does_not_retain_is_not_retained_by_a_successor_that_retains_more() -> None:
    world = World()
    driver = Driver(world, Settings(retained=1))
    driver.start("a")
    driver.epoch(1, 0)
    driver.epoch(1, 1)
    more = started(Driver(world, Settings(retained=3)).start("b"))
    claim = claim_of(world, more.claim)
    assert (claim.inherits, claim.retained) == ((CheckpointId(1, 0), CheckpointId(1, 1)), 3)
    assert claim.unsure == (CheckpointId(1, 0),)
    assert "is no longer retained" in refusal(Driver(world).start("c", restore=own(1, 0))).message


def test_a_job_that_does_not_fit_is_refused_as_ever() -> None:
    refused = refusal(Driver(after(2)).start("b", Job(("other",), JOB.sources, JOB.sink), restore=own(1, 0)))
    assert refused.kind is ErrorKind.CONFLICT


# --- from elsewhere


def test_a_new_stream_begins_with_a_copy_and_goes_on_behind_it() -> None:
    world = with_source(World())
    source = world.sources[SAVEPOINT]
    one = started(Driver(world).start("a", restore=ev.Restore(SAVEPOINT)))
    imported = CheckpointId(1, 2)
    assert (one.run, one.claim, one.origin, one.epoch, one.rerun, one.planned) == (1, 1, imported, 3, False, ())
    assert dict(one.files) == dict(source.files)
    made = world.checkpoints[imported]
    assert (made.log, made.claim, made.query_id, made.job) == (1, 1, "q", JOB)
    assert [s.uid for s in made.snapshots] == [s.uid for s in source.snapshots]
    assert not made.objects & source.objects
    assert all(name.startswith("run-00000001/") for name in made.objects)
    claim = claim_of(world, 1)
    assert (claim.origin, claim.inherits, claim.restored) == (imported, (imported,), Restored(SAVEPOINT, imported))


def test_it_lives_without_its_source_and_the_value_is_applied_once() -> None:
    world = with_source(World())
    driver = Driver(world)
    driver.start("a", restore=ev.Restore(SAVEPOINT))
    driver.epoch(1, 3)
    world.sources.clear()
    one = started(Driver(world).start("b", restore=ev.Restore(SAVEPOINT)))
    assert (one.origin, one.epoch) == (CheckpointId(1, 3), 4)


def test_nothing_is_stored_under_a_number_that_another_run_may_get() -> None:
    """The copy's `_metadata` comes after the claim; a rival that is faster makes this start begin again."""
    world = with_source(World())
    slow = Driver(world)
    slow.hold = lambda i: isinstance(i, do.PutEntry)
    slow.start("a", restore=ev.Restore(SAVEPOINT))
    assert world.checkpoints == {}
    rival = Driver(world)
    rival.start("b")
    slow.hold = lambda _: False
    assert "epochs of its own" in refusal(slow.release()).message
    assert world.checkpoints == {}


def test_a_restore_that_was_cut_short_is_done_again_and_never_forgotten() -> None:
    world = with_source(World())
    cut = Driver(world)
    cut.hold = lambda i: isinstance(i, do.StoreMetadata)
    cut.start("a", restore=ev.Restore(SAVEPOINT))
    refused = refusal(Driver(world).start("b"))
    assert f"spark.ckpt.restore.path={SAVEPOINT} again" in refused.message
    one = started(Driver(world).start("c", restore=ev.Restore(SAVEPOINT)))
    assert (one.run, one.origin, one.epoch) == (2, CheckpointId(2, 2), 3)


@pytest.mark.parametrize("arrived", [True, False])
def test_an_unknown_outcome_of_the_copys_metadata_is_read_back(arrived: bool) -> None:
    world = with_source(World())
    driver = Driver(world)
    driver.hold = lambda i: isinstance(i, do.StoreMetadata)
    driver.start("a", restore=ev.Restore(SAVEPOINT))
    put = driver.held.pop()
    assert isinstance(put, do.StoreMetadata)
    if arrived:
        world.store(put.checkpoint)
    driver.hold = lambda _: False
    one = started(driver.push(ev.MetadataPut(put.ticket, put.checkpoint.id, Outcome.UNKNOWN)))
    assert one.origin == CheckpointId(1, 2)
    assert CheckpointId(1, 2) in world.checkpoints


def test_a_copy_that_cannot_be_made_changes_nothing() -> None:
    world = with_source(World())
    driver = Driver(world)
    driver.hold = lambda i: isinstance(i, do.ImportObjects)
    driver.start("a", restore=ev.Restore(SAVEPOINT))
    said: list[Instruction] = []
    while driver.held:
        i = driver.held.pop()
        assert isinstance(i, do.ImportObjects)
        said = driver.push(ev.ReadFailed(i.ticket, "a range is damaged"))
    assert "a range is damaged" in refusal(said).message
    assert world.log == {}


@pytest.mark.parametrize(
    ("change", "seen", "says"),
    [
        ({"job": Job(("a",), ("kafka",), JOB.sink)}, None, ("stateful operators are a, those", "sources are kafka, those")),
        ({"files": {}}, None, ("lacks the driver's file offsets/2", "commits/2")),
        ({}, 3, ("the sink (memory) has batch 3 already", "an output path that is new")),
    ],
)
def test_what_does_not_fit_is_told_at_once_and_before_anything_is_written(
    change: dict[str, object], seen: int | None, says: tuple[str, ...]
) -> None:
    world = with_source(World(), replace(elsewhere(), **change))  # type: ignore[arg-type]
    refused = refusal(Driver(world).start("a", restore=ev.Restore(SAVEPOINT), sink_seen=seen))
    assert refused.kind is ErrorKind.CONFLICT
    for text in says:
        assert text in refused.message
    assert world.log == {}
    assert world.objects == set()


def test_a_sink_that_has_seen_no_more_than_the_savepoint_is_fine() -> None:
    assert started(Driver(with_source(World())).start("a", restore=ev.Restore(SAVEPOINT), sink_seen=2)).epoch == 3


NOTHING_NAMED = b'v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{}}'


def of_partitions(count: str, commit: bytes | None = None) -> Checkpoint:
    """Stores of two partitions, where Spark was told to make so many. `commit`: in the place of one that names both."""
    source = elsewhere()
    conf = '{"batchWatermarkMs":0,"conf":{"spark.sql.shuffle.partitions":' + count + "}}"
    files = {**source.files, "offsets/2": f"v1\n{conf}\n{{}}".encode()}
    return replace(source, files=files if commit is None else {**files, "commits/2": commit})


def test_a_missing_partition_is_named() -> None:
    source = of_partitions('"2"')
    assert partitions_of(source) == 2
    assert misfits(source, JOB) == []
    assert misfits(replace(source, snapshots=source.snapshots[:1]), JOB) == ["operator 0 lacks partitions 1"]
    assert misfits(of_partitions('"3"', NOTHING_NAMED), JOB) == ["operator 0 lacks partitions 2"]


def test_an_operator_has_the_partitions_that_its_epoch_names() -> None:
    """A limit has one, however many others have."""
    assert misfits(of_partitions('"200"'), JOB) == []


@pytest.mark.parametrize("count", ['"9000000000000000000"', "Infinity", "[" * 100_000])
def test_a_forged_number_of_partitions_costs_nothing(count: str) -> None:
    source = of_partitions(count, NOTHING_NAMED)
    assert all(problem.startswith("operator 0 lacks partitions 2, 3, 4") for problem in misfits(source, JOB))


def test_nothing_at_the_path_is_told() -> None:
    refused = refusal(Driver(World()).start("a", restore=ev.Restore("s3://b/nowhere")))
    assert refused.kind is ErrorKind.MISSING
    assert "nothing is at s3://b/nowhere" in refused.message


def test_a_stream_with_epochs_of_its_own_takes_no_other_streams_checkpoint() -> None:
    world = with_source(after(2))
    before = dict(world.log)
    assert "this one has epochs of its own" in refusal(Driver(world).start("b", restore=ev.Restore(SAVEPOINT))).message
    assert world.log == before


def test_two_queries_cannot_go_on_from_one_path() -> None:
    refused = refusal(Driver(with_source(World())).start("a", restore=ev.Restore(SAVEPOINT, rival="file:/other")))
    assert refused.kind is ErrorKind.CONFIG
    assert "file:/other" in refused.message


# --- a savepoint of the stream itself


def test_a_savepoint_of_the_stream_runs_what_was_planned_past_it_again() -> None:
    world = after(4)
    with_source(world, world.checkpoints[CheckpointId(1, 1)])
    one = started(Driver(world).start("b", restore=ev.Restore(SAVEPOINT), sink_seen=3))
    imported = CheckpointId(2, 1)
    assert (one.origin, one.epoch, one.rerun, [p.epoch for p in one.planned]) == (imported, 2, True, [3])
    assert claim_of(world, one.claim).inherits == (CheckpointId(1, 1), imported)
    again = started(Driver(world).start("c", restore=ev.Restore(SAVEPOINT)))
    assert (again.origin, again.epoch, [p.epoch for p in again.planned]) == (imported, 2, [3])


def test_a_savepoint_of_a_copy_is_the_streams_own_too() -> None:
    world = after(4)
    with_source(world, world.checkpoints[CheckpointId(1, 1)])
    Driver(world).start("b", restore=ev.Restore(SAVEPOINT))
    world.sources["s3://b/again"] = world.checkpoints[CheckpointId(2, 1)]
    one = started(Driver(world).start("c", restore=ev.Restore("s3://b/again")))
    assert (one.origin, one.epoch, [p.epoch for p in one.planned]) == (CheckpointId(3, 1), 2, [3])
    fork = with_source(World())
    driver = Driver(fork)
    driver.start("d", restore=ev.Restore(SAVEPOINT))
    fork.sources["s3://b/again"] = fork.checkpoints[CheckpointId(1, 2)]
    driver.epoch(1, 3)
    one = started(Driver(fork).start("e", restore=ev.Restore("s3://b/again")))
    assert (one.origin, one.epoch, one.rerun) == (CheckpointId(2, 2), 3, True)


@pytest.mark.parametrize("chosen", [own(1, 1), ev.Restore(SAVEPOINT)])
def test_the_states_schemas_are_compared_before_anything_is_written(chosen: ev.Restore) -> None:
    world = with_source(World()) if chosen.own is None else after(4)
    source = world.sources[SAVEPOINT] if chosen.own is None else world.checkpoints[CheckpointId(1, 1)]
    before, objects = dict(world.log), set(world.objects)
    driver = Driver(world)
    named = f"spark.ckpt.restore.path={chosen.path}"
    files = {**source.files, **a_total(0)}
    chosen_source = replace(source, files=files)
    if chosen.own is None:
        world.sources[SAVEPOINT] = chosen_source
    else:
        world.checkpoints[source.id] = chosen_source
    assert driver.start("b", restore=chosen, compared=False)[-1] == do.Compare(named, source.id.epoch, files, plan=True)
    assert driver.start("b", restore=chosen, compared=False, planned=a_total(0))[-1] == do.Compare(named, source.id.epoch, files)
    assert (world.log, world.objects) == (before, objects)
    assert started(driver.start("c", restore=chosen)).epoch == source.id.epoch + 1


def test_nothing_is_compared_where_nothing_is_chosen_or_it_was_applied_before() -> None:
    world = after(4)
    assert started(Driver(world).start("b", compared=False)).origin == CheckpointId(1, 3)
    driver = Driver(world)
    driver.start("c", restore=own(1, 1))
    driver.rest(3, 2)
    assert started(Driver(world).start("d", restore=own(1, 1), compared=False)).origin == CheckpointId(3, 2)


def test_discarded_plans_free_no_number() -> None:
    world = after(4)
    one = started(Driver(world).start("b", restore=replace(own(1, 1), discard=True)))
    assert (one.origin, one.epoch, one.rerun, one.planned, one.version) == (CheckpointId(1, 1), 4, False, (), 2)
    assert claim_of(world, one.claim).first == 4
    nothing_past_it = started(Driver(after(4)).start("b", restore=replace(own(1, 3), discard=True)))
    assert (nothing_past_it.epoch, nothing_past_it.version) == (4, None)


@pytest.mark.parametrize("discard", [False, True])
def test_going_back_past_a_checkpoint_whose_plan_is_missing_is_refused(discard: bool) -> None:
    """Its number was used; whether later ones were, nobody knows."""
    world = after(6)
    del world.log[6], world.log[7]
    before = dict(world.log)
    refused = refusal(Driver(world).start("b", restore=replace(own(1, 3), discard=discard)))
    assert refused.kind is ErrorKind.DAMAGED
    assert "before the plan of checkpoint run 1 epoch 5" in refused.message
    assert world.log == before


def test_where_plans_are_missing_a_person_has_to_say_what_to_lose() -> None:
    world = after(6)
    world.damaged = {CheckpointId(1, epoch): "broken" for epoch in (3, 4, 5)}
    del world.log[5], world.log[6]
    before = dict(world.log)
    refused = refusal(Driver(world).start("b"))
    assert refused.kind is ErrorKind.DAMAGED
    assert "log entry 5 is missing" in refused.message
    assert "checkpoint run 1 epoch 2" in refused.message
    assert "spark.ckpt.restore.plans=DISCARD" in refused.message
    assert world.log == before

    one = started(Driver(world).start("b", restore=replace(own(1, 2), discard=True)))
    assert (one.origin, one.epoch, one.rerun, one.planned, one.version) == (CheckpointId(1, 2), 6, False, (), 3)


@pytest.mark.parametrize("adopts", [None, (Adopted(6, 2, 4),)])
def test_numbers_that_nobody_knows_are_not_used_again(adopts: tuple[Adopted, ...] | None) -> None:
    """The last plans are missing themselves, so not even a person can have them discarded."""
    world = after(6)
    del world.log[6], world.log[7]
    world.log[8] = encode(replace(claim_of(after(0), 1), claim=8, run=2, origin=CheckpointId(1, 3), adopts=adopts, used=None))
    before = dict(world.log)
    refused = refusal(Driver(world).start("b", restore=replace(own(1, 3), discard=True)))
    assert "log entry 6 is missing" in refused.message
    assert "DISCARD" not in refused.message
    assert world.log == before


def test_numbers_that_are_missing_and_that_the_last_claim_went_past_are_not_used_again() -> None:
    world = after(6)
    del world.log[6], world.log[7]
    inherits = tuple(CheckpointId(1, epoch) for epoch in (3, 4, 5))
    claim = replace(claim_of(after(0), 1), claim=8, run=2, origin=CheckpointId(1, 5), inherits=inherits, adopts=(), retained=3, used=5)
    world.log[8] = encode(claim)
    assert "DISCARD" in refusal(Driver(world).start("b", restore=own(1, 3))).message
    one = started(Driver(world).start("c", restore=replace(own(1, 3), discard=True)))
    assert (one.origin, one.epoch, one.rerun) == (CheckpointId(1, 3), 6, False)


def test_a_savepoint_brings_a_deleted_stream_back_with_its_plans() -> None:
    world = after(4)
    with_source(world, world.checkpoints[CheckpointId(1, 1)])
    world.log[6] = encode(End(1, 1))
    world.checkpoints.clear()
    one = started(Driver(world).start("b", query="new", restore=ev.Restore(SAVEPOINT), sink_seen=3))
    assert (one.run, one.origin, one.epoch, one.rerun, [p.epoch for p in one.planned]) == (2, CheckpointId(2, 1), 2, True, [3])


def test_what_a_deletion_takes_along_is_not_gone_on_with_although_it_is_still_there() -> None:
    """Found by a review: (1) `gc` reads that the stream was deleted; (2) a savepoint is restored, and the plan past it names a large file
    that the deletion had not come to; (3) `gc` deletes that, and nothing of the stream can be read any more."""
    world = after(4)
    with_source(world, world.checkpoints[CheckpointId(1, 1)])
    plan = decode(5, world.log[5])
    assert isinstance(plan, Plan)
    large = FileHandle("run-00000001/drv/3-" + "0" * 32, 70_000, 1)
    world.objects.add(large.object)
    world.log[5] = encode(replace(plan, files={"sources/0/9.compact": large}))
    world.log[6] = encode(End(1, 1))
    world.checkpoints.clear()
    before = dict(world.log)
    refused = refusal(Driver(world).start("b", query="new", restore=ev.Restore(SAVEPOINT), sink_seen=3))
    assert refused.kind is ErrorKind.CONFLICT
    assert "the stream was deleted, and with it files that the plan of epoch 3 names" in refused.message
    assert world.log == before
    one = started(Driver(world).start("c", query="new", restore=ev.Restore(SAVEPOINT, discard=True), sink_seen=3))
    assert (one.origin, one.epoch, one.rerun, one.planned) == (CheckpointId(2, 1), 4, False, ())


def test_a_stream_that_began_anew_since_does_not_take_its_savepoint_back() -> None:
    world = after(4)
    with_source(world, world.checkpoints[CheckpointId(1, 1)])
    world.log[6] = encode(End(1, 1))
    world.checkpoints.clear()
    Driver(world).start("b")
    refused = refusal(Driver(world).start("c", restore=ev.Restore(SAVEPOINT)))
    assert "was deleted and began anew" in refused.message


def test_a_log_that_does_not_reach_back_is_named() -> None:
    world = after(4)
    with_source(world, world.checkpoints[CheckpointId(1, 1)])
    del world.log[1], world.log[3]
    world.log[6] = encode(replace(claim_of(after(0), 1), claim=6, run=2, origin=CheckpointId(1, 3)))
    refused = refusal(Driver(world).start("b", restore=ev.Restore(SAVEPOINT)))
    assert refused.kind is ErrorKind.DAMAGED
    assert "log entry 1 is missing" in refused.message


# --- what the run does about it


def test_what_is_not_inherited_goes_when_the_run_has_completed_one_of_its_own() -> None:
    """Its objects stay as long as anything else names them, and nothing goes before an append that follows the completion."""
    world = after(4)
    driver = Driver(world)
    driver.start("b", restore=own(1, 1))
    driver.rest(2, 2)
    assert set(world.checkpoints) == {CheckpointId(1, 1), CheckpointId(1, 2), CheckpointId(1, 3), CheckpointId(2, 2)} | {CheckpointId(1, 0)}
    driver.trigger(3)
    assert set(world.checkpoints) == {CheckpointId(1, 1), CheckpointId(2, 2)}
    assert not {"run-00000001/seg/3-p0", "run-00000001/seg/2-p0"} & world.objects
    assert "run-00000001/seg/1-p0" in world.objects


@pytest.mark.parametrize(("owned", "still"), [(True, True), (True, False), (False, True)])
def test_a_claimed_folder_goes_with_its_copy_as_long_as_the_configuration_says_so(owned: bool, still: bool) -> None:
    world = with_source(World())
    driver = Driver(world, Settings(retained=1))
    driver.start("a", restore=ev.Restore(SAVEPOINT, owned=owned))
    assert SAVEPOINT in world.sources
    again = Driver(world, Settings(retained=1))
    said = again.start("b", restore=ev.Restore(SAVEPOINT, owned=owned) if still else None)
    assert any(isinstance(i, do.Log) and "that folder stays" in i.message for i in said) is not still
    again.epoch(2, 3)
    assert SAVEPOINT in world.sources
    again.trigger(4)
    assert CheckpointId(1, 2) not in world.checkpoints
    assert (SAVEPOINT in world.sources) is not (owned and still)


def test_a_coordinator_that_takes_over_goes_on_from_the_chosen_one() -> None:
    world = after(4)
    driver = Driver(world)
    one = started(driver.start("b", restore=own(1, 1)))
    other = Driver(world)
    other.push(ev.ResumeRequested(one.run, one.claim, 2))
    run = other.stream.run
    assert run is not None
    assert run.base == CheckpointId(1, 1)
    other.rest(2, 2)
    assert CheckpointId(2, 2) in world.checkpoints


def test_a_coordinator_that_takes_over_before_the_seal_is_answered_does_not_take_the_next_plan_for_the_epoch_in_hand() -> None:
    """Found by the simulation: a start appends all plans that run again, so the next epoch's is the run's own before it begins."""
    world = after(4)
    driver = Driver(world)
    one = started(driver.start("b", restore=own(1, 1)))
    assert [p.epoch for p in one.planned] == [3]
    driver.rest(2, 2)
    other = Driver(world)
    said = other.push(ev.ResumeRequested(one.run, one.claim, 2))
    assert [type(i) for i in said if isinstance(i, (do.Resumed, do.Announce))] == [do.Resumed, do.Announce], "nothing is triggered"
    assert any(isinstance(i, do.Sealed) for i in other.seal(2, 2))
    assert any(isinstance(i, do.Triggered) for i in other.trigger(3))
    other.rest(2, 3)
    assert CheckpointId(2, 3) in world.checkpoints
