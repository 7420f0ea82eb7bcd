"""The checks of `spark-ckpt doctor`: each looks at one thing and says what it found and the way out. None raises for what it finds."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from spark_ckpt import __version__
from spark_ckpt.agent.spools import left_spools
from spark_ckpt.api.session import parts, refuse_connect
from spark_ckpt.conf.options import parse_options, parse_values
from spark_ckpt.conf.passwords import shown
from spark_ckpt.conf.properties import conf_folder, spark_defaults
from spark_ckpt.conf.spark_settings import PLUGIN_CLASS
from spark_ckpt.conf.table import PREFIX
from spark_ckpt.errors import CheckpointError, ConfigError, StorageError
from spark_ckpt.paths import probe_key
from spark_ckpt.process.jar import driver_has_ours, jar_path, spark_home, spark_version
from spark_ckpt.storage.base import Storage
from spark_ckpt.storage.probe import check_put_if_absent
from spark_ckpt.units import size_text

JAVA_AT_LEAST = 17
SKEW_WARN_MS = 10_000
SKEW_FAIL_MS = 15 * 60_000
"""S3 refuses requests whose time differs by more (RequestTimeTooSkewed)."""
_START_S = 60


class Status(Enum):
    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True)
class Finding:
    check: str
    status: Status
    message: str


def check_java(environment: Mapping[str, str]) -> Finding:
    """Java as Spark's scripts find it: JAVA_HOME, else the PATH."""
    home = environment.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environment.get("PATH"))
    way_out = f"install a JDK {JAVA_AT_LEAST} or newer (Debian: apt install openjdk-{JAVA_AT_LEAST}-jre-headless) and set JAVA_HOME to it"
    if program is None or not Path(program).is_file():
        return Finding("java", Status.FAIL, f"there is no Java {f'at JAVA_HOME={home}' if home else 'on the PATH'}; {way_out}")
    try:
        ran = subprocess.run([program, "-version"], capture_output=True, text=True, errors="replace", timeout=_START_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as e:
        return Finding("java", Status.FAIL, f"{program} cannot be run ({e}); {way_out}")
    found = re.search(r'version "(?:1\.)?(\d+)[^"]*"', ran.stderr + ran.stdout)
    if found is None:
        return Finding("java", Status.FAIL, f"{program} -version does not tell its version; {way_out}")
    version = found.group(0)[len('version "') : -1]
    if int(found.group(1)) < JAVA_AT_LEAST:
        return Finding("java", Status.FAIL, f"{program} is Java {version}, too old for this Spark; {way_out}")
    return Finding("java", Status.OK, f"Java {version} at {program}")


def check_spark() -> Finding:
    """A Spark is there, SPARK_HOME's or PySpark's, and the JAR for it. An executor needs none."""
    named = os.environ.get("SPARK_HOME")
    try:
        home = spark_home()
        if named is not None and Path(named) != home:
            said = f"SPARK_HOME={named} holds no Spark, and that is where PySpark looks for one; set it to one, or unset it"
            return Finding("spark", Status.FAIL, said)
    except CheckpointError as e:
        return Finding("spark", Status.WARN, f"{e}. An executor needs none, a driver does")
    try:
        version = spark_version(home)
        return Finding("spark", Status.OK, f"Spark {version} at {home} and {jar_path(version).name}")
    except CheckpointError as e:
        return Finding("spark", Status.FAIL, str(e))


def check_defaults(environment: Mapping[str, str]) -> list[Finding]:
    """What `spark-defaults.conf` says of the plugin, for all jobs; nothing is no finding. Of a query without it Spark says nothing."""
    try:
        home = spark_home()
        folder = conf_folder(environment, home)
        defaults = spark_defaults(folder)
        loaded = PLUGIN_CLASS in [name.strip() for name in defaults.get("spark.plugins", "").split(",")]
        options = [key for key in defaults if key.startswith(PREFIX)]
        if not loaded and not options:
            return []
        parse_values(defaults)
    except ConfigError as e:
        return [Finding("defaults", Status.FAIL, str(e))]
    except CheckpointError:
        return []  # there is no Spark, which another check tells
    where = str(folder / "spark-defaults.conf")

    def without(what: str, reason: object) -> list[Finding]:
        return [Finding("defaults", Status.WARN, f"{where} loads the plugin, and yet {what}: {reason}")]

    if not loaded:
        advice = f"add spark.plugins={PLUGIN_CLASS} and spark.jars there, or start jobs with `spark-ckpt submit`"
        said = f"{where} has {', '.join(sorted(options))}, but does not load the plugin: with it alone no query has checkpoints; {advice}"
        return [Finding("defaults", Status.WARN, said)]
    try:
        refuse_connect(defaults, environment)
    except ConfigError as e:
        return without("no query would have checkpoints", e)
    try:
        parse_options(defaults)
    except ConfigError as e:
        return without("a job that sets nothing else is refused", e)
    jars = parts(defaults.get("spark.jars"))
    if defaults.get("spark.submit.deployMode") == "cluster":
        jars += parts(defaults.get("spark.yarn.dist.jars"))  # a driver that is started here does not have them
    if not driver_has_ours(jars, parts(defaults.get("spark.driver.extraClassPath"), ":"), home):
        add = "add spark.jars with what `spark-ckpt jar` prints, or start jobs with `spark-ckpt submit`"
        return without("the JAR is named nowhere there that a driver has", add)
    beside = "`spark-pipelines run` without --remote does not take it (docs/connect.md)"
    return [Finding("defaults", Status.OK, f"{where} loads the plugin; {beside}")]


_ASK = """
import importlib.metadata, json, sys
found = {"python": ".".join(map(str, sys.version_info[:3]))}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        found[name] = None
try:
    import spark_ckpt
    found["spark-ckpt"] = spark_ckpt.__version__
except ImportError:
    found["spark-ckpt"] = None
print(json.dumps(found))
"""


def check_worker_python(python: str, needed: Sequence[str]) -> Finding:
    """The interpreter that runs coordinator and agents has this version of the package and what it imports."""
    name = shown(python)
    way_out = f"install spark-ckpt {__version__} for it, or give another one with --python (spark.ckpt.python)"
    try:
        # Not in the current folder: what lies there by chance is not there on an executor.
        ran = subprocess.run(
            [python, "-c", _ASK, *needed], capture_output=True, text=True, errors="replace", timeout=_START_S, check=False, cwd="/"
        )
        found = json.loads(ran.stdout)
    except subprocess.TimeoutExpired:
        return Finding("python", Status.FAIL, f"the Python {name} has not answered within {_START_S} s; {way_out}")
    except OSError as e:
        return Finding("python", Status.FAIL, f"the Python {name} cannot be run ({e.strerror}); {way_out}")
    except ValueError:
        return Finding("python", Status.FAIL, f"the Python {name} ended with status {ran.returncode}; {way_out}")
    missing = [package for package in ("spark-ckpt", *needed) if found.get(package) is None]
    if missing:
        return Finding("python", Status.FAIL, f"the Python {name} lacks {', '.join(missing)}; {way_out}")
    if found["spark-ckpt"] != __version__:
        return Finding("python", Status.FAIL, f"the Python {name} has spark-ckpt {found['spark-ckpt']}, not {__version__}; {way_out}")
    packages = ", ".join(f"{package} {found[package]}" for package in ("spark-ckpt", *needed))
    return Finding("python", Status.OK, f"Python {found['python']} at {name} with {packages}")


def check_storage(storage: Storage) -> Finding:
    """It answers, and of two puts of one key the second is refused."""
    try:
        check_put_if_absent(storage)
    except CheckpointError as e:
        return Finding("storage", Status.FAIL, str(e))
    return Finding("storage", Status.OK, f"{storage.url} answers, and put-if-absent works there")


def check_clock(storage: Storage, clock: Callable[[], float] = time.time) -> Finding:
    """This machine's clock (seconds) against the storage's, by the time the storage gives to an object that was just put."""
    key = probe_key(uuid.uuid4().hex)
    try:
        begin = clock()
        storage.put(key, b"clock")
        end = clock()
        try:
            modified = next(stored.modified_ms for stored in storage.list(key))
        finally:
            with suppress(StorageError):  # a small object stays behind
                storage.delete([key])
    except StopIteration:
        return Finding("clock", Status.FAIL, f"{storage.url} does not list an object that was just put; its listings must be consistent")
    except CheckpointError as e:
        return Finding("clock", Status.FAIL, f"the clock of the storage cannot be told: {e}")
    # S3 gives whole seconds, rounded down.
    skew = max(modified - round(end * 1000), round(begin * 1000) - (modified + 1000), 0)
    if skew > SKEW_WARN_MS:
        status = Status.FAIL if skew > SKEW_FAIL_MS else Status.WARN
        return Finding("clock", status, f"this machine's clock differs by {skew / 1000:.0f} s from the storage's; synchronise it (NTP)")
    return Finding("clock", Status.OK, "this machine's clock agrees with the storage's")


def spool_folder(given: str | None, environment: Mapping[str, str]) -> str:
    """Where the spool will lie: the option, else Spark's local dir (Spark: `Utils.getConfiguredLocalDirs`)."""
    return given or environment.get("SPARK_LOCAL_DIRS", "").split(",")[0].strip() or tempfile.gettempdir()


def check_left_spools(folder: str) -> list[Finding]:
    """Spools that dead executors have left there; none is no finding."""
    left = left_spools(Path(folder))
    if not left:
        return []
    named = ", ".join(f"{spool} ({size_text(size)})" for spool, size in left)
    advice = "executors with this spool.dir remove them when they are an hour old; if none will run here, remove them"
    return [Finding("spools", Status.WARN, f"dead executors have left {named}; {advice}")]


def check_disk(folder: str, min_free: int) -> Finding:
    """The spool's folder can be written and has `min_free` bytes left."""
    existing = Path(folder)
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    way_out = "free some, or choose another folder with spark.ckpt.spool.dir"
    if not os.access(existing, os.W_OK | os.X_OK):
        return Finding(
            "disk", Status.FAIL, f"the folder {existing} for the spool cannot be written; choose another with spark.ckpt.spool.dir"
        )
    free = shutil.disk_usage(existing).free
    to_be_made = f", which does not exist yet: {existing} was looked at" if existing != Path(folder) else ""
    text = f"{free / 2**30:.1f} GiB free for the spool in {folder}{to_be_made}"
    if free < min_free:
        return Finding("disk", Status.FAIL, f"only {text}, less than {min_free / 2**30:.1f} GiB; {way_out}")
    return Finding("disk", Status.OK, text)
