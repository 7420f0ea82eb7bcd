"""Does put-if-absent really work there? Everything rests on it, and some S3 servers ignore the condition. And may one delete?"""

from __future__ import annotations

import uuid

from spark_ckpt.errors import StorageError, StorageSetupError
from spark_ckpt.paths import probe_key
from spark_ckpt.storage.base import PutResult, Storage


def check_put_if_absent(storage: Storage) -> None:
    """Store a small object twice under a key of its own, `probe/…`, look at it, and delete it: five requests.

    Raises `StorageSetupError` if the second put was accepted or changed the object, or if it cannot be deleted (old checkpoints could not
    be either, and the storage would grow for ever), and what the storage raises if it cannot be reached.
    """
    key = probe_key(uuid.uuid4().hex)
    first, second = b"first", b"second"
    refused: StorageError | None = None
    try:
        # EXISTS for the first one is its own put, sent again after a lost answer: nobody else knows the key
        storage.put_if_absent(key, first)
        again = storage.put_if_absent(key, second)
        found = storage.get(key)
    finally:
        try:
            storage.delete([key])
        except StorageError as e:  # a small object stays behind; what went wrong above is told first
            refused = e
    if again is not PutResult.EXISTS or found != first:
        raise StorageSetupError(
            f"the storage {storage.url} ignores put-if-absent (If-None-Match: *), so two drivers could overwrite each other; "
            "use a server that supports conditional writes, or another spark.ckpt.storage"
        )
    if refused is not None:
        raise StorageSetupError(
            f"the storage {storage.url} takes objects but does not delete them, so old checkpoints would stay for ever ({refused}); allow "
            "it (on S3: s3:DeleteObject), or use another spark.ckpt.storage"
        ) from refused
