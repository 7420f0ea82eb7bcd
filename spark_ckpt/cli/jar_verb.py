"""`spark-ckpt jar`"""

from __future__ import annotations

import click

from spark_ckpt.process.jar import jar_path


@click.command("jar")
def command() -> None:
    """Print the path of the JAR for the Spark that is there, SPARK_HOME's or PySpark's, for spark-submit --jars."""
    click.echo(jar_path())
