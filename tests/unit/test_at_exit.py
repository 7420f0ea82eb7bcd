"""What is done when the process ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from spark_ckpt.process import at_exit
from spark_ckpt.process.at_exit import done_at_exit

ROOT = Path(__file__).parents[2]
ENDS = """
import sys
from spark_ckpt.process.at_exit import done_at_exit
def fails():
    raise RuntimeError("nobody hears of it")
def all_of_them():
    with done_at_exit(lambda: print("first")), done_at_exit(fails), done_at_exit(lambda: print("last")):
        with done_at_exit(lambda: print("never")):
            pass
        yield
kept = all_of_them()
next(kept)
"""


def test_newest_first_and_each_whatever_the_others_do() -> None:
    done = subprocess.run([sys.executable, "-c", ENDS], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert (done.stdout, done.stderr) == ("last\nfirst\n", "")


@pytest.mark.parametrize("error", [None, KeyboardInterrupt, ValueError])
def test_nothing_is_kept_of_what_has_ended(error: type[BaseException] | None) -> None:
    before = len(at_exit._actions)
    try:
        with done_at_exit(lambda: None):
            assert len(at_exit._actions) == before + 1
            if error is not None:
                raise error
    except (KeyboardInterrupt, ValueError):
        pass
    assert len(at_exit._actions) == before
