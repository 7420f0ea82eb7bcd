"""Where checkpoints live: `open_storage` turns a URL into a `Storage`."""

from __future__ import annotations

from spark_ckpt.errors import ConfigError, without_password
from spark_ckpt.process.packages import packages_for, require
from spark_ckpt.storage.base import OPTION, PutResult, Slice, Storage, Stored
from spark_ckpt.storage.options import S3Options

__all__ = ["PutResult", "S3Options", "Slice", "Storage", "Stored", "open_storage"]


def open_storage(url: str, options: S3Options | None = None, called: str = OPTION) -> Storage:
    """Open `s3://bucket/prefix` (or `s3a://`), `gs://bucket/prefix`, `az://container/prefix`, `file:///path` or, in tests,
    `memory://name/prefix`; nothing is sent or created yet.

    `called`: what messages name where another URL is to be given. Each scheme's module is imported on first use: boto3 takes hundreds of
    milliseconds to load, and `file://` must not pay for it. Of `options`, the clouds use how long to wait. Raises `ConfigError` for any
    other URL.
    """
    scheme = url.split(":", 1)[0].lower() if ":" in url else ""
    if scheme in ("s3", "s3a"):
        require(packages_for(url))
        from spark_ckpt.storage.s3 import S3Storage

        return S3Storage(url, options or S3Options(), called=called)
    if scheme in ("gs", "az"):
        require(packages_for(url))
        from spark_ckpt.storage.cloud import CloudStorage

        return CloudStorage(f"{scheme}{url[len(scheme) :]}", options or S3Options(), called=called)
    if scheme == "file":
        from spark_ckpt.storage.file import FileStorage

        return FileStorage(url, called)
    if scheme == "memory":
        from spark_ckpt.storage.memory import MemoryStorage

        return MemoryStorage(url)
    if scheme in ("abfs", "abfss", "wasb", "wasbs"):
        raise ConfigError(
            f"the storage {without_password(url)} cannot be opened, for it is Hadoop's name of a place in Azure; set {called} to "
            "az://container/prefix, and AZURE_STORAGE_ACCOUNT_NAME in the environment to the storage account"
        )
    raise ConfigError(
        f"the storage {without_password(url)} cannot be opened; use s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or "
        "file:///path"
    )
