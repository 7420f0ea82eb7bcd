from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import boto3
import pytest

from testbed.lossy_proxy import LossyProxy

sys.path.insert(0, str(Path(__file__).parent))

import chromium as browsers
from browser import Browser, browser
from harness import Application, submit
from inputs import write_events

FILES = 8


class Server(NamedTuple):
    """An S3 server and what a client must be told to reach it; `proxy` stands between the two."""

    proxy: LossyProxy
    bucket: str

    @property
    def conf(self) -> dict[str, str]:
        return {"spark.ckpt.s3.endpoint": self.proxy.endpoint, "spark.ckpt.s3.region": "us-east-1", "spark.ckpt.s3.pathStyle": "true"}

    @property
    def env(self) -> dict[str, str]:
        return {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test-secret", "AWS_EC2_METADATA_DISABLED": "true"}


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
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("input") / "events"
    write_events(folder, 0, FILES, closing=True)
    return folder


Start = Callable[..., Application]


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
    sys.path.insert(0, str(Path(__file__).parent / "jobs"))
    from operators import QUERIES

    out = tmp_path_factory.mktemp("oracle")
    args = ["batch", ",".join(QUERIES), str(events), str(out)]
    with submit("operators.py", args, log=out / "batch.log", storage=None, plugin=False) as app:
        app.expect_success()
    return {name: out / name for name in QUERIES}


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
