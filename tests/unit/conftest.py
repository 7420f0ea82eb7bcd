"""A stream in a folder of its own, and coordinator processes that end with the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from spark_ckpt.storage import Storage, open_storage
from tests.drivers.agent_stores import Client
from tests.drivers.coordinator_process import FakeJvm, Jvm

# How long an example takes says how busy the machine is.
settings.register_profile("without a clock", deadline=None)
settings.load_profile("without a clock")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/ckpt/orders"


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def storage(url: str) -> Storage:
    return open_storage(url)


@pytest.fixture
def any_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmark does not wait until the machine is quiet."""
    monkeypatch.setattr("benchmarks.machine.WAIT_S", 0.0)


@pytest.fixture(autouse=True)
def _agents_end() -> Iterator[None]:
    """Also those of a test that fails before it has come to end them."""
    yield
    for agent in list(Client.living):
        agent.kill()


@pytest.fixture
def jvm(tmp_path: Path) -> Iterator[Jvm]:
    made: list[FakeJvm] = []

    def make(**kwargs: Any) -> FakeJvm:
        made.append(FakeJvm(tmp_path, **kwargs))
        return made[-1]

    yield make
    for one in made:
        one.kill()
