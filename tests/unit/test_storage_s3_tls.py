"""TLS that fails: in the handshake nothing has been asked yet; after it an answer may be lost."""

from __future__ import annotations

import random
import re
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from spark_ckpt.errors import OutcomeUnknownError, StorageError, StorageSetupError
from spark_ckpt.storage import S3Options
from spark_ckpt.storage.s3 import S3Limits, S3Storage
from tests.drivers.certificates import self_signed
from tests.drivers.socket_server import serving

QUICK = S3Limits(patience_s=0.5, first_contact_s=0.3, backoff_s=0.01, connect_s=0.5, read_s=5.0)
BROKEN = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return self_signed(tmp_path_factory.mktemp("tls"))


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch, certificate: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "unit-test-credential")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))


@contextmanager
def server(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    with serving(serve) as address:
        yield f"https://{address}"


def opened(endpoint: str, reached: bool, read_s: float = QUICK.read_s) -> S3Storage:
    options = S3Options(endpoint, "us-east-1", True, reached=reached)
    return S3Storage("s3://tls/ckpt", options, replace(QUICK, read_s=read_s), chance=random.Random(7))


@pytest.mark.parametrize("reached", [True, False])
def test_an_answer_that_is_lost_in_tls_may_be_to_what_was_done(certificate: Path, reached: bool) -> None:
    """The server, or what stands before it, breaks off after the whole request has arrived."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    taken: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        with socket.socket(fileno=connection.detach()) as plain:
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = context.wrap_bio(incoming, outgoing, server_side=True)

            def step(call: Callable[[], bytes | None]) -> bytes:
                while True:
                    try:
                        result = call()
                        plain.sendall(outgoing.read())
                        return result or b""
                    except ssl.SSLWantReadError:
                        plain.sendall(outgoing.read())
                        incoming.write(plain.recv(1 << 16))

            step(tls.do_handshake)
            received = b""
            while b"entry" not in received:
                received += step(lambda: tls.read(1 << 16))
            taken.append(received)
            plain.sendall(b"HTTP/1.1 504 Gateway Timeout\r\n\r\n")
            plain.recv(1)

    with server(serve) as endpoint, opened(endpoint, reached) as storage, pytest.raises(OutcomeUnknownError, match="log/1"):
        storage.put_if_absent("log/1", b"entry")
    assert taken


@pytest.mark.parametrize("reached", [True, False])
def test_a_request_that_has_arrived_and_is_never_answered_may_have_been_done(certificate: Path, reached: bool) -> None:
    """The same error of urllib3 as that of a handshake which is never answered."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    taken: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as tls:
            while data := tls.recv(1 << 16):
                taken.append(data)

    with server(serve) as endpoint, opened(endpoint, reached, read_s=0.5) as storage, pytest.raises(OutcomeUnknownError, match="log/1"):
        storage.put_if_absent("log/1", b"entry")
    assert b"entry" in b"".join(taken)


@pytest.mark.parametrize("reached", [True, False])
def test_where_no_tls_is_spoken_nothing_has_happened(reached: bool) -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    refused(serve, reached, "SSLError", "https is spoken")


@pytest.mark.parametrize("reached", [True, False])
def test_a_connection_that_ends_in_the_handshake_is_asked_for_nothing(reached: bool) -> None:
    refused(lambda connection: connection.close(), reached, "Error", "")


@pytest.mark.parametrize("reached", [True, False])
def test_a_handshake_that_is_never_answered_is_asked_for_nothing(reached: bool) -> None:
    def serve(connection: socket.socket) -> None:
        while connection.recv(1 << 16):
            pass

    refused(serve, reached, "Timeout", "network")


@pytest.mark.parametrize("reached", [True, False])
def test_a_certificate_that_nobody_trusts_is_asked_for_nothing(certificate: Path, monkeypatch: pytest.MonkeyPatch, reached: bool) -> None:
    monkeypatch.delenv("AWS_CA_BUNDLE")
    refused(speaking_tls(certificate), reached, "not trusted: self.signed", "AWS_CA_BUNDLE")


@pytest.mark.parametrize("reached", [True, False])
def test_a_certificate_for_another_host_is_asked_for_nothing(certificate: Path, reached: bool) -> None:
    refused(speaking_tls(certificate), reached, "for another host name", r"spark\.ckpt\.s3\.endpoint", host="localhost")


@pytest.mark.parametrize("reached", [True, False])
@pytest.mark.parametrize(
    ("content", "reason"), [(None, "No such file"), ("", "NO_CERTIFICATE"), ("not a certificate", "NO_CERTIFICATE"), (BROKEN, "PEM")]
)
def test_a_bundle_that_cannot_be_loaded_is_named(
    certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reached: bool, content: str | None, reason: str
) -> None:
    bundle = tmp_path / "bundle.pem"
    if content is not None:
        bundle.write_text(content)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(bundle))
    refused(speaking_tls(certificate), reached, f"trusted certificates cannot be loaded: .*{reason}", "AWS_CA_BUNDLE")


def speaking_tls(certificate: Path) -> Callable[[socket.socket], None]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def serve(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as tls:
            tls.recv(1)

    return serve


def refused(serve: Callable[[socket.socket], None], reached: bool, reason: str, way_out: str, host: str = "127.0.0.1") -> None:
    """`way_out`: what the first start is told to mend."""
    with server(serve) as endpoint, opened(endpoint.replace("127.0.0.1", host), reached) as storage, pytest.raises(StorageError) as raised:
        storage.put_if_absent("log/1", b"entry")
    assert not isinstance(raised.value, OutcomeUnknownError)
    assert isinstance(raised.value, StorageSetupError) != reached
    assert re.search(reason, str(raised.value))
    assert reached or re.search(f"; .*{way_out}", str(raised.value))
