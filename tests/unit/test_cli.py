"""The command line apart from streams: usage, jar, conf, submit, doctor."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pyspark
import pytest

import spark_ckpt
from spark_ckpt.agent.spools import Spools
from spark_ckpt.cli import surroundings
from spark_ckpt.cli.main import VERBS, run
from spark_ckpt.cli.submit_verb import submit_arguments
from spark_ckpt.cli.surroundings import Status, check_spark
from spark_ckpt.conf.properties import parse_properties
from spark_ckpt.conf.spark_settings import PLUGIN_CLASS
from spark_ckpt.conf.submission import parse
from spark_ckpt.conf.template import template
from spark_ckpt.errors import ConfigError
from spark_ckpt.process.jar import jar_path, spark_home, spark_version
from spark_ckpt.process.packages import packages_for
from spark_ckpt.storage import open_storage
from tests.drivers.spark_home import a_spark

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([verb, "--help"]) == 0
    assert "Usage: spark-ckpt " + verb in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["lst"],
        ["list"],
        ["list", "ftp://host/x"],
        ["list", "s3://k:hush@b/x"],
        ["show", "/x", "--checkpoint", "7"],
        ["list", "s3://bkt/x", "--endpoint", "minio:9000"],
        ["doctor", "--min-free", "lots"],
        ["submit", "--storage", "/x"],
        ["submit", "--storage"],
        ["submit", "--conf", "spark.ckpt.intervall=1s", "job.py"],
    ],
)
def test_wrong_usage_is_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    out = capsys.readouterr()
    assert out.err
    assert "Traceback" not in out.err
    assert "hush" not in out.err


def test_conf_prints_the_template(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["conf"]) == 0
    assert capsys.readouterr().out == template()
    assert run(["conf", "--json"]) == 0
    options = json.loads(capsys.readouterr().out)["options"]
    assert {"spark.ckpt.storage", "spark.ckpt.s3.maxConnections"} <= {o["option"] for o in options}


@pytest.mark.parametrize(("version", "line"), [("4.3.0", "4.3"), ("4.3.7", "4.3"), ("4.10.0", "4.10"), ("4.0.2-amzn-0", "4.0")])
def test_the_jar_of_this_sparks_line(tmp_path: Path, version: str, line: str) -> None:
    for built in ("4.10", "4.0", "4.3"):
        (tmp_path / f"spark-ckpt-{built}.jar").write_bytes(b"")
    assert jar_path(version, tmp_path) == tmp_path / f"spark-ckpt-{line}.jar"
    for other in ("4.2.1", "3.5.1"):
        with pytest.raises(ConfigError, match=rf"fits Spark {other}: it has those for Spark 4\.0, 4\.3, 4\.10; use a Spark of these"):
            jar_path(other, tmp_path)
    with pytest.raises(ConfigError, match=r"the JAR for Spark 4\.3\.0 was not built"):
        jar_path("4.3.0", tmp_path / "none")


def test_the_spark_of_spark_home_comes_before_pysparks_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Path(pyspark.__file__).resolve().parent
    monkeypatch.delenv("SPARK_HOME", raising=False)
    assert (spark_home(), spark_version()) == (own, pyspark.__version__)
    home = a_spark(tmp_path / "opt", "4.1.2-amzn-0")
    monkeypatch.setenv("SPARK_HOME", str(home))
    assert (spark_home(), spark_version()) == (home, "4.1.2-amzn-0")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))  # no Spark: PySpark's own
    assert spark_home() == own
    with pytest.raises(ConfigError, match=r"a PySpark without a Spark .*pip install 'spark-ckpt\[pyspark\]'"):
        spark_version(tmp_path)


def test_importing_the_package_is_cheap() -> None:
    code = "import sys, spark_ckpt; print([m for m in ('pyspark', 'pyarrow', 'boto3', 'rocksdict', 'click', 'rich') if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert ran.stdout.strip() == "[]"
    assert spark_ckpt.__version__ == "0.1.0"


def submitted(*arguments: str, defaults: dict[str, str] | None = None) -> list[str]:
    return submit_arguments(parse(arguments), "/ours.jar", defaults or {}, {})


def settings(arguments: list[str]) -> dict[str, str]:
    return dict(v.split("=", 1) for k, v in itertools.pairwise(arguments) if k == "--conf")


def test_submit_passes_on_what_is_sparks_and_the_jobs() -> None:
    got = submitted(
        "--master", "local[2]", "--storage", "s3://bkt/c", "--verbose", "--name=x", "job.py", "--storage", "mine", "--conf", "a"
    )
    assert got[:5] == ["--master", "local[2]", "--verbose", "--name", "x"]
    assert got[got.index("--jars") + 1] == "/ours.jar"
    assert got[-5:] == ["job.py", "--storage", "mine", "--conf", "a"]
    assert settings(got[:-5]) == {"spark.ckpt.storage": "s3://bkt/c", "spark.plugins": PLUGIN_CLASS}


def test_submit_knows_two_hyphens_before_sparks_options() -> None:
    plain = submitted("--storage", "/ck", "--master", "local[2]", "job.py", "--", "1")
    assert submitted("--storage", "/ck", "--", "--master", "local[2]", "job.py", "--", "1") == plain
    assert plain[-3:] == ["job.py", "--", "1"]


def test_submit_adds_to_lists_wherever_they_come_from() -> None:
    got = submitted(
        "--jars", "/a.jar,/b.jar", "--conf", "spark.plugins=x.Y", "job.py", defaults={"spark.plugins": "no.No", "spark.jars": "/n.jar"}
    )
    assert got[got.index("--jars") + 1] == "/a.jar,/b.jar,/ours.jar"
    assert settings(got)["spark.plugins"] == f"x.Y,{PLUGIN_CLASS}"
    got = submitted("--conf", "spark.plugins=", "job.py", defaults={"spark.plugins": "no.No"})
    assert settings(got)["spark.plugins"] == PLUGIN_CLASS, "the file's are not asked for"
    got = submitted("job.py", defaults={"spark.plugins": "x.Y", "spark.jars": "/n.jar", "spark.ckpt.storage": "/d"})
    assert got[got.index("--jars") + 1] == "/n.jar,/ours.jar"
    assert settings(got) == {"spark.plugins": f"x.Y,{PLUGIN_CLASS}"}
    got = submitted("-c", "spark.jars=/c.jar", "--conf=spark.x=a=b", "job.py")
    assert got[got.index("--jars") + 1] == "/c.jar,/ours.jar"
    assert settings(got) == {"spark.x": "a=b", "spark.plugins": PLUGIN_CLASS}


def test_submit_refuses_what_contradicts() -> None:
    with pytest.raises(ConfigError, match="contradicts"):
        submitted("--storage", "/a", "--conf", "spark.ckpt.storage=/b", "job.py")
    with pytest.raises(ConfigError, match=r"spark\.ckpt\.retained"):
        submitted("job.py", defaults={"spark.ckpt.retained": "x"})
    with pytest.raises(ConfigError, match="key=value"):
        submitted("--conf", "spark.x", "job.py")


def test_what_submit_refuses_shows_no_password() -> None:
    with pytest.raises(ConfigError, match="contradicts") as contradicts:
        submitted("--storage", "s3://AKIA:SECRET@lake/a", "--conf", "spark.ckpt.storage=s3://AKIA:SECRET@lake/b", "job.py")
    assert "s3://…@lake/a" in str(contradicts.value)
    with pytest.raises(ConfigError, match=r"--conf spark\.hadoop\.fs\.s3a\.secret\.key… is not of the form key=value") as form:
        submitted("--conf", "spark.hadoop.fs.s3a.secret.key:SECRET", "job.py")
    assert "SECRET" not in str(contradicts.value) + str(form.value)
    long = "s3://AKIA:SECRET" + "x" * 300 + "@lake/"
    with pytest.raises(ConfigError, match="contradicts") as cut:
        submitted("--storage", long + "a", "--conf", f"spark.ckpt.storage={long}b", "job.py")
    assert "SECRET" not in str(cut.value)


@pytest.mark.parametrize("separator", ["/", ":", " ", "-", "+", ",", "\n", "://KEY:"])
def test_a_conf_without_an_equals_sign_is_shown_without_its_value(separator: str) -> None:
    for option in (["--conf"], ["-c"], ["--verbose", "--conf"]):
        with pytest.raises(ConfigError) as form:
            submitted(*option, f"spark.hadoop.fs.s3a.secret.key{separator}SECRET", "job.py")
        assert str(form.value) == f"{option[-1]} spark.hadoop.fs.s3a.secret.key… is not of the form key=value"
    with pytest.raises(ConfigError, match=r"--conf spark\.x is not of the form"):
        submitted("--conf", "spark.x", "job.py")
    if separator != "-":
        with pytest.raises(ConfigError) as last:
            submitted(f"--conf{separator}SECRET")
        assert str(last.value) == "the option --conf… needs a value"


def test_properties_as_java_reads_them() -> None:
    text = "# c\n! c\nspark.a   1 2\nspark.b=x\nspark.c : y \n\nspark.d\tz\nspark.e a,\\\n   b\nlonely\n"
    assert parse_properties(text) == {"spark.a": "1 2", "spark.b": "x", "spark.c": "y", "spark.d": "z", "spark.e": "a,b", "lonely": ""}


def handed_over(tmp_path: Path, *arguments: str) -> list[str]:
    """What spark-submit gets. In place of Java stands what writes down its arguments, and answers PySpark's script with a command that
    ends with 7."""
    said = tmp_path / "said"
    script(
        tmp_path / "jdk" / "bin" / "java",
        f'for a; do echo "$a"; done > {said}\n'
        f'echo "$SPARK_HOME $SPARK_CONF_DIR $PYSPARK_PYTHON" > {said}.env\n'
        r"printf '\0\nsh\0-c\0exit 7\0'",
    )
    kept = {k: v for k, v in os.environ.items() if k not in ("SPARK_CONF_DIR", "PYSPARK_PYTHON", "MASTER")}
    ran = subprocess.run(
        [sys.executable, "-m", "spark_ckpt.cli.main", "submit", *arguments],
        env={**kept, "SPARK_HOME": str(tmp_path), "JAVA_HOME": str(tmp_path / "jdk")},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == 7, ran.stderr
    found = said.read_text().splitlines()
    return found[found.index("org.apache.spark.deploy.SparkSubmit") + 1 :]


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.plugins x.Y\n")
    return tmp_path / "conf"


def test_submit_becomes_the_spark_submit_of_the_spark_that_is_there(tmp_path: Path, conf: Path) -> None:
    given = handed_over(tmp_path, "--storage", "/ck", "job.py", "1")
    assert given[-2:] == ["job.py", "1"]
    assert given[given.index("--jars") + 1] == str(jar_path())
    assert settings(given) == {"spark.ckpt.storage": "/ck", "spark.plugins": f"x.Y,{PLUGIN_CLASS}"}
    home = Path(pyspark.__file__).resolve().parent
    assert (tmp_path / "said.env").read_text().split() == [str(home), str(conf), sys.executable]


def test_submit_takes_the_spark_of_spark_home_and_its_jar(tmp_path: Path) -> None:
    ours = spark_version()
    for version, status, says in ((ours, 0, f"--jars {jar_path(ours)} "), ("3.5.1", 2, "no JAR of this spark-ckpt fits Spark 3.5.1: ")):
        home = a_spark(tmp_path / version, version)
        script(home / "bin" / "spark-submit", 'echo "$0 $*"')
        command = [sys.executable, "-m", "spark_ckpt.cli.main", "submit", "job.py"]
        kept = {**os.environ, "SPARK_HOME": str(home)}
        ran = subprocess.run(command, env=kept, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
        assert (ran.returncode, says in ran.stdout + ran.stderr) == (status, True), ran
        assert status != 0 or ran.stdout.startswith(f"{home}/bin/spark-submit ")


@pytest.mark.parametrize(
    ("files", "plugins"),
    [
        ([], "x.Y"),
        (["--properties-file", "p"], None),
        (["--load-spark-defaults", "--properties-file", "p"], "x.Y"),
        (["--load-spark-defaults=yes", "--properties-file", "p"], "x.Y"),
        (["--extra-properties-file", "a"], "a.A"),
        (["--extra-properties-file=b", "--properties-file", "a", "--extra-properties-file", "p"], "b.B"),
        (["--extra-properties-file=a", "--extra-properties-file=b", "--load-spark-defaults"], "b.B"),
    ],
)
def test_submit_adds_to_what_spark_reads_from_properties_files(tmp_path: Path, conf: Path, files: list[str], plugins: str | None) -> None:
    for name, text in {"p": "spark.x y", "a": "spark.plugins a.A", "b": "spark.plugins b.B"}.items():
        (tmp_path / name).write_text(text)
    named = [re.sub(r"^(--extra[^=]*=)?([pab])$", rf"\1{tmp_path}/\2", word) for word in files]
    given = handed_over(tmp_path, *named, "job.py")
    assert settings(given)["spark.plugins"] == (f"{plugins},{PLUGIN_CLASS}" if plugins else PLUGIN_CLASS)
    assert given[-1] == "job.py"
    assert given.count("--load-spark-defaults") == named.count("--load-spark-defaults")


def test_submit_checks_the_options_of_every_properties_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("spark.ckpt.retaind 4\n")
    for name, says in (("a", "did you mean spark.ckpt.retained?"), ("none", "none does not exist")):
        command = [sys.executable, "-m", "spark_ckpt.cli.main", "submit", "--extra-properties-file", str(tmp_path / name), "job.py"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert ran.returncode == 2, ran.stderr
        assert says in ran.stderr


def test_submit_knows_which_of_sparks_options_take_a_value() -> None:
    """Those of the Spark that is installed: a switch that is new there would swallow the job."""
    (launcher,) = (Path(pyspark.__file__).parent / "jars").glob("spark-launcher_*.jar")
    home = os.environ.get("JAVA_HOME")
    javap = shutil.which("javap", path=f"{home}/bin" if home else None)
    assert javap is not None, "a JDK has javap"
    command = [javap, "-cp", str(launcher), "-c", "-p", "org.apache.spark.launcher.SparkSubmitOptionParser"]
    code = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    valued, switches = re.search(r"(.*?putfield [^\n]*// Field opts:)(.*?putfield [^\n]*// Field switches:)", code, re.DOTALL).groups()  # type: ignore[union-attr]
    element = re.compile(r"// String (-\S+)\n[^\n]*\baastore\b")
    takes, alone = element.findall(valued), element.findall(switches)
    assert {"--class", "-c", "--extra-properties-file"} <= set(takes)
    assert {"--verbose", "-v", "--load-spark-defaults"} <= set(alone)
    for option in takes:
        assert parse([option, "spark.a=b", "job.py", "x"]).job == ["job.py", "x"], option
    for switch in alone:
        assert parse([switch, "job.py", "x"]).job == ["job.py", "x"], switch


def script(path: Path, body: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("says", "status", "text"),
    [
        ('openjdk version "17.0.15" 2025-04-15', Status.OK, "Java 17.0.15"),
        ('java version "21" 2023-09-19', Status.OK, "Java 21"),
        ('openjdk version "1.8.0_402"', Status.FAIL, "too old"),
        ('openjdk version "11.0.2"', Status.FAIL, "openjdk-17"),
        ("nothing", Status.FAIL, "does not tell"),
    ],
)
def test_doctor_on_java(says: str, status: Status, text: str, tmp_path: Path) -> None:
    script(tmp_path / "bin" / "java", f"echo '{says}' >&2")
    finding = surroundings.check_java({"JAVA_HOME": str(tmp_path)})
    assert finding.status is status
    assert text in finding.message


def test_doctor_without_java(tmp_path: Path) -> None:
    finding = surroundings.check_java({"PATH": str(tmp_path)})
    assert finding.status is Status.FAIL
    assert finding.message.startswith("there is no Java on the PATH; install a JDK 17")
    assert "JAVA_HOME" in surroundings.check_java({"JAVA_HOME": str(tmp_path)}).message


def test_doctor_on_the_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    assert check_spark().status is Status.OK
    monkeypatch.setenv("SPARK_HOME", str(a_spark(tmp_path / "opt", pyspark.__version__)))
    assert check_spark().message.startswith(f"Spark {pyspark.__version__} at {tmp_path}/opt and spark-ckpt-")
    monkeypatch.setenv("SPARK_HOME", str(a_spark(tmp_path / "old", "3.5.1")))
    assert check_spark().status is Status.FAIL
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    found = check_spark()
    assert (found.status, found.message.split(",")[0]) == (Status.FAIL, f"SPARK_HOME={tmp_path} holds no Spark")


def test_doctor_where_there_is_no_spark_as_on_an_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    found = check_spark()
    assert (found.status, "An executor needs none" in found.message) == (Status.WARN, True)


def test_a_pyspark_with_another_hadoop_has_its_spark_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PYSPARK_HADOOP_VERSION."""
    monkeypatch.delenv("SPARK_HOME", raising=False)
    (tmp_path / "__init__.py").touch()
    a_spark(tmp_path / "spark-distribution", "4.1.4")
    spec = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: spec)
    assert spark_version() == "4.1.4"


_IN_YARN = f"spark.plugins {PLUGIN_CLASS}\nspark.yarn.dist.jars hdfs:///x/spark-ckpt-4.3.jar"


@pytest.mark.parametrize(
    ("lines", "environment", "status", "text"),
    [
        ("", {}, None, ""),
        ("spark.master local[2]\nspark.plugins com.example.Other", {}, None, ""),
        ("spark.ckpt.storage s3://bucket/c", {}, Status.WARN, "has spark.ckpt.storage, but does not load the plugin"),
        (f"spark.plugins com.example.Other, {PLUGIN_CLASS}\nspark.jars {jar_path()}", {}, Status.OK, "loads the plugin"),
        (f"spark.plugins {PLUGIN_CLASS}\nspark.driver.extraClassPath /a:{jar_path().parent}/*", {}, Status.OK, "loads the plugin"),
        (f"{_IN_YARN}\nspark.submit.deployMode cluster", {}, Status.OK, "loads the plugin"),
        (f"{_IN_YARN}\nspark.submit.deployMode client", {}, Status.WARN, "the JAR is named nowhere there"),
        (_IN_YARN, {}, Status.WARN, "the JAR is named nowhere there"),
        (f"spark.plugins {PLUGIN_CLASS}\nspark.jars /a.jar", {}, Status.WARN, "the JAR is named nowhere there"),
        (f"spark.plugins {PLUGIN_CLASS}\nspark.jars /gone/spark-ckpt-4.3.jar", {}, Status.WARN, "the JAR is named nowhere there"),
        (f"spark.plugins {PLUGIN_CLASS}\nspark.ckpt.minPause 5s", {}, Status.WARN, "contradicts spark.ckpt.interval=0"),
        ("spark.ckpt.minPause 5s", {}, Status.WARN, "does not load the plugin"),
        (f"spark.plugins {PLUGIN_CLASS}\nspark.api.mode connect", {}, Status.WARN, "no query would have checkpoints: with spark.api.mode"),
        (f"spark.plugins {PLUGIN_CLASS}", {"SPARK_REMOTE": "sc://there"}, Status.WARN, "its server does"),
        (f"spark.plugins {PLUGIN_CLASS}\nspark.ckpt.interval often", {}, Status.FAIL, "spark.ckpt.interval=often is not possible"),
        (f"spark.plugins {PLUGIN_CLASS}\nspark.ckpt.intervall 10s", {}, Status.FAIL, "spark.ckpt.intervall"),
        ("a = \\uX", {}, Status.FAIL, "spark-defaults.conf"),
    ],
)
def test_doctor_on_what_spark_defaults_has(
    lines: str, environment: dict[str, str], status: Status | None, text: str, tmp_path: Path
) -> None:
    (tmp_path / "spark-defaults.conf").write_text(lines + "\n")
    findings = surroundings.check_defaults({"SPARK_CONF_DIR": str(tmp_path), **environment})
    assert [finding.status for finding in findings] == ([] if status is None else [status])
    assert all(text in finding.message for finding in findings), findings


def test_doctor_on_a_jar_among_those_of_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = a_spark(tmp_path / "spark", pyspark.__version__)
    monkeypatch.setenv("SPARK_HOME", str(home))
    (home / "conf").mkdir()
    (home / "conf" / "spark-defaults.conf").write_text(f"spark.plugins {PLUGIN_CLASS}\n")
    assert [found.status for found in surroundings.check_defaults({})] == [Status.WARN]
    (home / "jars" / jar_path(pyspark.__version__).name).touch()
    assert [found.status for found in surroundings.check_defaults({})] == [Status.OK]


def test_doctor_on_a_python_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surroundings, "_START_S", 0.2)
    found = surroundings.check_worker_python(script(tmp_path / "py", "exec sleep 60"), packages_for(None))
    assert (found.status, "has not answered within 0.2 s; install" in found.message) == (Status.FAIL, True)


def test_doctor_on_the_workers_python(tmp_path: Path) -> None:
    for answer, text in [
        ('{"python": "3.11.1", "spark-ckpt": null, "pyarrow": "1", "boto3": null}', "lacks spark-ckpt, boto3"),
        ('{"python": "3.11.1", "spark-ckpt": "9.9", "pyarrow": "1", "boto3": "1"}', "has spark-ckpt 9.9"),
        ("", "ended with status 0"),
    ]:
        finding = surroundings.check_worker_python(script(tmp_path / "py", f"echo '{answer}'"), packages_for("s3://bucket/ckpt"))
        assert finding.status is Status.FAIL
        assert text in finding.message
        assert "--python" in finding.message
    good = f'{{"python": "3.11.1", "spark-ckpt": "{spark_ckpt.__version__}", "pyarrow": "1"}}'
    assert surroundings.check_worker_python(script(tmp_path / "py", f"echo '{good}'"), packages_for(None)).status is Status.OK
    assert "cannot be run" in surroundings.check_worker_python(str(tmp_path / "none"), packages_for(None)).message
    secret = surroundings.check_worker_python("s3://KEY:SECRET@bucket/python", packages_for(None)).message
    assert ("cannot be run (No such file or directory)" in secret, "SECRET" in secret) == (True, False)


def test_doctor_on_a_storage_leaves_nothing_behind(tmp_path: Path) -> None:
    with open_storage(f"file://{tmp_path}/ck") as storage:
        assert surroundings.check_storage(storage).status is Status.OK
        assert surroundings.check_clock(storage).status is Status.OK
        assert list(storage.list("")) == []


@pytest.mark.parametrize(("ahead", "status"), [(60, Status.WARN), (3600, Status.FAIL), (-60, Status.WARN)])
def test_doctor_on_the_clock(ahead: int, status: Status, tmp_path: Path) -> None:
    with open_storage(f"file://{tmp_path}/ck") as storage:
        finding = surroundings.check_clock(storage, lambda: time.time() + ahead)
    assert finding.status is status
    assert "NTP" in finding.message


def test_doctor_on_the_disk(tmp_path: Path) -> None:
    absent = surroundings.check_disk(str(tmp_path / "not" / "yet"), 1)
    assert absent.status is Status.OK
    assert f"which does not exist yet: {tmp_path} was looked at" in absent.message
    assert "exist yet" not in surroundings.check_disk(str(tmp_path), 1).message
    assert "less than" in surroundings.check_disk(str(tmp_path), 1 << 60).message
    assert surroundings.spool_folder(None, {"SPARK_LOCAL_DIRS": "/a,/b"}) == "/a"
    assert surroundings.spool_folder("/c", {"SPARK_LOCAL_DIRS": "/a"}) == "/c"


def test_doctor_names_the_spools_of_dead_executors_with_their_size(tmp_path: Path) -> None:
    dead, living, other = (tmp_path / name for name in ("spark-ckpt-dead", "spark-ckpt-living", "other"))
    for spool in (dead, living, other):
        (spool / "stream").mkdir(parents=True)
        (spool / "stream" / "state").write_bytes(b"x" * 2048)
    agent = Spools(living, persistent=False)
    for spool in (dead, other):
        (spool / ".lock").touch()
    os.link(dead / "stream" / "state", dead / "stream" / "again")
    (finding,) = surroundings.check_left_spools(str(tmp_path))
    assert finding.status is Status.WARN
    assert f"{dead} (2.0 KiB);" in finding.message
    agent.end()
    shutil.rmtree(dead)
    assert surroundings.check_left_spools(str(tmp_path)) == []


@pytest.mark.parametrize("storage", ["relative/x", "s4://x/y", "s3://bucket/a?b"])
def test_doctor_refuses_the_storage_that_a_job_refuses(
    storage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["doctor", "--storage", storage, "--python", sys.executable, "--json"]) == 1
    found = {c["check"]: c for c in json.loads(capsys.readouterr().out)["checks"]}
    assert found["storage"]["status"] == "FAIL"
    assert "a job refuses this spark.ckpt.storage; write s3://bucket/prefix" in found["storage"]["message"]
    assert list(tmp_path.iterdir()) == []


def test_doctor_as_a_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("in the way")
    status = run(["doctor", "--storage", f"{tmp_path}/file", "--python", sys.executable, "--json"])
    doc = json.loads(capsys.readouterr().out)
    found = {c["check"]: c["status"] for c in doc["checks"]}
    assert (status, doc["healthy"], found["storage"], found["disk"]) == (1, False, "FAIL", "OK")


def test_a_closed_stdout_is_told_in_a_sentence() -> None:
    ran = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m spark_ckpt.cli.main list stream >&-"], stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT
    )
    assert (ran.returncode, ran.stderr) == (1, "spark-ckpt: standard output is closed; there is nowhere to write the answer to\n")


def test_a_working_folder_that_is_gone_is_told_in_a_sentence(tmp_path: Path) -> None:
    listing = shlex.join([sys.executable, "-P", "-m", "spark_ckpt.cli.main", "list", "stream"])
    command = f"mkdir gone && cd gone && rmdir ../gone && {listing}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert ran.returncode == 1
    assert ran.stderr.startswith("spark-ckpt: No such file or directory; look at")
    assert "Traceback" not in ran.stderr
