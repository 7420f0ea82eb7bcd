from __future__ import annotations

import subprocess
import sys

import pytest

from spark_ckpt import __version__
from spark_ckpt.errors import ConfigError, without_way_out
from spark_ckpt.process.packages import check_jar, lacking, packages_for, require


def test_a_missing_package_is_named_with_the_interpreter_and_the_way_out() -> None:
    with pytest.raises(ConfigError, match=r"lacks no_such_package, nor_this; install .* set spark\.ckpt\.python") as refused:
        require(("pyarrow", "no_such_package", "nor_this"))
    assert sys.executable in str(refused.value)


def test_only_s3_takes_boto3() -> None:
    assert "boto3" in packages_for("s3://bucket/ckpt")
    assert "boto3" not in packages_for("file:///ckpt")
    assert "boto3" not in packages_for(None)


def test_only_the_clouds_take_obstore() -> None:
    for url in ("gs://bucket/ckpt", "az://container/ckpt"):
        assert packages_for(url) == ("pyarrow", "obstore")
    assert "obstore" not in packages_for("s3://bucket/ckpt") + packages_for("file:///ckpt") + packages_for(None)


def test_what_no_dependency_brings_is_installed_as_an_extra() -> None:
    assert str(lacking(["obstore"])).partition("; ")[2].startswith("install 'spark-ckpt[gcs]' or 'spark-ckpt[azure]' for it, or set")
    assert str(lacking(["boto3"])).partition("; ")[2].startswith("install spark-ckpt with its dependencies for it, or set")


def test_looking_for_the_packages_does_not_load_them() -> None:
    code = "import sys; from spark_ckpt.process.packages import *; require(packages_for('s3://b/p')); sys.exit('boto3' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def test_a_cause_is_told_without_its_way_out() -> None:
    assert without_way_out("seg/1 is damaged: a, b; restart the query; verify it") == "seg/1 is damaged: a, b"
    assert without_way_out("seg/1 is missing") == "seg/1 is missing"


def test_a_jar_of_another_version_is_refused_by_name() -> None:
    check_jar(__version__)
    for said, named in (("9.1.0", "spark-ckpt 9.1.0"), (None, "an older spark-ckpt"), (7, "an older spark-ckpt")):
        with pytest.raises(ConfigError, match=f"the JAR is of {named}, the package of the Python {sys.executable} is {__version__}; take"):
            check_jar(said)
