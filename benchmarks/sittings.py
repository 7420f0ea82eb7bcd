"""When a part of a run was measured, on which machine, and of which commit: a run may be gone on with days later, by other code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Sitting:
    """So many rounds of a part, measured in one go. Empty texts, no rounds and a load of None: not recorded."""

    experiment: str
    rounds: int
    time: str = ""
    commit: str = ""
    machine: str = ""
    load_before: float | None = None

    @staticmethod
    def now(experiment: str, rounds: int, here: Mapping[str, Any]) -> Sitting:
        """`here`: what `machine.describe` says."""
        machine = f"{here['processors']}, {here['memory_gib']} GiB, PySpark {here['pyspark']}" if "processors" in here else ""
        return Sitting(experiment, rounds, here.get("time", ""), here.get("commit", ""), machine, here.get("load_before"))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def extended(sittings: Sequence[Sitting], new: Sitting) -> list[Sitting]:
    """With another round, or several, of the same sitting or of a new one."""
    last = sittings[-1] if sittings else None
    if last is not None and replace(last, rounds=new.rounds) == new:
        return [*sittings[:-1], replace(last, rounds=last.rounds + new.rounds)]
    return [*sittings, new]


def read(parts: Mapping[str, Any], about: Mapping[str, Any], notes: Sequence[str]) -> dict[str, list[Sitting]]:
    """Of a file; of one before 2026-11-29, which has numbers only, what is known by `about` and `notes`.

    These numbers are rounds where each was recorded by itself, and else 1.
    """
    found: dict[str, list[Sitting]] = {}
    for part, recorded in parts.items():
        if isinstance(recorded, int):
            experiment = part.partition(",")[0].rstrip(" 0123456789")
            rounds = recorded if ":" in part or part == "restore" else 0
            found[part] = [Sitting.now(experiment, rounds, about if _is_of(experiment, about, notes) else {})]
        else:
            found[part] = [Sitting(**sitting) for sitting in recorded]
    return found


def _is_of(experiment: str, about: Mapping[str, Any], notes: Sequence[str]) -> bool:
    """Was all of it measured when the file was begun? A commit was not recorded always, and what was measured again is of another one."""
    again = {*about.get("again", ()), *about.get("loads", ())}
    return bool(about.get("commit")) and experiment not in again and not any(": went on" in note for note in notes)
