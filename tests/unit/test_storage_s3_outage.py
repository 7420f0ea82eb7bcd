"""A server that is away: a mistake in the options where nothing ever answered, an outage where the application has been answered before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import boto3
import pytest

from spark_ckpt.errors import OutageError, StorageError, StorageSetupError
from spark_ckpt.storage.base import Storage
from spark_ckpt.storage.options import S3Options
from spark_ckpt.storage.s3 import S3Limits, S3Storage
from spark_ckpt.testing.lossy_proxy import LossyProxy

TIMEOUT_S = 600.0


class Clock:
    """Sleeping moves it; when it comes to `until`, the server is back."""

    def __init__(self, outage: ExitStack, until: float = float("inf")) -> None:
        self.now = 0.0
        self._outage, self._until = outage, until

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= self._until:
            self._outage.close()


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[LossyProxy]:
    from moto.server import ThreadedMotoServer

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "unit-test-credential")
    moto = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    client = boto3.client("s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1")
    if "outage" not in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]:
        client.create_bucket(Bucket="outage")
    client.close()
    with LossyProxy(f"http://{host}:{port}") as between:
        yield between
    moto.stop()


def opened(proxy: LossyProxy, clock: Clock, reached: bool) -> S3Storage:
    options = S3Options(proxy.endpoint, "us-east-1", True, outage_s=TIMEOUT_S, reached=reached)
    return S3Storage("s3://outage/ckpt", options, S3Limits(), clock, clock.sleep)


def test_what_is_read_in_an_outage_is_waited_for_until_the_timeout(proxy: LossyProxy, tmp_path: Path) -> None:
    with opened(proxy, Clock(ExitStack()), reached=False) as before:
        before.put("k", b"content")
    reads: Mapping[str, Callable[[Storage], object]] = {
        "get": lambda storage: storage.get("k"),
        "size": lambda storage: storage.size("k"),
        "list": lambda storage: [stored.key for stored in storage.list("")],
        "file": lambda storage: storage.get_to_file("k", 0, 7, tmp_path / "file"),
    }
    for name, read in reads.items():
        with ExitStack() as outage:
            outage.enter_context(proxy.away())
            clock = Clock(outage, until=500)
            with opened(proxy, clock, reached=True) as storage:
                assert read(storage), name
            assert 500 <= clock.now < TIMEOUT_S


def test_one_that_lasts_longer_says_so_and_is_not_to_be_asked_again(proxy: LossyProxy) -> None:
    with ExitStack() as outage:
        outage.enter_context(proxy.away())
        clock = Clock(outage)
        with opened(proxy, clock, reached=True) as storage, pytest.raises(OutageError, match=r"has not answered for 60\d s"):
            storage.get("k")
        assert clock.now >= TIMEOUT_S


def test_what_is_stored_has_a_deadline_of_its_own_and_no_outage_is_a_mistake_in_the_options(proxy: LossyProxy) -> None:
    with ExitStack() as outage:
        outage.enter_context(proxy.away())
        clock = Clock(outage)
        with opened(proxy, clock, reached=True) as storage, pytest.raises(StorageError) as caught:
            storage.put_if_absent("k", b"")
        assert not isinstance(caught.value, (StorageSetupError, OutageError))
        assert S3Limits().patience_s <= clock.now < TIMEOUT_S


def test_a_server_that_never_answered_is_a_mistake_in_the_options_and_told_soon(proxy: LossyProxy) -> None:
    with ExitStack() as outage:
        outage.enter_context(proxy.away())
        clock = Clock(outage)
        with opened(proxy, clock, reached=False) as storage, pytest.raises(StorageSetupError, match="no S3 server can be reached"):
            storage.get("k")
        assert clock.now < 20
