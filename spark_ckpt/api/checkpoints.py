"""`spark_ckpt.checkpoint`: a checkpoint of a running query, now (Flink: `triggerCheckpoint`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_ckpt.api.requests import Wish, ask, stream_of
from spark_ckpt.errors import ConfigError
from spark_ckpt.protocol.entries import CHECKPOINT
from spark_ckpt.units import parse_duration

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


def checkpoint(query: StreamingQuery | str, timeout: str | int = "10min") -> str:
    """Have a running query complete a checkpoint now, and return the URL of its folder.

    It is one of the stream's own: only what has changed is uploaded, nothing is copied, and it goes when newer ones make it superfluous
    (`spark.ckpt.retained`). It holds every epoch that had ended when the query met the request; where a completed one does already, that
    one is returned. `query` is the query, or the URL of its stream for one that another process runs. `timeout` is a duration as Spark
    writes it, 12h at most. Raises `ConfigError`, `ConflictError` where the query does not run, `TimeoutExpiredError` where nothing takes
    the request up, and `CheckpointError` where the run could not complete it (the query goes on then, and is not the worse for it).
    """
    try:
        patience_s = parse_duration(str(timeout)) / 1000
    except ValueError as e:
        raise ConfigError(f"the checkpoint cannot be asked for, write its timeout as {e}") from None
    with stream_of(query) as storage:
        return ask(storage, Wish(CHECKPOINT), patience_s)
