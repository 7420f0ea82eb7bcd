"""The S3 server that applications under test use."""

from __future__ import annotations

from typing import NamedTuple

from testbed.lossy_proxy import LossyProxy


class Server(NamedTuple):
    """An S3 server and what a client must be told to reach it; `proxy` stands between the two."""

    proxy: LossyProxy
    bucket: str

    @property
    def conf(self) -> dict[str, str]:
        return {"spark.ckpt.s3.endpoint": self.proxy.endpoint, "spark.ckpt.s3.region": "us-east-1", "spark.ckpt.s3.pathStyle": "true"}

    @property
    def env(self) -> dict[str, str]:
        return {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test-secret", "AWS_EC2_METADATA_DISABLED": "true"}
