"""The rights that docs/security.md says are enough are enough, and none of them is too many: on a server that knows policies."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from spark_ckpt.errors import StorageError, StorageSetupError
from spark_ckpt.storage import S3Options, Slice
from spark_ckpt.storage.attempts import Fault
from spark_ckpt.storage.probe import check_put_if_absent
from spark_ckpt.storage.s3 import S3Limits, S3Storage
from testbed.servers import ACCESS, MINIO, SECRET, UnavailableError, running
from tests.drivers.s3_rights import ACTIONS, requests_of

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
SMALL = S3Limits(single_put_max=5 << 20, part_size=5 << 20, patience_s=2.0, first_contact_s=2.0)
_numbers = itertools.count()


def documented() -> dict[str, Any]:
    """The policy without its statement for KMS, which needs a key service."""
    (text,) = re.findall(r"```json\n(.*?)```", (ROOT / "docs" / "security.md").read_text(), re.DOTALL)
    policy: dict[str, Any] = json.loads(text)
    policy["Statement"] = [s for s in policy["Statement"] if not any(action.startswith("kms:") for action in s["Action"])]
    return policy


def test_the_policy_names_what_is_asked_of_a_bucket_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The contract suite sees to it that a storage asks nothing beyond `ACTIONS`."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        with client("s3", url) as s3:
            s3.create_bucket(Bucket="asked")
        with closing(storage(url, "asked", "ckpt")) as one:
            asked = requests_of(one)
            for does in DOES:
                does(one, tmp_path)
    finally:
        server.stop()
    assert asked == set(ACTIONS)
    assert {action for s in documented()["Statement"] for action in s["Action"]} == set(ACTIONS.values())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    try:
        with running(MINIO, tmp_path_factory.mktemp("minio")) as url:
            yield url
    except UnavailableError as e:
        pytest.skip(f"no server here knows policies: {e}")


def client(service: str, url: str) -> Any:
    return closing(boto3.Session(ACCESS, SECRET, region_name="us-east-1").client(service, endpoint_url=url))  # type: ignore[call-overload]


@pytest.fixture(params=["plain", "locked"])
def bucket(request: pytest.FixtureRequest, server: str) -> str:
    """`locked`: versioned, and what is stored there cannot be destroyed for a day."""
    name = f"rights-{next(_numbers)}"
    with client("s3", server) as s3:
        s3.create_bucket(Bucket=name, ObjectLockEnabledForBucket=request.param == "locked")
        if request.param == "locked":
            rule = {"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 1}}}
            s3.put_object_lock_configuration(Bucket=name, ObjectLockConfiguration=rule)
    return name


def allowed(monkeypatch: pytest.MonkeyPatch, url: str, policy: Mapping[str, Any]) -> None:
    """From now on boto3's chain gives somebody who has these rights and no others."""
    with client("sts", url) as sts:
        said = sts.assume_role(RoleArn="arn:aws:iam::0:role/any", RoleSessionName="least", Policy=json.dumps(policy))["Credentials"]
    for name, key in (("ACCESS_KEY_ID", "AccessKeyId"), ("SECRET_ACCESS_KEY", "SecretAccessKey"), ("SESSION_TOKEN", "SessionToken")):
        monkeypatch.setenv(f"AWS_{name}", said[key])


def storage(url: str, bucket: str, prefix: str) -> S3Storage:
    return S3Storage(f"s3://{bucket}/{prefix}", S3Options(endpoint=url, region="us-east-1", path_style=True), SMALL)


def multipart(one: S3Storage, folder: Path) -> None:
    (folder / "large").write_bytes(bytes(6 << 20))
    one.put_slices("run-00000001/sst/large", [Slice(folder / "large", 0, 6 << 20)])
    assert one.size("run-00000001/sst/large") == 6 << 20


def cut(one: S3Storage, folder: Path) -> None:
    """An upload that is broken off leaves no parts."""
    (folder / "shrinks").write_bytes(bytes(5 << 20))
    slices = [Slice(folder / "shrinks", 0, 5 << 20)]
    begun = one._run("begin an upload", lambda: one._client.create_multipart_upload(**one._at("cut"), ChecksumAlgorithm="CRC32"))
    assert not isinstance(begun, Fault)
    upload = begun["UploadId"]
    part = one._send_part("cut", upload, slices, 1, 0, 5 << 20)
    assert part["PartNumber"] == 1
    one._abort("cut", upload)


def listed(one: S3Storage, _: Path) -> None:
    one.put("run-00000001/seg/a", b"x")
    assert [s.key for s in one.list("run-00000001/seg/")] == ["run-00000001/seg/a"]
    assert list(one.list_folders("run-")) == ["run-00000001/"]


def deleted(one: S3Storage, _: Path) -> None:
    for key in ("a", "b", "c"):
        one.put(key, b"x")
    one.delete(["a"])
    one.delete(["b", "c"])
    assert [one.size(key) for key in "abc"] == [None] * 3
    assert one.put_if_absent("a", b"again").value == "STORED"


DOES: tuple[Callable[[S3Storage, Path], None], ...] = (
    lambda one, _: check_put_if_absent(one),
    multipart,
    cut,
    listed,
    deleted,
)


def test_the_documented_rights_are_enough(server: str, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = json.loads(json.dumps(documented()).replace("BUCKET", bucket).replace("PREFIX", "ckpt"))
    allowed(monkeypatch, server, policy)
    with closing(storage(server, bucket, "ckpt/data/orders")) as one:
        for does in DOES:
            does(one, tmp_path)
    with closing(storage(server, bucket, "other")) as outside, pytest.raises(StorageSetupError, match="does not allow to store"):
        outside.put("a", b"x")


@pytest.mark.parametrize("action", sorted(set(ACTIONS.values())))
def test_none_of_them_is_too_many(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str) -> None:
    name = f"fewer-{next(_numbers)}"
    with client("s3", server) as s3:
        s3.create_bucket(Bucket=name)
    policy = json.loads(json.dumps(documented()).replace("BUCKET", name).replace("PREFIX", "ckpt"))
    for statement in policy["Statement"]:
        statement["Action"] = [a for a in statement["Action"] if a != action]
    policy["Statement"] = [s for s in policy["Statement"] if s["Action"]]
    allowed(monkeypatch, server, policy)
    refused: list[str] = []
    with closing(storage(server, name, "ckpt")) as one:
        for does in DOES:
            try:
                does(one, tmp_path)
            except StorageError as e:
                refused.append(str(e))
    assert refused, f"nothing needs {action}"
    assert all("does not allow" in why or "does not delete" in why for why in refused), refused
