"""docs/reliability.md: written from the results, not by hand."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

from campaign.dimensions import Fault, Load, Mode, Place, Sink, Spool, Victim
from campaign.plan import Pair, Value, pairs
from campaign.record import Line, newest, of_one_code
from campaign.trial import BUSY, SEEN, Outcome

HEAD = f"""# Reliability

Written by `python -m campaign page`; do not edit. Every case is a line in [campaign/results](../campaign/results).

This page has what a campaign of kills has shown: real Spark applications are killed with SIGKILL again and again, and what their sinks hold
in the end is compared with a batch query, row by row.

## How a case goes
1. A Spark application (`local-cluster[2,1,1024]`: two executors, each in a process of its own) runs three streams with different operators
   and sinks. They read files that come one after the other.
2. It is killed six times. The seed draws the moments: some epochs and a moment later, while the streams have nothing to do, or shortly
   after the kill before. `gc --delete` runs beside the live query before a fifth of the kills.
3. It gets the rest of its input. Its queries are stopped, and started again with `AvailableNow`.
4. Each sink is compared, row by row, with a batch query of stock Spark over the same files.
5. `gc --delete` and `verify --deep` run for every stream.

Words in the tables:

| | |
|---|---|
| **driver** | killed: its JVM alone, or with all that it started |
| **machine** | killed: the driver with all that it started. Gone: `checkpointLocation`, spool and local folders |
| **executor**, **agent**, **coordinator** | killed: one such process |
| storage **file** | `file://` |
| storage **s3** | versitygw behind toxiproxy, 20 ms away |
| wire | what happens to connections with S3 every few seconds, for a moment. **latency**: 0.4 s more. **reset**: of all connections |
| | **lost answer**: 26 bytes of it come through. **away**: for up to 5 s nobody can connect |
| processors **starved** | {BUSY} busy processes for each processor run beside it all |
| spool **kept** | `spark.ckpt.spool.dir` is set: the next executor finds what the one before has left there |
| sink **file** | Spark's file sink |
| sink **skips** | a `foreachBatch` that skips batch ids that it has seen |
| **missing** | rows of the batch query that the sink lacks |
| **in excess** | rows that the sink should not have |
| **twice** | right rows that came again, where at-least-once permits it; they do not count as in excess |
| outcome **equal** | nothing is missing, nothing is in excess, and every checkpoint that is left verifies |
| **ended** | equal, but an application ended by itself and had to be started again |
| **different** | rows are missing or in excess |
| **damaged** | equal, but a checkpoint that is left does not verify |
| **hung**, **failed** | the case did not come to its end; an application ended by itself again and again |

Nothing but a kill is to end an application. There is one exception: Spark itself gives a Python worker no more than 10 s to start. Where
the processors are starved, that ends queries of stock Spark too. Such ends are told below, and do not count against the case.

## How to run it
    make campaign                       # goes on with what has no result for this code yet: kills, then the sinks, then the long tests
    make campaign CASES=3 MINUTES=60    # a part of it: so many cases at most, none begun after so long
    make campaign SEED=7                # another plan
    make campaign PART=sinks            # what each sink sees: docs/guarantees.md
    make campaign & make campaign       # two at a time share the plan
    .venv/bin/python -m campaign status               # what is done, what is next
    .venv/bin/python -m campaign replay 12 --seed 7   # one case again, its logs kept, nothing recorded

The plan has 300 kills. A result counts for the code that it was taken with, which is told as a digest:

- of kills: `spark_ckpt`, `jvm_shim`, and what `campaign/trial.py` and `campaign/job.py` import or start;
- of sinks: the same, and what `campaign/sinks/trial.py` and `campaign/sinks/application.py` import or start;
- of a test that starts processes: `spark_ckpt`, `jvm_shim`, `pyproject.toml`, the test's module, the `conftest.py` files above it, and what
  these import or start;
- of a simulation: the test's module, the `conftest.py` files above it, and what these import or start.

When it has changed, `make campaign` begins again, and `python -m campaign forget` drops the lines of other code. A case that is interrupted
leaves no line, and runs again.
"""


def render(kills: Sequence[Line], tests: Sequence[Line]) -> str:
    parts = [HEAD, *_kills(kills), *_tests(tests)]
    return "\n".join(parts).rstrip() + "\n"


def _kills(every: Sequence[Line]) -> list[str]:
    if not every:
        return ["## Kills\n\nNone is recorded yet.\n"]
    lines = of_one_code(every)
    done = [kill["killed"] for line in lines for kill in line["kills"]]
    total = {name: sum(stream.get(name, 0) for line in lines for stream in line["streams"]) for name in COUNTS}
    outcomes = Counter(line["outcome"] for line in lines)
    seen = {name: sum(line["seen"].get(name, 0) for line in lines) for name in SEEN}
    minutes = sum(line["seconds"] for line in lines) / 60
    each = statistics.median(line["seconds"] / max(1, len(line["kills"])) for line in lines)
    head = lines[-1]
    others = len(every) - len(lines)
    return [
        "## Kills\n",
        f"**{len(done)} kills, {total['expected']:,} rows expected, {total['missing']:,} missing, {total['excess']:,} in excess**",
        f"({total['twice']:,} twice, where at-least-once permits it).",
        "",
        "Seen in the drivers' logs: " + ", ".join(f"{seen[name]} x {name}" for name in SEEN) + ".",
        "Cases: " + ", ".join(f"{outcomes[o.value]} {o.value}" for o in Outcome if outcomes[o.value]) + ".",
        "",
        f"{_about(lines)} {minutes:.0f} minutes, {each:.0f} s a kill (median). Seed{_plural({line['seed'] for line in lines})}.",
        f"Code {head['code']}, the last case at commit {head['commit']}."
        + (f" The file has {others} of other code too." if others else ""),
        "",
        _table(("killed", "kills"), [(name, count) for name, count in sorted(Counter(done).items())]),
        _table(CASE_COLUMNS, [_case(line) for line in sorted(lines, key=lambda one: (one["seed"], one["kills_planned"], one["case"]))]),
        *_not_equal(lines),
        *_met(lines),
    ]


COUNTS = ("expected", "missing", "excess", "twice")
CASE_COLUMNS = ("case", "storage", "mode", "streams", "wire", "processors", "spool", "killed", *COUNTS, "s", "outcome")


def _case(line: Line) -> tuple[object, ...]:
    def rows(name: str) -> object:
        found = [stream[name] for stream in line["streams"] if name in stream]
        return sum(found) if found else ""

    streams = ", ".join(f"{stream['operator']} → {stream['sink']}" for stream in line["streams"])
    killed = ", ".join(kill["killed"] for kill in line["kills"])
    settings = [line[name] for name in ("storage", "mode")], [line[name] for name in ("wire", "processors", "spool")]
    counts = [rows(name) for name in COUNTS]
    return (line["case"], *settings[0], streams, *settings[1], killed, *counts, round(line["seconds"]), line["outcome"])


def _not_equal(lines: Sequence[Line]) -> list[str]:
    told = [line for line in lines if line["outcome"] != Outcome.EQUAL.value or line["ends"]]
    if not told:
        return []
    found = [f"- case {line['case']} of seed {line['seed']}, {line['outcome']}: {_said(line)}" for line in told]
    return ["### Not equal, or not without help\n", *found, ""]


def _said(line: Line) -> str:
    said = " ".join([line["text"], *(f"At {end['at_s']:.0f} s: {end['why']}." for end in line["ends"])])
    return " ".join(said.split())


def values(line: Line) -> list[Value]:
    """(dimension, value) of all that met in a case: as often as it did, and kills only where they were done."""
    found = [(name, line[name]) for name in ("storage", "mode", "wire", "processors", "spool")]
    return found + [("killed", kill["killed"]) for kill in line["kills"]]


def _met(lines: Sequence[Line]) -> list[str]:
    met: Counter[Pair] = Counter()
    for line in lines:
        met.update(pairs(values(line), [(stream["operator"], stream["sink"]) for stream in line["streams"]]))
    settings = [
        *(("killed", v.value) for v in Victim),
        *(("storage", v.value) for v in Place),
        *(("mode", v.value) for v in Mode),
        *(("wire", v.value) for v in Fault),
        *(("processors", v.value) for v in Load),
        *(("spool", v.value) for v in Spool),
        *(("sink", v.value) for v in Sink),
    ]
    operators = sorted({("operator", stream["operator"]) for line in lines for stream in line["streams"]})

    def grid(rows: Sequence[Value], columns: Sequence[Value]) -> str:
        def cell(row: Value, column: Value) -> object:
            return "" if row[0] == column[0] else met[min(row, column), max(row, column)] or "·"

        found = [(f"**{row[1]}**", *(cell(row, column) for column in columns)) for row in rows]
        return _table(("", *(value for _, value in columns)), found)

    return [
        "## What was combined with what",
        "",
        "Cases, streams and kills are drawn so that all pairs of a kind come about equally often. The tables say how often each did;",
        "`·` is never. If one of the two was killed, the kills are counted. Two kinds of pairs cannot be: faults on the wire are for S3",
        "only, and the file sink takes no results that change (complete, pandas, transform, update).",
        "",
        grid(operators, settings),
        grid(settings, settings),
    ]


def _tests(every: Sequence[Line]) -> list[str]:
    if not every:
        return ["## Long tests\n\nNone is recorded yet.\n"]
    lines = newest(every)
    outcomes = Counter(line["outcome"] for line in lines)
    said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items(), reverse=True))
    return [
        "## Long tests",
        "",
        f"What `make test` leaves out, the last run of each: {said}. {_about(lines)}",
        "Cases of one test that had the same outcome with the same code share a row; their seconds are added up.",
        "",
        _table(("test", "cases", "outcome", "s", "code", "commit"), _rows(lines)),
    ]


def _rows(lines: Iterable[Line]) -> Iterable[tuple[object, ...]]:
    alike: dict[tuple[str, ...], list[Line]] = {}
    for line in lines:
        alike.setdefault((line["test"].partition("[")[0], line["outcome"], line["code"], line["commit"]), []).append(line)
    for (test, outcome, code, commit), cases in alike.items():
        name = cases[0]["test"] if len(cases) == 1 else test
        yield f"`{name}`", len(cases), outcome, round(sum(line["seconds"] for line in cases)), code, commit


def _about(lines: Sequence[Line]) -> str:
    days = sorted({line["date"][:10] for line in lines})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    versions, cores = lines[-1]["versions"], lines[-1]["cores"]
    return f"{when}, {cores} processors, " + ", ".join(f"{name} {versions[name]}" for name in sorted(versions)) + "."


def _plural(found: Iterable[int]) -> str:
    seeds = sorted(found)
    return ("s " if len(seeds) > 1 else " ") + ", ".join(map(str, seeds))


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(map(str, row))} |" for row in rows)]
    return "\n".join(lines) + "\n"
