"""`spark-ckpt submit`"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from spark_ckpt.cli.submission import Given, parse, submit_arguments
from spark_ckpt.conf.properties import conf_folder, read_properties, spark_defaults
from spark_ckpt.errors import ConfigError
from spark_ckpt.process.jar import jar_path, spark_home, spark_version


@click.command("submit", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[--storage URL] [SPARK-SUBMIT OPTIONS] JOB [ARGS]...")
def command(arguments: tuple[str, ...]) -> None:
    """Run a job through the spark-submit of the Spark that is there, SPARK_HOME's or PySpark's, with the JAR, the plugin and the storage.

    All of spark-submit's options are passed on. The JAR and the plugin are added to what --jars, spark.jars and spark.plugins have, also
    to what spark-defaults.conf and other properties files have there.
    """
    given = parse(arguments)
    home = spark_home()
    environment = dict(os.environ)
    folder = conf_folder(environment, home)
    defaults = _defaults(given, folder)
    final = submit_arguments(given, str(jar_path(spark_version(home))), defaults, environment)
    environment["SPARK_CONF_DIR"] = str(folder)
    environment["SPARK_HOME"] = str(home)
    if _runs_here(given, defaults):
        environment.setdefault("PYSPARK_PYTHON", sys.executable)
    program = home / "bin" / "spark-submit"
    if not program.is_file():
        raise ConfigError(f"spark-submit is missing at {program}; install that Spark anew")
    sys.stdout.flush()
    os.execve(str(program), [str(program), *final], environment)  # noqa: S606 - spark-submit takes this process' place, with its signals


def _defaults(given: Given, folder: Path) -> dict[str, str]:
    """What properties files say, the later over the earlier (Spark: `SparkSubmitArguments.mergeDefaultSparkProperties`)."""
    found: dict[str, str] = {}
    if given.properties_file is None or given.load_defaults:
        found |= spark_defaults(folder)
    for path in [*([given.properties_file] if given.properties_file is not None else []), *given.more_properties]:
        found |= read_properties(Path(path))
    return found


def _runs_here(given: Given, defaults: Mapping[str, str]) -> bool:
    """A local master's workers run on this machine, so this interpreter, which has the package, is there for them."""
    named = given.master or given.conf.get("spark.master") or defaults.get("spark.master") or os.environ.get("MASTER")
    return (named or "local").startswith("local")
