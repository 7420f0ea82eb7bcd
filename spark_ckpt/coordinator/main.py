"""`python -m spark_ckpt.coordinator`: serves until the end of stdin."""

from __future__ import annotations

import os

from spark_ckpt.coordinator.coordinator import Coordinator
from spark_ckpt.pipe import Pipe, serve


def main() -> None:
    pipe = Pipe.standard()
    coordinator = Coordinator(pipe)
    serve(pipe, coordinator.handlers())
    coordinator.close()
    # A thread may still hang in a put; the interpreter's orderly end would pull the ground from under it, and crash.
    os._exit(0)
