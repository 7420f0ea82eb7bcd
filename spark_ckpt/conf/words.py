"""The words that options take: Flink's, where it has the option too."""

from __future__ import annotations

EXACTLY_ONCE, AT_LEAST_ONCE = "EXACTLY_ONCE", "AT_LEAST_ONCE"
RETAIN, DELETE, NO_CLAIM, CLAIM = "RETAIN", "DELETE", "NO_CLAIM", "CLAIM"
RERUN, DISCARD = "RERUN", "DISCARD"
WAIT, FAIL, NEVER, DECLINE = "WAIT", "FAIL", "never", "DECLINE"
