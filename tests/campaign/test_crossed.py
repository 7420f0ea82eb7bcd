"""Every operator, with executors inside the driver or apart, goes on, on the same machine or on a fresh one; S3 is real and far away."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from conftest import Server
from harness import Application
from oracle import differences, read

pytestmark = [pytest.mark.campaign, pytest.mark.spark, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("machine", ["same", "fresh"])
@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,1024]"])
def test_every_operator_goes_on(
    master: str, machine: str, start: Callable[..., Application], s3: Server, events: Path, oracle: Mapping[str, Path], tmp_path: Path
) -> None:
    names, locations, out = list(oracle), tmp_path / "locations", tmp_path / "out"
    args = ("operators.py", "run", ",".join(names), str(events), str(locations), str(out))
    how = {"storage": f"s3://{s3.bucket}/ckpt", "master": master, "conf": s3.conf, "env": s3.env}

    def stored(name: str) -> int:
        return sum(line.startswith("PUT") and f"/{name}/run-00000001/chk-" in line for line in s3.proxy.requests)

    app = start(*args, **how)
    app.until(lambda: all(stored(name) >= 2 for name in names), "two checkpoints of every query", 900)
    app.kill()
    if machine == "fresh":
        shutil.rmtree(locations)
    start(*args, **how).expect_success(900)

    for name in names:
        assert read(oracle[name]), f"the oracle of {name} is empty: the comparison would show nothing"
        assert differences(out / name, oracle[name]) == [], name
        assert any(f"/{name}/run-00000002/chk-" in line for line in s3.proxy.requests), f"{name} did not go on in a second run"
