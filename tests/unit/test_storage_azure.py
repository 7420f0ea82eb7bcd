"""What Azure answers, and what it is asked."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from urllib.parse import parse_qsl, urlsplit

import pytest

from spark_ckpt.errors import OutcomeUnknownError, StorageError, StorageSetupError
from spark_ckpt.storage import PutResult, open_storage
from spark_ckpt.storage.cloud import CloudStorage
from testbed.clouds import AZURE_KEY, azure_environment
from testbed.lossy_proxy import LossyProxy
from tests.drivers.clouds_client import QUICK, without_clouds
from tests.drivers.socket_server import serving

Answer = Callable[[str], tuple[int, str]]
"""Of the first line of a request: status and code."""


def answering(answer: Answer) -> Callable[[socket.socket], None]:
    """Serves one request on each connection."""

    def serve(connection: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            if not (chunk := connection.recv(1 << 16)):
                return
            head += chunk
        status, code = answer(head.decode("latin-1").split("\r\n", 1)[0])
        said = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>SAID</Message></Error>"
        body = b"" if head.startswith(b"HEAD") else said.encode()
        connection.sendall(f"HTTP/1.1 {status} x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)

    return serve


@pytest.fixture
def azure(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Answer], CloudStorage]]:
    without_clouds(monkeypatch)
    with ExitStack() as stack:

        def begin(answer: Answer) -> CloudStorage:
            address = stack.enter_context(serving(answering(answer)))
            for name, value in azure_environment(f"http://{address}").items():
                monkeypatch.setenv(name, value)
            storage = CloudStorage("az://unit/x", limits=QUICK, chance=random.Random(7))
            stack.callback(storage.close)
            return storage

        yield begin


@pytest.mark.parametrize(("status", "code"), [(409, "BlobAlreadyExists"), (412, "ConditionNotMet")])
def test_a_blob_that_is_there_exists(azure: Callable[[Answer], CloudStorage], status: int, code: str) -> None:
    assert azure(lambda _: (status, code)).put_if_absent("log/1", b"v") is PutResult.EXISTS


def test_another_conflict_is_no_blob_that_is_there(azure: Callable[[Answer], CloudStorage]) -> None:
    storage = azure(lambda _: (409, "ContainerBeingDeleted"))
    with pytest.raises(StorageError, match=r"attempts .* 409 ContainerBeingDeleted") as raised:
        storage.put_if_absent("log/1", b"v")
    assert not isinstance(raised.value, OutcomeUnknownError), "the server has said that it was not stored"


@pytest.mark.parametrize(
    ("status", "code", "says"),
    [
        (403, "AuthenticationFailed", r"does not accept the credentials \(403 AuthenticationFailed\); .*AZURE_STORAGE_ACCOUNT_KEY"),
        (403, "AuthorizationPermissionMismatch", "does not allow to store .*Storage Blob Data Contributor"),
        (404, "ContainerNotFound", "the container unit does not exist"),
        (409, "BlobArchived", r"has archived what it takes to store .*\(409 BlobArchived\); bring it back"),
        (409, "BlobBeingRehydrated", r"has archived what it takes to store .*\(409 BlobBeingRehydrated\); bring it back"),
    ],
)
def test_what_retrying_cannot_mend_in_azure(azure: Callable[[Answer], CloudStorage], status: int, code: str, says: str) -> None:
    storage = azure(lambda _: (status, code))
    with pytest.raises(StorageSetupError, match=says) as raised:
        storage.put_if_absent("k", b"v")
    assert "SAID" not in str(raised.value)


def test_an_account_that_nobody_names(monkeypatch: pytest.MonkeyPatch) -> None:
    without_clouds(monkeypatch)
    with pytest.raises(StorageSetupError, match=r"account of az://unit/x is not known; set AZURE_STORAGE_ACCOUNT_NAME"):
        open_storage("az://unit/x")


def test_the_account_is_named_where_its_server_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    without_clouds(monkeypatch)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "nobodys")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", AZURE_KEY)
    with LossyProxy("http://127.0.0.1:1") as proxy, proxy.away():
        monkeypatch.setenv("AZURE_PROXY_URL", proxy.endpoint)
        with CloudStorage("az://unit/x", limits=QUICK) as storage:
            said = r"at Azure Blob Storage, account nobodys \(ConnectionRefused\); check AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ENDPOINT"
            with pytest.raises(StorageSetupError, match=said) as raised:
                storage.get("k")
    assert AZURE_KEY not in str(raised.value)


def test_a_listing_begins_within_what_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Azure takes `startFrom` for a place within the prefix; what it makes of another one is not said."""
    without_clouds(monkeypatch)
    asked: list[tuple[str, str | None]] = []

    def answer(line: str) -> tuple[int, str]:
        query = dict(parse_qsl(urlsplit(line.split(" ")[1]).query))
        asked.append((query.get("prefix", ""), query.get("startFrom")))
        return 404, "ContainerNotFound"

    with serving(answering(answer)) as address:
        monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", f"http://{address}")
        monkeypatch.setenv("AZURE_ALLOW_HTTP", "true")
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
        for url, prefix, after in (
            ("az://unit/x", "", ""),
            ("az://unit/x", "log/", ""),
            ("az://unit/x", "log/", "log/0002"),
            ("az://unit/x", "run-1/chk-", ""),
            ("az://unit/x", "log/0003", ""),
            ("az://unit", "log/", ""),
            ("az://unit", "", ""),
        ):
            with CloudStorage(url, limits=QUICK) as storage, pytest.raises(StorageSetupError):
                list(storage.list(prefix, after))
    assert asked == [
        ("x/", None),
        ("x/log/", None),
        ("x/log/", "x/log/0002"),
        ("x/run-1/", "x/run-1/chk"),
        ("x/log/", "x/log/000"),
        ("log/", None),
        ("", None),
    ]
