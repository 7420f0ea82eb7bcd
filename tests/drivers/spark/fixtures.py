"""Fixtures of all tests that start real applications."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.drivers.spark.harness import JOBS, Application, Start, submit
from tests.drivers.spark.inputs import FILES, write_events


@pytest.fixture(scope="session")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("input") / "events"
    write_events(folder, 0, FILES, closing=True)
    return folder


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts applications and ends what is left of them when the test does."""
    numbers = itertools.count()
    with ExitStack() as started:

        def begin(script: str, *args: str, **how: object) -> Application:
            app = submit(script, args, log=tmp_path / f"application-{next(numbers)}.log", **how)  # type: ignore[arg-type]
            return started.enter_context(app)

        yield begin


@pytest.fixture(scope="session")
def oracle(events: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """What a batch query gives for every query over the whole input."""
    sys.path.insert(0, str(JOBS))
    from operators import QUERIES

    out = tmp_path_factory.mktemp("oracle")
    args = ["batch", ",".join(QUERIES), str(events), str(out)]
    with submit("operators.py", args, log=out / "batch.log", storage=None, plugin=False) as app:
        app.expect_success()
    return {name: out / name for name in QUERIES}
