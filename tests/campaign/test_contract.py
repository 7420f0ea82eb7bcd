"""The storage contract over real S3 servers behind latency."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.lossy_proxy import LossyProxy
from testbed.servers import ACCESS, SECRET

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]


def test_the_contract_over_a_real_server(far: LossyProxy) -> None:
    """In a process of its own: the contract chooses its storages when it is imported."""
    env = {**os.environ, "SPARK_CKPT_S3_ENDPOINT": far.endpoint, "AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET}
    env |= {"AWS_EC2_METADATA_DISABLED": "true", "AWS_DEFAULT_REGION": "us-east-1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=300", "-k", "real-s3", "tests/contract"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=1100, check=False)
    print(done.stdout[-4000:])
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert len(far.struck) > 100, "the contract did not reach the server"
