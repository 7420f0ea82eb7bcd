"""A server that is away: a mistake in the options where nothing ever answered, an outage where the application has been answered before."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import boto3
import pytest

from spark_ckpt.errors import OutageError, StorageError, StorageSetupError
from spark_ckpt.storage.base import PutResult, Storage
from spark_ckpt.storage.options import S3Options
from spark_ckpt.storage.s3 import S3Limits, S3Storage
from testbed.lossy_proxy import LossyProxy, Wire, WireFault

TIMEOUT_S = 600.0


class Clock:
    """Sleeping moves it; when it comes to `until`, the server is back."""

    def __init__(self, outage: ExitStack, until: float = float("inf")) -> None:
        self.now = 0.0
        self.wait_for(outage, until)

    def wait_for(self, outage: ExitStack, until: float) -> None:
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


def opened(proxy: LossyProxy, clock: Clock, reached: bool, limits: S3Limits | None = None, timeout_s: float = TIMEOUT_S) -> S3Storage:
    options = S3Options(proxy.endpoint, "us-east-1", True, outage_s=timeout_s, reached=reached)
    return S3Storage("s3://outage/ckpt", options, limits or S3Limits(), clock, clock.sleep)


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


# --- credentials that are away


def nothing(patch: pytest.MonkeyPatch, home: Path) -> None:
    """As on a machine whose metadata service does not answer: the chain ends with none."""
    patch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def token_gone(patch: pytest.MonkeyPatch, home: Path) -> None:
    """A token that is mounted, and is just being renewed."""
    patch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/unit")
    patch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(home / "gone"))


def profile_gone(patch: pytest.MonkeyPatch, home: Path) -> None:
    patch.setenv("AWS_PROFILE", "unit")


def process_fails(patch: pytest.MonkeyPatch, home: Path) -> None:
    (home / "config").write_text("[default]\ncredential_process = /bin/false\n")
    patch.setenv("AWS_CONFIG_FILE", str(home / "config"))


RARE = S3Limits(backoff_s=30.0, backoff_max_s=30.0)
"""boto3 takes a second to look everywhere."""
AWAY = [nothing, token_gone, profile_gone, process_fails]


@contextmanager
def credentials_away(how: Callable[[pytest.MonkeyPatch, Path], None], home: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.delenv(name)
        patch.setenv("HOME", str(home))
        how(patch, home)
        yield


@pytest.mark.parametrize("how", AWAY)
@pytest.mark.parametrize("key", ["k", None])
def test_credentials_that_are_away_when_a_process_is_replaced_are_waited_for(
    proxy: LossyProxy, tmp_path: Path, how: Callable[[pytest.MonkeyPatch, Path], None], key: str | None
) -> None:
    with opened(proxy, Clock(ExitStack()), reached=False) as before:
        before.put("k", b"content")
    with ExitStack() as outage:
        outage.enter_context(credentials_away(how, tmp_path))
        clock = Clock(outage, until=70)
        with opened(proxy, clock, reached=True, limits=RARE) as storage:
            assert (storage.get(key) if key else [s.key for s in storage.list("")]) == (b"content" if key else ["k"])
        assert 70 <= clock.now < TIMEOUT_S


def check_named(storage: Storage, clock: Clock, why: str) -> None:
    """A read is tried for the time-out of 90 s; a plan has its own deadline."""
    with pytest.raises(OutageError, match=rf"tried for (9|1[0-2])\d s \(spark.ckpt.timeout\): {why}"):
        storage.get("k")
    clock.now = 0
    with pytest.raises(StorageError, match=why) as caught:
        storage.put_if_absent("k", b"")
    assert not isinstance(caught.value, (StorageSetupError, OutageError))


@pytest.mark.parametrize("how", AWAY)
def test_credentials_that_stay_away_are_named(proxy: LossyProxy, tmp_path: Path, how: Callable[[pytest.MonkeyPatch, Path], None]) -> None:
    with credentials_away(how, tmp_path):
        clock = Clock(ExitStack())
        with opened(proxy, clock, reached=True, limits=RARE, timeout_s=90) as storage:
            check_named(storage, clock, "no usable S3 credentials")
        with pytest.raises(StorageSetupError, match="no usable S3 credentials"):
            opened(proxy, Clock(ExitStack()), reached=False)


@pytest.mark.parametrize("replaced", [True, False])
@pytest.mark.parametrize("code", ["ExpiredToken", "InvalidAccessKeyId", "RequestTimeTooSkewed"])
def test_credentials_that_are_not_accepted_any_more_are_looked_for_again(
    proxy: LossyProxy, monkeypatch: pytest.MonkeyPatch, replaced: bool, code: str
) -> None:
    """They lie in a file that somebody renews. Or the clock is wrong, until it is set."""
    clock = Clock(ExitStack())
    storage = opened(proxy, clock, reached=replaced, limits=RARE)
    with storage:
        if not replaced:
            storage.put("k", b"content")
        with ExitStack() as outage:
            proxy.inject(WireFault(Wire.STATUS, times=None, status=400, code=code))
            outage.callback(proxy.heal)
            outage.callback(monkeypatch.setenv, "AWS_ACCESS_KEY_ID", "renewed")
            clock.wait_for(outage, until=70)
            assert storage.size("other") is None
        assert 70 <= clock.now < TIMEOUT_S
        assert storage._client._get_credentials().access_key == "renewed"
        assert storage.put_if_absent(uuid.uuid4().hex, b"") is PutResult.STORED


def test_a_clock_that_stays_wrong_is_named(proxy: LossyProxy) -> None:
    clock = Clock(ExitStack())
    with opened(proxy, clock, reached=False, limits=RARE, timeout_s=90) as storage:
        storage.put("k", b"content")
        proxy.inject(WireFault(Wire.STATUS, times=None, status=403, code="RequestTimeTooSkewed"))
        check_named(storage, clock, "this machine's clock differs too much")
