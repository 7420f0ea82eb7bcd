"""Stores read by several processes, this one among them: Python makes rows on one processor at a time.

The others only save time. Where one cannot be started, or ends too soon, its store is read here.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import socket
import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from types import TracebackType
from typing import TYPE_CHECKING

from spark_ckpt import __version__
from spark_ckpt.errors import CheckpointError
from spark_ckpt.model import Snapshot
from spark_ckpt.process.at_exit import done_at_exit
from spark_ckpt.state import reading
from spark_ckpt.state.contents import fetch, options_beside
from spark_ckpt.state.reader_process import LENGTH, EndedError, Task, made, receive, received_length
from spark_ckpt.state.reading import Selected, StateOfCheckpoint, gathered, remove

if TYPE_CHECKING:
    import pyarrow as pa

_START_S = 30
"""A process that has not begun by then is not waited for."""
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from spark_ckpt.state.reader_process import main; main(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])"
)
_HELPER = "SPARK_CKPT_READER"
"""Set in a helper's environment: an application that is its own interpreter would start itself again, and that one again."""


def read_by_processes(state: StateOfCheckpoint, selected: Selected, snapshots: Sequence[Snapshot], most: int) -> Iterator[pa.RecordBatch]:
    """The batches of these stores as they are made, by `most` processes at most. Raises like `StateOfCheckpoint.batches`."""
    count = min(most, len(snapshots))
    with _Readers(count - 1) as readers, done_at_exit(readers.close):

        def of_store(snapshot: Snapshot, folder: Path) -> Generator[pa.RecordBatch, None, None]:
            def task() -> Task:
                store = fetch(state.storage, state.checkpoint, snapshot, folder, readers.check)
                return Task(store, selected, snapshot.store.partition, state.encoding, state.codec, reading.BATCH_BYTES)

            with state.named(snapshot):
                given, asked = 0, task()
                files = asked.store.files
                try:
                    for batch in readers.batches(asked):
                        given += 1
                        yield batch
                except _HelperEndedError:
                    readers.check()
                    # Where it has written, RocksDB's files are neither the checkpoint's nor what its changelogs make of them.
                    if asked.store.files != files:
                        remove(folder)
                        asked = task()
                    shutil.rmtree(options_beside(folder), ignore_errors=True)
                    yield from islice(made(asked), given, None)  # the same entries make the same batches
            remove(folder)

        yield from gathered(of_store, snapshots, count, in_order=False, at_end=readers.end)


class _HelperEndedError(CheckpointError):
    """A process has ended, or been ended, while it read a store."""


class _Readers:
    """This process, and so many helpers. They are ended when the block is left, and end by themselves with this process."""

    def __init__(self, helpers: int) -> None:
        self.ended = False
        self._free: SimpleQueue[_Helper | None] = SimpleQueue()
        """None: this process."""
        self._free.put(None)
        self._helpers: list[_Helper] = []
        try:
            for _ in range(helpers):
                try:
                    self._helpers.append(_Helper(self._free))
                except Exception:  # whatever keeps it from starting: the stores are read without it
                    self._free.put(None)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> _Readers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """No thread is in `batches` any more. May be called again."""
        with ExitStack() as closing:
            for helper in self._helpers:
                closing.callback(helper.close)
            self.end()

    def end(self) -> None:
        """What is being read is read no further. May be called again."""
        self.ended = True
        with ExitStack() as ending:  # each of them, also if an interrupt falls into the end of another
            for helper in self._helpers:
                ending.callback(helper.end)

    def check(self) -> None:
        """Raises `_HelperEndedError` if nobody takes what is read any more."""
        if self.ended:
            raise _HelperEndedError("nothing is read any more")

    def batches(self, task: Task) -> Iterator[pa.RecordBatch]:
        """By whoever is free first. Raises `_HelperEndedError`, and like `made`."""
        helper, whole = None, False
        with suppress(Empty):
            helper = self._free.get(timeout=_START_S)
        try:
            self.check()
            yield from made(task) if helper is None else helper.batches(task)
            whole = True
        finally:
            if helper is not None and not whole:
                helper.end()  # it is in the middle of this store
                helper = None
            self._free.put(helper)


class _Helper:
    """A process of its own. It puts itself into `free` when it is ready, or None in its place when it has ended before.

    Raises whatever keeps it from starting.
    """

    def __init__(self, free: SimpleQueue[_Helper | None]) -> None:
        if not sys.executable or getattr(sys, "frozen", False) or _HELPER in os.environ:
            raise OSError("there is no interpreter")  # a frozen one would start the whole application once more
        # A pipe is read in pieces of 64 KiB, before each of which this process's other threads have Python for some milliseconds.
        self._there, far = socket.socketpair()
        flags = ["-I", "-B"] if sys.dont_write_bytecode else ["-I"]
        self._starter = os.getpid()
        given = [json.dumps(_path()), str(far.fileno()), str(self._starter), __version__]
        with far:
            try:
                for end in (self._there, far):
                    end.settimeout(None)  # an application may have set another one for all of its sockets
                self._process = subprocess.Popen(
                    [sys.executable, *flags, "-c", _PROGRAM, *given],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=(far.fileno(),),
                    env={**os.environ, _HELPER: "1"},
                )
            except BaseException:
                self._there.close()
                raise
        try:
            self._starting = Thread(target=self._start, args=(free,), name="state-helper", daemon=True)
            self._starting.start()
        except BaseException:  # there can be no more threads, or the application is interrupted, perhaps when this one runs
            self._kill()
            self.close()
            raise

    def _start(self, free: SimpleQueue[_Helper | None]) -> None:
        try:
            self._message()
        except (OSError, EndedError):
            free.put(None)
        else:
            free.put(self)
            self._process.wait()
            self._cut_off()

    def _cut_off(self) -> None:
        """A process that another thread has forked while this one was started holds the far end open, and there would be no end of file.
        What is there already can still be read."""
        with suppress(OSError):  # the far end is closed, as it should be
            self._there.shutdown(socket.SHUT_RDWR)

    def batches(self, task: Task) -> Iterator[pa.RecordBatch]:
        """Whoever does not take all of them has to end it."""
        import pyarrow as pa

        schema, given = task.decoder.schema, pickle.dumps(task)
        try:
            # Without a signal: an application may have it that SIGPIPE ends it.
            self._there.sendall(LENGTH.pack(len(given)) + given, socket.MSG_NOSIGNAL)
            while (message := self._message()) is not None:
                yield pa.ipc.read_record_batch(message, schema)
        except (OSError, EndedError, pa.ArrowException) as e:
            raise _HelperEndedError(str(e)) from e

    def _message(self) -> pa.Buffer | None:
        """None: one without bytes."""
        import pyarrow as pa

        if not (length := received_length(self._there)):
            return None
        message = pa.allocate_buffer(length)  # unlike Python's arrays not filled with zeros first
        receive(self._there, memoryview(message).cast("B"))
        return message

    def end(self) -> None:
        """May be called again, also while another thread is in `batches`. In a process that was forked from the one that reads: nothing."""
        if self._starter != os.getpid():
            return
        self._kill()
        self._starting.join()

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._cut_off()

    def close(self) -> None:
        """No thread is in `batches` any more."""
        self._there.close()


def _path() -> list[str]:
    """As this process looks for modules, without what depends on the folder that it is in: that may be another one by now, and have modules
    with the names of Python's own."""
    own = str(Path(__file__).parents[2])
    entries = [entry for entry in sys.path if isinstance(entry, str) and os.path.isabs(entry)]  # Python passes over what is no str
    return entries if own in entries else [*entries, own]
