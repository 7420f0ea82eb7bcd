from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from testbed.lossy_proxy import LossyProxy
from tests.drivers.spark import chromium as browsers
from tests.drivers.spark.browser import Browser, browser
from tests.drivers.spark.fixtures import events, oracle, start  # noqa: F401
from tests.drivers.spark.s3_server import Server


@pytest.fixture(scope="session")
def moto_url() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


_numbers = itertools.count()


@pytest.fixture
def s3(moto_url: str) -> Iterator[Server]:
    with LossyProxy(moto_url) as proxy:
        bucket = f"bucket-{next(_numbers)}"
        session = boto3.Session("test", "test-secret", region_name="us-east-1")
        client = session.client("s3", endpoint_url=moto_url)
        client.create_bucket(Bucket=bucket)
        client.close()
        yield Server(proxy, bucket)


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
