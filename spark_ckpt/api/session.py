"""Enabling the plugin on a session builder, in Python."""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from spark_ckpt.conf.options import parse_options, unknown_option
from spark_ckpt.conf.passwords import shown_key
from spark_ckpt.conf.properties import conf_folder
from spark_ckpt.conf.spark_settings import PLUGIN_CLASS
from spark_ckpt.conf.submission import parse, properties
from spark_ckpt.conf.table import OPTIONS, PREFIX
from spark_ckpt.errors import ConfigError
from spark_ckpt.process.jar import driver_has_ours, is_ours, jar_path, names_ours, spark_home, submit_brings_ours

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_LAUNCHERS = "PYSPARK_SUBMIT_ARGS"


def appended(existing: str | None, item: str) -> str:
    """A comma-separated list with `item` in it, once."""
    items = parts(existing)
    return ",".join(items if item in items else [*items, item])


def parts(existing: str | None, between: str = ",") -> list[str]:
    """The parts of such a list."""
    return [part.strip() for part in (existing or "").split(between) if part.strip()]


def argument_name(option: str) -> str:
    """How an option is called as a keyword: `spool.dir` -> `spool_dir`, `s3.pathStyle` -> `s3_path_style`."""
    return "".join(f"_{c.lower()}" if c.isupper() else "_" if c == "." else c for c in option)


def configure(builder: SparkSession.Builder, *, storage: str | None = None, **options: str | int | bool) -> SparkSession.Builder:
    """Enable checkpoints on a `SparkSession.builder` and return it: adds to `spark.jars` and `spark.plugins`, also to those that
    spark-submit was given, or that PYSPARK_SUBMIT_ARGS and `spark-defaults.conf` have where PySpark starts the JVM itself, and sets
    `spark.ckpt.*`.

    `storage` is `s3://bucket/prefix`, `gs://…`, `az://…`, `file:///path` or an absolute path; without it every stream is kept beside its
    `checkpointLocation`. `options` are those that `spark-ckpt conf` prints, in snake case: `timeout="5min"`, `s3_path_style=True`.
    Raises `ConfigError` for an unknown or malformed option, and where a session would not see the plugin: one that runs already, one of
    Spark Connect, one in a JVM that spark-submit has started without the JAR, or one whose jars PYSPARK_SUBMIT_ARGS names without it.
    """
    before: Mapping[str, Any] = getattr(builder, "_options", {})
    refuse_connect(before, os.environ)
    if _session_is_running():
        raise ConfigError("a Spark session is already running and cannot take the plugin; call configure() before the first getOrCreate()")
    settings = _settings(storage, options)
    conf = {**{k: str(v) for k, v in before.items() if k.startswith(PREFIX)}, **settings}
    parse_options(conf)
    launched = "PYSPARK_GATEWAY_PORT" in os.environ
    launchers = _known_to_the_jvm() if launched else _known_to_the_launcher(os.environ)
    known = {**launchers, **before}
    if PREFIX + "python" not in {**known, **conf} and _workers_run_here(known):
        settings[PREFIX + "python"] = sys.executable
    settings |= _jars(before.get("spark.jars"), launchers.get("spark.jars"), launched)
    settings["spark.plugins"] = appended(known.get("spark.plugins"), PLUGIN_CLASS)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder


def _jars(builders: str | None, launchers: str | None, launched: bool) -> dict[str, str]:
    """`spark.jars` with ours in it: executors get what that says, and a builder's takes the place of the launcher's, as it is written
    (PySpark: `SparkContext._do_init`). `launched`: the JVM is there, and has our class. If no JAR of ours is named or found then, executors
    have it from wherever the driver has it. Else one counts that is there: it may be named for an environment that was made anew."""
    wanted = launchers if builders is None else builders
    if launched:
        there = any(map(is_ours, parts(wanted)))
    else:
        there = any(map(submit_brings_ours, parts(launchers)) if builders is None else map(names_ours, parts(builders)))
    if there:
        return {}
    for entry in parts(launchers):
        if launched and is_ours(entry):
            return {"spark.jars": appended(wanted, entry)}
    try:
        return {"spark.jars": appended(wanted, str(jar_path()))}
    except ConfigError:
        if launched:
            return {}
        raise


def _known_to_the_launcher(environment: Mapping[str, str]) -> Mapping[str, str]:
    """What a session has without its builder where PySpark starts the JVM: by a spark-submit which takes what this variable has over what
    the builder has (`pyspark.java_gateway.launch_gateway`). Raises `ConfigError` where that leaves our JAR out."""
    try:
        given = parse(shlex.split(environment.get(_LAUNCHERS, "pyspark-shell")))
    except ValueError as e:
        raise ConfigError(f"{_LAUNCHERS} cannot be taken apart ({e}); write it as a shell would have it") from e
    home = spark_home()
    found = {**properties(given, conf_folder(environment, home)), **given.conf}
    found |= {} if given.master is None else {"spark.master": given.master}
    jars = given.conf.get("spark.jars") if given.jars is None else given.jars
    if jars is None:
        return found
    on_class_path = parts(given.value_of("--driver-class-path") or found.get("spark.driver.extraClassPath"), ":")
    if not driver_has_ours(parts(jars), on_class_path, home):
        raise ConfigError(f"{_LAUNCHERS} names jars, and the session gets no others; add {jar_path()} to them")
    return {**found, "spark.jars": jars}


def _known_to_the_jvm() -> Mapping[str, str]:
    """The same where spark-submit has started the JVM, and this process: it takes no JAR any more. Raises `ConfigError` where it lacks
    ours."""
    from py4j.protocol import Py4JJavaError
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # as `SparkContext` does it: it is the JVM's properties that are asked for
    java = SparkContext._jvm.java.lang  # type: ignore[union-attr]
    try:
        java.Class.forName(PLUGIN_CLASS, False, java.Thread.currentThread().getContextClassLoader())
    except Py4JJavaError as e:
        raise ConfigError(
            "spark-submit has started the JVM without the plugin's JAR, and configure() comes too late for that; add "
            '--jars "$(spark-ckpt jar)" to it, or start the job with `spark-ckpt submit`'
        ) from e
    return dict(SparkConf().getAll())


def refuse_connect(settings: Mapping[str, Any], environment: Mapping[str, str]) -> None:
    """Raises `ConfigError` where PySpark's session would be one of Spark Connect, as `SparkSession.Builder.getOrCreate` decides it. There
    the server's plugins count, and a server that PySpark starts itself has Spark Connect's own and no other
    (`SparkSession._start_connect_server`)."""
    way_out = "start a Spark Connect server with spark.plugins and the spark.ckpt options, as docs/connect.md says, and use its sc:// URL"
    if "spark.remote" in settings or {"SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"} & set(environment):
        raise ConfigError(f"a session of Spark Connect takes no plugin, its server does; {way_out}")
    mode = str(settings.get("spark.api.mode") or environment.get("SPARK_API_MODE", "")).lower()
    if mode == "connect" or (mode != "classic" and _connect_is_default(environment)):
        raise ConfigError(
            "with spark.api.mode=connect PySpark starts a server whose spark.plugins it sets itself, so that no query would have "
            f"checkpoints; {way_out}, or set spark.api.mode=classic"
        )


def _connect_is_default(environment: Mapping[str, str]) -> bool:
    """As `pyspark.util.spark_connect_mode` has it; the package is that of the distribution pyspark-connect."""
    said = environment.get("SPARK_CONNECT_MODE")
    return said == "1" if said is not None else importlib.util.find_spec("pyspark_connect") is not None


def _settings(storage: str | None, options: Mapping[str, str | int | bool]) -> dict[str, str]:
    keys = {argument_name(option.name): option.key for option in OPTIONS}
    settings = {} if storage is None else {PREFIX + "storage": storage}
    for name, value in options.items():
        if name not in keys:
            written = argument_name(name.removeprefix(PREFIX))
            if name.startswith(PREFIX) and written in keys:
                raise ConfigError(f"{name} is written {written}= here, without its prefix")
            raise unknown_option(shown_key(name), keys)
        settings[keys[name]] = str(value).lower() if isinstance(value, bool) else str(value)
    return settings


def _session_is_running() -> bool:
    context = sys.modules.get("pyspark.core.context") or sys.modules.get("pyspark.context")
    return context is not None and getattr(context.SparkContext, "_active_spark_context", None) is not None


def _workers_run_here(settings: Mapping[str, Any]) -> bool:
    """Nobody chose an interpreter, and the master is this process: its own Python is the one that has the package."""
    if "spark.pyspark.python" in settings or {"PYSPARK_PYTHON", "PYSPARK_GATEWAY_PORT"} & set(os.environ):
        return False
    return str(settings.get("spark.master") or os.environ.get("MASTER") or "local").startswith("local")
