"""A process that makes Arrow batches out of stores which lie on this machine's disk (`state.reader_pool` starts it).

Standard input: pickled `Task`s, of the process that has started this one. A socket: messages of a length (`LENGTH`) and so many bytes. The
first has none and says that the process is there. Then for each task its batches, each as a message of Arrow's IPC format without a schema,
and one without bytes. Whatever goes wrong ends the process: who has started it reads the store itself, and finds out why.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING

from spark_ckpt.state.contents import FetchedStore, opened_fetched
from spark_ckpt.state.reading import Selected, decoded
from spark_ckpt.state.rows import Decoder, Encoding

if TYPE_CHECKING:
    import pyarrow as pa

LENGTH = struct.Struct("<q")
_LOOK_S = 1


@dataclass(frozen=True)
class Task:
    """What is to be read of one store. `codec`: with which its changelogs are compressed. `size`: bytes of keys and values of a batch."""

    store: FetchedStore
    selected: Selected
    partition: int
    encoding: Encoding
    codec: str
    size: int

    @property
    def decoder(self) -> Decoder:
        return Decoder(self.selected.family, self.encoding, self.selected.store.has_families)


def made(task: Task) -> Iterator[pa.RecordBatch]:
    """Raises like `StateOfCheckpoint.batches`, without the names of checkpoint and store."""
    with opened_fetched(task.store, task.codec, task.encoding.delimiter) as contents:
        yield from decoded(contents, task.selected, task.decoder, task.partition, task.size)


def main(answers: int, starter: int) -> None:
    """`answers`: the socket. `starter`: the process that has started this one, and with which it ends."""
    # A Ctrl-C of the terminal is for the process that has started this one, which ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with, args=(starter,), daemon=True).start()
    with socket.socket(fileno=answers) as out:
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


def _end_with(starter: int) -> None:
    """The end of its standard input says so too, unless a process that was forked from the starter holds that open."""
    while os.getppid() == starter:
        time.sleep(_LOOK_S)
    os._exit(1)
