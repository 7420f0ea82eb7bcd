"""Real kills of real Spark applications, drawn so that everything meets everything: `python -m campaign --help`."""

import sys
from pathlib import Path

_SPARK_TESTS = Path(__file__).resolve().parents[1] / "tests" / "spark"
# What starts, feeds and compares applications is that of the other tests, and so are most of the streams.
sys.path += [str(_SPARK_TESTS), str(_SPARK_TESTS / "jobs")]
