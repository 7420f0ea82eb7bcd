"""Emulators of Google Cloud Storage and Azure Blob Storage: what their client must be told, and a bucket in them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

from testbed.google import OverFakeGcs, google
from testbed.servers import AZURITE, FAKE_GCS, Kind, running

AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""What every emulator of Azure's has, and every client knows."""


@dataclass(frozen=True)
class Emulator:
    """`environment`: of the client, for a server at a URL. `make`: a bucket or container there."""

    scheme: str
    kind: Kind
    environment: Callable[[str], Mapping[str, str]]
    make: Callable[[str, str], None]

    @contextmanager
    def running(self, folder: Path, bucket: str) -> Iterator[str]:
        """The URL of a server that has the bucket. Raises UnavailableError."""
        with ExitStack() as stack:
            url = stack.enter_context(running(self.kind, folder))
            self.make(url, bucket)
            yield stack.enter_context(google(OverFakeGcs(url))) if self.kind is FAKE_GCS else url


def google_environment(url: str) -> Mapping[str, str]:
    return {"GOOGLE_BASE_URL": url, "GOOGLE_BEARER_TOKEN": "nobody-looks-at-it"}


def azure_environment(url: str) -> Mapping[str, str]:
    return {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": url}


def make_google_bucket(url: str, name: str) -> None:
    _sent(url, "POST", "/storage/v1/b?project=test", {"Content-Type": "application/json"}, json.dumps({"name": name}).encode())


def make_azure_container(url: str, name: str) -> None:
    """Signed with the account's key (Azure: "Authorize with Shared Key")."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2023-11-03"}
    path = f"/{AZURE_ACCOUNT}/{name}"
    signed = "PUT" + "\n" * 12 + "".join(f"{key}:{value}\n" for key, value in sorted(headers.items()))
    signed += f"/{AZURE_ACCOUNT}{path}\nrestype:container"
    digest = hmac.new(base64.b64decode(AZURE_KEY), signed.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {AZURE_ACCOUNT}:{base64.b64encode(digest).decode()}"
    _sent(url, "PUT", f"{path}?restype=container", {**headers, "Content-Length": "0"}, b"")


def _sent(url: str, method: str, path: str, headers: Mapping[str, str], body: bytes) -> None:
    connection = HTTPConnection(urlsplit(url).netloc, timeout=30)
    try:
        connection.request(method, path, body, dict(headers))
        answer = connection.getresponse()
        said = answer.read()
    finally:
        connection.close()
    assert answer.status < 300, f"{method} {path}: {answer.status} {said[:500]!r}"


EMULATORS = {
    "gs": Emulator("gs", FAKE_GCS, google_environment, make_google_bucket),
    "az": Emulator("az", AZURITE, azure_environment, make_azure_container),
}
