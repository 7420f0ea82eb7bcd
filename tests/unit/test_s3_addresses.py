"""URLs, endpoints and options of S3 that are refused, or understood, before any server is asked."""

from __future__ import annotations

import pytest

from spark_ckpt.errors import ConfigError
from spark_ckpt.storage import S3Options, open_storage
from spark_ckpt.storage.s3 import S3Storage


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "unit-test-credential")


NO_ENDPOINTS = [
    "http://[::1",
    "http://h:99999",
    "http://host:port",
    "http://h\u2100.com",
    "http://me:hush@[::1",
    "http://me:hush@h\u2100.com",
    "me:hush@minio:9000",
    "minio:9000",
    "ftp://minio:9000",
    "http://",
    "http://:9000",
    "http://a b",
    "http://-minio-",
]


@pytest.mark.parametrize("url", NO_ENDPOINTS)
@pytest.mark.parametrize("name", ["spark.ckpt.s3.endpoint", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_an_endpoint_that_is_no_url_is_told_with_where_it_comes_from(monkeypatch: pytest.MonkeyPatch, name: str, url: str) -> None:
    endpoint = url if name.startswith("spark") else None
    if endpoint is None:
        monkeypatch.setenv(name, url)
    with pytest.raises(ConfigError, match=rf"{name}.*; (write it as https://host:port|give credentials)") as raised:
        S3Storage("s3://unit/p", S3Options(endpoint, path_style=True))
    assert "hush" not in f"{raised.value} {raised.value.__cause__}"
    assert raised.value.__suppress_context__ or raised.value.__context__ is None


@pytest.mark.parametrize("name", ["spark.ckpt.s3.endpoint", "AWS_ENDPOINT_URL"])
def test_a_host_that_may_not_be_called_so_is_told(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    url = "http://my_host:9000"
    if name.startswith("AWS"):
        monkeypatch.setenv(name, url)
    with pytest.raises(ConfigError, match=rf"{name}.* a _"):
        S3Storage("s3://unit/p", S3Options(url if name.startswith("spark") else None, path_style=True))


@pytest.mark.parametrize("url", ["http://[::1]:9000", "https://minio", "http://10.0.0.1:9000/base"])
def test_endpoints(url: str) -> None:
    assert S3Options(url).endpoint == url


@pytest.mark.parametrize("url", ["s3://", "s3:///x", "s3://key:secret@bucket/p", "s3://a b/p", "s3://bucket:9000/p"])
def test_urls_that_are_not_a_bucket(url: str) -> None:
    with pytest.raises(ConfigError, match="s3://bucket/prefix") as raised:
        open_storage(url)
    assert "secret" not in str(raised.value)


def test_a_name_that_is_too_short_for_a_bucket_is_told_with_the_rule() -> None:
    with pytest.raises(ConfigError, match=r"^b is no bucket's name; that has 3 to 63 characters.*; write s3://bucket/prefix"):
        open_storage("s3://b/p")


def test_options_that_contradict() -> None:
    with pytest.raises(ConfigError, match=r"s3\.sse"):
        S3Options(sse="DES")
    with pytest.raises(ConfigError, match="kmsKeyId"):
        S3Options(kms_key_id="k")
    with pytest.raises(ConfigError, match="maxConnections"):
        S3Options(max_connections=0)
    with pytest.raises(ConfigError, match="https://host:port"):
        S3Options(endpoint="localhost:9000")
    with pytest.raises(ConfigError) as raised:
        S3Options(endpoint="https://key:secret@host")
    assert "secret" not in str(raised.value)


def test_a_directory_bucket_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="ckpt--use1-az4--x-s3 is a directory bucket"):
        open_storage("s3://ckpt--use1-az4--x-s3/x")
