"""A Google Cloud Storage in this process, as far as a storage needs it (its XML API), for tests that have no other program.

Objects are in memory. It passes the storage contract, put-if-absent by generation among it.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


@dataclass(frozen=True)
class _Object:
    data: bytes
    generation: int
    stored_s: float

    @property
    def headers(self) -> dict[str, str]:
        return {
            "ETag": f'"{hashlib.md5(self.data, usedforsecurity=False).hexdigest()}"',
            "Last-Modified": formatdate(self.stored_s, usegmt=True),
            "x-goog-generation": str(self.generation),
        }


@dataclass
class _Buckets:
    lock: threading.Lock = field(default_factory=threading.Lock)
    objects: dict[str, dict[str, _Object]] = field(default_factory=dict)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    generation: int = 0

    def store(self, bucket: str, key: str, data: bytes) -> _Object:
        """The lock is held."""
        self.generation += 1
        self.objects[bucket][key] = _Object(data, self.generation, time.time())
        return self.objects[bucket][key]


@contextmanager
def google(*buckets: str) -> Iterator[str]:
    """The URL of a server that has these buckets."""
    held = _Buckets(objects={name: {} for name in buckets})

    class Handler(_Handler):
        state = held

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
    state: _Buckets

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        return

    def do_GET(self) -> None:
        bucket, key, asked = self._place()
        if bucket not in self.state.objects:
            self._refuse(404, "NoSuchBucket")
        elif not key:
            self._list(bucket, asked)
        else:
            self._read(bucket, key)

    do_HEAD = do_GET

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        bucket, key, asked = self._place()
        with self.state.lock:
            if bucket not in self.state.objects:
                self._refuse(404, "NoSuchBucket")
                return
            if "uploadId" in asked:
                parts = self.state.uploads.get(asked["uploadId"])
                if parts is None:
                    self._refuse(404, "NoSuchUpload")
                    return
                parts[int(asked["partNumber"])] = data
                self._answer(200, {"ETag": f'"{len(data)}"'})
                return
            if self.headers.get("x-goog-if-generation-match") == "0" and key in self.state.objects[bucket]:
                self._refuse(412, "PreconditionFailed")
                return
            stored = self.state.store(bucket, key, data)
        self._answer(200, stored.headers)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        bucket, key, asked = self._place()
        with self.state.lock:
            if bucket not in self.state.objects:
                self._refuse(404, "NoSuchBucket")
            elif "uploads" in asked:
                upload = uuid.uuid4().hex
                self.state.uploads[upload] = {}
                body = f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
                self._answer(200, {}, body.encode())
            else:
                parts = self.state.uploads.pop(asked["uploadId"], None)
                if parts is None:
                    self._refuse(404, "NoSuchUpload")
                    return
                stored = self.state.store(bucket, key, b"".join(data for _, data in sorted(parts.items())))
                body = f"<CompleteMultipartUploadResult><ETag>{escape(stored.headers['ETag'])}</ETag></CompleteMultipartUploadResult>"
                self._answer(200, {"x-goog-generation": str(stored.generation)}, body.encode())

    def do_DELETE(self) -> None:
        bucket, key, asked = self._place()
        with self.state.lock:
            if bucket not in self.state.objects:
                self._refuse(404, "NoSuchBucket")
            elif "uploadId" in asked:
                self.state.uploads.pop(asked["uploadId"], None)
                self._answer(204, {})
            elif self.state.objects[bucket].pop(key, None) is None:
                self._refuse(404, "NoSuchKey")
            else:
                self._answer(204, {})

    def _read(self, bucket: str, key: str) -> None:
        found = self.state.objects[bucket].get(key)
        if found is None:
            self._refuse(404, "NoSuchKey")
            return
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted is None:
            self._answer(200, found.headers, found.data)
            return
        first, size = int(wanted[1]), len(found.data)
        last = min(int(wanted[2]) if wanted[2] else size - 1, size - 1)
        if first >= size:
            self._refuse(416, "InvalidRange")
        else:
            self._answer(206, {**found.headers, "Content-Range": f"bytes {first}-{last}/{size}"}, found.data[first : last + 1])

    def _list(self, bucket: str, asked: Mapping[str, str]) -> None:
        """At most as many as GCS gives; `continuation-token` is the last key or folder of the page before."""
        prefix, delimiter = asked.get("prefix", ""), asked.get("delimiter", "")
        after = asked.get("continuation-token") or asked.get("start-after", "")
        found: dict[str, _Object | None] = {}
        with self.state.lock:
            for key, item in sorted(self.state.objects[bucket].items()):
                end = key.find(delimiter, len(prefix)) if delimiter else -1
                name = key if end < 0 else key[: end + 1]
                if key.startswith(prefix) and name > after:
                    found[name] = item if end < 0 else None
        page = list(found.items())[:1000]
        body = "".join(_entry(name, item) for name, item in page)
        if len(found) > len(page):
            body += f"<IsTruncated>true</IsTruncated><NextContinuationToken>{escape(page[-1][0])}</NextContinuationToken>"
        self._answer(200, {"Content-Type": "application/xml"}, f"<ListBucketResult>{body}</ListBucketResult>".encode())

    def _place(self) -> tuple[str, str, dict[str, str]]:
        parts = urlsplit(self.path)
        bucket, _, key = parts.path.lstrip("/").partition("/")
        asked = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        return unquote(bucket), unquote(key), asked

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


def _entry(name: str, item: _Object | None) -> str:
    if item is None:
        return f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
    date = datetime.fromtimestamp(item.stored_s, timezone.utc).isoformat().replace("+00:00", "Z")
    etag = escape(item.headers["ETag"])
    return (
        f"<Contents><Key>{escape(name)}</Key><LastModified>{date}</LastModified><ETag>{etag}</ETag>"
        f"<Size>{len(item.data)}</Size></Contents>"
    )
