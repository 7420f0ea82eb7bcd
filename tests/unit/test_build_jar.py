"""jvm_shim/build.py: which Java is accepted, when a JAR is built again, what is in it."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "jvm_shim" / "build.py"
SCALA = "package example\nclass Answer { def value: Int = %d }\n"


@pytest.fixture(scope="module")
def builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("jar_builder_under_test", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


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
def built(builder: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the compiler, which takes seconds, makes of `sources`."""
    folder = tmp_path_factory.mktemp("built")
    jar: Path = builder.build(folder / "out", sources(folder / "shim"))
    return jar


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
def test_new_enough_java_is_taken(builder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    java = java_that_says(tmp_path, said)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert builder.find_java() == str(java)


OTHERS = [('java version "1.8.0_392"', "is Java 8"), ('openjdk version "11.0.2"', "is Java 11"), ("?", "its version")]


@pytest.mark.parametrize(("said", "complaint"), OTHERS)
def test_other_java_is_refused_in_one_sentence(
    builder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, complaint: str
) -> None:
    java_that_says(tmp_path, said)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(builder.BuildError, match=complaint) as e:
        builder.find_java()
    assert "openjdk-17-jre-headless" in str(e.value)
    assert "\n" not in str(e.value)


def test_no_java_at_all(builder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(builder.BuildError, match=r"Java was not found: install Java 17.*openjdk-17-jre-headless"):
        builder.find_java()


def test_java_home_without_java(builder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(builder.BuildError, match=r"JAVA_HOME is .*nowhere"):
        builder.find_java()


@pytest.mark.spark
def test_built_once_then_only_after_a_change(builder: ModuleType, shim: Path, built: Path, output: Path) -> None:
    jar = output / built.name
    first = jar.read_bytes()
    with zipfile.ZipFile(jar) as archive:
        assert archive.namelist() == ["META-INF/MANIFEST.MF", builder.STAMP, "example/Answer.class", "META-INF/LICENSE", "note.txt"]
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
def test_compiler_messages_are_shown_and_the_old_jar_stays(builder: ModuleType, shim: Path, built: Path, output: Path) -> None:
    jar = output / built.name
    before = jar.read_bytes()
    (shim / "hooks" / "example" / "Answer.scala").write_text("package example\nclass Answer { def value: Int = missing }\n")
    with pytest.raises(builder.BuildError, match="not found: value missing"):
        builder.build(output, shim)
    assert jar.read_bytes() == before


def test_a_damaged_jar_has_no_digest(builder: ModuleType, tmp_path: Path) -> None:
    jar = tmp_path / "x.jar"
    jar.write_bytes(b"PK\x03\x04 cut off")
    assert builder.recorded_digest(jar) is None


def test_an_incomplete_tree_is_named(builder: ModuleType, shim: Path, tmp_path: Path) -> None:
    shutil.rmtree(shim / "hooks")
    with pytest.raises(builder.BuildError, match="no Scala files"):
        builder.build(tmp_path / "out", shim)
