"""`python -m benchmarks.realtime.feeder SERVERS TOPIC RATE SECONDS`: records at an even pace; each holds when it was sent, in microseconds.

A process of its own, so that it is not held up by who waits for it. Says at its end how many records it has sent, and how late the last
of them was: a feeder that cannot keep its pace measures itself.
"""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka.cimpl import Producer

KEYS = 10_000
TICK_S = 0.005
SETTINGS = {"linger.ms": 0, "queue.buffering.max.messages": 1_000_000, "acks": "1"}


def feed(servers: str, topic: str, rate: float, seconds: float) -> dict[str, float]:
    producer = Producer({"bootstrap.servers": servers, **SETTINGS})
    began = time.monotonic()
    sent, late = 0, 0.0
    while (passed := time.monotonic() - began) < seconds:
        due = int(passed * rate)
        while sent < due:
            producer.produce(topic, str(time.time_ns() // 1000), key=str(sent * 7919 % KEYS))
            sent += 1
        late = max(late, time.monotonic() - began - passed)
        producer.poll(0)
        time.sleep(max(0.0, TICK_S - (time.monotonic() - began - passed)))
    producer.flush(30)
    return {"sent": sent, "late_s": round(late, 3)}


if __name__ == "__main__":
    print(json.dumps(feed(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4]))))
