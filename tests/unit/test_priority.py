"""`spark.ckpt.nice`: all threads of a coordinator or an agent give way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spark_ckpt.conf.options import parse_options
from spark_ckpt.errors import ConfigError
from tests.drivers.coordinator_process import FakeJvm


def values(pid: int) -> set[int]:
    return {os.getpriority(os.PRIO_PROCESS, int(task.name)) for task in Path(f"/proc/{pid}/task").iterdir()}


def test_a_coordinator_gives_way_in_all_of_its_threads(tmp_path: Path) -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    for nice, expected in (("0", own), ("10", max(10, own))):
        jvm = FakeJvm(tmp_path / nice, nice=nice)
        try:
            jvm.start()
            jvm.epoch(1, 0)
            assert values(jvm.process.pid) == {expected}
        finally:
            jvm.close()


@pytest.mark.parametrize("nice", ["-1", "20", "low", "1.5"])
def test_what_is_no_such_number_is_refused(nice: str) -> None:
    with pytest.raises(ConfigError, match=r"spark\.ckpt\.nice=.* is not possible; use a whole number from 0 to 19"):
        parse_options({"spark.ckpt.nice": nice})
