"""Which right each request to S3 takes, and which requests a storage makes."""

from __future__ import annotations

from typing import Any

from botocore import xform_name

from spark_ckpt.storage.s3 import S3Storage

ACTIONS = {
    "put_object": "s3:PutObject",
    "create_multipart_upload": "s3:PutObject",
    "upload_part": "s3:PutObject",
    "complete_multipart_upload": "s3:PutObject",
    "abort_multipart_upload": "s3:AbortMultipartUpload",
    "get_object": "s3:GetObject",
    "head_object": "s3:GetObject",
    "list_objects_v2": "s3:ListBucket",
    "delete_object": "s3:DeleteObject",
    "delete_objects": "s3:DeleteObject",
}
"""What each request takes (AWS: Service Authorization Reference, "Actions, resources, and condition keys for Amazon S3")."""


def requests_of(storage: S3Storage) -> set[str]:
    """From now on, the names of all requests that it makes, as boto3's client has them."""
    made: set[str] = set()

    def note(model: Any, **_: object) -> None:
        made.add(xform_name(model.name))

    storage._client.meta.events.register("before-call.s3", note)
    return made
