"""The storage contract over real S3 servers behind latency, and over emulators of the clouds; and who wins of many that put at once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spark_ckpt.storage import PutResult, open_storage
from testbed.clouds import Emulator
from testbed.lossy_proxy import LossyProxy
from testbed.servers import ACCESS, SECRET
from tests.drivers.emulators import BUCKET

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
RACES, RACERS = 300, 16
VARIABLES = {"gs": "SPARK_CKPT_GCS_EMULATOR", "az": "SPARK_CKPT_AZURE_EMULATOR"}


def run_contract(server: str, environment: Mapping[str, str]) -> None:
    """In a process of its own: the contract chooses its storages when it is imported."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=300", "-k", server, "tests/contract"]
    env = {**os.environ, **environment}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=1100, check=False)
    print(done.stdout[-4000:])
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_the_contract_over_a_real_server(far: LossyProxy) -> None:
    env = {"SPARK_CKPT_S3_ENDPOINT": far.endpoint, "AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET}
    run_contract("real-s3", {**env, "AWS_EC2_METADATA_DISABLED": "true", "AWS_DEFAULT_REGION": "us-east-1"})
    assert len(far.struck) > 100, "the contract did not reach the server"


def test_the_contract_over_an_emulator(emulator: tuple[Emulator, str]) -> None:
    found, url = emulator
    with LossyProxy(url) as proxy:
        run_contract(f"real-{found.scheme}", {VARIABLES[found.scheme]: proxy.endpoint})
        assert len(proxy.requests) > 1000, "the contract did not reach the server"


def test_each_of_many_races_has_one_winner(emulator: tuple[Emulator, str], monkeypatch: pytest.MonkeyPatch) -> None:
    found, url = emulator
    for name, value in found.environment(url).items():
        monkeypatch.setenv(name, value)
    clients = [open_storage(f"{found.scheme}://{BUCKET}/races") for _ in range(4)]
    winners: list[int] = []
    wrong: list[str] = []
    with ThreadPoolExecutor(RACERS) as pool:
        for race in range(RACES):
            gate = threading.Barrier(RACERS)

            def write(racer: int, gate: threading.Barrier = gate, key: str = f"log/{race}") -> PutResult:
                gate.wait()
                return clients[racer % len(clients)].put_if_absent(key, f"racer {racer}".encode())

            stored = [racer for racer, result in enumerate(pool.map(write, range(RACERS))) if result is PutResult.STORED]
            winners.append(len(stored))
            if stored and clients[0].get(f"log/{race}") != f"racer {stored[0]}".encode():
                wrong.append(f"log/{race}")
    for client in clients:
        client.close()
    print(f"{found.kind.name}: {winners.count(1)} of {RACES} races of {RACERS} had one winner, at most {max(winners)} won")
    assert winners == [1] * RACES
    assert wrong == []
