"""Fixtures of all tests that start real applications."""

from __future__ import annotations

import fcntl
import itertools
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.drivers.spark.harness import JOBS, Application, Start, submit
from tests.drivers.spark.inputs import FILES, MANY, write_events


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


def made_once(folder: Path, make: Callable[[Path], None]) -> None:
    """What any of pytest-xdist's processes makes in `folder` for all of them: the first one that comes here."""
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            new = folder.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir()
            make(new)
            new.rename(folder)


MANY_NAMES = ("unique", "outer", "update")


@pytest.fixture(scope="session")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For queries that are killed often."""
    folder = tmp_path_factory.mktemp("many") / "events"
    write_events(folder, 0, MANY, closing=True)
    return folder


@pytest.fixture(scope="session")
def batches(events: Path, many: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What batch queries give over `events` and `many`, which are the same in every process: two folders, in each one for a query."""
    sys.path.insert(0, str(JOBS))
    from operators import QUERIES

    def ask(out: Path) -> None:
        args = ["batch", ",".join(QUERIES), str(events), str(out / "events"), ",".join(MANY_NAMES), str(many), str(out / "many")]
        with submit("operators.py", args, log=out / "batch.log", storage=None, plugin=False) as app:
            app.expect_success()

    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "batches"
    made_once(folder, ask)
    return folder


@pytest.fixture(scope="session")
def oracle(batches: Path) -> Mapping[str, Path]:
    """By query, what it has to give over all of `events`."""
    from operators import QUERIES

    return {name: batches / "events" / name for name in QUERIES}


@pytest.fixture(scope="session")
def oracle_of_many(batches: Path) -> Path:
    """The same over all of `many`: a folder for each of `MANY_NAMES`."""
    return batches / "many"
