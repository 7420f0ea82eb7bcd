"""`spark-ckpt submit`"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

import click

from spark_ckpt.api.session import appended, refuse_connect
from spark_ckpt.conf.options import parse_options
from spark_ckpt.conf.passwords import shown
from spark_ckpt.conf.properties import conf_folder
from spark_ckpt.conf.spark_settings import PLUGIN_CLASS
from spark_ckpt.conf.submission import REMOTE, Given, parse, properties
from spark_ckpt.conf.table import PREFIX
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
    defaults = properties(given, folder)
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


def submit_arguments(given: Given, jar: str, defaults: Mapping[str, str], environment: Mapping[str, str]) -> list[str]:
    """The arguments of spark-submit: JAR and plugin are added to what the user or `defaults` (properties files) already name.

    Raises ConfigError for a missing job, two different storages, `spark.ckpt.*` options that cannot be, and Spark Connect.
    """
    if not given.job:
        raise ConfigError("the job is missing; spark-ckpt submit --storage URL [spark-submit's options] job.py [arguments]")
    conf = dict(given.conf)
    if given.storage is not None and conf.setdefault(PREFIX + "storage", given.storage) != given.storage:
        other = shown(conf[PREFIX + "storage"])
        raise ConfigError(f"--storage {shown(given.storage)} contradicts --conf {PREFIX}storage={other}; give one of them")
    parse_options({**defaults, **conf})
    remote = {"spark.remote": ""} if REMOTE in given.passed else {}
    refuse_connect({**defaults, **conf, **remote}, environment)
    jars = appended(given.jars or conf.pop("spark.jars", None) or defaults.get("spark.jars"), jar)
    conf.pop("spark.jars", None)
    conf["spark.plugins"] = appended(conf.get("spark.plugins", defaults.get("spark.plugins")), PLUGIN_CLASS)
    settings = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    return [*given.passed, "--jars", jars, *settings, *given.job]


def _runs_here(given: Given, defaults: Mapping[str, str]) -> bool:
    """A local master's workers run on this machine, so this interpreter, which has the package, is there for them."""
    named = given.master or given.conf.get("spark.master") or defaults.get("spark.master") or os.environ.get("MASTER")
    return (named or "local").startswith("local")
