"""jvm_shim/build.py: which Java is accepted, which sources a line of Spark has, when a JAR is built again, what is in it."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

from jvm_shim import build as builder
from jvm_shim import sparks

SCALA = "package example\nclass Answer { def value: Int = %d }\n"


def sources(root: Path) -> Path:
    (root / "hooks" / "example").mkdir(parents=True)
    (root / "hooks" / "example" / "Answer.scala").write_text(SCALA % 1)
    (root / "spark-3.0").mkdir()
    (root / "spark-3.0" / "Other.scala").write_text("this is for another Spark and no Scala at all")
    (root / "resources").mkdir()
    (root / "resources" / "note.txt").write_text("note")
    return root


@pytest.fixture
def shim(tmp_path: Path) -> Path:
    return sources(tmp_path / "shim")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the compiler, which takes seconds, makes of `sources`."""
    folder = tmp_path_factory.mktemp("built")
    return builder.build(folder / "out", sources(folder / "shim"))


@pytest.fixture
def output(built: Path, tmp_path: Path) -> Path:
    """A folder that holds it."""
    shutil.copytree(built.parent, tmp_path / "out")
    return tmp_path / "out"


def java_that_says(folder: Path, text: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize("said", ['openjdk version "17.0.15" 2025-04-15', 'java version "21" 2023-09-19', 'openjdk version "25.0.1-ea"'])
def test_new_enough_java_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    java = java_that_says(tmp_path, said)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert builder.find_java() == str(java)


OTHERS = [('java version "1.8.0_392"', "is Java 8"), ('openjdk version "11.0.2"', "is Java 11"), ("?", "its version")]


@pytest.mark.parametrize(("said", "complaint"), OTHERS)
def test_other_java_is_refused_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, complaint: str) -> None:
    java_that_says(tmp_path, said)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(sparks.BuildError, match=complaint) as e:
        builder.find_java()
    assert "openjdk-17-jre-headless" in str(e.value)
    assert "\n" not in str(e.value)


def test_no_java_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(sparks.BuildError, match=r"Java was not found: install Java 17.*openjdk-17-jre-headless"):
        builder.find_java()


def test_java_home_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(sparks.BuildError, match=r"JAVA_HOME is .*nowhere"):
        builder.find_java()


@pytest.mark.spark
def test_built_once_then_only_after_a_change(shim: Path, built: Path, output: Path) -> None:
    jar = output / built.name
    first = jar.read_bytes()
    with zipfile.ZipFile(jar) as archive:
        assert archive.namelist() == [
            *("META-INF/MANIFEST.MF", builder.STAMP, builder.LINKS, "example/Answer.class", "META-INF/LICENSE", "note.txt")
        ]
    inode = jar.stat().st_ino
    assert builder.build(output, shim) == jar
    assert jar.stat().st_ino == inode
    builder.build(output, shim, force=True)
    assert jar.read_bytes() == first
    assert jar.stat().st_ino != inode
    (shim / "hooks" / "example" / "Answer.scala").write_text(SCALA % 2)
    builder.build(output, shim)
    assert jar.read_bytes() != first
    assert [p.name for p in output.iterdir()] == [jar.name]


@pytest.mark.spark
def test_compiler_messages_are_shown_and_the_old_jar_stays(shim: Path, built: Path, output: Path) -> None:
    jar = output / built.name
    before = jar.read_bytes()
    (shim / "hooks" / "example" / "Answer.scala").write_text("package example\nclass Answer { def value: Int = missing }\n")
    with pytest.raises(sparks.BuildError, match="not found: value missing"):
        builder.build(output, shim)
    assert jar.read_bytes() == before


def test_a_damaged_jar_has_no_digest(tmp_path: Path) -> None:
    jar = tmp_path / "x.jar"
    jar.write_bytes(b"PK\x03\x04 cut off")
    assert builder.recorded_digest(jar) is None


def test_an_incomplete_tree_is_named(shim: Path, tmp_path: Path) -> None:
    shutil.rmtree(shim / "hooks")
    with pytest.raises(sparks.BuildError, match="no Scala files"):
        builder.build(tmp_path / "out", shim)


@pytest.mark.parametrize(
    ("line", "folders"),
    [
        ("4.0", ["spark-4.0", "spark-4.0-4.1"]),
        ("4.1", ["spark-4.0-4.1", "spark-4.1-4.10"]),
        ("4.2", ["spark-4.1-4.10"]),
        ("4.10", ["spark-4.1-4.10"]),
        ("5.0", []),
    ],
)
def test_a_line_has_the_folders_that_it_is_in(tmp_path: Path, line: str, folders: list[str]) -> None:
    for name in ("spark-4.0", "spark-4.0-4.1", "spark-4.1-4.10", "hooks"):
        (tmp_path / name).mkdir()
    assert builder.of_line(line, tmp_path) == folders
    (tmp_path / "spark-four").mkdir()
    with pytest.raises(sparks.BuildError, match="spark-four is not named after lines of Spark"):
        builder.of_line(line, tmp_path)


def test_what_differs_has_the_same_names_on_every_line() -> None:
    """Each line has one file of each name, or the common sources would not find what they ask for."""
    named = {
        line: sorted(p.name for folder in builder.of_line(line, builder.HERE) for p in (builder.HERE / folder).iterdir())
        for line in sparks.PINNED
    }
    (first, *others) = named.values()
    assert len(set(first)) == len(first)
    assert others == [first] * len(others)


def test_a_spark_of_no_known_line_is_named(tmp_path: Path, shim: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "installed_spark", lambda: sparks.Spark("3.5.1", tmp_path))
    with pytest.raises(sparks.BuildError, match=r"no sources for Spark 3\.5\.1; it has those for 4\.0, 4\.1, 4\.2, 4\.3"):
        builder.build(tmp_path / "out", shim)


def test_the_sparks_that_are_fetched_have_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(sparks.CACHE_VARIABLE, str(tmp_path))
    there = tmp_path / f"pyspark-{sparks.PINNED['4.1'][0]}"
    there.mkdir()
    assert sparks.fetch("4.1") == there
    with pytest.raises(sparks.BuildError, match=r"no JAR for Spark 3\.5; there are those for 4\.0, 4\.1, 4\.2, 4\.3"):
        sparks.fetch("3.5")
    with pytest.raises(sparks.BuildError, match="holds no Spark with a Scala compiler; install the full PySpark"):
        sparks.spark_in(there)
