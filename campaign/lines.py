"""`python -m campaign.lines`: a few tests, as they are, on every line of Spark, each in an environment of its own.

An environment has the PySpark that the line's JAR is compiled against (`jvm_shim/sparks.py`, fetched once), and whatever else this one has.
What they showed is the table of docs/compatibility.md.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path

import click

from campaign import long_tests, record, tested
from documents import by_line
from documents.places import COMPATIBILITY
from jvm_shim.build import build
from jvm_shim.sparks import PINNED, BuildError, fetch

SCRIPT = """#!{python}
import sys

from spark_ckpt.cli.main import main

sys.exit(main())
"""


def environment(line: str) -> Path:
    """The interpreter of the line's environment, which is made if it is not there; and the line's JAR is up to date. Raises BuildError."""
    spark = fetch(line)
    build(line=line)
    home = spark.parent / f"venv-{spark.name.removeprefix('pyspark-')}"
    python = home / "bin" / "python"
    if not (home / "bin" / "spark-ckpt").exists():
        venv.create(home, clear=True, with_pip=False)
        ask = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        own = Path(subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip())
        # The line's PySpark comes first on the path.
        others = [path for path in sys.path if path.endswith("-packages")]
        (own / "others.pth").write_text("\n".join([str(spark), *others, str(tested.ROOT), ""]))
        script = home / "bin" / "spark-ckpt"
        script.write_text(SCRIPT.format(python=python))
        script.chmod(0o755)
    if not (home / "spark-classes.jsa").exists():
        click.echo(f"making an archive of the classes of {spark.name}, once")
        subprocess.run([python, "-m", "tests.drivers.spark.class_archive"], cwd=tested.ROOT, check=False)
    return python


def names(only: str) -> list[str]:
    return [name for tests in by_line.SHOWN.values() for name in tests if only in name]


def left(line: str, tests: list[str], results: list[Mapping[str, object]]) -> list[str]:
    """Those that have no passed or skipped result for this code on the line."""
    passed = {(of["test"], by_line.line_of(of), of["code"]) for of in results if of["outcome"] != "failed"}
    return [name for name in tests if (name, line, tested.code_of(name)) not in passed]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Tests on every line of Spark."""


@cli.command("run")
@click.option("--line", "lines", multiple=True, type=click.Choice(list(PINNED)), help="Without it all.")
@click.option("--only", default="", help="Tests with this in their name.")
@click.option("--again", is_flag=True, help="Also those that have a result for this code.")
def run(lines: tuple[str, ...], only: str, again: bool) -> None:
    """Run what has no result for this code yet, and write the page. Exit status 1: something begun now failed."""
    bad = False
    for line in lines or PINNED:
        wanted = names(only) if again else left(line, names(only), list(by_line.read()))
        try:
            python = environment(line)
        except BuildError as e:
            raise click.ClickException(str(e)) from e
        if wanted:
            bad |= subprocess.run([python, "-m", "campaign.lines", "here", *wanted], cwd=tested.ROOT, check=False).returncode != 0
    COMPATIBILITY.write_text(by_line.renewed(COMPATIBILITY.read_text(encoding="utf-8"), by_line.read()), encoding="utf-8")
    sys.exit(1 if bad else 0)


@cli.command("here", hidden=True)
@click.argument("tests", nargs=-1)
def here(tests: tuple[str, ...]) -> None:
    """In a line's environment: run the tests, and record what came of them."""
    bad = False
    for name in tests:
        log = tested.ROOT / ".campaign" / f"line-{sys.prefix.rsplit('-', 1)[-1]}.log"
        log.parent.mkdir(exist_ok=True)
        line = long_tests.run(name, log, marks="")
        record.append(record.LINES, line)
        click.echo(f"{line['versions']['pyspark']}: {name}: {line['outcome']}, {line['seconds']} s")
        if line["outcome"] == "failed":
            bad = True
            log.rename(log.with_name(f"failed-{log.stem}-{len(list(log.parent.glob('failed-*')))}.log"))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    cli()
