"""From what a person gave `spark-ckpt submit` to what spark-submit gets. Pure: no process is started here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from spark_ckpt.api.session import appended, refuse_connect
from spark_ckpt.conf.options import parse_options
from spark_ckpt.conf.passwords import shown, shown_key
from spark_ckpt.conf.spark_settings import PLUGIN_CLASS
from spark_ckpt.conf.table import PREFIX
from spark_ckpt.errors import ConfigError

_FLAGS = frozenset({"--verbose", "-v", "--help", "-h", "--version", "--usage-error", "--supervise", "--load-spark-defaults"})
"""Options of spark-submit that take no value (Spark: `SparkSubmitOptionParser.switches`)."""
_STORAGE = "--storage"
_REMOTE = "--remote"
_NO_MORE = "--"
"""Sets this program's own options apart from spark-submit's, where somebody is used to that; spark-submit does not know it."""


@dataclass
class Given:
    """The command line, taken apart: `passed` are spark-submit's own options but `--conf` and `--jars`, `job` the job and its arguments."""

    storage: str | None = None
    conf: dict[str, str] = field(default_factory=dict)
    jars: str | None = None
    passed: list[str] = field(default_factory=list)
    job: list[str] = field(default_factory=list)
    master: str | None = None
    properties_file: str | None = None
    more_properties: list[str] = field(default_factory=list)
    load_defaults: bool = False


def parse(arguments: Sequence[str]) -> Given:
    """Take the command line apart. The first argument that is neither an option nor an option's value is the job. Raises ConfigError."""
    given = Given()
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            given.job = [word, *rest]
            return given
        if word == _NO_MORE:
            continue
        name, equals, value = word.partition("=")
        if name in _FLAGS:
            given.load_defaults |= name == "--load-spark-defaults"
            given.passed.append(word)
            continue
        if not equals:
            if not rest:
                raise ConfigError(f"the option {shown_key(name)} needs a value")
            value = rest.pop(0)
        _take(given, name, value)
    return given


def _take(given: Given, name: str, value: str) -> None:
    if name == _STORAGE:
        given.storage = value
    elif name in ("--conf", "-c"):
        key, equals, setting = value.partition("=")
        if not equals:
            # `-` lies beside `=` on keyboards
            raise ConfigError(f"{name} {shown_key(value, others='')} is not of the form key=value")
        given.conf[key.strip()] = setting.strip()
    elif name == "--jars":
        given.jars = value
    else:
        if name == "--master":
            given.master = value
        elif name == "--properties-file":
            given.properties_file = value
        elif name == "--extra-properties-file":
            given.more_properties.append(value)
        given.passed += [name, value]


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
    remote = {"spark.remote": ""} if _REMOTE in given.passed else {}
    refuse_connect({**defaults, **conf, **remote}, environment)
    jars = appended(given.jars or conf.pop("spark.jars", None) or defaults.get("spark.jars"), jar)
    conf.pop("spark.jars", None)
    conf["spark.plugins"] = appended(conf.get("spark.plugins", defaults.get("spark.plugins")), PLUGIN_CLASS)
    settings = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    return [*given.passed, "--jars", jars, *settings, *given.job]
