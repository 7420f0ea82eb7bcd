"""`python -m benchmarks.guard SESSION`: when its stdin ends, because the benchmark has ended in whatever way, what was stopped goes on.

An application that goes on finds its own stdin at an end and ends by itself; a stopped one would keep its memory for ever.
"""

from __future__ import annotations

import signal
import sys

from benchmarks.processes import tell_session


def main(session: int) -> None:
    sys.stdin.buffer.read()
    tell_session(session, signal.SIGCONT)


if __name__ == "__main__":
    main(int(sys.argv[1]))
