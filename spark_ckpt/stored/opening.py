"""What a person names by a URL: a stream, one of its checkpoints, a savepoint, or a `checkpointLocation` that has its stream beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from spark_ckpt.storage import S3Options, Storage, open_storage
from spark_ckpt.storage.base import OPTION
from spark_ckpt.stored.copies import RestorePath
from spark_ckpt.stored.reading import CheckpointReader, StreamReader


@contextmanager
def opened(url: str, s3: S3Options, called: str = OPTION) -> Iterator[Storage]:
    storage = open_storage(url, s3, called)
    try:
        yield storage
    finally:
        storage.close()


@contextmanager
def opened_stream(url: str, s3: S3Options) -> Iterator[tuple[Storage, StreamReader]]:
    """The stream at a URL. A `checkpointLocation` whose stream lies beside it, in `_ckpt`, is understood too.

    So is the folder of one checkpoint or savepoint, read as a stream that holds nothing else. Raises `ObjectMissingError` where none is.
    """
    named = RestorePath.at(url)
    with opened(named.storage_url, s3) as storage:
        single = CheckpointReader(storage, named)
        if not named.is_savepoint or single.exists():
            yield storage, single
            return
        reader = StreamReader(storage)
        if not reader.exists():
            with opened(storage.url.rstrip("/") + "/_ckpt", s3) as inner:
                inside = StreamReader(inner)
                if inside.exists():
                    yield inner, inside
                    return
            reader.check()
        yield storage, reader
