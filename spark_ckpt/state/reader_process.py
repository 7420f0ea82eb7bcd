"""A process that makes Arrow batches out of stores which lie on this machine's disk (`state.reader_pool` starts it).

Both talk through a socket, in messages of a length (`LENGTH`) and so many bytes. The first one has none and says that this process is
there. Then comes a pickled `Task` from the process that has started it, and back go the task's batches, each in Arrow's IPC format without
a schema, and a message without bytes. Whatever goes wrong ends the process: who has started it reads the store itself, and finds out why.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING

from spark_ckpt import __version__
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


class EndedError(Exception):
    """The other end of a socket is closed."""


def receive(there: socket.socket, room: memoryview) -> None:
    """Fills it. Raises EndedError and OSError."""
    while len(room):
        count = there.recv_into(room, 0, socket.MSG_WAITALL)
        if not count:
            raise EndedError("a message is cut short")
        room = room[count:]


def received_length(there: socket.socket) -> int:
    """Of the next message. Raises like `receive`."""
    head = bytearray(LENGTH.size)
    receive(there, memoryview(head))
    return int(LENGTH.unpack(head)[0])


def main(file: int, starter: int, version: str) -> None:
    """`file`: the socket. `starter`: the process that has started this one, and with which it ends. `version`: of the package there: an
    upgrade under a running process must not mix two."""
    if version != __version__:
        return
    # A Ctrl-C of the terminal is for the process that has started this one, which ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with, args=(starter,), daemon=True).start()
    with socket.socket(fileno=file) as there, suppress(EndedError):
        there.setblocking(True)  # gevent has its sockets otherwise, and who shares one has it the same way
        there.sendall(LENGTH.pack(0))
        while True:
            given = bytearray(received_length(there))
            receive(there, memoryview(given))
            task: Task = pickle.loads(given)  # noqa: S301
            for batch in made(task):
                message = batch.serialize()
                there.sendall(LENGTH.pack(message.size))
                there.sendall(message)
            there.sendall(LENGTH.pack(0))


def _end_with(starter: int) -> None:
    """The end of the socket says so too, unless a process that was forked from the starter holds that open."""
    while os.getppid() == starter:
        time.sleep(_LOOK_S)
    os._exit(1)
