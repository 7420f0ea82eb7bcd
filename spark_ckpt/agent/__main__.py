"""`python -m spark_ckpt.agent`: ends with its executor's pipe."""

from __future__ import annotations

import os
import sys

from spark_ckpt.agent.agent import Agent, Opener
from spark_ckpt.process.pipe import Pipe, serve
from spark_ckpt.storage import open_storage


def main(opener: Opener = open_storage) -> None:
    pipe = Pipe.standard()
    agent = Agent(pipe, opener)
    serve(pipe, agent.handlers)
    agent.close()
    agent.leave_spool()
    sys.stderr.flush()
    os._exit(0)  # not sys.exit: that would join threads that wait for a storage which does not answer


if __name__ == "__main__":
    main()
