"""A real S3 server 20 ms away: versitygw with an access log, behind toxiproxy with 10 ms each way."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.errors import BenchmarkError
from spark_ckpt.storage.options import S3Options
from testbed.servers import ACCESS, SECRET, TOXIPROXY, VERSITYGW, UnavailableError, free_port, running
from testbed.toxiproxy import COUNTING, Toxiproxy

REGION = "us-east-1"
PROXY = "s3"
LATENCY_MS = 20
"""Added to each round trip, half of it each way. Connections are kept (`--keep-alive`), as with S3 itself."""
ENV = {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION, "AWS_EC2_METADATA_DISABLED": "true"}

_CLOSED_S = 0.2
"""The proxy sees soon that a client has gone."""
_AT_ONCE = 1000
_buckets = itertools.count(1)


@dataclass(frozen=True)
class FarS3:
    """`endpoint` is what clients get, `near` the server itself, `log` its access log; `wire` has the proxy PROXY between them."""

    endpoint: str
    near: str
    log: Path
    wire: Toxiproxy | None = None

    @property
    def options(self) -> S3Options:
        return S3Options(endpoint=self.endpoint, region=REGION, path_style=True)

    def client(self, near: bool = False, **how: Any) -> Any:
        import boto3

        session = boto3.Session(ACCESS, SECRET, region_name=REGION)
        return session.client("s3", endpoint_url=self.near if near else self.endpoint, **how)

    def sizes(self, bucket: str) -> dict[str, int]:
        """Key -> bytes of everything in a bucket, asked of the server itself."""
        client = self.client(near=True)
        found: dict[str, int] = {}
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
            found.update({str(o["Key"]): int(o["Size"]) for o in page.get("Contents", ())})
        client.close()
        return found

    def brought(self) -> int:
        """Bytes that clients got from the server so far, headers among them. The access log has none of what is read.

        Those of clients that have ended, and waited for: a connection counts when it is closed.
        """
        assert self.wire is not None
        before, now = -1, self.wire.brought(PROXY)
        while now != before:
            time.sleep(_CLOSED_S)
            before, now = now, self.wire.brought(PROXY)
        return now

    def drop(self, bucket: str) -> None:
        """All that is in it goes: what is large is not to lie on the disk until the end."""
        client, keys = self.client(near=True), list(self.sizes(bucket))
        for first in range(0, len(keys), _AT_ONCE):
            some = [{"Key": key} for key in keys[first : first + _AT_ONCE]]
            wrong = client.delete_objects(Bucket=bucket, Delete={"Objects": some, "Quiet": True}).get("Errors")
            if wrong:
                raise BenchmarkError(f"{len(wrong)} of {len(some)} objects were not deleted: {wrong[0].get('Message')}")
        client.close()

    def bucket(self) -> str:
        """A new one."""
        name = f"bench-{next(_buckets)}"
        client = self.client(near=True)
        client.create_bucket(Bucket=name)
        client.close()
        return name


@contextmanager
def far_s3(folder: Path) -> Iterator[FarS3]:
    """Both servers over a folder of their own. Raises BenchmarkError where one cannot be had."""
    log = folder / "access.log"
    folder.mkdir(parents=True)
    try:
        with (
            running(VERSITYGW, folder / "s3", "--keep-alive", "--access-log", str(log)) as near,
            running(TOXIPROXY, folder / "proxy", COUNTING) as api,
        ):
            port, wire = free_port(), Toxiproxy(api)
            wire.make(PROXY, port, near)
            for stream in ("upstream", "downstream"):
                wire.add(PROXY, stream, "latency", stream, {"latency": LATENCY_MS // 2, "jitter": 0})
            yield FarS3(f"http://127.0.0.1:{port}", near, log, wire)
    except UnavailableError as e:
        raise BenchmarkError(str(e)) from e
