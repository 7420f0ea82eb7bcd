"""`python -m benchmarks.realtime.feeder SERVERS TOPIC RATE SECONDS`: records at an even pace; each holds when it was due, in microseconds.

When it was due, and not when it was sent: who holds up the feeder does not shorten what is measured. A process of its own, so that it is
not held up by who waits for it.
"""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka.cimpl import Producer

KEYS = 10_000
TICK_S = 0.001
SETTINGS = {"linger.ms": 0, "queue.buffering.max.messages": 1_000_000, "acks": "1"}


def feed(servers: str, topic: str, rate: float, seconds: float) -> dict[str, float]:
    """How many were sent, when the last one was due in milliseconds since 1970, and how late the latest of all was sent."""
    producer = Producer({"bootstrap.servers": servers, **SETTINGS})
    wall, began = time.time(), time.monotonic()
    count, sent, late = int(seconds * rate), 0, 0.0
    while sent < count:
        passed = time.monotonic() - began
        while sent < count and sent / rate <= passed:
            late = max(late, time.monotonic() - began - sent / rate)
            producer.produce(topic, str(int((wall + sent / rate) * 1e6)), key=str(sent * 7919 % KEYS))
            sent += 1
        producer.poll(0)
        time.sleep(TICK_S)
    producer.flush(30)
    return {"sent": sent, "ended_ms": (wall + (sent - 1) / rate) * 1000, "late_ms": late * 1000}


if __name__ == "__main__":
    print(json.dumps(feed(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4]))))
