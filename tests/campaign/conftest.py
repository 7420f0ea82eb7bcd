"""Real S3 servers behind 20 ms of latency; everything else is that of tests/spark."""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from testbed.lossy_proxy import LossyProxy

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from testbed.servers import ACCESS, S3_KINDS, SECRET, UnavailableError, binary, running
from tests.drivers.emulators import emulator  # noqa: F401
from tests.drivers.spark.fixtures import batches, events, many, oracle, oracle_of_many, start  # noqa: F401
from tests.drivers.spark.s3_server import FAR, Server

_numbers = itertools.count()


@functools.cache
def missing(kind: str) -> str | None:
    """Why there is no such server; None: there is one."""
    try:
        binary(S3_KINDS[kind])
    except UnavailableError as e:
        return str(e)
    return None


@pytest.fixture(scope="session", params=sorted(S3_KINDS, reverse=True))
def upstream(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a real S3 server. One kind is enough; without any the campaign has failed."""
    kind = S3_KINDS[request.param]
    reason = missing(kind.name)
    if reason is not None:
        reasons = [missing(name) for name in S3_KINDS]
        if None in reasons:
            pytest.skip(reason)
        pytest.fail(f"there is no real S3 server: {'; '.join(filter(None, reasons))}")
    with running(kind, tmp_path_factory.mktemp(kind.name)) as url:
        yield url


@pytest.fixture
def far(upstream: str) -> Iterator[LossyProxy]:
    """The server, as far away as another region."""
    with LossyProxy(upstream) as proxy:
        proxy.inject(FAR)
        yield proxy


@pytest.fixture
def s3(upstream: str, far: LossyProxy) -> Server:
    bucket = f"campaign-{next(_numbers)}"
    client = boto3.Session(ACCESS, SECRET, region_name="us-east-1").client("s3", endpoint_url=upstream)
    client.create_bucket(Bucket=bucket)
    client.close()
    return Server(far, bucket)
