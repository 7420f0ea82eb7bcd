"""Google Cloud Storage as far as a storage needs it: its XML API, over objects in memory or over fake-gcs-server.

fake-gcs-server (1.56) takes writes through the JSON API only: a plain PUT of the XML API, which is what obstore sends, it answers with 400
"invalid uploadType", and it has no XML multipart uploads. So here a PUT becomes an upload of the JSON API, with its precondition, and
parts of an upload are put together before they are sent. Who wins is decided by that server.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import formatdate
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit
from xml.sax.saxutils import escape

PAGE = 1000


@dataclass(frozen=True)
class Found:
    """An object without its content."""

    key: str
    size: int
    etag: str
    generation: int
    stored_s: float

    @property
    def headers(self) -> dict[str, str]:
        dated = {"Last-Modified": formatdate(self.stored_s, usegmt=True)}
        return {"ETag": f'"{self.etag}"', "x-goog-generation": str(self.generation), **dated}


class Objects(Protocol):
    """Where they are. A bucket that is not there: KeyError."""

    def put(self, bucket: str, key: str, data: bytes, if_absent: bool) -> Found | None:
        """None: something is there already."""

    def get(self, bucket: str, key: str) -> tuple[Found, bytes] | None: ...

    def list(self, bucket: str, prefix: str) -> list[Found]: ...

    def delete(self, bucket: str, key: str) -> bool: ...


class InMemory:
    def __init__(self, *buckets: str) -> None:
        self._lock = threading.Lock()
        self._objects: dict[str, dict[str, tuple[Found, bytes]]] = {name: {} for name in buckets}
        self._generation = 0

    def put(self, bucket: str, key: str, data: bytes, if_absent: bool) -> Found | None:
        with self._lock:
            if if_absent and key in self._objects[bucket]:
                return None
            self._generation += 1
            digest = hashlib.md5(data, usedforsecurity=False).hexdigest()
            found = Found(key, len(data), digest, self._generation, time.time())
            self._objects[bucket][key] = found, data
            return found

    def get(self, bucket: str, key: str) -> tuple[Found, bytes] | None:
        with self._lock:
            return self._objects[bucket].get(key)

    def list(self, bucket: str, prefix: str) -> list[Found]:
        with self._lock:
            return [found for key, (found, _) in sorted(self._objects[bucket].items()) if key.startswith(prefix)]

    def delete(self, bucket: str, key: str) -> bool:
        with self._lock:
            return self._objects[bucket].pop(key, None) is not None


class OverFakeGcs:
    """Objects of a fake-gcs-server, by its JSON API."""

    def __init__(self, url: str) -> None:
        self._server = urlsplit(url).netloc

    def put(self, bucket: str, key: str, data: bytes, if_absent: bool) -> Found | None:
        self._bucket(bucket)
        asked = {"uploadType": "media", "name": key, **({"ifGenerationMatch": "0"} if if_absent else {})}
        status, said = self._ask("POST", f"/upload/storage/v1/b/{bucket}/o?{urlencode(asked)}", data)
        if status == 412:
            return None
        return _found(json.loads(_good(status, said)))

    def get(self, bucket: str, key: str) -> tuple[Found, bytes] | None:
        self._bucket(bucket)
        path = f"/storage/v1/b/{bucket}/o/{quote(key, safe='')}"
        for _ in range(100):
            status, said = self._ask("GET", path)
            if status == 404:
                return None
            found = _found(json.loads(_good(status, said)))
            status, data = self._ask("GET", f"{path}?alt=media&generation={found.generation}")
            if status != 404:  # replaced or deleted meanwhile
                return found, _good(status, data)
        raise AssertionError(f"{bucket}/{key} changes all the time")

    def list(self, bucket: str, prefix: str) -> list[Found]:
        self._bucket(bucket)
        status, said = self._ask("GET", f"/storage/v1/b/{bucket}/o?{urlencode({'prefix': prefix})}")
        listed = json.loads(_good(status, said))
        assert not listed.get("nextPageToken"), "all came in one page so far"
        return sorted((_found(item) for item in listed.get("items") or ()), key=lambda found: found.key)

    def delete(self, bucket: str, key: str) -> bool:
        self._bucket(bucket)
        status, said = self._ask("DELETE", f"/storage/v1/b/{bucket}/o/{quote(key, safe='')}")
        if status == 404:
            return False
        _good(status, said)
        return True

    def _bucket(self, name: str) -> None:
        if self._ask("GET", f"/storage/v1/b/{name}")[0] == 404:
            raise KeyError(name)

    def _ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        connection = HTTPConnection(self._server, timeout=60)
        try:
            connection.request(method, path, body, {"Content-Type": "application/octet-stream"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


def _good(status: int, said: bytes) -> bytes:
    assert status < 300, f"{status} {said[:500]!r}"
    return said


def _found(item: Mapping[str, Any]) -> Found:
    stored = datetime.fromisoformat(item["updated"].replace("Z", "+00:00")).timestamp()
    return Found(item["name"], int(item.get("size", 0)), item["etag"].strip('"'), int(item["generation"]), stored)


@contextmanager
def google(objects: Objects) -> Iterator[str]:
    """The URL of a server over them, in this process."""

    class Handler(_Handler):
        state = objects
        uploads: dict[str, dict[int, bytes]] = {}

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="google", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: Objects
    uploads: dict[str, dict[int, bytes]]

    def handle(self) -> None:
        with suppress(ConnectionError):  # a client may give up what it has asked
            super().handle()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002, ARG002
        return

    def do_GET(self) -> None:
        self._serve(self._get)

    def do_HEAD(self) -> None:
        self._serve(self._get)

    def do_PUT(self) -> None:
        self._serve(self._put)

    def do_POST(self) -> None:
        self._serve(self._post)

    def do_DELETE(self) -> None:
        self._serve(self._delete)

    def _serve(self, serve: Any) -> None:
        parts = urlsplit(self.path)
        bucket, _, key = parts.path.lstrip("/").partition("/")
        asked = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            serve(unquote(bucket), unquote(key), asked, data)
        except KeyError:
            self._refuse(404, "NoSuchBucket")

    def _get(self, bucket: str, key: str, asked: Mapping[str, str], _: bytes) -> None:
        if not key:
            self._list(bucket, asked)
            return
        got = self.state.get(bucket, key)
        if got is None:
            self._refuse(404, "NoSuchKey")
            return
        found, data = got
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted is None:
            self._answer(200, found.headers, data)
            return
        first = int(wanted[1])
        last = min(int(wanted[2]) if wanted[2] else len(data) - 1, len(data) - 1)
        if first >= len(data):
            self._refuse(416, "InvalidRange")
        else:
            self._answer(206, {**found.headers, "Content-Range": f"bytes {first}-{last}/{len(data)}"}, data[first : last + 1])

    def _put(self, bucket: str, key: str, asked: Mapping[str, str], data: bytes) -> None:
        if "uploadId" in asked:
            parts = self.uploads.get(asked["uploadId"])
            if parts is None:
                self._refuse(404, "NoSuchUpload")
                return
            parts[int(asked["partNumber"])] = data
            self._answer(200, {"ETag": f'"{len(data)}"'})
            return
        stored = self.state.put(bucket, key, data, self.headers.get("x-goog-if-generation-match") == "0")
        if stored is None:
            self._refuse(412, "PreconditionFailed")
        else:
            self._answer(200, stored.headers)

    def _post(self, bucket: str, key: str, asked: Mapping[str, str], _: bytes) -> None:
        if "uploads" in asked:
            self.state.list(bucket, key)  # is the bucket there?
            upload = uuid.uuid4().hex
            self.uploads[upload] = {}
            body = f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
            self._answer(200, {}, body.encode())
            return
        parts = self.uploads.pop(asked["uploadId"], None)
        stored = None if parts is None else self.state.put(bucket, key, b"".join(data for _, data in sorted(parts.items())), False)
        if stored is None:
            self._refuse(404, "NoSuchUpload")
        else:
            body = f"<CompleteMultipartUploadResult><ETag>{escape(stored.etag)}</ETag></CompleteMultipartUploadResult>"
            self._answer(200, {"x-goog-generation": str(stored.generation)}, body.encode())

    def _delete(self, bucket: str, key: str, asked: Mapping[str, str], _: bytes) -> None:
        if "uploadId" in asked:
            self.uploads.pop(asked["uploadId"], None)
        elif not self.state.delete(bucket, key):
            self._refuse(404, "NoSuchKey")
            return
        self._answer(204, {})

    def _list(self, bucket: str, asked: Mapping[str, str]) -> None:
        """`continuation-token` is the last key or folder of the page before."""
        prefix, delimiter = asked.get("prefix", ""), asked.get("delimiter", "")
        after = asked.get("continuation-token") or asked.get("start-after", "")
        entries: dict[str, Found | None] = {}
        for found in self.state.list(bucket, prefix):
            end = found.key.find(delimiter, len(prefix)) if delimiter else -1
            name = found.key if end < 0 else found.key[: end + 1]
            if name > after:
                entries[name] = found if end < 0 else None
        page = list(entries.items())[:PAGE]
        body = "".join(_entry(name, item) for name, item in page)
        if len(entries) > len(page):
            body += f"<IsTruncated>true</IsTruncated><NextContinuationToken>{escape(page[-1][0])}</NextContinuationToken>"
        self._answer(200, {"Content-Type": "application/xml"}, f"<ListBucketResult>{body}</ListBucketResult>".encode())

    def _refuse(self, status: int, code: str) -> None:
        body = f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code><Message>no</Message></Error>"
        self._answer(status, {"Content-Type": "application/xml"}, body.encode())

    def _answer(self, status: int, headers: Mapping[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _entry(name: str, item: Found | None) -> str:
    if item is None:
        return f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
    date = datetime.fromtimestamp(item.stored_s, UTC).isoformat().replace("+00:00", "Z")
    fields = f"<Key>{escape(name)}</Key><LastModified>{date}</LastModified><ETag>{escape(item.etag)}</ETag><Size>{item.size}</Size>"
    return f"<Contents>{fields}</Contents>"
