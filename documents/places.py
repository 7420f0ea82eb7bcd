"""Where the documents lie."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
IMAGES = DOCS / "images"
README = ROOT / "README.md"
BENCHMARKS = DOCS / "benchmarks.md"
OPTIONS = DOCS / "options.md"
COMMAND_LINE = DOCS / "command-line.md"
PROTOCOL = DOCS / "protocol.md"
GUARANTEES = DOCS / "guarantees.md"
REAL_TIME = DOCS / "real-time.md"
STATE = DOCS / "state.md"
COMPATIBILITY = DOCS / "compatibility.md"
SINKS = ROOT / "campaign" / "results" / "sinks.jsonl"
TESTS = ROOT / "campaign" / "results" / "tests.jsonl"
MEASURED = ROOT / "benchmarks" / "results"
LINES = ROOT / "campaign" / "results" / "lines.jsonl"
