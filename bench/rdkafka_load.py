"""Loads of librdkafka where Kafka's tools measure nothing of the kind: gaps between
acknowledgements, end-to-end latency at a steady rate, consuming assigned partitions."""

import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from statistics import quantiles
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.systems import BenchFailed, System, wait_for

_PROCESSES = multiprocessing.get_context("spawn")

REPORT_SECONDS = 0.05
GAP_LIMIT_SECONDS = 60.0
GAP_RATE = 1000  # records a second
SETTLE_SECONDS = 2.0
POLL_BATCH = 10_000
END_TO_END_WARM_UP_SECONDS = 2.0
END_TO_END_GRACE_SECONDS = 0.5
SUSTAINED_SHARE = 0.98


class SteadyProducer:
    """So many records a second with acks=all from a process of its own, as Python's lock would else
    be what is measured; each value begins with its time, which all processes share.

    `tick_seconds`: what is due is sent once in so long. With 0 each record is sent when it is due,
    and the load takes a processor for itself, as librdkafka waits for no less than a millisecond.
    """

    def __init__(
        self,
        system: System,
        topic: str,
        *,
        per_second: int,
        record_bytes: int,
        tick_seconds: float = 0.0,
    ) -> None:
        self.acknowledged_at: list[float] = []
        self.failed = 0
        here, there = _PROCESSES.Pipe(duplex=False)
        self._reports = here
        self._stop = _PROCESSES.Event()
        self._process = _PROCESSES.Process(
            target=_produce_steadily,
            args=(
                *(system.bootstrap, topic, per_second, record_bytes),
                *(tick_seconds, there, self._stop),
            ),
            daemon=True,
        )

    def __enter__(self) -> "SteadyProducer":
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._process.join(30)
        if self._process.exitcode is None:
            self._process.kill()

    def look(self) -> None:
        """Takes in what was acknowledged until now."""
        while self._reports.poll():
            times, failed = self._reports.recv()
            self.acknowledged_at += times
            self.failed += failed


def _produce_steadily(
    bootstrap: str,
    topic: str,
    per_second: int,
    record_bytes: int,
    tick_seconds: float,
    reports: Any,
    stop: Any,
) -> None:
    times: list[float] = []
    failed = 0

    def on_delivery(error: object, _: object) -> None:
        nonlocal failed
        if error is None:
            times.append(time.perf_counter())
        else:
            failed += 1

    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "acks": "all",
        "linger.ms": 0,
        "log_level": 0,
        "message.timeout.ms": 120_000,
    }
    producer = Producer(settings)
    padding = bytes(record_bytes - 8)
    pause = 1 / per_second
    due = report_due = time.perf_counter()
    while not stop.is_set():
        now = time.perf_counter()
        while due <= now:
            value = time.perf_counter_ns().to_bytes(8, "big") + padding
            try:
                producer.produce(topic, value, on_delivery=on_delivery)
            except BufferError:
                due = now  # what could not be sent is not sent later
            due += pause
            if not tick_seconds:
                break
        if now >= report_due:
            reports.send((times, failed))
            times, failed = [], 0
            report_due = now + REPORT_SECONDS
        if tick_seconds:
            time.sleep(tick_seconds)
            producer.poll(0)
        else:
            producer.poll(max(0.0, due - time.perf_counter()))
    producer.flush(20)


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
            load.look()
            times = [at for at in load.acknowledged_at if at >= begun - 0.1]
            gap = max((b - a for a, b in pairwise(times)), default=0.0)
            now = time.perf_counter()
            is_flowing = bool(times) and now - times[-1] < 0.25
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
        load.look()


@dataclass(frozen=True, slots=True)
class EndToEnd:
    """Of the records that were due in the measured seconds."""

    p50_ms: float
    p99_ms: float
    came: float  # share of them that the consumer had half a second after the last was due

    @property
    def is_sustained(self) -> bool:
        return self.came >= SUSTAINED_SHARE


def end_to_end(
    system: System, topic: str, *, partitions: int, per_second: int, seconds: float
) -> EndToEnd:
    """From before the produce call until the consumer has the record, at a steady rate.

    What did not come in time counts as missing, not as slow: latencies of a system that falls
    behind grow with the length of the run and say nothing about it."""
    consumer = _assigned(system, topic, partitions, from_end=True)
    latencies_ms: list[float] = []
    try:
        with SteadyProducer(system, topic, per_second=per_second, record_bytes=1024) as load:
            wait_for("a first acknowledgement", lambda: _is_flowing(load), seconds=30)
            counted_from = time.perf_counter() + END_TO_END_WARM_UP_SECONDS
            ends_at = counted_from + seconds
            while time.perf_counter() < ends_at + END_TO_END_GRACE_SECONDS:
                load.look()  # nobody else empties the pipe, and a full one stops the producer
                message = consumer.poll(0.05)
                if message is None or message.error() is not None:
                    continue
                sent = int.from_bytes(message.value()[:8], "big") / 1e9
                if counted_from <= sent < ends_at:
                    latencies_ms.append((time.perf_counter() - sent) * 1000)
    finally:
        consumer.close()
    if len(latencies_ms) < 2:
        return EndToEnd(0.0, 0.0, 0.0)
    cuts = quantiles(latencies_ms, n=100)
    return EndToEnd(cuts[49], cuts[98], len(latencies_ms) / (per_second * seconds))


def _is_flowing(load: SteadyProducer) -> bool:
    load.look()
    return bool(load.acknowledged_at)


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
