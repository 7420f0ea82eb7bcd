"""Start: order of questions, origin, claim, plans, and every way to be refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_ckpt.errors import ErrorKind
from spark_ckpt.model import CheckpointId, Job
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import Adopted, Claim, End, Plan, decode, encode
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.machine import InvalidTransitionError
from spark_ckpt.protocol.reasons import Outcome
from spark_ckpt.protocol.settings import Settings
from spark_ckpt.protocol.start.start import ROUNDS
from spark_ckpt.protocol.stream import Stream
from tests.drivers.protocol_driving import JOB, Driver, World, answer, offsets
from tests.drivers.protocol_starts import after, refusal, started


def first(said: list[Instruction]) -> Instruction:
    return said[0]


def questions(world: World) -> list[str]:
    """The names of all instructions of a start, in order."""
    stream, names = Stream(), []
    pending = stream.handle(ev.StartRequested("q", JOB, (), "z", "h"), 1)
    while pending:
        i = pending.pop(0)
        names.append(type(i).__name__)
        reply = answer(world, i)
        if reply is not None:
            pending += stream.handle(reply, 1)
    return names


def test_the_first_start_checks_the_storage_and_claims() -> None:
    assert questions(World()) == ["LocateTail", "CheckStorage", "PutEntry", "LookPast", "Started", "SetTimer"]


def test_a_restart_asks_tail_claim_checkpoints_in_this_order() -> None:
    assert questions(after(1)) == [
        "LocateTail",
        "ReadEntry",
        "ReadEntry",
        "ListCheckpoints",
        "ReadMetadata",
        "VerifyObjects",
        "PutEntry",
        "LookPast",
        "Started",
        "Announce",
        "SetTimer",
    ]


def test_a_restart_goes_on_from_the_newest_checkpoint() -> None:
    world = after(4)
    said = Driver(world).start("b")
    one = started(said)
    assert (one.run, one.claim, one.origin, one.epoch, one.rerun, one.planned) == (2, 6, CheckpointId(1, 3), 4, False, ())
    assert set(one.files) == {"offsets/2", "offsets/3", "commits/2", "commits/3"}
    claim = decode(6, world.log[6])
    assert isinstance(claim, Claim)
    assert claim.inherits == (CheckpointId(1, 0), CheckpointId(1, 1), CheckpointId(1, 2), CheckpointId(1, 3))[4 - len(claim.inherits) :]


def test_a_planned_epoch_is_adopted_by_the_claim_of_who_runs_it_again() -> None:
    world = after(1)
    Driver(world).start("b")
    zombie = Driver(world)
    zombie.start("c")
    zombie.trigger(1)
    one = started(Driver(world).start("d"))
    assert (one.epoch, one.rerun, one.files["offsets/1"]) == (1, True, offsets(1))
    claim = decode(one.claim, world.log[one.claim])
    assert isinstance(claim, Claim)
    assert claim.adopts == (Adopted(5, 1, 1),)
    assert max(world.log) == one.claim


def test_a_start_reads_what_the_last_claim_has_adopted_however_often_the_stream_was_started() -> None:
    """Twenty starts crash before a checkpoint; each finds ten plans, and what the one before appended, not all that ever was."""
    settings = Settings(interval_ms=60_000)
    world = World()
    first = Driver(world, settings)
    first.start("a")
    for epoch in range(10):
        first.epoch(1, epoch)
    for n in range(20):
        driver, read = Driver(world, settings), list[int]()
        driver.hold = lambda i, read=read: bool(isinstance(i, do.ReadEntry) and read.append(i.number))  # type: ignore[misc]
        one = started(driver.start(f"b{n}"))
        assert (one.epoch, one.rerun, [p.epoch for p in one.planned]) == (0, True, list(range(1, 10)))
        assert len(read) <= 15
        driver.rest(one.run, 0)
        for epoch in (1, 2):
            driver.epoch(one.run, epoch)
    assert len(world.log) == 11 + 20 * 3


def test_a_checkpoint_made_while_epochs_run_again_is_gone_on_from_with_the_rest_of_the_plans() -> None:
    world = after(1)
    world.log |= {3 + n: encode(Plan(1, 1, 1 + n, offsets(1 + n))) for n in range(4)}
    driver = Driver(world)
    one = started(driver.start("b"))
    assert (one.epoch, [p.epoch for p in one.planned]) == (1, [2, 3, 4])
    driver.rest(2, 1)
    assert world.checkpoints[CheckpointId(2, 1)].log == one.claim
    one = started(Driver(world).start("c"))
    assert (one.origin, one.epoch, [p.epoch for p in one.planned]) == (CheckpointId(2, 1), 2, [3, 4])
    driver = Driver(world)
    one = started(driver.start("d"))
    driver.rest(4, 2)
    driver.epoch(4, 3)
    one = started(Driver(world).start("e"))
    assert (one.origin, one.epoch, one.rerun, one.planned) == (CheckpointId(4, 3), 4, True, ())
    chosen = ev.Restore("memory://own", CheckpointId(2, 1))
    one = started(Driver(world, Settings(retained=9)).start("f", restore=chosen))
    assert (one.origin, one.epoch, [p.epoch for p in one.planned]) == (CheckpointId(2, 1), 2, [3, 4])


def test_two_starts_at_once_both_end_with_a_claim_and_the_first_is_fenced() -> None:
    world = after(2)
    slow, quick = Driver(world), Driver(world)
    slow.hold = lambda i: isinstance(i, do.PutEntry)
    assert slow.start("slow") == []
    assert started(quick.start("quick")).run == 2
    slow.hold = lambda _: False
    assert started(slow.release()).run == 3
    assert refusal(quick.trigger(2)).kind is ErrorKind.FENCED


def claiming(world: World) -> tuple[Driver, do.PutEntry]:
    """A first start whose claim is under way."""
    driver = Driver(world)
    driver.hold = lambda i: isinstance(i, do.PutEntry)
    driver.start("a")
    put = driver.held.pop()
    assert isinstance(put, do.PutEntry)
    driver.hold = lambda _: False
    return driver, put


def test_a_claim_with_a_lost_answer_is_recognised() -> None:
    world = World()
    driver, put = claiming(world)
    world.put(put.number, put.data)
    assert started(driver.push(ev.EntryPut(put.ticket, put.number, Outcome.UNKNOWN))).claim == 1


def test_a_claim_that_was_lost_is_put_again() -> None:
    world = World()
    driver, put = claiming(world)
    assert started(driver.push(ev.EntryPut(put.ticket, put.number, Outcome.UNKNOWN))).claim == 1
    assert set(world.log) == {1}


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (Job(("stateStoreSave key, other",), JOB.sources, JOB.sink), "stateful operators"),
        (Job(JOB.operators, ("kafka",), JOB.sink), "sources"),
        (Job((), JOB.sources, JOB.sink), "none"),
    ],
)
def test_another_job_is_refused_with_both_named(job: Job, message: str) -> None:
    world = after(1)
    refused = refusal(Driver(world).start("b", job))
    assert refused.kind is ErrorKind.CONFLICT
    assert message in refused.message
    assert len(world.log) == 2


def test_another_sink_is_a_warning() -> None:
    said = Driver(after(1)).start("b", Job(JOB.operators, JOB.sources, "console"))
    assert isinstance(first(said), do.Log)
    assert started(said).run == 2


def test_another_query_is_refused_with_both_named() -> None:
    refused = refusal(Driver(after(1)).start("b", query="other"))
    assert refused.kind is ErrorKind.CONFLICT
    assert "query q " in refused.message
    assert "query other" in refused.message


def test_a_stock_checkpoint_is_refused_and_leaves_no_claim() -> None:
    world = World()
    refused = refusal(Driver(world).start("a", local=("offsets/3", "commits/3", "sources/0/0")))
    assert refused.kind is ErrorKind.CONFLICT
    assert "offsets/3" in refused.message
    assert "if the folder has two paths, by a symbolic link" in refused.message, "who deletes it then begins from nothing"
    assert world.log == {}


def test_a_damaged_origin_is_left_out_and_the_plans_past_the_one_before_run_again() -> None:
    world = after(3)
    world.damaged[CheckpointId(1, 2)] = "broken"
    world.objects.discard("run-00000001/seg/1-p0")
    one = started(Driver(world).start("b"))
    assert (one.origin, one.epoch, one.rerun) == (CheckpointId(1, 0), 1, True)
    assert [p.epoch for p in one.planned] == [2]
    claim = decode(one.claim, world.log[one.claim])
    assert isinstance(claim, Claim)
    assert claim.bad == (CheckpointId(1, 1), CheckpointId(1, 2))


@pytest.mark.parametrize("name", ["offsets/2", "commits/2"])
def test_an_origin_without_its_epochs_files_is_damaged(name: str) -> None:
    """Only a forged one: who writes `_metadata` has them."""
    world = after(3)
    newest = world.checkpoints[CheckpointId(1, 2)]
    world.checkpoints[newest.id] = replace(newest, files={path: data for path, data in newest.files.items() if path != name})
    one = started(Driver(world).start("b"))
    assert one.origin == CheckpointId(1, 1)
    claim = decode(one.claim, world.log[one.claim])
    assert isinstance(claim, Claim)
    assert claim.bad == (CheckpointId(1, 2),)


@pytest.mark.parametrize("damaged", [(), (2,), (1, 2)])
def test_a_checkpoint_without_a_plan_tells_that_the_logs_end_is_missing(damaged: tuple[int, ...]) -> None:
    world = after(3)
    world.damaged = {CheckpointId(1, epoch): "broken" for epoch in damaged}
    last = world.log.pop(max(world.log))
    refused = refusal(Driver(world).start("b"))
    assert refused.kind is ErrorKind.DAMAGED
    assert f"the log ends with entry {max(world.log)}, before the plan of checkpoint run 1 epoch 2" in refused.message
    assert max(world.log) == 3, "nothing is claimed"
    world.log[4] = last
    assert started(Driver(world).start("c")).epoch == min([3, *damaged])


def test_a_plan_that_was_appended_meanwhile_is_no_missing_end() -> None:
    world = after(3)
    world.damaged[CheckpointId(1, 2)] = "broken"
    stream, said, tails = Stream(), list[Instruction](), 0
    pending = stream.handle(ev.StartRequested("q", JOB, (), "z", "h"), 1)
    while pending:
        i = pending.pop(0)
        said.append(i)
        reply = answer(world, i)
        if isinstance(i, do.LocateTail):
            tails += 1
            reply = ev.TailLocated(i.ticket, 3 if tails == 1 else max(world.log))
        if reply is not None:
            pending += stream.handle(reply, 1)
    assert tails == 2
    assert (started(said).origin, started(said).epoch) == (CheckpointId(1, 1), 2)


def test_epochs_planned_past_the_first_must_run_as_planned() -> None:
    world = after(3)
    world.damaged = {CheckpointId(1, 2): "x", CheckpointId(1, 1): "x"}
    driver = Driver(world)
    driver.start("b")
    driver.rest(2, 1)
    wrong = refusal(driver.push(ev.TriggerRequested(2, offsets(99))))
    assert wrong.kind is ErrorKind.CONFLICT
    again = Driver(world)
    assert started(again.start("c")).epoch == 2
    assert started(again.start("d")).rerun


def test_no_intact_checkpoint_is_an_error_that_names_them() -> None:
    world = after(2)
    world.damaged = dict.fromkeys(world.checkpoints, "broken")
    refused = refusal(Driver(world).start("b"))
    assert refused.kind is ErrorKind.DAMAGED
    assert "run 1 epoch 0 (broken), run 1 epoch 1 (broken)" in refused.message


def test_damage_found_by_executors_is_noted_and_the_next_start_goes_back() -> None:
    world = after(2)
    driver = Driver(world)
    driver.start("b")
    said = driver.push(ev.DamageReported(None, CheckpointId(1, 1), "checksum"))
    assert [type(i) for i in said] == [do.Log]
    assert refusal(driver.trigger(2)).kind is ErrorKind.DAMAGED
    one = started(Driver(world).start("c"))
    assert (one.origin, one.epoch, one.rerun) == (CheckpointId(1, 0), 1, True)


def test_what_was_noted_as_damaged_is_looked_at_again_when_nothing_else_is_left() -> None:
    """A person may have put it back, as the refusal says."""
    world = after(2)
    for name, epoch in (("b", 1), ("c", 0)):
        driver = Driver(world)
        assert started(driver.start(name)).origin == CheckpointId(1, epoch)
        driver.push(ev.DamageReported(None, CheckpointId(1, epoch), "checksum"))
    tail = max(world.log)
    world.damaged = {CheckpointId(1, epoch): "broken" for epoch in (0, 1)}
    assert "no checkpoint of the stream can be restored" in refusal(Driver(world).start("d")).message
    assert max(world.log) == tail, "nothing is claimed"
    world.damaged.clear()
    said = Driver(world).start("e")
    assert started(said).origin == CheckpointId(1, 0)
    assert any(isinstance(i, do.Log) and "was found damaged before (checksum); it is looked at again" in i.message for i in said)
    claim = decode(started(said).claim, world.log[started(said).claim])
    assert isinstance(claim, Claim)
    assert (claim.origin, claim.bad) == (CheckpointId(1, 0), ()), "what was left out before is not named for ever"


def test_a_refusal_does_not_promise_that_what_an_earlier_start_left_out_counts_again() -> None:
    """It is not the last run's any more."""
    world = after(2)
    for name, epoch in (("b", 1), ("c", 0)):
        driver = Driver(world)
        driver.start(name)
        driver.push(ev.DamageReported(None, CheckpointId(1, epoch), "checksum"))
    world.damaged = {CheckpointId(1, 0): "broken"}
    message = refusal(Driver(world).start("d")).message
    assert "damaged or missing are run 1 epoch 0 (broken); put their objects back, or start with a new checkpointLocation" in message
    assert "cannot go on from what an earlier start left out, run 1 epoch 1" in message
    world.damaged.clear()
    assert started(Driver(world).start("e")).origin == CheckpointId(1, 0), "the first way out"


@pytest.mark.parametrize("outcome", [Outcome.UNKNOWN, Outcome.FAILED])
def test_the_querys_stop_waits_until_the_damage_is_noted(outcome: Outcome) -> None:
    """Both follow from the same failed task."""
    world = after(2)
    driver = Driver(world)
    driver.start("b")
    driver.hold = lambda i: isinstance(i, do.PutEntry)
    driver.push(ev.DamageReported(None, CheckpointId(1, 1), "checksum"))
    put = driver.held.pop()
    assert isinstance(put, do.PutEntry)
    assert driver.push(ev.StopRequested(failed=True)) == []
    driver.hold = lambda _: False
    assert [type(i) for i in driver.push(ev.EntryPut(put.ticket, put.number, outcome, "no answer"))] == [do.Stopped]
    assert started(Driver(world).start("c")).origin == CheckpointId(1, 0)


def test_damage_of_what_no_checkpoint_names_leaves_them_as_they_are() -> None:
    """Another executor's snapshot was handed over, and its object is gone."""
    world = after(2)
    driver = Driver(world)
    driver.start("b")
    said = driver.push(ev.DamageReported("run-00000002/seg/of-nobody", None, "gone"))
    assert [i.level for i in said if isinstance(i, do.Log)] == [do.Level.ERROR]
    assert not any(isinstance(i, do.Refused) for i in driver.trigger(2))
    assert started(Driver(world).start("c")).origin == CheckpointId(1, 1)


def test_an_object_that_is_gone_condemns_the_checkpoints_that_name_it() -> None:
    world = after(2)
    driver = Driver(world)
    driver.start("b")
    own = world.checkpoints[CheckpointId(1, 1)].objects - world.checkpoints[CheckpointId(1, 0)].objects
    driver.push(ev.DamageReported(min(own), None, "gone"))
    assert refusal(driver.trigger(2)).kind is ErrorKind.DAMAGED
    assert started(Driver(world).start("c")).origin == CheckpointId(1, 0)


def test_damage_reported_by_a_zombie_is_fencing() -> None:
    world = after(2)
    zombie = Driver(world)
    zombie.start("b")
    Driver(world).start("c")
    before = len(world.log)
    zombie.push(ev.DamageReported(None, CheckpointId(1, 1), "gone"))
    assert refusal(zombie.trigger(2)).kind is ErrorKind.FENCED
    assert len(world.log) == before


def test_checkpoints_that_vanish_because_the_old_run_lives_make_it_look_again() -> None:
    world = World()
    old = Driver(world, Settings(retained=1))
    old.start("a")
    for epoch in range(2):
        old.epoch(1, epoch)
    slow = Driver(world)
    slow.hold = lambda i: isinstance(i, do.ReadMetadata)
    slow.start("b")
    for epoch in range(2, 5):
        old.epoch(1, epoch)
    slow.hold = lambda _: False
    one = started(slow.release())
    assert one.origin == CheckpointId(1, 4)
    claim = decode(one.claim, world.log[one.claim])
    assert isinstance(claim, Claim)
    assert claim.bad == ()


V1_END = b'{"v":1,"type":"end","claim":1,"run":1}'
"""As releases wrote it that did not note the numbers in use."""


@pytest.mark.parametrize("end", [encode(End(1, 1, used=1)), V1_END])
def test_an_ended_stream_begins_anew_whatever_the_job_and_its_numbers_go_on(end: bytes) -> None:
    """Sinks skip batch ids that they have seen: with epoch 0 again, all rows up to epoch 1 would be lost."""
    world = after(2)
    world.log[4] = end
    one = started(Driver(world).start("b", Job((), ("s", "t"), "x"), query="new", sink_seen=1))
    assert (one.run, one.origin, one.epoch, one.rerun, one.version) == (2, None, 2, False, 0)
    nothing = b'v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{}}'
    assert one.files == {f"offsets/{n}": b"v1\n\n-\n-" for n in (0, 1)} | {f"commits/{n}": nothing for n in (0, 1)}


def test_numbers_go_on_through_every_start_and_end() -> None:
    world = after(2)
    world.log[4] = encode(End(1, 1, used=1))
    started(Driver(world).start("b"))
    planned = Driver(world)
    assert started(planned.start("c")).epoch == 2
    planned.trigger(2)
    again = Driver(world)
    one = started(again.start("d"))
    assert (one.epoch, one.rerun, one.version, set(one.files)) == (
        2,
        True,
        0,
        {"offsets/0", "commits/0", "offsets/1", "commits/1", "offsets/2"},
    )
    again.rest(one.run, 2)
    driver = Driver(world)
    one = started(driver.start("e"))
    assert (one.epoch, one.origin, one.version) == (3, CheckpointId(4, 2), None)
    assert set(one.files) == {"offsets/1", "offsets/2", "commits/1", "commits/2"}
    driver.trigger(3)
    driver.push(ev.StopRequested(failed=False, delete=True))
    end = decode(max(world.log), world.log[max(world.log)])
    assert isinstance(end, End)
    assert end.used == 3
    assert started(Driver(world).start("f")).epoch == 4


def test_what_was_planned_before_the_end_counts_as_used() -> None:
    """(1) Epochs 2 to 4 are planned, and perhaps in the sink; (2) a run goes back to epoch 1; (3) it is deleted while it runs epoch 2."""
    world = after(2)
    for number, epoch in ((4, 2), (5, 3), (6, 4)):
        world.log[number] = encode(Plan(1, 1, epoch, offsets(epoch)))
    driver = Driver(world)
    assert started(driver.start("b")).epoch == 2
    driver.push(ev.StopRequested(failed=False, delete=True))
    assert started(Driver(world).start("c")).epoch == 5


@pytest.mark.parametrize(("epochs", "ended", "seen"), [(0, False, 0), (2, False, 2), (2, True, 2)])
def test_a_sink_that_is_ahead_of_the_stream_is_refused(epochs: int, ended: bool, seen: int) -> None:
    world = after(epochs) if epochs else World()
    if ended:
        world.log[4] = encode(End(1, 1, used=1))
    before = dict(world.log)
    refused = refusal(Driver(world).start("b", sink_seen=seen))
    assert refused.kind is ErrorKind.CONFLICT
    assert f"has batch {seen} already" in refused.message
    assert world.log == before
    started(Driver(world).start("c", sink_seen=seen - 1 if seen else None))


def test_a_query_that_goes_back_in_place_takes_the_stream_only_while_it_is_its_own() -> None:
    """(1) It runs; (2) a successor claims; (3) its state is lost, and it starts again within the same life: it is fenced."""
    world = World()

    def start(driver: Driver, nonce: str, life: str, again: bool) -> list[Instruction]:
        return driver.push(ev.StartRequested("q", JOB, (), nonce, "host", spark_run_id=life, again=again))

    old = Driver(world)
    start(old, "a", "life-1", again=False)
    old.epoch(1, 0)
    assert started(start(old, "b", "life-1", again=True)).run == 2
    assert started(start(Driver(world), "c", "life-2", again=False)).run == 3
    entries = len(world.log)
    assert refusal(start(old, "d", "life-1", again=True)).kind is ErrorKind.FENCED
    assert len(world.log) == entries


def test_reads_are_tried_again_and_then_given_up() -> None:
    driver = Driver(after(1))
    driver.hold = lambda i: isinstance(i, do.ListCheckpoints)
    driver.start("b")
    for attempt in range(5):
        i = driver.held.pop()
        assert isinstance(i, do.ListCheckpoints)
        assert i.attempt == attempt
        said = driver.push(ev.ReadFailed(i.ticket, "no route"))
    assert "no route" in refusal(said).message


def test_endless_rivals_end_in_a_conflict() -> None:
    world = World()
    driver = Driver(world)
    driver.hold = lambda i: isinstance(i, do.PutEntry)
    said = driver.start("a")
    for rival in range(ROUNDS):
        i = driver.held.pop()
        assert isinstance(i, do.PutEntry)
        world.put(i.number, encode(Claim(i.number, rival + 1, "q", JOB, None, (), (), "h", {}, 0, f"n{rival}")))
        said = driver.push(ev.EntryPut(i.ticket, i.number, Outcome.EXISTS))
    assert refusal(said).kind is ErrorKind.CONFLICT


def test_a_stop_while_starting_answers_both() -> None:
    driver = Driver(World())
    driver.hold = lambda i: isinstance(i, do.LocateTail)
    driver.start("a")
    assert [type(i) for i in driver.push(ev.StopRequested(False))] == [do.Refused, do.Stopped]
    assert driver.release() == []
    driver.start("b")
    said = driver.push(ev.StopRequested(False, delete=True))
    assert [type(i) for i in said] == [do.Refused, do.Log, do.Stopped]
    assert any(isinstance(i, do.Log) and "nothing was deleted" in i.message for i in said)


def test_an_impossible_event_tells_the_story() -> None:
    driver = Driver(World())
    driver.start("a")
    driver.trigger(0)
    run = driver.stream.run
    assert run is not None
    with pytest.raises(InvalidTransitionError, match=r"TailLocated cannot happen in phase RUNNING.*TriggerRequested") as caught:
        driver.stream.handle(ev.TailLocated(run.questions.ticket(), 1), 1)
    assert any("StartRequested" in line or "Started" in line for line in caught.value.story)
