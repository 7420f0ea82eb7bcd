from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.drivers.spark import chromium as browsers
from tests.drivers.spark.browser import Browser, browser
from tests.drivers.spark.fixtures import batches, events, many, oracle, oracle_of_many, start  # noqa: F401
from tests.drivers.spark.s3_server import Server, moto, with_bucket


@pytest.fixture(scope="session")
def moto_url() -> Iterator[str]:
    with moto() as url:
        yield url


_numbers = itertools.count()


@pytest.fixture
def s3(moto_url: str) -> Iterator[Server]:
    with with_bucket(moto_url, f"bucket-{next(_numbers)}") as server:
        yield server


@pytest.fixture(scope="session")
def chromium() -> browsers.Chromium:
    try:
        return browsers.get()
    except browsers.NoBrowserError as reason:
        if os.environ.get("CI"):
            pytest.fail(str(reason))
        pytest.skip(str(reason))


@pytest.fixture
def window(chromium: browsers.Chromium, tmp_path: Path) -> Iterator[Browser]:
    with browser(chromium, tmp_path) as opened:
        yield opened


@pytest.fixture
def window_if_any(request: pytest.FixtureRequest) -> Browser | None:
    """For a test that has more to see than pages."""
    try:
        found: Browser = request.getfixturevalue("window")
    except pytest.skip.Exception:
        return None
    return found
