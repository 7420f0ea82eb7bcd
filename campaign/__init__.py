"""Real kills of real Spark applications, drawn so that everything meets everything: `python -m campaign --help`."""

import sys
from pathlib import Path

# Most of the streams are those of the other tests.
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "spark" / "jobs"))
