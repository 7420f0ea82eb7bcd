"""Every storage the contract runs over, behind one way to open it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from spark_ckpt.storage import S3Options, Storage
from spark_ckpt.storage.cloud import CloudLimits, CloudStorage
from spark_ckpt.storage.file import FileStorage
from spark_ckpt.storage.memory import MemoryStorage, wipe
from spark_ckpt.storage.s3 import S3Limits, S3Storage
from testbed.clouds import EMULATORS
from testbed.google import InMemory, google
from tests.drivers.s3_rights import ACTIONS, requests_of

Open = Callable[[], Storage]
"""Opens the storage of this test; each call gives another client of the same objects."""

OpenBelow = Callable[[str], Storage]
"""The same, below a path that a user has named."""

BUCKET = "contract"
SMALL_LIMITS = S3Limits(single_put_max=6 << 20, part_size=5 << 20, page_size=7, patience_s=10)
"""Small enough that a few megabytes take several parts (5 MiB is S3's minimum) and a few keys several pages."""


SMALL_CLOUD_LIMITS = CloudLimits(single_put_max=6 << 20, part_size=5 << 20, page_size=7, patience_s=10)
REAL_CLOUDS = {"real-gs": "SPARK_CKPT_GCS_EMULATOR", "real-az": "SPARK_CKPT_AZURE_EMULATOR"}
"""Variables that name the URLs of servers in which the bucket is already."""


@pytest.fixture(scope="session")
def google_endpoint() -> Iterator[str]:
    with google(InMemory(BUCKET)) as url:
        yield url


@pytest.fixture(scope="session")
def moto_endpoint() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    keys = {"AWS_ACCESS_KEY_ID": "contract", "AWS_SECRET_ACCESS_KEY": "contract", "AWS_DEFAULT_REGION": "us-east-1"}
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    with pytest.MonkeyPatch.context() as environment:
        for name, value in keys.items():
            environment.setenv(name, os.environ.get(name, value))
        server.start()
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        _make_bucket(endpoint)
        yield endpoint
        server.stop()


@pytest.fixture(scope="session")
def real_endpoint() -> str:
    endpoint = os.environ["SPARK_CKPT_S3_ENDPOINT"]
    _make_bucket(endpoint)
    return endpoint


def _make_bucket(endpoint: str) -> None:
    client: Any = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    if BUCKET not in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]:
        client.create_bucket(Bucket=BUCKET)
    client.close()


def storages() -> list[str]:
    real = {"real-s3": "SPARK_CKPT_S3_ENDPOINT", **REAL_CLOUDS}
    return ["memory", "file", "s3", "gs", *(name for name, variable in real.items() if os.environ.get(variable))]


@pytest.fixture(params=storages())
def open_below(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenBelow]:
    name = uuid.uuid4().hex
    opened: list[Storage] = []

    def keep(storage: Storage) -> Storage:
        opened.append(storage)
        return storage

    if request.param == "memory":
        yield lambda path: keep(MemoryStorage(f"memory://{name}/{path}"))
        wipe(name)
    elif request.param == "file":
        yield lambda path: keep(FileStorage(f"file://{tmp_path}/{path}"))
    elif request.param == "gs" or request.param in REAL_CLOUDS:
        scheme = request.param[-2:]
        url: str = request.getfixturevalue("google_endpoint") if request.param == "gs" else os.environ[REAL_CLOUDS[request.param]]
        for variable, value in EMULATORS[scheme].environment(url).items():
            monkeypatch.setenv(variable, value)
        yield lambda path: keep(CloudStorage(f"{scheme}://{BUCKET}/{name}/{path}", limits=SMALL_CLOUD_LIMITS))
    else:
        endpoint: str = request.getfixturevalue("moto_endpoint" if request.param == "s3" else "real_endpoint")
        options = S3Options(endpoint=endpoint, region="us-east-1", path_style=True)
        made: list[set[str]] = []

        def opened_and_watched(path: str) -> Storage:
            one = S3Storage(f"s3://{BUCKET}/{name}/{path}", options, SMALL_LIMITS)
            made.append(requests_of(one))
            return keep(one)

        yield opened_and_watched
        assert set().union(*made) <= set(ACTIONS), "a request whose right is not in docs/security.md"
    for storage in opened:
        storage.close()


@pytest.fixture
def open_again(open_below: OpenBelow) -> Open:
    return lambda: open_below("not/yet/there")


@pytest.fixture
def storage(open_again: Open) -> Storage:
    return open_again()
