"""What comes out of a storage is shown as what it is: text, sizes, moments."""

from __future__ import annotations

from typing import Any

import pytest

from spark_ckpt.cli.output import Facts, JsonOutput, Report, TextOutput
from spark_ckpt.errors import FormatError
from spark_ckpt.units import age_text, duration_text, size_text, time_text


def test_no_control_character_reaches_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    TextOutput().show(Report({}, (Facts((("\x1b]0;owned\x07\nrun-9", "\x9b2J"),)),)))
    shown = capsys.readouterr().out
    assert shown.count("\n") == 1
    assert not any(character in shown for character in "\x1b\x07\x9b")


def test_numbers_that_cannot_be_are_no_reason_to_fail() -> None:
    assert time_text(0) == "1970-01-01 00:00:00Z"
    assert {time_text(10**30), time_text(-1), time_text(10**18)} == {"?"}
    assert size_text(10**400) == "?"
    assert size_text(1536) == "1.5 KiB"
    assert {duration_text(10**400), duration_text(1e300), duration_text(float("nan")), duration_text(-(10**400))} == {"?"}
    assert (duration_text(12), duration_text(12.4), duration_text("x")) == ("12 ms", "12 ms", "-")


@pytest.mark.parametrize("beside", [1.5, float("nan")])
def test_what_no_json_can_hold_ends_with_a_sentence(beside: float) -> None:
    """Python 3.12 reads lists in lists that are deeper than those it writes."""
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(FormatError, match="lists in lists without end; it is damaged or forged"):
        JsonOutput().show(Report({"counters": {"beside": beside, "deep": deep}}, ()))


@pytest.mark.parametrize(
    ("seconds", "text"), [(-3, "0 s"), (0.4, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "119 min"), (7200, "2 h"), (3e6, "34 d")]
)
def test_how_long_ago(seconds: float, text: str) -> None:
    assert age_text(seconds) == text
