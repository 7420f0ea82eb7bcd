"""`python -m campaign`: kills and long tests in parts, and the page that tells of them."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from types import FrameType

import click

from benchmarks.errors import BenchmarkError
from benchmarks.far_s3 import FarS3, far_s3
from campaign import long_tests, record, tested
from campaign.comparison import Oracle
from campaign.dimensions import Case, Place
from campaign.page import render
from campaign.plan import Plan
from campaign.queries import QUERIES
from campaign.sinks import running as sinks
from campaign.trial import Outcome, Result, Trial
from documents import by_line, by_operator, real_time_kills, seen_by_sinks
from documents.places import COMPATIBILITY, GUARANTEES, STATE

PAGE = tested.ROOT / "docs" / "reliability.md"
WORK = tested.ROOT / ".campaign"
SEED, KILLS, KILLS_A_CASE = 1, 300, 6
ENDING = (signal.SIGTERM, signal.SIGHUP)

_seed = click.option("--seed", type=int, default=SEED, show_default=True)
_kills_a_case = click.option("--kills-a-case", type=click.IntRange(1), default=KILLS_A_CASE, show_default=True)
_kills = click.option("--kills", type=click.IntRange(1), default=KILLS, show_default=True, help="Of the whole plan.")
_work = click.option("--work", type=click.Path(path_type=Path, file_okay=False), default=WORK, help="Folder for what cases leave behind.")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
def cli() -> None:
    """Real kills of real Spark applications, and the long tests: what they showed is docs/reliability.md."""


@cli.command("run")
@_seed
@_kills
@_kills_a_case
@click.option("--cases", type=click.IntRange(1), help="At most so many cases and long tests; without it all that are left.")
@click.option("--minutes", type=click.IntRange(1), help="None is begun after so long.")
@click.option("--part", type=click.Choice(["all", "kills", "sinks", "tests"]), default="all", show_default=True)
@click.option("--only", default="", help="Cases of the sinks, and long tests, with this in their name.")
@_work
def run(seed: int, kills: int, kills_a_case: int, cases: int | None, minutes: int | None, part: str, only: str, work: Path) -> None:
    """Go on with what has no result for this code yet. Exit status 1: something begun now was not equal, or failed."""
    over = time.monotonic() + 60 * minutes if minutes else None
    begun, bad = 0, 0

    def more() -> bool:
        return (cases is None or begun < cases) and (over is None or time.monotonic() < over)

    with ExitStack() as env:
        run_case, run_sinks = _runner(env, work), sinks.Runner(env, work, _tell)
        for case in left(seed, kills, kills_a_case) if part in ("all", "kills") else ():
            if not more():
                break
            with alone_with(folder_of(case), work) as mine:
                if mine and not is_done(case):
                    begun += 1
                    result = run_case(case)
                    bad += result.outcome is not Outcome.EQUAL
                    record.append(record.KILLS, record.case_line(result))
        for sink_case in [case for case in sinks.left() if only in case.name] if part in ("all", "sinks") else ():
            if not more():
                break
            with alone_with(sinks.folder_of(sink_case), work) as mine:
                if mine and sink_case in sinks.left():
                    begun += 1
                    seen = run_sinks(sink_case)
                    bad += seen.outcome is not Outcome.EQUAL
                    record.append(record.SINKS, record.sinks_line(seen))
    for name in left_tests([name for name in long_tests.names() if only in name]) if part in ("all", "tests") else ():
        if not more():
            break
        with alone_with("test-" + hashlib.sha256(name.encode()).hexdigest()[:12], work) as mine:
            if mine and left_tests([name]):
                begun += 1
                log = work / f"test-{os.getpid()}.log"
                line = long_tests.run(name, log)
                if line["outcome"] != "passed":
                    bad += 1
                    log.rename(work / f"failed-{int(time.time())}.log")
                record.append(record.TESTS, line)
                _tell(f"{name}: {line['outcome']}, {line['seconds']} s")
    _write_page()
    _status(seed, kills, kills_a_case)
    sys.exit(1 if bad else 0)


@cli.command("replay")
@click.argument("number", type=click.IntRange(1))
@_seed
@_kills_a_case
@_work
def replay(number: int, seed: int, kills_a_case: int, work: Path) -> None:
    """Run one case of a plan again; its logs stay, nothing is recorded."""
    case = next(islice(plan(seed, kills_a_case).cases(), number - 1, None))
    with ExitStack() as env:
        result = _runner(env, work, keep=True)(case)
    sys.exit(0 if result.outcome is Outcome.EQUAL else 1)


@cli.command("status")
@_seed
@_kills
@_kills_a_case
def status(seed: int, kills: int, kills_a_case: int) -> None:
    """What is done for this code, and what is next."""
    _status(seed, kills, kills_a_case)


@cli.command("page")
def page() -> None:
    """Write docs/reliability.md anew, and the tables of docs/guarantees.md."""
    _write_page()


@cli.command("forget")
def forget() -> None:
    """Drop the results of other code."""
    of = tested.code_of_kills()
    click.echo(f"{record.KILLS.name}: {record.keep(record.KILLS, lambda line: bool(line['code'] == of))} lines dropped")
    sinks_of = tested.code_of_sinks()
    click.echo(f"{record.SINKS.name}: {record.keep(record.SINKS, lambda line: bool(line['code'] == sinks_of))} lines dropped")
    for path in (record.TESTS, record.LINES):
        click.echo(f"{path.name}: {record.keep(path, of_today())} lines dropped")
    _write_page()


def plan(seed: int, kills_a_case: int) -> Plan:
    return Plan(seed, kills_a_case, [(name, query.mode == "append") for name, query in QUERIES.items()])


def left(seed: int, kills: int, kills_a_case: int, results: Path = record.KILLS) -> list[Case]:
    """Cases of the plan without a result for this code."""
    done = _done(results)
    return [case for case in islice(plan(seed, kills_a_case).cases(), -(-kills // kills_a_case)) if record.drawn(case) not in done]


def is_done(case: Case) -> bool:
    return record.drawn(case) in _done(record.KILLS)


def _done(results: Path) -> set[tuple[int, int, int]]:
    of = tested.code_of_kills()
    return {record.identity(line) for line in record.read(results) if line["code"] == of}


def left_tests(names: Sequence[str]) -> list[str]:
    """Of these long tests those without a result for this code."""
    wanted, counts = set(names), of_today()
    done = {line["test"] for line in record.read(record.TESTS) if line["test"] in wanted and counts(line)}
    return [name for name in names if name not in done]


def of_today() -> Callable[[record.Line], bool]:
    """Whether what a long test ran is what it would run now. One that is gone ran something else. Looks at each module once."""
    code = functools.cache(tested.code_of)

    def counts(line: record.Line) -> bool:
        module = line["test"].split("::")[0]
        return (tested.ROOT / module).is_file() and bool(line["code"] == code(module))

    return counts


@contextmanager
def alone_with(name: str, work: Path) -> Iterator[bool]:
    """False: another campaign in this folder is at it."""
    work.mkdir(parents=True, exist_ok=True)
    with (work / f"{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def folder_of(case: Case) -> str:
    return f"case-{case.seed}-{len(case.kills)}-{case.number}"


def _runner(env: ExitStack, work: Path, keep: bool = False) -> Callable[[Case], Result]:
    """Runs cases one after the other; the servers and the oracle begin with the first that needs them, and end with `env`."""
    work.mkdir(parents=True, exist_ok=True)
    servers: list[FarS3] = []
    oracle = env.enter_context(Oracle(work))

    def run_case(case: Case) -> Result:
        if case.place is Place.S3 and not servers:
            folder = env.enter_context(tempfile.TemporaryDirectory(dir=work, prefix="far-"))
            servers.append(env.enter_context(far_s3(Path(folder) / "far")))
        place = work / folder_of(case)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        _tell(describe(case))
        result = Trial(case, place, servers[0] if servers else None, oracle, _tell).run()
        rows = sum(compared.expected for compared in result.comparisons)
        _tell(f"  {result.outcome.value}: {rows} rows, {result.seconds:.0f} s, {result.seconds / max(1, len(case.kills)):.0f} s a kill")
        if keep or result.outcome is not Outcome.EQUAL:
            again = f"python -m campaign replay {case.number} --seed {case.seed} --kills-a-case {len(case.kills)}"
            _tell(f"  {result.text}\n  its logs: {place}; again: {again}")
        else:
            shutil.rmtree(place, ignore_errors=True)
        return result

    return run_case


def describe(case: Case) -> str:
    settings = ", ".join(f"{kind} {value.value}" for kind, value in case.settings().items())
    return f"case {case.number} of seed {case.seed}: {settings}; " + ", ".join(f"{s.operator} → {s.sink.value}" for s in case.streams)


def _status(seed: int, kills: int, kills_a_case: int) -> None:
    cases, tests = left(seed, kills, kills_a_case), left_tests(long_tests.names())
    all_cases = -(-kills // kills_a_case)
    click.echo(f"kills: {all_cases - len(cases)} of {all_cases} cases of seed {seed} are done for this code")
    click.echo(f"sinks: {len(sinks.left())} cases are left")
    click.echo(f"long tests: {len(tests)} are left")
    for following in [describe(case) for case in cases[:1]] + [f"sinks: {case.name}" for case in sinks.left()[:1]] + tests[:1]:
        click.echo(f"next: {following}")


def _write_page() -> None:
    tests = record.read(record.TESTS)
    PAGE.write_text(render(record.read(record.KILLS), tests))
    GUARANTEES.write_text(real_time_kills.renewed(seen_by_sinks.renewed(GUARANTEES.read_text(), record.read(record.SINKS)), tests))
    STATE.write_text(by_operator.renewed(STATE.read_text(), tests))
    COMPATIBILITY.write_text(by_line.renewed(COMPATIBILITY.read_text(), record.read(record.LINES)))


def _end(number: int, _frame: FrameType | None) -> None:
    """As Ctrl-C does: applications and servers are ended on the way out, and a second signal must not cut that short."""
    for ignored in ENDING:
        signal.signal(ignored, signal.SIG_IGN)
    sys.exit(128 + number)


def _tell(text: str) -> None:
    click.echo(text, err=True)


def main() -> None:
    for number in ENDING:
        signal.signal(number, _end)
    try:
        cli()
    except (BenchmarkError, long_tests.CollectionError) as error:
        click.echo(f"campaign: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
