"""What a person names by a URL: a stream, one of its checkpoints, a savepoint, or a `checkpointLocation` that has its stream beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from spark_ckpt.errors import ConfigError, StorageSetupError
from spark_ckpt.paths import LOG_PREFIX
from spark_ckpt.storage import S3Options, Storage, open_storage
from spark_ckpt.storage.base import OPTION
from spark_ckpt.stored.copies import RestorePath
from spark_ckpt.stored.places import streams_above
from spark_ckpt.stored.reading import CheckpointReader, StreamReader


@contextmanager
def opened(url: str, s3: S3Options, called: str = OPTION) -> Iterator[Storage]:
    storage = open_storage(url, s3, called)
    try:
        yield storage
    finally:
        storage.close()


@contextmanager
def new_folder(url: str, s3: S3Options, called: str = OPTION) -> Iterator[Storage]:
    """The place of something that is to be made. Raises `ConfigError` for one in a run's folder of some stream, `StorageError`.

    Whoever makes a savepoint there looks whether it is a stream's (`copies.refuse_stream`); an export has no business with that.
    """
    for stream in streams_above(url):
        with opened(stream, s3, called) as storage:
            if next(storage.list(LOG_PREFIX), None) is not None:
                raise ConfigError(
                    f"nothing is made in {url}, which lies in the folder of a run of the stream at {stream}: `spark-ckpt gc` deletes what "
                    "is left there; choose another place"
                )
    with opened(url, s3, called) as storage:
        yield storage


@contextmanager
def opened_stream(url: str, s3: S3Options) -> Iterator[tuple[Storage, StreamReader]]:
    """The stream at a URL. A `checkpointLocation` whose stream lies beside it, in `_ckpt`, is understood too.

    So is the folder of one checkpoint or savepoint, read as a stream that holds nothing else. Rule: where a savepoint lies in the folder of
    a stream (earlier releases made one there), that is the stream. Raises `ObjectMissingError` where none is.
    """
    named = RestorePath.at(url)
    with opened(named.storage_url, s3) as storage:
        single, reader = CheckpointReader(storage, named), StreamReader(storage)
        if not named.is_savepoint or (single.exists() and not _is_stream(reader)):
            yield storage, single
            return
        if not reader.exists():
            with opened(storage.url.rstrip("/") + "/_ckpt", s3) as inner:
                inside = StreamReader(inner)
                if inside.exists():
                    yield inner, inside
                    return
            reader.check()
        yield storage, reader


def _is_stream(reader: StreamReader) -> bool:
    try:
        return reader.has_log()
    except StorageSetupError:
        return False  # who may read a savepoint need not be allowed to list
