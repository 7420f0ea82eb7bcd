"""Real kills of real Spark applications, drawn so that everything meets everything: `python -m campaign --help`."""

import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
# Most of the streams are those of the other tests, and a recipe is tried as its users have it.
sys.path += [str(_ROOT / "tests" / "spark" / "jobs"), str(_ROOT / "examples")]
