"""`python -m spark_ckpt.coordinator`: serves until the end of stdin."""

from __future__ import annotations

import os

from spark_ckpt.coordinator.coordinator import Coordinator, Opener
from spark_ckpt.coordinator.intake import ACKS, acks_reader
from spark_ckpt.process.pipe import Pipe, serve
from spark_ckpt.storage import open_storage


def main(opener: Opener = open_storage) -> None:
    pipe = Pipe.standard()
    if (reader := acks_reader()) is not None:
        pipe.readers[ACKS] = reader
    coordinator = Coordinator(pipe, opener)
    serve(pipe, coordinator.handlers())
    coordinator.close()
    # A thread may still hang in a put; the interpreter's orderly end would pull the ground from under it, and crash.
    os._exit(0)
