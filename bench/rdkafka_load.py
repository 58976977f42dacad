"""Loads of librdkafka where Kafka's tools measure nothing of the kind: gaps between
acknowledgements, end-to-end latency at a steady rate, consuming assigned partitions."""

import threading
import time
from collections.abc import Callable
from itertools import pairwise
from statistics import quantiles
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.systems import BenchFailed, System

GAP_LIMIT_SECONDS = 60.0
GAP_RATE = 1000  # records a second
SETTLE_SECONDS = 2.0
POLL_BATCH = 10_000
END_TO_END_WARM_UP_SECONDS = 2.0


class SteadyProducer:
    """So many records a second with acks=all from a thread of its own; each value is its time."""

    def __init__(self, system: System, topic: str, *, per_second: int, record_bytes: int) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": system.bootstrap,
            "acks": "all",
            "linger.ms": 0,
            "log_level": 0,
            "message.timeout.ms": 120_000,
        }
        self._producer = Producer(settings)
        self._topic = topic
        self._pause = 1 / per_second
        self._padding = bytes(record_bytes - 8)
        self._is_over = False
        self.acknowledged_at: list[float] = []
        self.failed = 0
        self._thread = threading.Thread(target=self._run, name=f"produce-{topic}")

    def __enter__(self) -> "SteadyProducer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join()
        self._producer.flush(30)

    def _run(self) -> None:
        due = time.perf_counter()
        while not self._is_over:
            now = time.perf_counter()
            while due <= now:
                value = time.perf_counter_ns().to_bytes(8, "big") + self._padding
                try:
                    self._producer.produce(self._topic, value, on_delivery=self._on_delivery)
                except BufferError:
                    due = now + self._pause
                    break
                due += self._pause
            self._producer.poll(max(0.0, due - time.perf_counter()))

    def _on_delivery(self, error: object, _: object) -> None:
        if error is None:
            self.acknowledged_at.append(time.perf_counter())
        else:
            self.failed += 1


def write_gap(system: System, topic: str, fault: Callable[[], None]) -> float:
    """Seconds: the longest time without an acknowledgement around `fault`."""
    with SteadyProducer(system, topic, per_second=GAP_RATE, record_bytes=100) as load:
        _until_acknowledged(load, after=time.perf_counter() + SETTLE_SECONDS, system=system)
        begun = time.perf_counter()
        fault()
        # Acknowledgements may still be on their way, and writing go on for a while before the gap:
        # it is over when they came for as long as it lasted, at least two seconds.
        while True:
            time.sleep(0.1)
            times = [at for at in load.acknowledged_at if at >= begun - 0.1]
            gap = max((b - a for a, b in pairwise(times)), default=0.0)
            now = time.perf_counter()
            is_flowing = bool(times) and now - times[-1] < 0.05
            if is_flowing and now - begun > 2 * gap + 2:
                break
            if now - begun > GAP_LIMIT_SECONDS:
                raise BenchFailed(f"{system.name}: no steady writes within {GAP_LIMIT_SECONDS} s")
    if load.failed:
        raise BenchFailed(f"{system.name}: {load.failed} records failed")
    return gap


def _until_acknowledged(load: SteadyProducer, *, after: float, system: System) -> None:
    deadline = time.perf_counter() + 30
    while not load.acknowledged_at or load.acknowledged_at[-1] < after:
        if time.perf_counter() > deadline:
            raise BenchFailed(f"{system.name}: nothing is acknowledged")
        time.sleep(0.05)


def end_to_end(
    system: System, topic: str, *, partitions: int, per_second: int, seconds: float
) -> tuple[float, float]:
    """(p50, p99) in ms from before the produce call until the consumer has the record."""
    consumer = _assigned(system, topic, partitions, from_end=True)
    latencies_ms: list[float] = []
    try:
        with SteadyProducer(system, topic, per_second=per_second, record_bytes=1024):
            counting_from = until = 0.0
            given_up_at = time.perf_counter() + GAP_LIMIT_SECONDS
            while time.perf_counter() < (until or given_up_at):
                message = consumer.poll(0.05)
                if message is None or message.error() is not None:
                    continue
                if not until:
                    counting_from = time.perf_counter() + END_TO_END_WARM_UP_SECONDS
                    until = counting_from + seconds
                sent = int.from_bytes(message.value()[:8], "big") / 1e9
                if sent >= counting_from:
                    latencies_ms.append((time.perf_counter() - sent) * 1000)
    finally:
        consumer.close()
    if len(latencies_ms) < per_second * seconds / 2:
        raise BenchFailed(f"{system.name}: only {len(latencies_ms)} records came to the consumer")
    cuts = quantiles(latencies_ms, n=100)
    return cuts[49], cuts[98]


def consume(system: System, topic: str, *, partitions: int, records: int) -> float:
    """Records a second from the first one on."""
    consumer = _assigned(system, topic, partitions, from_end=False)
    try:
        count, first_at, deadline = 0, 0.0, time.perf_counter() + 120
        while count < records:
            found = consumer.consume(POLL_BATCH, timeout=0.1)
            if found and not first_at:
                first_at = time.perf_counter()
            count += sum(1 for message in found if message.error() is None)
            if time.perf_counter() > deadline:
                raise BenchFailed(f"{system.name}: {count} of {records} records consumed")
        return count / (time.perf_counter() - first_at)
    finally:
        consumer.close()


def _assigned(system: System, topic: str, partitions: int, *, from_end: bool) -> Any:
    consumer = Consumer(
        {
            "bootstrap.servers": system.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    places = [TopicPartition(topic, number, 0) for number in range(partitions)]
    for place in places:
        if from_end:
            place.offset = consumer.get_watermark_offsets(place, timeout=10)[1]
    consumer.assign(places)
    return consumer
