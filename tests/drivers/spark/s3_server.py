"""The S3 server that applications under test use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import boto3

from testbed.lossy_proxy import LossyProxy, Wire, WireFault

ACCESS, SECRET, REGION = "test", "test-secret", "us-east-1"
FAR = WireFault(Wire.DELAY, times=None, delay_s=0.02)
"""As in another region."""


class Server(NamedTuple):
    """An S3 server and what a client must be told to reach it; `proxy` stands between the two."""

    proxy: LossyProxy
    bucket: str

    @property
    def conf(self) -> dict[str, str]:
        return {"spark.ckpt.s3.endpoint": self.proxy.endpoint, "spark.ckpt.s3.region": REGION, "spark.ckpt.s3.pathStyle": "true"}

    @property
    def env(self) -> dict[str, str]:
        return {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_EC2_METADATA_DISABLED": "true"}


@contextmanager
def moto() -> Iterator[str]:
    """The URL of a server in this process."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@contextmanager
def with_bucket(url: str, bucket: str) -> Iterator[Server]:
    """The server at that URL with a new bucket, behind a proxy of its own."""
    with LossyProxy(url) as proxy:
        client = boto3.Session(ACCESS, SECRET, region_name=REGION).client("s3", endpoint_url=url)
        client.create_bucket(Bucket=bucket)
        client.close()
        yield Server(proxy, bucket)
