"""A forward proxy before an S3 server: what it has passed on may be done, whatever becomes of the answer."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from botocore.exceptions import EndpointConnectionError, NoCredentialsError

from spark_ckpt.errors import ConfigError, OutcomeUnknownError, StorageError
from spark_ckpt.storage import S3Options
from spark_ckpt.storage.base import Traffic
from spark_ckpt.storage.s3 import S3Limits, S3Storage
from spark_ckpt.storage.s3_faults import CredentialsError, ShortAnswerError
from spark_ckpt.storage.s3_requests import S3Requests
from tests.drivers.socket_server import serving

QUICK = S3Limits(patience_s=0.5, first_contact_s=0.3, backoff_s=0.01, connect_s=0.5, read_s=5.0)


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "unit-test-credential")


def received_with(connection: socket.socket, wanted: bytes) -> bytes:
    """All until that is in it. Raises ConnectionError when the other side has ended before."""
    received = b""
    while wanted not in received:
        piece = connection.recv(1 << 16)
        if not piece:
            raise ConnectionError
        received += piece
    return received


@contextmanager
def proxy(serve: Callable[[socket.socket], None], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with serving(serve) as address:
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, f"http://{address}")
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        yield


def opened(scheme: str) -> S3Storage:
    options = S3Options(f"{scheme}://s3.lake.example", "us-east-1", True, reached=True)
    return S3Storage("s3://proxied/ckpt", options, QUICK, chance=random.Random(7))


@pytest.mark.parametrize("resets", [True, False])
def test_a_put_that_a_proxy_took_and_did_not_answer_may_be_done(monkeypatch: pytest.MonkeyPatch, resets: bool) -> None:
    taken: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        taken.append(received_with(connection, b"entry"))
        if resets:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with proxy(serve, monkeypatch), opened("http") as storage, pytest.raises(OutcomeUnknownError, match="log/1"):
        storage.put_if_absent("log/1", b"entry")
    assert taken[0].startswith(b"PUT http://s3.lake.example/proxied/ckpt/log/1 ")


@pytest.mark.parametrize("answer", [b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n", b""])
def test_a_put_for_which_a_proxy_makes_no_tunnel_is_not_done(monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    asked: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        asked.append(received_with(connection, b"\r\n\r\n"))
        connection.sendall(answer)

    with proxy(serve, monkeypatch), opened("https") as storage, pytest.raises(StorageError) as raised:
        storage.put_if_absent("log/1", b"entry")
    assert not isinstance(raised.value, OutcomeUnknownError)
    assert asked[0].startswith(b"CONNECT s3.lake.example:443 ")


def test_what_keeps_a_new_client_away_does_not_tell_that_a_put_was_not_done() -> None:
    """(1) The answer is lost; (2) the key is not accepted any more; (3) the file that has the next one is just being written."""
    options = S3Options("http://127.0.0.1:9", "us-east-1", True, reached=True)
    requests = S3Requests("s3://lake/ckpt", "lake", options, QUICK, Traffic(), time.monotonic, lambda _: None, random.Random(7))
    errors: list[Exception] = [ShortAnswerError(), ConfigError("the region in ~/.aws/config is malformed")]

    def send() -> None:
        raise errors.pop(0)

    with pytest.raises(OutcomeUnknownError) as unknown:
        requests.run("store it", send, writes=True)
    assert str(unknown.value) == (
        "cannot tell whether it worked to store it: an answer was lost, and attempt 2 failed: the region in ~/.aws/config is malformed; "
        "then read it back"
    )
    errors = [ShortAnswerError()] + [CredentialsError() for _ in range(100_000)]
    for error in errors[1:]:
        error.__cause__ = NoCredentialsError()
    with pytest.raises(OutcomeUnknownError, match=r"an answer was lost, and attempt \d+ failed: no usable S3 credentials for s3://lake/ckpt"):
        requests.run("store it", send, writes=True)
    errors = [ShortAnswerError(), EndpointConnectionError(endpoint_url="http://127.0.0.1:9")] * 100_000
    with pytest.raises(OutcomeUnknownError, match=r"the answer was lost in \d+ attempts, the last with (ShortAnswer|Endpoint)"):
        requests.run("store it", send, writes=True)
    errors = [ConfigError("the region in ~/.aws/config is malformed")]
    with pytest.raises(ConfigError):
        requests.run("store it", send, writes=True)
    requests.close()


def test_a_put_whose_proxy_is_away_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    with proxy(lambda _: None, monkeypatch):
        storage = opened("http")
    with storage, pytest.raises(StorageError) as raised:
        storage.put_if_absent("log/1", b"entry")
    assert not isinstance(raised.value, OutcomeUnknownError)
