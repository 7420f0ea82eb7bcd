"""The interval mode on real Spark: checkpoints complete behind the query, and what they do not hold yet is run again as planned."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from spark_ckpt.stored.metadata.codec import decode_metadata
from testbed.lossy_proxy import Wire, WireFault
from tests.drivers.spark.harness import Start
from tests.drivers.spark.inputs import write_events
from tests.drivers.spark.oracle import differences
from tests.drivers.spark.s3_server import Server
from tests.drivers.spark.sightings import conf as shown
from tests.drivers.spark.sightings import lines, told
from tests.drivers.spark.trials import CLUSTER, INTERVAL, NAMES, Trial, TrialOnS3, completed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(500)]

# A foreachBatch that remembers, and the file sink, each once on the same machine and once on a fresh one.
SAME, FRESH = ("outer", "unique"), ("windows", "sliding", "timers")


def test_a_killed_driver_costs_the_epochs_past_the_last_checkpoint_and_no_row(
    start: Start, events: Path, oracle: Mapping[str, Path], tmp_path: Path
) -> None:
    trial = Trial(start, events, tmp_path)
    # Five queries share the processors: with an interval as long as their epochs take, every epoch would be a checkpoint.
    app = trial.start(**{"spark.ckpt.interval": "5s"})
    app.until(trial.behind, "epochs beyond a checkpoint of most queries", 200)
    app.kill()
    replayed = {name: trial.committed(name) - trial.durable(name) for name in NAMES}
    assert any(replayed.values()), "nothing has to be run again: the test has lost its point"
    for name in FRESH:
        shutil.rmtree(trial.locations / name)

    trial.start().expect_success()
    trial.compare(oracle)
    for name in NAMES:
        # AvailableNow waits for the last epoch's checkpoint.
        assert trial.durable(name) == trial.committed(name), name


@pytest.mark.campaign
def test_epochs_that_ran_again_are_whole_in_the_checkpoints_that_follow(start: Start, tmp_path: Path) -> None:
    """What sources had listed for them too: a start without the local folder has nothing else."""
    events, names = tmp_path / "events", ("windows", "unique")
    write_events(events, 0, 30, closing=True)
    trial = Trial(start, events, tmp_path, names)
    app = trial.start()
    app.until(lambda: all(trial.durable(name) >= 0 for name in names), "a checkpoint of both queries", 200)
    app.kill()
    reached = {name: trial.committed(name) for name in names}
    app = trial.start(**{"spark.ckpt.interval": "10min"})
    app.until(lambda: all(trial.committed(name) >= reached[name] + 4 for name in names), "epochs without a checkpoint")
    app.kill()
    app = trial.start(**{"spark.ckpt.interval": "1s"})
    app.until(lambda: all("run-00000003" in trial.runs(name) for name in names), "a checkpoint of the third run")
    app.kill()
    shutil.rmtree(trial.locations)
    trial.start().expect_success()
    batch = start("operators.py", "batch", ",".join(names), str(events), str(tmp_path / "batch"), storage=None, plugin=False)
    batch.expect_success()
    trial.compare({name: tmp_path / "batch" / name for name in names})


@pytest.mark.campaign
def test_a_task_that_moves_finds_its_state(start: Start, events: Path, oracle: Mapping[str, Path], tmp_path: Path) -> None:
    trial = Trial(start, events, tmp_path, ("outer",), master=CLUSTER, env={"JOB_VERBOSE": "1"})
    # Nothing begins before there are two executors: all may be over before the second one is there.
    both = {
        "spark.cores.max": "2",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "5min",
    }
    # Tasks go to whichever executor is free, wherever their state is; no checkpoint is due before the end.
    trial.start(**both, **{"spark.locality.wait": "0s", "spark.ckpt.interval": "10min"}).expect_success(300)
    trial.compare(oracle)
    for name in trial.names:
        assert trial.runs(name) == {"run-00000001"}, f"{name} was to go on in its first run"
    assert "which another executor has and no checkpoint yet" in trial.log(), "no task moved: the test has lost its point"


@pytest.mark.campaign
@pytest.mark.parametrize("victims", ["one executor", "all executors with their agents"])
def test_executors_are_killed_and_the_query_goes_back_in_place(
    victims: str, start: Start, events: Path, oracle: Mapping[str, Path], tmp_path: Path
) -> None:
    trial = Trial(start, events, tmp_path, ("windows", "sliding"), master=CLUSTER)
    app = trial.start()
    app.until(trial.behind, "epochs beyond a checkpoint of most queries", 200)
    if victims == "one executor":
        app.kill_one("CoarseGrainedExecutorBackend")
    else:
        assert app.kill_all("CoarseGrainedExecutorBackend", "spark_ckpt.agent") >= 2
    app.expect_success(300)
    trial.compare(oracle)
    assert "the query goes back to its last completed checkpoint" in trial.log(), "no state was lost: the test has lost its point"
    for name in trial.names:
        assert trial.durable(name) == trial.committed(name), name


@pytest.mark.campaign
def test_a_job_that_only_waits_survives_the_death_of_its_executors(
    start: Start, events: Path, oracle: Mapping[str, Path], tmp_path: Path
) -> None:
    trial = Trial(start, events, tmp_path, ("windows",))
    job = ("endless.py", str(events), str(trial.locations / "windows"), str(trial.out))
    app = start(*job, storage=f"file://{trial.storage}", master=CLUSTER, conf=INTERVAL)

    def all_written() -> bool:
        try:
            return differences(trial.out / "windows", oracle["windows"]) == []
        except (OSError, ValueError):  # a file is being written or replaced
            return False

    app.until(trial.behind, "epochs beyond a checkpoint", 200)
    assert app.kill_all("CoarseGrainedExecutorBackend", "spark_ckpt.agent") >= 2
    app.until(all_written, "all rows", 200)
    app.kill()
    trial.compare(oracle)


@pytest.mark.campaign
def test_agent_and_coordinator_are_killed_and_the_query_goes_on(
    start: Start, events: Path, oracle: Mapping[str, Path], tmp_path: Path
) -> None:
    trial = Trial(start, events, tmp_path, ("windows", "outer"))
    app = trial.start()
    for part in ("spark_ckpt.coordinator", "spark_ckpt.agent"):
        app.until(trial.behind, f"epochs beyond a checkpoint before {part} dies", 200)
        app.kill_one(part)
    app.expect_success()
    trial.compare(oracle)
    for name in trial.names:
        assert trial.runs(name) == {"run-00000001"}, f"{name} was to go on in its first run"
        assert trial.durable(name) == trial.committed(name), name


def test_what_an_epoch_has_written_is_known_to_the_coordinator_that_comes_after_it(start: Start, tmp_path: Path) -> None:
    """State schemas of the first epoch are in no plan before the second one's, and in no checkpoint before the first late one."""
    events, storage = tmp_path / "events", tmp_path / "storage"
    write_events(events, 0, 1)
    location = tmp_path / "location"
    conf = {"spark.ckpt.interval": "10min", "spark.sql.streaming.noDataMicroBatches.enabled": "false"}
    app = start("endless.py", str(events), str(location), str(tmp_path / "out"), storage=f"file://{storage}", conf=conf)
    app.until((location / "commits" / "0").exists, "the first epoch", 200)
    app.kill_one("spark_ckpt.coordinator")
    app.until(lambda: bool(completed(storage, location)), "the checkpoint that is due when a coordinator is replaced", 60)
    app.kill()
    (found,) = completed(storage, location)
    held = decode_metadata(found.read_bytes()).files
    written = {f"state/{p.relative_to(location / 'state')}" for p in (location / "state").rglob("*") if p.is_file()}
    assert written
    assert {path for path in held if path.startswith("state/")} == written


def test_progress_and_events_tell_how_far_durable_state_is_behind(start: Start, events: Path, tmp_path: Path) -> None:
    args = ("seen.py", str(events), str(tmp_path / "location"))
    app = start(*args, storage=f"file://{tmp_path}/storage", conf={**shown(tmp_path / "logs"), **INTERVAL})
    app.expect_success()
    progress = [p for p in told(app, "PROGRESS") if p["metrics"]]
    metrics = [p["metrics"][0] for p in progress]
    assert max(m["checkpointLagEpochs"] for m in metrics) > 0, "no epoch was ever behind: the test has lost its point"
    for m in metrics:
        assert (m["checkpointLagEpochs"] > 0) == (m["checkpointLagMs"] > 0)
    completed = [e for e in told(app, "HEARD") if e["kind"] == "completed"]
    assert len(completed) < len(progress), "every epoch was a checkpoint"
    assert completed[-1]["epoch"] == progress[-1]["epoch"]
    for event in completed:
        assert event["lag_epochs"] <= progress[-1]["epoch"] - event["epoch"]
        assert (event["lag_epochs"] > 0) == (event["lag_ms"] > 0)
    gauges = dict(line.rsplit(" ", 1) for line in lines(app, "METRIC"))
    assert {float(value) for name, value in gauges.items() if "durabilityLagEpochs" in name} == {0}


REPLAYING = ("files", "kept", "rate", "micro")
FORGETTING = {"archived": "cleanSource=archive", "socket": "socket", "own": "counter", "both": "socket"}


@pytest.mark.campaign
def test_sources_that_forget_keep_the_gate_of_every_epoch(start: Start, events: Path, tmp_path: Path) -> None:
    source, storage, locations = tmp_path / "events", tmp_path / "storage", tmp_path / "locations"
    for folder in (source, tmp_path / "events-moved"):
        shutil.copytree(events, folder)
    args = ("sources.py", ",".join([*REPLAYING, *FORGETTING]), str(source), str(locations))
    # No checkpoint is due while the test runs, whatever the first delay.
    conf = {"spark.ckpt.interval": "2h", "spark.ckpt.minPause": "1h", "spark.ckpt.retained": "1000"}
    app = start(*args, storage=f"file://{storage}", conf=conf)
    app.expect_success()
    said = [line for line in app.log.read_text().splitlines() if "every epoch is a checkpoint" in line]
    for name, what in FORGETTING.items():
        once = [line.split("says: ", 1)[1] for line in said if f"/{name}: " in line]
        assert len(once) == 1, name
        assert what in once[0]
        checkpoints = {int(p.parent.name.removeprefix("chk-")) for p in completed(storage, locations / name)}
        committed = {int(p.name) for p in (locations / name / "commits").glob("[0-9]*")}
        assert committed, name
        assert committed <= checkpoints, f"{name}: epochs {sorted(committed - checkpoints)} have no checkpoint"
    for name in REPLAYING:
        assert [line for line in said if f"/{name}: " in line] == []
        assert (locations / name / "commits" / "0").exists()
        assert completed(storage, locations / name) == [], name


NO_ROOM = {"spark.ckpt.interval": "500ms", "spark.ckpt.spool.maxSize": "4k"}
STORAGE_AWAY = WireFault(Wire.STATUS, r"^PUT \S*/(seg|sst)/", times=None, status=503)


@pytest.mark.campaign
def test_a_full_spool_makes_the_query_wait_for_the_storage(
    start: Start, s3: Server, events: Path, oracle: Mapping[str, Path], tmp_path: Path
) -> None:
    trial = TrialOnS3(start, s3, events, tmp_path)
    app = trial.start(**NO_ROOM)
    app.until(lambda: trial.stored() >= 1, "a checkpoint")
    s3.proxy.inject(STORAGE_AWAY)
    app.until(lambda: "tasks wait until the storage has taken some" in app.log.read_text(), "a full spool")
    s3.proxy.heal()
    app.expect_success()
    trial.compare(oracle)
    assert trial.seen("/run-00000002/") == 0, "the running query was to wait, not to be restarted"
