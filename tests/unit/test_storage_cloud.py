"""What only the clouds' client has: errors that are text, lost answers, its own environment, and clear errors for a wrong set-up."""

from __future__ import annotations

import os
import random
import re
import socket
import ssl
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from spark_ckpt.errors import ConfigError, DamagedError, OutageError, OutcomeUnknownError, StorageError, StorageSetupError
from spark_ckpt.storage import PutResult, S3Options, Slice, Storage, open_storage
from spark_ckpt.storage.cloud import CloudLimits, CloudStorage
from spark_ckpt.storage.probe import check_put_if_absent
from testbed.clouds import google_environment
from testbed.google import InMemory, google
from testbed.lossy_proxy import LossyProxy, Wire, WireFault
from tests.drivers.certificates import self_signed
from tests.drivers.clouds_client import MIB, QUICK, without_clouds
from tests.drivers.socket_server import serving

BUCKET = "unit"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with google(InMemory(BUCKET)) as url:
        yield url


@pytest.fixture
def proxy(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[LossyProxy]:
    """Where the client of this test goes."""
    without_clouds(monkeypatch)
    with LossyProxy(server) as lossy:
        for name, value in google_environment(lossy.endpoint).items():
            monkeypatch.setenv(name, value)
        yield lossy


@pytest.fixture
def prefix() -> str:
    return uuid.uuid4().hex


def opened(prefix: str, limits: CloudLimits = QUICK, options: S3Options | None = None, bucket: str = BUCKET) -> CloudStorage:
    return CloudStorage(f"gs://{bucket}/{prefix}", options, limits, chance=random.Random(7))


# ---- lost answers


@pytest.mark.parametrize("keep", [0, 12, 26])
def test_a_put_if_absent_whose_answer_was_lost_exists_with_its_own_bytes(proxy: LossyProxy, prefix: str, keep: int) -> None:
    proxy.inject(WireFault(Wire.LOSE_ANSWER, r"^PUT", keep=keep))
    with opened(prefix) as storage:
        assert storage.put_if_absent("log/1", b"mine") is PutResult.EXISTS
        assert storage.get("log/1") == b"mine"
        assert storage.requests["put_if_absent"] == 2
        assert storage.traffic.retries == 1


def test_a_put_whose_answers_are_all_lost_is_of_unknown_outcome(proxy: LossyProxy, prefix: str) -> None:
    proxy.inject(WireFault(Wire.STATUS, r"^PUT", times=None, status=500, code="InternalError"))
    with opened(prefix) as storage:
        for call in (lambda: storage.put_if_absent("log/1", b"v"), lambda: storage.put("log/1", b"v")):
            with pytest.raises(OutcomeUnknownError, match=r"log/1.*500 InternalError.*read it back"):
                call()
        proxy.heal()
        assert storage.put_if_absent("log/1", b"v") is PutResult.STORED


def test_a_refusal_after_a_lost_answer_is_still_unknown(proxy: LossyProxy, prefix: str) -> None:
    proxy.inject(WireFault(Wire.LOSE_ANSWER, r"^PUT"))
    proxy.inject(WireFault(Wire.STATUS, r"^PUT", times=None, status=403, code="AccessDenied"))
    with opened(prefix) as storage:
        with pytest.raises(OutcomeUnknownError):
            storage.put_if_absent("log/1", b"v")
        assert storage.get("log/1") == b"v"


def test_a_server_that_says_nothing_is_not_waited_for_for_ever(proxy: LossyProxy, prefix: str) -> None:
    proxy.inject(WireFault(Wire.HOLD_ANSWER, r"^(PUT|GET)", times=None, delay_s=3.0))
    with opened(prefix, replace(QUICK, read_s=0.2, patience_s=0.5)) as storage:
        with pytest.raises(OutcomeUnknownError, match="log/1"):
            storage.put_if_absent("log/1", b"v")
        with pytest.raises(StorageError, match="attempts"):
            storage.get("log/1")


def test_a_slow_line_is_no_server_that_says_nothing(prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client counts the time that sending takes as silence."""
    without_clouds(monkeypatch)

    def slowly(connection: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(1 << 12)
        length = re.search(rb"(?i)content-length: (\d+)", head)
        left = (int(length[1]) if length else 0) - len(head.partition(b"\r\n\r\n")[2])
        while left > 0 and (data := connection.recv(1 << 17)):
            left -= len(data)
            time.sleep(0.01)
        connection.sendall(b"HTTP/1.1 200 OK\r\nETag: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")

    with serving(slowly) as address:
        for name, value in google_environment(f"http://{address}").items():
            monkeypatch.setenv(name, value)
        with opened(prefix, replace(QUICK, single_put_max=16 * MIB, read_s=0.3)) as storage:
            storage.put("k", bytes(12 * MIB))
            assert storage.traffic.retries == 0


@pytest.mark.parametrize(
    "fault",
    [
        WireFault(Wire.RESET_BEFORE, times=3),
        WireFault(Wire.LOSE_ANSWER, times=3),
        WireFault(Wire.STATUS, times=3, status=500, code="InternalError"),
        WireFault(Wire.STATUS, times=3, status=503, code="ServiceUnavailable"),
        WireFault(Wire.STATUS, times=3, status=429, code="SlowDown"),
    ],
    ids=lambda fault: f"{fault.wire.value}-{fault.code}",
)
def test_every_request_survives_three_failures(proxy: LossyProxy, prefix: str, tmp_path: Path, fault: WireFault) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    with opened(prefix, replace(QUICK, patience_s=60.0, first_contact_s=60.0, page_size=1000)) as storage:

        def again() -> None:
            proxy.heal()
            proxy.inject(fault)

        again()
        storage.put("a", b"value")
        again()
        storage.put_slices("b", [Slice(tmp_path / "f", 2, 5)])
        again()
        assert storage.get("b") == b"23456"
        again()
        assert storage.get_to_file("b", 1, 3, tmp_path / "out") != 0
        assert (tmp_path / "out").read_bytes() == b"345"
        again()
        assert storage.size("a") == 5
        again()
        assert [stored.key for stored in storage.list("")] == ["a", "b"]
        again()
        assert list(storage.list_folders("")) == []
        again()
        storage.delete(["a", "b"])
        proxy.heal()
        assert list(storage.list("")) == []


def test_a_listing_goes_on_where_it_was_cut_off(proxy: LossyProxy, prefix: str) -> None:
    keys = [f"k{number:04d}" for number in range(1100)]
    with opened(prefix, replace(QUICK, page_size=1000, patience_s=60.0)) as storage:
        for key in keys[:3]:
            storage.put(key, b"")
        with ExitStack() as direct:
            other = direct.enter_context(opened(prefix))
            for key in keys[3:]:
                other.put(key, b"")
        proxy.inject(WireFault(Wire.LOSE_ANSWER, r"^GET \S*continuation-token", keep=500))
        assert [stored.key for stored in storage.list("")] == keys
        assert len(proxy.struck) == 1


@pytest.mark.parametrize("keep", [20, 60, 150, 250, 400])
def test_an_answer_cut_off_is_never_taken_for_data(proxy: LossyProxy, prefix: str, tmp_path: Path, keep: int) -> None:
    value = b"x" * 5000
    with opened(prefix) as storage:
        storage.put("k", value)

        def cut(pattern: str = "^GET") -> None:
            proxy.heal()
            proxy.inject(WireFault(Wire.LOSE_ANSWER, pattern, keep=keep, times=2))

        cut()
        assert storage.get("k") == value
        cut()
        assert storage.get("k", 10, 4000) == value[10:4010]
        cut()
        storage.get_to_file("k", 0, 5000, tmp_path / "out")
        assert (tmp_path / "out").read_bytes() == value
        cut()
        assert [stored.key for stored in storage.list("")] == ["k"]
        storage.put("folder/k", b"v")
        cut()
        assert list(storage.list_folders("")) == ["folder/"]
        if keep <= 150:
            cut("^HEAD")
            assert storage.size("k") == 5000


def test_answers_always_cut_off_are_an_error_not_a_short_value(proxy: LossyProxy, prefix: str, tmp_path: Path) -> None:
    with opened(prefix) as storage:
        storage.put("k", b"x" * 5000)
        proxy.inject(WireFault(Wire.LOSE_ANSWER, "^GET", keep=300, times=None))
        with pytest.raises(StorageError, match="attempts"):
            storage.get("k")
        with pytest.raises(StorageError, match="attempts"):
            storage.get_to_file("k", 2, 4000, tmp_path / "out")
        with pytest.raises(StorageError, match="attempts"):
            list(storage.list(""))
        assert not (tmp_path / "out").exists()


# ---- multipart


def test_parts_survive_failures_and_a_lost_completion(proxy: LossyProxy, prefix: str, tmp_path: Path) -> None:
    data = random.Random(3).randbytes(12 * MIB)
    (tmp_path / "f").write_bytes(data)
    proxy.inject(WireFault(Wire.STATUS, r"^PUT .*partNumber=2", times=2))
    proxy.inject(WireFault(Wire.RESET_BEFORE, r"^PUT .*partNumber=1"))
    proxy.inject(WireFault(Wire.LOSE_ANSWER, r"^POST .*uploadId="))
    with opened(prefix, replace(QUICK, patience_s=20.0)) as storage:
        storage.put_slices("big", [Slice(tmp_path / "f", 0, len(data))])
        assert storage.get("big") == data


def test_a_multipart_upload_that_fails_is_an_error_and_nothing_is_there(proxy: LossyProxy, prefix: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(12 * MIB))
    proxy.inject(WireFault(Wire.STATUS, r"^PUT .*partNumber=3", times=None))
    with opened(prefix) as storage:
        with pytest.raises(StorageError, match="big"):
            storage.put_slices("big", [Slice(tmp_path / "f", 0, 12 * MIB)])
        proxy.heal()
        assert list(storage.list("")) == []
    assert any(line.startswith("DELETE") and "uploadId=" in line for line in proxy.requests), "its parts are thrown away"


@pytest.mark.parametrize(
    "fault",
    [
        WireFault(Wire.STATUS, "^DELETE", times=None, status=403, code="AccessDenied"),
        WireFault(Wire.STATUS, "^DELETE", times=None, status=404, code="NoSuchUpload"),
        WireFault(Wire.RESET_BEFORE, "^DELETE", times=None),
        WireFault(Wire.STATUS, "^POST .*uploadId=", times=None, status=404, code="NoSuchUpload"),
    ],
    ids=["abort-refused", "nothing-to-abort", "abort-lost", "nothing-to-complete"],
)
def test_an_upload_whose_completion_was_lost_is_of_unknown_outcome(
    proxy: LossyProxy, prefix: str, tmp_path: Path, fault: WireFault
) -> None:
    """The client tells of its last request only: of a completion that was sent again, or of the end that it puts to the upload."""
    (tmp_path / "f").write_bytes(bytes(12 * MIB))
    proxy.inject(fault)
    proxy.inject(WireFault(Wire.LOSE_ANSWER, "^POST .*uploadId=", times=None))
    with opened(prefix) as storage, pytest.raises(OutcomeUnknownError, match="big"):
        storage.put_slices("big", [Slice(tmp_path / "f", 0, 12 * MIB)])


def test_a_file_that_shrinks_while_it_is_uploaded_is_named(proxy: LossyProxy, prefix: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(12 * MIB))
    proxy.inject(WireFault(Wire.STATUS, r"^POST .*uploads", status=409, code="Conflict"))

    def shrink(_: float) -> None:
        (tmp_path / "f").write_bytes(bytes(MIB))

    with CloudStorage(f"gs://{BUCKET}/{prefix}", limits=QUICK, sleep=shrink) as storage:
        with pytest.raises(DamagedError, match=r"/f became shorter"):
            storage.put_slices("big", [Slice(tmp_path / "f", 0, 12 * MIB)])
        assert list(storage.list("")) == []


# ---- outages, and a wrong set-up


class Clock:
    """Sleeping moves it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_what_is_read_in_an_outage_is_waited_for_until_the_timeout(proxy: LossyProxy, prefix: str) -> None:
    with opened(prefix) as before:
        before.put("k", b"content")
    clock = Clock()
    options = S3Options(outage_s=600.0, reached=True)
    with CloudStorage(f"gs://{BUCKET}/{prefix}", options, CloudLimits(), clock, clock.sleep) as storage, proxy.away():
        with pytest.raises(OutageError, match=r"has not answered for 6\d\d s .*ConnectionRefused; start the query again"):
            storage.get("k")
        assert clock.now >= 600
        with pytest.raises(StorageError) as put:
            storage.put("k", b"other")
        assert not isinstance(put.value, (OutcomeUnknownError, StorageSetupError)), "nothing was sent, and the application is set up well"


def test_no_server_there(proxy: LossyProxy, prefix: str) -> None:
    said = r"127\.0\.0\.1:\d+ \(ConnectionRefused\); check GOOGLE_BASE_URL"
    with proxy.away(), opened(prefix) as storage, pytest.raises(StorageSetupError, match=said):
        storage.get("k")


@pytest.mark.parametrize(("host", "trusted", "why"), [("127.0.0.1", False, r"\w+"), ("localhost", True, "NotValidForNameContext")])
def test_a_server_whose_certificate_does_not_do_is_asked_for_nothing(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, trusted: bool, why: str
) -> None:
    certificate = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def speak(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as tls:
            tls.recv(1)

    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with serving(speak) as address:
        for name, value in google_environment(f"https://{address.replace('127.0.0.1', host)}").items():
            monkeypatch.setenv(name, value)
        with opened(prefix) as storage, pytest.raises(StorageSetupError, match=rf"{host}:\d+ \(TLS: {why}\); give .*SSL_CERT_FILE"):
            storage.put_if_absent("log/1", b"v")


def test_no_such_bucket(proxy: LossyProxy, prefix: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(12 * MIB))
    calls: tuple[Callable[[Storage], object], ...] = (
        lambda storage: storage.put("k", b"v"),
        lambda storage: storage.put_if_absent("k", b"v"),
        lambda storage: storage.put_slices("k", [Slice(tmp_path / "f", 0, 12 * MIB)]),
        lambda storage: storage.get("k"),
        lambda storage: storage.size("k"),
        lambda storage: list(storage.list("")),
        lambda storage: list(storage.list_folders("")),
        lambda storage: storage.delete(["k"]),
        lambda storage: storage.delete(["k", "l"]),
    )
    for call in calls:
        said = r"the bucket not-there does not exist at http://127\.0\.0\.1:\d+; create it or correct spark\.ckpt\.storage$"
        with opened(prefix, bucket="not-there") as storage, pytest.raises(StorageSetupError, match=said):
            call(storage)


@pytest.mark.parametrize(
    ("status", "code", "says"),
    [
        (401, "AuthenticationRequired", "does not accept the credentials .*GOOGLE_APPLICATION_CREDENTIALS"),
        (403, "AccessDenied", "does not allow to store .*roles/storage.objectUser"),
        (404, "NoSuchBucket", "create it"),
        (501, "NotImplemented", "conditional writes"),
    ],
)
def test_what_retrying_cannot_mend(proxy: LossyProxy, prefix: str, status: int, code: str, says: str) -> None:
    proxy.inject(WireFault(Wire.STATUS, "^PUT", times=None, status=status, code=code))
    with opened(prefix) as storage, pytest.raises(StorageSetupError, match=says):
        storage.put_if_absent("k", b"v")
    assert sum(line.startswith("PUT") for line in proxy.requests) == 1


def test_a_right_that_lacks_for_looking_is_named_though_a_head_has_no_body(proxy: LossyProxy, prefix: str) -> None:
    proxy.inject(WireFault(Wire.STATUS, "^(HEAD|GET)", times=None, status=403, code="AccessDenied"))
    with opened(prefix) as storage, pytest.raises(StorageSetupError, match="403 AccessDenied"):
        storage.size("k")


def test_credentials_that_are_refused_later_are_looked_for_again(proxy: LossyProxy, prefix: str) -> None:
    with opened(prefix) as storage:
        storage.put("k", b"v")
        proxy.inject(WireFault(Wire.STATUS, times=2, status=401, code="AuthenticationRequired"))
        assert storage.get("k") == b"v"
        proxy.inject(WireFault(Wire.STATUS, times=None, status=401, code="AuthenticationRequired"))
        with pytest.raises(StorageError) as refused:
            storage.get("k")
        assert not isinstance(refused.value, StorageSetupError), "they may come back, as a token does that is renewed too late"


def test_credentials_that_cannot_be_read(proxy: LossyProxy, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOOGLE_BEARER_TOKEN")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/key.json")
    with pytest.raises(StorageSetupError, match=r"no usable credentials for gs://unit.*\(OpenCredentials\); give .* GOOGLE_APP"):
        opened(prefix)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", os.devnull)
    with pytest.raises(StorageSetupError, match=r"no usable credentials .*\(DecodeCredentials\)"):
        opened(prefix)


def test_no_secret_is_told(proxy: LossyProxy, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_BEARER_TOKEN", "TOKENVISIBLE")
    monkeypatch.setenv("GOOGLE_BASE_URL", proxy.endpoint.replace("http://", "http://admin:WORDVISIBLE@"))
    proxy.inject(WireFault(Wire.STATUS, "^PUT", times=None, status=403, code="AccessDenied"))
    with opened(prefix) as storage, pytest.raises(StorageSetupError) as raised:
        storage.put("k", b"v")
    assert "VISIBLE" not in f"{raised.value} {storage!r}"
    assert "127.0.0.1" in str(raised.value)


def test_a_server_that_ignores_ranges_is_found_out(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def whole(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        dated = b"ETag: x\r\nLast-Modified: Wed, 25 Nov 2026 10:00:00 GMT\r\nConnection: close\r\nContent-Length: 6\r\n\r\n"
        connection.sendall(b"HTTP/1.1 200 OK\r\n" + dated + b"abcdef")

    with serving(whole) as address:
        for name, value in google_environment(f"http://{address}").items():
            monkeypatch.setenv(name, value)
        with opened(prefix) as storage, pytest.raises(StorageSetupError, match="ignores the range"):
            storage.get("k", 2, 3)


def test_a_server_that_ignores_the_condition_is_found_out(proxy: LossyProxy, prefix: str) -> None:
    class Ignoring(CloudStorage):
        def put_if_absent(self, key: str, data: bytes) -> PutResult:
            self.put(key, data)
            return PutResult.STORED

    with Ignoring(f"gs://{BUCKET}/{prefix}", limits=QUICK) as storage:
        with pytest.raises(StorageSetupError, match="ignores put-if-absent"):
            check_put_if_absent(storage)
        assert list(storage.list("")) == []


def test_the_storages_clock_is_looked_at_once_an_hour(proxy: LossyProxy, prefix: str) -> None:
    clock = Clock()
    with CloudStorage(f"gs://{BUCKET}/{prefix}", limits=QUICK, clock=clock, sleep=clock.sleep, wall_clock=clock) as storage:
        first = storage.put_if_absent_dated("log/1", b"v")[1]
        clock.now += 1800
        second = storage.put_if_absent_dated("log/2", b"v")[1]
        assert storage.requests["head"] == 1
        clock.now += 1800
        third = storage.put_if_absent_dated("log/3", b"v")[1]
        assert storage.requests["head"] == 2
        assert first is not None
        assert second == first + 1_800_000
        assert third is not None
        assert abs(third - first) < 60_000, "what it said is what counts, not this machine's clock"
        clock.now += 3600
        proxy.inject(WireFault(Wire.STATUS, "^HEAD", status=503))
        assert storage.put_if_absent_dated("log/4", b"v") == (PutResult.STORED, None), "it is stored all the same"


@pytest.mark.parametrize("slept_s", [2 * 86_400.0, -3600.0])
def test_the_storages_clock_is_looked_at_anew_where_this_machine_has_slept(proxy: LossyProxy, prefix: str, slept_s: float) -> None:
    """Whoever sleeps for a day may put an entry where others have deleted theirs: the date of the put is how that is noticed."""
    clock, wall = Clock(), Clock()
    with CloudStorage(f"gs://{BUCKET}/{prefix}", limits=QUICK, clock=clock, sleep=clock.sleep, wall_clock=wall) as storage:
        storage.put_if_absent("log/1", b"v")
        clock.now += 5
        wall.now += 5
        storage.put_if_absent("log/2", b"v")
        assert storage.requests["head"] == 1
        clock.now += 5
        wall.now += 5 + slept_s
        stored = storage.put_if_absent_dated("log/3", b"v")[1]
        assert storage.requests["head"] == 2
        assert stored == next(found.modified_ms for found in storage.list("log/3")) // 1000 * 1000


def test_an_object_that_the_client_cannot_name_is_told(proxy: LossyProxy, prefix: str) -> None:
    with opened(prefix) as storage:
        storage.put("a", b"v")
        with socket.create_connection(("127.0.0.1", int(proxy.endpoint.rsplit(":", 1)[1]))) as raw:
            raw.sendall(f"PUT /{BUCKET}/{prefix}//b HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx".encode())
            assert raw.recv(100).startswith(b"HTTP/1.1 200")
        with pytest.raises(StorageSetupError, match="whose name the client cannot read"):
            list(storage.list(""))


# ---- names


def test_which_names_are_buckets() -> None:
    for url, said in (
        ("gs://B", "B is no bucket's name; that has 3 to 63 characters"),
        ("gs://key:secret/x", "a bucket's name has 3 to 63"),
        ("az://un_der", "un_der is no container's name; that has 3 to 63"),
        ("az://a--b", "a--b is no container's name"),
    ):
        with pytest.raises(ConfigError, match=said):
            CloudStorage(url)
    for scheme in ("abfs", "abfss"):
        with pytest.raises(ConfigError, match=r"set spark\.ckpt\.storage to az://container/prefix, and AZURE_STORAGE_ACCOUNT_NAME"):
            open_storage(f"{scheme}://container@account.dfs.core.windows.net/orders/_ckpt")


def test_other_storages_do_not_load_obstore(tmp_path: Path) -> None:
    code = (
        "import sys; from spark_ckpt.storage import open_storage; import spark_ckpt.storage.probe\n"
        f"open_storage('file://{tmp_path}').put('k', b'v'); open_storage('memory://x')\n"
        "sys.exit('obstore' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
