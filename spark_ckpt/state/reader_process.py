"""A process that makes Arrow batches out of stores which lie on this machine's disk: `python -m spark_ckpt.state.reader_process`.

Standard input: pickled `Task`s, of the process that has started this one. Standard output, a socket: messages of a length (`LENGTH`) and so
many bytes. The first has none and says that the process is there. Then for each task its batches, each as a message of Arrow's IPC format
without a schema, and one without bytes. Whatever goes wrong ends the process: who has started it reads the store itself, and finds out why.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_ckpt.state.contents import FetchedStore, opened_fetched
from spark_ckpt.state.reading import Selected, decoded
from spark_ckpt.state.rows import Decoder, Encoding

if TYPE_CHECKING:
    import pyarrow as pa

LENGTH = struct.Struct("<q")


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
    # A Ctrl-C of the terminal is for the process that has started this one, which ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Whatever prints to the standard output would be between the batches.
    with socket.socket(fileno=os.dup(sys.stdout.fileno())) as out:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        out.sendall(LENGTH.pack(0))
        while True:
            try:
                task: Task = pickle.load(sys.stdin.buffer)  # noqa: S301
            except EOFError:
                return
            for batch in made(task):
                message = batch.serialize()
                out.sendall(LENGTH.pack(message.size))
                out.sendall(message)
            out.sendall(LENGTH.pack(0))


if __name__ == "__main__":
    main()
