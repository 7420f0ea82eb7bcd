"""A process that makes Arrow batches out of stores which lie on this machine's disk: `python -m spark_ckpt.state.reader_process`.

Standard input: pickled `Task`s, of the process that has started this one. Standard output: `READY`, then for each task a stream of Arrow's
IPC format and behind it `DONE`. Whatever goes wrong ends the process: who has started it reads the store itself, and finds out why.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_ckpt.state.contents import FetchedStore, opened_fetched
from spark_ckpt.state.reading import Selected, decoded
from spark_ckpt.state.rows import Decoder, Encoding

if TYPE_CHECKING:
    import pyarrow as pa

READY, DONE = b"r", b"d"


@dataclass(frozen=True)
class Task:
    """What is to be read of one store. `codec`: with which its changelogs are compressed."""

    store: FetchedStore
    selected: Selected
    partition: int
    encoding: Encoding
    codec: str

    @property
    def decoder(self) -> Decoder:
        return Decoder(self.selected.family, self.encoding, self.selected.store.has_families)


def made(task: Task) -> Iterator[pa.RecordBatch]:
    """Raises like `StateOfCheckpoint.batches`, without the names of checkpoint and store."""
    with opened_fetched(task.store, task.codec, task.encoding.delimiter) as contents:
        yield from decoded(contents, task.selected, task.decoder, task.partition)


def main() -> None:
    import pyarrow as pa

    # A Ctrl-C of the terminal is for the process that has started this one, which ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Whatever prints to the standard output would be between the batches.
    with open(os.dup(sys.stdout.fileno()), "wb") as out:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        out.write(READY)
        out.flush()
        while True:
            try:
                task: Task = pickle.load(sys.stdin.buffer)  # noqa: S301
            except EOFError:
                return
            with pa.ipc.new_stream(out, task.decoder.schema) as stream:
                for batch in made(task):
                    stream.write_batch(batch)
                    out.flush()
            out.write(DONE)
            out.flush()


if __name__ == "__main__":
    main()
