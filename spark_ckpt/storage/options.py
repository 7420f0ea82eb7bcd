"""How to reach an S3 server (`spark.ckpt.s3.*`), and which names buckets have. No credentials in here: each client has its own chain."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from spark_ckpt.errors import ConfigError, without_password

ENDPOINT = "spark.ckpt.s3.endpoint"
_ENCRYPTIONS = (None, "AES256", "aws:kms")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{2,254}")
_CLOUD_BUCKETS = {
    "gs": (re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]"), "bucket", "3 to 63 characters (with dots up to 222)", ", . - or _"),
    "az": (re.compile(r"[a-z0-9](?:-?[a-z0-9]){2,62}"), "container", "3 to 63 characters", " or single -"),
}
_SHOWN = re.compile(r"[A-Za-z0-9._-]+")


def bucket_problem(name: str) -> str | None:
    """Why no bucket can have that name, without what may be a password; None: one can.

    S3 gives names of 3 to 63 characters. It once gave longer ones, with capitals and `_`, and these buckets live on.
    """
    if _BUCKET.fullmatch(name):
        return None
    whose = f"{name} is no bucket's name; that" if _SHOWN.fullmatch(name) else "a bucket's name"
    return f"{whose} has 3 to 63 characters (old ones up to 255), which are letters, digits, . - or _, the first a letter or digit"


def cloud_bucket_problem(scheme: str, name: str) -> str | None:
    """The same for Google Cloud Storage (`gs`) and for the containers of Azure (`az`)."""
    if scheme not in _CLOUD_BUCKETS:
        return bucket_problem(name)
    pattern, bucket, long, signs = _CLOUD_BUCKETS[scheme]
    if pattern.fullmatch(name):
        return None
    whose = f"{name} is no {bucket}'s name; that" if _SHOWN.fullmatch(name) else f"a {bucket}'s name"
    return f"{whose} has {long}, which are lower-case letters, digits{signs}, the first and the last a letter or digit"


def check_endpoint(source: str, url: str) -> None:
    """Raises ConfigError for one that cannot be an endpoint, or that no message may show. `source`: what names it."""
    try:
        parts = urlsplit(url)
        named = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        secret = parts.username is not None or parts.password is not None
    except ValueError:  # it may show what was between : and @
        raise not_an_endpoint(source) from None
    if secret:
        raise ConfigError(f"{source} holds a user name or password; give credentials to boto3's own chain instead")
    where = source if "@" in url else f"{source}={without_password(url)}"
    if parts.hostname and "_" in parts.hostname:
        raise ConfigError(f"the host in {where} has a _, which no host name may have; name the server otherwise, or write its address")
    if not named:
        raise not_an_endpoint(where)


def not_an_endpoint(source: str) -> ConfigError:
    return ConfigError(f"{source} is not the URL of a server; write it as https://host:port, the host without a _")


@dataclass(frozen=True)
class S3Options:
    """None means: what boto3's chain says (environment, `~/.aws/config`, instance metadata).

    `outage_s`: how long a read waits for a server that does not answer, in seconds; None: as long as any request. `reached`: the
    application has been answered before, so a server that is away is an outage, and no mistake in these options.
    """

    endpoint: str | None = None
    region: str | None = None
    path_style: bool = False
    sse: str | None = None
    kms_key_id: str | None = None
    max_connections: int = 32
    outage_s: float | None = None
    reached: bool = False

    def __post_init__(self) -> None:
        if self.endpoint is not None:
            check_endpoint(ENDPOINT, self.endpoint)
        if self.sse not in _ENCRYPTIONS:
            raise ConfigError(f"spark.ckpt.s3.sse={self.sse} is not known; use AES256 or aws:kms, or leave it out")
        if self.kms_key_id is not None and self.sse != "aws:kms":
            raise ConfigError("spark.ckpt.s3.kmsKeyId needs spark.ckpt.s3.sse=aws:kms")
        if self.max_connections < 1:
            raise ConfigError(f"spark.ckpt.s3.maxConnections={self.max_connections} must be 1 or more")
