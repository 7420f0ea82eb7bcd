"""Cases of sinks one after the other, and which of them are left."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

from campaign import record, tested
from campaign.comparison import Oracle
from campaign.sinks.application import PARTITIONS
from campaign.sinks.dimensions import SinkCase, cases
from campaign.sinks.topics import Topics
from campaign.sinks.trial import SinkResult, SinkTrial
from campaign.trial import Outcome, Tell
from testbed.kafka import KafkaBroker, connector_jars
from tests.drivers.spark.s3_server import moto, with_bucket


def left(results: Path = record.SINKS) -> list[SinkCase]:
    """Cases without a result for this code."""
    of = tested.code_of_sinks()
    done = {(line["mode"], line["group"]) for line in record.read(results) if line["code"] == of}
    return [case for case in cases() if (case.mode.value, case.group.value) not in done]


def folder_of(case: SinkCase) -> str:
    return f"sinks-{case.mode.name.lower()}-{case.group.name.lower()}"


class Runner:
    """The servers and the oracle begin with the first case, and end with `env`."""

    def __init__(self, env: ExitStack, work: Path, tell: Tell) -> None:
        self._env, self._work, self._tell = env, work, tell
        self._begun: tuple[str, Topics, str, Oracle] | None = None
        self._numbers = itertools.count(1)

    def __call__(self, case: SinkCase) -> SinkResult:
        url, topics, classes, oracle = self._servers()
        place = self._work / folder_of(case)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        self._tell(f"sinks: {case.name}")
        with with_bucket(url, f"sinks-{next(self._numbers)}") as s3:
            result = SinkTrial(case, place, s3, topics, classes, oracle, self._tell).run()
        for held in result.held:
            twice = f"{held.rows.twice} twice" + (f", {held.in_topic.twice} in the topic" if held.in_topic else "")
            wrong = f"{held.rows.missing} missing, {held.rows.excess} in excess"
            self._tell(f"  {held.sink.value}: {wrong}, {twice}")
        self._tell(f"  {result.outcome.value}, {result.seconds:.0f} s. {result.text}")
        if result.outcome is Outcome.EQUAL:
            shutil.rmtree(place, ignore_errors=True)
        return result

    def _servers(self) -> tuple[str, Topics, str, Oracle]:
        if self._begun is None:
            self._work.mkdir(parents=True, exist_ok=True)
            url = self._env.enter_context(moto())
            folder = self._env.enter_context(tempfile.TemporaryDirectory(dir=self._work, prefix="kafka-"))
            broker = self._env.enter_context(KafkaBroker(Path(folder) / "broker"))
            topics = self._env.enter_context(Topics(broker.address, PARTITIONS))
            classes = ":".join(map(str, connector_jars()))
            self._begun = url, topics, classes, self._env.enter_context(Oracle(self._work))
        return self._begun
