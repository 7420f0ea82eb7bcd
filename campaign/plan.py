"""Draws cases by seed: of many that chance offers, the one that meets what has met too seldom."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from campaign.dimensions import Case, Fault, Kill, Load, Mode, Place, Sink, Spool, Stream, Victim, When

Value = tuple[str, str]
Pair = tuple[Value, Value]

STREAMS = 3
OFFERS = 120
FREELY, NEVER = 20, 1.0
"""After so many cases, what has never met comes first."""
SAMPLE = 3_000
"""So many offers tell how often each pair is to be expected."""
STARVED, ON_S3, ALONE, COLLECTED = 0.1, 0.7, 0.5, 0.2
LONGEST_S, SOON_S, MOST_EPOCHS = 2.0, 5.0, 8
SETTINGS = {
    "spark.sql.streaming.stateStore.maintenanceInterval": ("1s", "60s"),
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": ("2", "10"),
    "spark.locality.wait": ("0s", "3s"),
    "spark.ckpt.retained": ("1", "3"),
}
IN_THE_BACKGROUND = {"spark.ckpt.interval": ("500ms", "2s"), "spark.ckpt.maxConcurrent": ("1", "2")}


class Plan:
    """An endless line of cases, the same for the same arguments. `operators`: name -> may it feed a file sink (append mode)?"""

    def __init__(self, seed: int, kills: int, operators: Sequence[tuple[str, bool]]) -> None:
        self.seed, self.kills = seed, kills
        self._operators = operators

    def sample(self) -> Counter[Pair]:
        """How often each pair that can meet does in SAMPLE offers."""
        rng = random.Random(f"{self.seed}-{self.kills}-sample")
        return Counter(pair for _ in range(SAMPLE) for pair in met(self._offer(rng, 0)))

    def cases(self) -> Iterator[Case]:
        rng = random.Random(f"{self.seed}-{self.kills}")
        expected = self.sample()
        counted: Counter[Pair] = Counter()
        number = 0
        while True:
            number += 1
            weights = {pair: (often * number / SAMPLE - counted[pair]) / often for pair, often in expected.items()}
            if number > FREELY:
                weights |= {pair: NEVER for pair in expected if not counted[pair]}
            chosen = self._best([self._offer(rng, number) for _ in range(OFFERS)], weights)
            counted.update(met(chosen))
            yield chosen

    @staticmethod
    def _best(offers: Sequence[Case], weights: Mapping[Pair, float]) -> Case:
        """A rare pair that lacks one counts as much as a frequent one that lacks many."""
        return max(offers, key=lambda case: sum(weights.get(pair, 0.0) for pair in set(met(case))))

    def _offer(self, rng: random.Random, number: int) -> Case:
        place = Place.S3 if rng.random() < ON_S3 else Place.FILE
        mode = rng.choice(list(Mode))
        conf = {name: rng.choice(values) for name, values in SETTINGS.items()}
        if mode is not Mode.EVERY_EPOCH:
            conf |= {name: rng.choice(values) for name, values in IN_THE_BACKGROUND.items()}
        return Case(
            number=number,
            seed=self.seed,
            place=place,
            mode=mode,
            fault=rng.choice(list(Fault)) if place is Place.S3 else Fault.NONE,
            load=Load.STARVED if rng.random() < STARVED else Load.FREE,
            spool=rng.choice(list(Spool)),
            streams=tuple(
                Stream(name, rng.choice(list(Sink)) if to_files else Sink.SKIPS)
                for name, to_files in rng.sample(self._operators, STREAMS)
            ),
            kills=tuple(self._kill(rng, victim, first=n == 0) for n, victim in enumerate(self._victims(rng))),
            conf=tuple(sorted(conf.items())),
        )

    def _victims(self, rng: random.Random) -> list[Victim]:
        """Each about as often as the others."""
        every = list(Victim)
        drawn = every * (self.kills // len(every)) + rng.sample(every, self.kills % len(every))
        rng.shuffle(drawn)
        return drawn

    @staticmethod
    def _kill(rng: random.Random, victim: Victim, first: bool) -> Kill:
        when = When.RUNNING if first else rng.choices(list(When), weights=(6, 2, 2))[0]
        return Kill(
            victim=victim,
            when=when,
            epochs=rng.randrange(1, MOST_EPOCHS + 1) if when is When.RUNNING else 0,
            seconds=round(rng.uniform(0, SOON_S if when is When.SOON else LONGEST_S), 3),
            alone=victim is Victim.DRIVER and rng.random() < ALONE,
            collect=rng.random() < COLLECTED,
        )


def met(case: Case) -> list[Pair]:
    return pairs(
        [*((kind, value.value) for kind, value in case.settings().items()), *(("killed", kill.victim.value) for kill in case.kills)],
        [(stream.operator, stream.sink.value) for stream in case.streams],
    )


def pairs(shared: Sequence[Value], streams: Sequence[tuple[str, str]]) -> list[Pair]:
    """What meets what: `shared` values each other and every stream; an operator its own sink only. Values of one dimension do not meet."""
    found = [_pair(a, b) for a, b in combinations(shared, 2) if a[0] != b[0]]
    for operator, sink in streams:
        own = [("operator", operator), ("sink", sink)]
        found += [_pair(a, b) for a in own for b in shared]
        found.append(_pair(*own))
    return found


def _pair(a: Value, b: Value) -> Pair:
    return (a, b) if a <= b else (b, a)
