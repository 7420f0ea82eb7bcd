"""The look at the Spark that runs, before anything of it is called."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from typing import Any

import pytest

from jvm_shim import build
from spark_ckpt import __version__
from spark_ckpt.process.jar import jar_path
from tests.drivers.spark.jvm import jvm

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200)]


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    with jvm() as started:
        yield started


def test_what_the_jar_calls_of_spark_is_there(java: Any) -> None:
    """Every name that its classes have, looked up in the Spark that it was compiled against: the list is right, and so is the look."""
    with zipfile.ZipFile(jar_path()) as jar:
        listing = jar.read(build.LINKS).decode()
    links = java.org.apache.spark.ckpt.SparkLinks
    assert "org/apache/spark/sql/execution/streaming/state/RocksDB\n" in listing
    assert links.missing(listing).isEmpty()
    here = java.org.apache.spark.ckpt.Versions.compiledFor()
    assert links.refusal(here + ".1", here, listing).isEmpty()


def test_what_spark_lacks_is_said_in_one_sentence(java: Any) -> None:
    there = "org/apache/spark/SparkConf\n get (Ljava/lang/String;)Ljava/lang/String;\n"
    listing = f"{there} gone ()V\n get ()V\norg/apache/spark/Nowhere\n x ()V\n"
    refusal = java.org.apache.spark.ckpt.SparkLinks.refusal
    said = refusal("4.3.9", "4.3.0", listing).get()
    assert said.startswith(f"Spark 4.3.9 lacks what the JAR of spark-ckpt {__version__}, compiled against Spark 4.3.0, calls")
    assert said.endswith("(SparkConf.gone, SparkConf.get, Nowhere); use Spark 4.3.0, or a spark-ckpt that knows Spark 4.3.9")
    for running in ("4.2.1", "4.30.0"):
        assert refusal(running, "4.3.0", listing).get() == (
            f"this JAR is for Spark 4.3, and the Spark that runs is {running}; take the JAR that `spark-ckpt jar` prints beside that Spark"
        )
