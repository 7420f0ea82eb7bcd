"""A user's own hook on a real query: its state is in the checkpoints, and it is told of each that is durable."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.drivers.spark.harness import Start
from tests.drivers.spark.hook_trials import HookTrial

pytestmark = [pytest.mark.spark, pytest.mark.campaign, pytest.mark.timeout(600)]


def test_a_hook_gets_its_state_back_and_publishes_each_row_once(start: Start, events: Path, tmp_path: Path) -> None:
    trial = HookTrial(start, events, tmp_path)
    trial.killed("kill-before-completed-3")
    shutil.rmtree(trial.location)
    trial.live().expect_success()
    told = trial.last_life()
    assert told[:2] == [("restore", 2), ("completed", 2)], "checkpoint 2 was durable when the driver was killed"
    assert told[2:4] == [("snapshot", 3), ("completed", 3)]
    assert trial.published() == trial.expected()
    in_group = {call["call"] for call in trial.told() if call["group"] is not None}
    assert in_group <= {"stage"}, "what a hook runs is no job of the query"


def test_with_an_interval_a_hook_that_raises_ends_the_query_with_its_name_and_is_gone_on_from(
    start: Start, events: Path, tmp_path: Path
) -> None:
    """Two lives: one whose hook raises, and one from the checkpoint before, after which each row is there once."""
    trial = HookTrial(start, events, tmp_path, interval="1ms")
    failed = trial.live("raise-before-snapshot-4")
    assert failed.wait() != 0
    assert "the hook 'sink' failed in snapshot(3): ValueError: the user's own fault; " in failed.log.read_text()
    restored = [call for call in trial.told() if call["call"] == "completed"]
    trial.live().expect_success()
    told = trial.last_life()
    assert told[0][0] == "restore"
    assert told[0][1] is None or told[1] == ("completed", told[0][1])
    assert told[0][1] is not None or not restored, "what was told as complete was not gone on from"
    assert trial.published() == trial.expected()


def test_a_hook_that_hangs_is_waited_for_only_so_long_and_declines_its_checkpoint(start: Start, events: Path, tmp_path: Path) -> None:
    """`completed` never returns: where that is tolerated the query goes on to its last epoch, which can be no checkpoint, and says why."""
    trial = HookTrial(start, events, tmp_path, interval="1ms", hooks_timeout="1s", hooks_onFailure="DECLINE", tolerableFailures="100")
    hung = trial.live("hang-before-completed-1")
    assert hung.wait() != 0
    log = hung.log.read_text()
    assert "the hook 'sink' has not returned from completed(" in log
    assert "becomes no checkpoint: the hook 'sink' has not returned from " in log
    assert "the last epoch cannot become a checkpoint: the hook 'sink'" in log
    hung.kill()
    trial.live().expect_success()
    assert trial.published() == trial.expected()
