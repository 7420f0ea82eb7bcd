"""`spark_ckpt.savepoint`: a savepoint of a running query."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_ckpt import paths
from spark_ckpt.api.requests import Wish, ask, stream_of
from spark_ckpt.conf.forms import parse_stream
from spark_ckpt.errors import ConfigError, TimeoutExpiredError
from spark_ckpt.protocol.entries import SAVEPOINT, STOP
from spark_ckpt.units import parse_duration

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True)
class SavepointRequest:
    """What a person asks for. `target`: URL of the folder for the savepoint, `name` its name there; empty: the run decides."""

    target: str = ""
    name: str = ""
    stop: bool = False
    drain: bool = False

    def __post_init__(self) -> None:
        if self.drain and not self.stop:
            raise ConfigError(
                "drain without stop is not possible: it ends all windows and event-time timers, and the query could not go on from that; "
                "ask for both, or for neither"
            )
        if self.name:
            paths.savepoint_url("", "", self.name)

    @property
    def wish(self) -> Wish:
        return Wish(STOP if self.stop else SAVEPOINT, self.target, self.name, self.drain)


def savepoint(
    query: StreamingQuery | str,
    target: str | None = None,
    name: str | None = None,
    stop: bool = False,
    drain: bool = False,
    timeout: str | int = "10min",
) -> str:
    """Make a savepoint of a running query and return the URL of its folder: complete in itself, and deleted by people only.

    One that is restored with `spark.ckpt.restore.mode=CLAIM` is the stream's from then on, which deletes it in the end.

    `query` is the query, or the URL of its stream for one that another process runs. `target` is the folder in which it is made, one
    below the query's `spark.ckpt.savepointDir` or below `savepoints/` in the stream's own (default: the first of these that there is),
    `name` its name there (default: a new one). With `stop` the query ends after it; with `drain` too, the watermark goes to its end
    before, so that windows and event-time timers fire. `timeout` is a duration as Spark writes it, 12h at most. Raises `ConfigError`,
    `TimeoutExpiredError` where nothing takes the request up, and `CheckpointError` where the run could not make it (a query that was to
    stop goes on then).
    """
    try:
        request = SavepointRequest(parse_stream(target) if target is not None else "", name or "", stop, drain)
        patience_s = parse_duration(str(timeout)) / 1000
    except ValueError as e:
        raise ConfigError(f"the savepoint cannot be made, write it as {e}") from None
    until = time.monotonic() + patience_s
    with stream_of(query) as storage:
        url = ask(storage, request.wish, patience_s)
    if stop and not isinstance(query, str) and not query.awaitTermination(max(1, int(until - time.monotonic()))):
        raise TimeoutExpiredError(f"the savepoint is made, {url}, but the query has not ended yet; stop() ends it")
    return url
