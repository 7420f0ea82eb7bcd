"""What only S3 has: lost answers, retries, encryption, multipart uploads, and clear errors for a wrong set-up."""

from __future__ import annotations

import logging
import os
import random
import socket
import subprocess
import sys
import threading
import tracemalloc
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.loaders import JSONFileLoader

from spark_ckpt.errors import ConfigError, DamagedError, OutcomeUnknownError, StorageError, StorageSetupError
from spark_ckpt.storage import PutResult, S3Options, Slice, open_storage, s3_connection
from spark_ckpt.storage.attempts import Fault, Place
from spark_ckpt.storage.probe import check_put_if_absent
from spark_ckpt.storage.s3 import SINGLE_DELETES, S3Limits, S3Storage
from spark_ckpt.storage.s3_faults import fault_of, setup_error
from testbed.lossy_proxy import LossyProxy, Wire, WireFault

BUCKET = "unit"
MIB = 1 << 20
QUICK = S3Limits(single_put_max=6 * MIB, part_size=5 * MIB, page_size=3, patience_s=1.0, first_contact_s=0.3, backoff_s=0.01, read_s=5.0)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "unit-test-credential")
        moto = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        moto.start()
        host, port = moto.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        # moto's state is global to the process: another server's bucket may be there already
        if BUCKET not in [bucket["Name"] for bucket in _raw(endpoint).list_buckets()["Buckets"]]:
            _raw(endpoint).create_bucket(Bucket=BUCKET)
        yield endpoint
        moto.stop()


@pytest.fixture
def proxy(server: str) -> Iterator[LossyProxy]:
    with LossyProxy(server) as lossy:
        yield lossy


@pytest.fixture
def prefix() -> str:
    return uuid.uuid4().hex


def _raw(endpoint: str) -> Any:
    return boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")


def _open(endpoint: str, prefix: str, bucket: str = BUCKET, limits: S3Limits = QUICK, **options: Any) -> S3Storage:
    found = S3Options(endpoint=endpoint, **{"region": "us-east-1", "path_style": True, **options})
    return S3Storage(f"s3://{bucket}/{prefix}", found, limits, chance=random.Random(7))


# ---- lost answers


@pytest.mark.parametrize("keep", [0, 12, 26])
def test_a_put_if_absent_whose_answer_was_lost_exists_with_its_own_bytes(proxy: LossyProxy, prefix: str, keep: int) -> None:
    proxy.inject(WireFault(Wire.LOSE_ANSWER, r"^PUT", keep=keep))
    with _open(proxy.endpoint, prefix) as storage:
        assert storage.put_if_absent("log/1", b"mine") is PutResult.EXISTS
        assert storage.get("log/1") == b"mine"
        assert storage.requests["put_if_absent"] == 2


def test_a_put_whose_answers_are_all_lost_is_of_unknown_outcome(proxy: LossyProxy, prefix: str) -> None:
    proxy.inject(WireFault(Wire.STATUS, r"^PUT", times=None, status=500, code="InternalError"))
    with _open(proxy.endpoint, prefix) as storage:
        for call in (lambda: storage.put_if_absent("log/1", b"v"), lambda: storage.put("log/1", b"v")):
            with pytest.raises(OutcomeUnknownError, match="log/1"):
                call()
        proxy.heal()
        assert storage.put_if_absent("log/1", b"v") is PutResult.STORED


def test_a_refusal_after_a_lost_answer_is_still_unknown(proxy: LossyProxy, prefix: str) -> None:
    proxy.inject(WireFault(Wire.LOSE_ANSWER, r"^PUT"))
    proxy.inject(WireFault(Wire.STATUS, r"^PUT", times=None, status=403, code="AccessDenied"))
    with _open(proxy.endpoint, prefix) as storage:
        with pytest.raises(OutcomeUnknownError):
            storage.put_if_absent("log/1", b"v")
        assert storage.get("log/1") == b"v"


def test_a_conditional_conflict_is_tried_again(proxy: LossyProxy, prefix: str) -> None:
    proxy.inject(WireFault(Wire.STATUS, r"^PUT", times=2, status=409, code="ConditionalRequestConflict"))
    with _open(proxy.endpoint, prefix) as storage:
        assert storage.put_if_absent("log/1", b"v") is PutResult.STORED
        assert storage.requests["put_if_absent"] == 3


@pytest.mark.parametrize(
    "fault",
    [
        WireFault(Wire.RESET_BEFORE, times=3),
        WireFault(Wire.LOSE_ANSWER, times=3),
        WireFault(Wire.STATUS, times=3, status=500, code="InternalError"),
        WireFault(Wire.STATUS, times=3, status=503, code="SlowDown"),
        WireFault(Wire.STATUS, times=3, status=429, code="TooManyRequests"),
    ],
    ids=lambda fault: f"{fault.wire.value}-{fault.code}",
)
def test_every_request_survives_three_failures(proxy: LossyProxy, prefix: str, tmp_path: Path, fault: WireFault) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    with _open(proxy.endpoint, prefix, limits=replace(QUICK, patience_s=60.0, first_contact_s=60.0)) as storage:

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
        storage.delete(["a", "b"])
        proxy.heal()
        assert list(storage.list("")) == []


@pytest.mark.parametrize("keep", [20, 60, 100, 200, 300, 400])
def test_an_answer_cut_off_is_never_taken_for_data(proxy: LossyProxy, prefix: str, tmp_path: Path, keep: int) -> None:
    value = b"x" * 5000
    with _open(proxy.endpoint, prefix) as storage:
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
        cut()
        storage.put("folder/k", b"v")
        assert list(storage.list_folders("")) == ["folder/"]
        if keep <= 100:
            cut("^HEAD")
            assert storage.size("k") == 5000
        cut("^POST")
        storage.delete(["k", "folder/k"])
        proxy.heal()
        assert list(storage.list("")) == []


def test_answers_always_cut_off_are_an_error_not_a_short_value(proxy: LossyProxy, prefix: str) -> None:
    with _open(proxy.endpoint, prefix) as storage:
        storage.put("k", b"x" * 5000)
        proxy.inject(WireFault(Wire.LOSE_ANSWER, "^GET", keep=100, times=None))
        with pytest.raises(StorageError, match="attempts"):
            storage.get("k")
        with pytest.raises(StorageError, match="attempts"):
            list(storage.list(""))


def test_bytes_that_differ_from_their_checksum_are_damage(server: str, prefix: str) -> None:
    rotten = b"HTTP/1.1 200 OK\r\nETag: x\r\nx-amz-checksum-crc32: AAAAAA==\r\nContent-Length: 6\r\n\r\nrotten"
    with _Fixed(rotten) as fixed, _open(fixed.endpoint, prefix, limits=S3Limits(backoff_s=0.01)) as storage:
        with pytest.raises(DamagedError, match="checksum"):
            storage.get("k")
        assert storage.requests["get"] == 3


def test_a_range_cut_short_without_a_length_to_tell_is_an_error(server: str, prefix: str, tmp_path: Path) -> None:
    cut = b"HTTP/1.1 206 Partial Content\r\nETag: x\r\nContent-Range: bytes 2-9/20\r\n\r\nabc"
    with _Fixed(cut) as fixed, _open(fixed.endpoint, prefix) as storage:
        with pytest.raises(StorageError, match="attempts"):
            storage.get("k", 2, 8)
        with pytest.raises(StorageError, match="attempts"):
            storage.get_to_file("k", 2, 8, tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_a_server_that_ignores_ranges_is_found_out(server: str, prefix: str) -> None:
    whole = b"HTTP/1.1 200 OK\r\nETag: x\r\nContent-Length: 6\r\n\r\nabcdef"
    with _Fixed(whole) as fixed, _open(fixed.endpoint, prefix) as storage, pytest.raises(StorageSetupError, match="range"):
        storage.get("k", 2, 3)


def test_a_server_that_ignores_the_condition_is_found_out(server: str, prefix: str) -> None:
    class Ignoring(S3Storage):
        def put_if_absent(self, key: str, data: bytes) -> PutResult:
            self.put(key, data)
            return PutResult.STORED

    options = S3Options(endpoint=server, region="us-east-1", path_style=True)
    with Ignoring(f"s3://{BUCKET}/{prefix}", options, QUICK) as storage:
        with pytest.raises(StorageSetupError, match="If-None-Match"):
            check_put_if_absent(storage)
        assert list(storage.list("")) == []


# ---- multipart


def test_parts_survive_failures_and_a_lost_completion(proxy: LossyProxy, prefix: str, tmp_path: Path) -> None:
    data = random.Random(3).randbytes(12 * MIB)
    (tmp_path / "f").write_bytes(data)
    proxy.inject(WireFault(Wire.STATUS, r"^PUT .*partNumber=2", times=2))
    proxy.inject(WireFault(Wire.RESET_BEFORE, r"^PUT .*partNumber=1"))
    proxy.inject(WireFault(Wire.LOSE_ANSWER, r"^POST .*uploadId="))
    with _open(proxy.endpoint, prefix) as storage:
        storage.put_slices("big", [Slice(tmp_path / "f", 0, len(data))])
        assert storage.get("big") == data


def test_a_multipart_upload_that_fails_is_aborted(proxy: LossyProxy, prefix: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(12 * MIB))
    proxy.inject(WireFault(Wire.STATUS, r"^PUT .*partNumber=3", times=None))
    with _open(proxy.endpoint, prefix) as storage, pytest.raises(StorageError, match="part 3"):
        storage.put_slices("big", [Slice(tmp_path / "f", 0, 12 * MIB)])
    proxy.heal()
    uploads = _raw(proxy.endpoint).list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])
    assert [upload["Key"] for upload in uploads if upload["Key"].startswith(prefix)] == []
    assert storage.bytes_out > 0


def test_a_large_upload_is_not_held_in_memory(server: str, prefix: str, tmp_path: Path) -> None:
    size = 48 * MIB
    with open(tmp_path / "f", "wb") as out:
        out.truncate(size)
    with _Fixed() as sink, _open(sink.endpoint, prefix, limits=S3Limits(single_put_max=64 * MIB)) as storage:
        storage.put("warm", b"up")
        tracemalloc.start()
        storage.put_slices("big", [Slice(tmp_path / "f", 0, size)])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert sink.received >= size
    assert peak < 8 * MIB


class _Fixed:
    """A server that takes everything, keeps nothing and always gives the same answer."""

    def __init__(self, answer: bytes = b"HTTP/1.1 200 OK\r\nETag: x\r\nContent-Length: 0\r\n\r\n") -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.received = 0

    def __enter__(self) -> _Fixed:
        threading.Thread(target=self._run, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _run(self) -> None:
        try:
            while True:
                connection = self._listener.accept()[0]
                with connection, connection.makefile("rb") as stream:
                    self._serve(connection, stream)
        except OSError:
            return

    def _serve(self, connection: socket.socket, stream: Any) -> None:
        while stream.readline():
            length = 0
            while (line := stream.readline().strip().lower()) != b"":
                if line.startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
                if line.startswith(b"expect:"):
                    connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            while length > 0:
                length -= (count := len(stream.read(min(length, 1 << 16))))
                self.received += count
            connection.sendall(self._answer)
            if b"Content-Length" not in self._answer:
                return


# ---- what goes over the wire


def test_small_puts_do_not_wait_for_a_continue_and_large_ones_do(server: str, prefix: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(2 * MIB))
    seen: list[tuple[str, bool]] = []

    def look(request: Any, event_name: str, **_: object) -> None:
        seen.append((event_name.rsplit(".", 1)[-1], "Expect" in request.headers))

    storage = _open(server, prefix)
    with storage:
        storage._client.meta.events.register("before-send.s3", look)
        storage.put("small", b"x")
        storage.put_if_absent("entry", b"x")
        storage.put_slices("large", [Slice(tmp_path / "f", 0, 2 * MIB)])
    assert seen == [("PutObject", False), ("PutObject", False), ("PutObject", True)]


@pytest.mark.parametrize(("sse", "key"), [("AES256", None), ("aws:kms", "alias/ours"), (None, None)])
def test_every_put_is_encrypted_as_asked(server: str, prefix: str, tmp_path: Path, sse: str | None, key: str | None) -> None:
    (tmp_path / "f").write_bytes(bytes(7 * MIB))
    with _open(server, prefix, sse=sse, kms_key_id=key) as storage:
        storage.put("put", b"v")
        storage.put_if_absent("absent", b"v")
        storage.put_slices("slices", [Slice(tmp_path / "f", 0, 10)])
        storage.put_slices("parts", [Slice(tmp_path / "f", 0, 7 * MIB)])
    for name in ("put", "absent", "slices", "parts"):
        head = _raw(server).head_object(Bucket=BUCKET, Key=f"{prefix}/{name}")
        assert head.get("ServerSideEncryption") == sse
        assert (head.get("SSEKMSKeyId") is not None) == (key is not None)


def test_what_nobody_can_ask_for_is_not_listed(server: str, prefix: str) -> None:
    """Another program may have put it there. S3 takes such names, and XML carries them escaped."""
    client = _raw(server)
    with _open(server, prefix) as storage:
        storage.put("run-1/a", b"v")
        for name in ("run-1/seg/7-a%7Fb", "run-1//c", "run-2%7F/seg/d", "/e", "folder/"):
            client.put_object(Bucket=BUCKET, Key=f"{prefix}/{unquote(name)}", Body=b"x")
        assert [stored.key for stored in storage.list("")] == ["run-1/a"]
        assert list(storage.list_folders("run-")) == ["run-1/"]
        assert list(storage.list_folders("run-1/")) == ["run-1/seg/"]
    client.close()


def test_a_thousand_keys_go_in_one_delete(server: str, prefix: str) -> None:
    with _open(server, prefix) as storage:
        storage.put("k1000", b"v")
        storage.delete(f"k{number}" for number in range(1500))
        assert storage.requests["delete"] == 2
        assert storage.size("k1000") is None


@pytest.mark.parametrize(("status", "code"), [(501, "NotImplemented"), (400, "MissingContentMD5"), (405, "MethodNotAllowed")])
def test_a_server_without_batch_deletes(proxy: LossyProxy, prefix: str, status: int, code: str) -> None:
    proxy.inject(WireFault(Wire.STATUS, r"^POST .*delete", times=None, status=status, code=code))
    with _open(proxy.endpoint, prefix) as storage:
        storage.put("a", b"v")
        storage.put("b", b"v")
        storage.delete(["a", "b", "c"])
        storage.delete(["a", "b"])
        assert list(storage.list("")) == []
        assert sum("delete" in line for line in proxy.requests) == 1
        for _ in range(SINGLE_DELETES):
            storage.delete(["a", "b"])
    assert sum("delete" in line for line in proxy.requests) == 2, "it may only have been refused for a while"


# ---- a wrong set-up


def test_no_server_there(prefix: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (
        _open(f"http://127.0.0.1:{port}", prefix) as storage,
        pytest.raises(StorageSetupError, match=rf"127\.0\.0\.1:{port}.*s3\.endpoint"),
    ):
        storage.get("k")


def test_a_server_that_goes_away_later_may_come_back(server: str, prefix: str) -> None:
    lossy = LossyProxy(server)
    with lossy, _open(lossy.endpoint, prefix) as storage:
        storage.put("k", b"v")
        lossy.inject(WireFault(Wire.RESET_BEFORE, times=None))
        with pytest.raises(StorageError) as raised:
            storage.get("k")
        assert not isinstance(raised.value, StorageSetupError)
        lossy.heal()
        assert storage.get("k") == b"v"


def test_no_such_bucket(server: str, prefix: str) -> None:
    with _open(server, prefix, bucket="not-there") as storage:
        for call in (
            lambda: storage.put("k", b"v"),
            lambda: storage.put_if_absent("k", b"v"),
            lambda: storage.get("k"),
            lambda: storage.size("k"),
            lambda: list(storage.list("")),
        ):
            with pytest.raises(StorageSetupError, match="bucket not-there does not exist"):
                call()


def test_a_command_names_its_own_argument(server: str) -> None:
    """Where the option of a query would be named."""
    s3 = S3Options(endpoint=server, region="us-east-1", path_style=True)
    for called, told in (("TARGET", r"create it or correct TARGET$"), ("", r"correct spark\.ckpt\.storage$")):
        storage = open_storage("s3://not-there/x", s3, called) if called else open_storage("s3://not-there/x", s3)
        with storage, pytest.raises(StorageSetupError, match=told):
            storage.put("k", b"v")
    with pytest.raises(ConfigError, match=r"control characters, in TARGET$"):
        open_storage("s3://bucket/x/../y", s3, "TARGET")


def test_no_credentials(server: str, prefix: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(StorageSetupError, match=r"no usable S3 credentials.*AWS_ACCESS_KEY_ID"):
        _open(server, prefix)
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(StorageSetupError, match=r"no usable S3 credentials.*ProfileNotFound"):
        _open(server, prefix)


@pytest.mark.parametrize(
    ("status", "code", "says"),
    [
        (403, "InvalidAccessKeyId", "does not accept the S3 credentials"),
        (403, "SignatureDoesNotMatch", "does not accept the S3 credentials"),
        (404, "XNoSuchUser", "does not accept the S3 credentials"),
        (403, "AccessDenied", "s3:PutObject"),
        (400, "ExpiredToken", "have expired"),
        (403, "RequestTimeTooSkewed", "clock"),
        (404, "NoSuchBucket", "create it"),
        (400, "IllegalLocationConstraintException", "s3.region"),
        (400, "AuthorizationHeaderMalformed", "s3.region"),
        (400, "KMS.NotFoundException", "kmsKeyId"),
        (501, "NotImplemented", "conditional writes"),
    ],
)
def test_what_retrying_cannot_mend(proxy: LossyProxy, prefix: str, status: int, code: str, says: str) -> None:
    proxy.inject(WireFault(Wire.STATUS, "^PUT", times=None, status=status, code=code))
    with _open(proxy.endpoint, prefix) as storage, pytest.raises(StorageSetupError, match=says):
        storage.put_if_absent("k", b"v")
    assert sum(line.startswith("PUT") for line in proxy.requests) <= 2


def test_the_region_of_the_bucket_is_named() -> None:
    meta = {"HTTPStatusCode": 301, "HTTPHeaders": {"x-amz-bucket-region": "eu-central-1"}}
    response: Any = {"Error": {"Code": "PermanentRedirect"}, "ResponseMetadata": meta}
    error = ClientError(response, "PutObject")
    assert fault_of(error) is Fault.SETUP
    assert "in region eu-central-1" in str(setup_error(error, "store k", Place("s3://b/p", "b", "https://s3.amazonaws.com")))


def test_no_secret_is_told(proxy: LossyProxy, prefix: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDVISIBLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SECRETVISIBLE")
    caplog.set_level(logging.INFO)
    proxy.inject(WireFault(Wire.STATUS, "^PUT", times=None, status=403, code="InvalidAccessKeyId"))
    with _open(proxy.endpoint, prefix) as storage, pytest.raises(StorageSetupError) as raised:
        storage.put("k", b"v")
    assert "VISIBLE" not in f"{raised.value} {raised.value.__cause__} {storage!r} {caplog.text}"


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_no_secret_in_an_endpoint_is_told_wherever_that_comes_from(
    server: str, prefix: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, server.replace("http://", "http://admin:hunter2@"))
    with pytest.raises(ConfigError, match=f"the endpoint in .*{name}.* holds a user name or password") as raised:
        S3Storage(f"s3://{BUCKET}/{prefix}", S3Options(path_style=True), QUICK).put("k", b"v")
    assert "hunter2" not in f"{raised.value} {raised.value.__cause__}"


def test_a_region_that_is_none_is_named(prefix: str, server: str) -> None:
    with pytest.raises(ConfigError, match=r"spark\.ckpt\.s3\.region.*; correct it"):
        S3Storage(f"s3://{BUCKET}/{prefix}", S3Options(server, "not a region"), QUICK)


def test_s3a_is_s3(server: str) -> None:
    with open_storage(f"s3a://{BUCKET}/some//", S3Options(endpoint=server)) as storage:
        assert storage.url == f"s3://{BUCKET}/some"
    with open_storage(f"s3://{BUCKET}") as storage:
        assert storage.url == f"s3://{BUCKET}"


def test_what_boto3_knows_of_s3_is_read_once_for_all_storages(server: str, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many streams each has a client, and each client would keep 12 MB."""
    first = _open(server, prefix)
    first.put("k", b"v")
    read: list[str] = []
    load = JSONFileLoader.load_file

    def loaded(self: JSONFileLoader, path: str) -> Any:
        read.append(path)
        return load(self, path)

    monkeypatch.setattr(JSONFileLoader, "load_file", loaded)
    others = [_open(server, f"{prefix}-{n}") for n in range(3)]
    assert read == []
    for other in others:
        other.put("k", b"another's")
        other.close()
    assert first.get("k") == b"v", "what else they have, connections among it, is their own"
    first.close()
    assert s3_connection._models is not None
    paths = s3_connection._models.search_paths
    assert len(paths) == len(set(paths)), "and nothing is added to it by each"


def test_other_storages_do_not_load_boto3(tmp_path: Path) -> None:
    code = (
        "import sys; from spark_ckpt.storage import open_storage; import spark_ckpt.storage.probe\n"
        f"open_storage('file://{tmp_path}').put('k', b'v'); open_storage('memory://x')\n"
        "sys.exit('boto3' in sys.modules or 'botocore' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
