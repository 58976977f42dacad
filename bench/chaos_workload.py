"""`python -m bench.chaos_workload`: the chaos workload by librdkafka, for what speaks Kafka.

One producer with acks=all sends to every partition in turn, consumers read along; each outcome is a
line of the same log that `tidemark load` writes, so the same checks judge it. The settings are
librdkafka's defaults but acks, idempotence, no linger, and 60 s until a record is given up.
Ends in order at SIGTERM.
"""

import argparse
import secrets
import signal
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from tidemark_chaos.workload import STALL_SECONDS, SteadyClock
from tidemark_chaos.workload_log import (
    ACKNOWLEDGED,
    UNKNOWN,
    Event,
    Finished,
    Produced,
    Read,
    Stalled,
    Started,
    Violation,
    encode_event,
    record_value,
    sequence_of,
)

GIVEN_UP_MS = 60_000
LAST_READ_SECONDS = 5.0
POLL_SECONDS = 0.1
BATCH = 1000


class Log:
    """The file of events; threads share it."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._lock = threading.Lock()

    def write(self, event: Event) -> None:
        with self._lock:
            self._file.write(encode_event(event))
            self._file.flush()


class Workload:
    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._log = Log(options.out)
        self._clock = SteadyClock()
        self._run_id = f"rd{secrets.token_hex(4)}"
        self._is_ending = threading.Event()
        self._ends: dict[int, int] = {}  # by partition: after the last acknowledged record
        self._counts = dict.fromkeys((ACKNOWLEDGED, UNKNOWN, "read", "complaints"), 0)
        self._producer = Producer(
            {
                "bootstrap.servers": options.bootstrap,
                "acks": options.acks,
                "enable.idempotence": options.idempotent,
                "linger.ms": 0,
                "message.timeout.ms": GIVEN_UP_MS,
                "queue.buffering.max.messages": 1_000_000,
                "log_level": 4,
                **dict(each.split("=", 1) for each in options.librdkafka),
            }
        )

    def end(self) -> None:
        self._is_ending.set()

    def run(self) -> None:
        options = self._options
        acks = "all" if options.acks == "all" else options.acks
        self._log.write(
            Started(
                *(self._clock.now_ms(), self._run_id, options.topic, options.partitions),
                *(options.interval_ms, acks),
            )
        )
        readers = [
            threading.Thread(target=self._read_along, args=(number,), daemon=True)
            for number in range(options.consumers)
        ]
        for reader in readers:
            reader.start()
        self._produce()
        self._producer.flush(GIVEN_UP_MS / 1000)
        self._is_ending.set()
        for reader in readers:
            reader.join(LAST_READ_SECONDS + 10 * POLL_SECONDS)
        counts = self._counts
        self._log.write(
            Finished(
                self._clock.now_ms(),
                acknowledged=counts[ACKNOWLEDGED],
                refused=0,
                unknown=counts[UNKNOWN],
                read=counts["read"],
                complaints=counts["complaints"],
            )
        )

    def _produce(self) -> None:
        """Each record at its due time; when late, the next one at once, but without a burst."""
        options = self._options
        pause = options.interval_ms / 1000 / options.partitions
        due = time.monotonic()
        number = 0
        while not self._is_ending.is_set():
            if (early := due - time.monotonic()) > 0:
                self._producer.poll(early)
                if (late := time.monotonic() - due) > STALL_SECONDS:
                    self._log.write(Stalled(self._clock.now_ms(), round(late * 1000, 1)))
                if late < 0:
                    continue  # an outcome came first
            else:
                self._producer.poll(0)
            sequence, partition = divmod(number, options.partitions)
            self._producer.produce(
                options.topic,
                record_value(self._run_id, partition, sequence),
                partition=partition,
                on_delivery=partial(self._on_outcome, sequence, partition, self._clock.now_ms()),
            )
            number += 1
            due = max(due + pause, time.monotonic())

    def _on_outcome(
        self, sequence: int, partition: int, sent_ms: float, error: Any, message: Any
    ) -> None:
        """An error leaves open whether the record was written."""
        now_ms = self._clock.now_ms()
        outcome = ACKNOWLEDGED if error is None else UNKNOWN
        offset = message.offset() if error is None else -1
        self._counts[outcome] += 1
        self._ends[partition] = max(self._ends.get(partition, 0), offset + 1)
        self._log.write(
            Produced(
                *(now_ms, partition, sequence, outcome, round(now_ms - sent_ms, 3), offset),
                error="" if error is None else str(error.name()),
                producer=0 if self._options.idempotent else -1,
            )
        )

    def _read_along(self, number: int) -> None:
        options = self._options
        consumer = Consumer(
            {
                "bootstrap.servers": options.bootstrap,
                "group.id": f"{self._run_id}-{number}",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "log_level": 4,
            }
        )
        places = [TopicPartition(options.topic, each) for each in range(options.partitions)]
        for place in places:
            place.offset = consumer.get_watermark_offsets(place, timeout=30)[1]
        expected = {place.partition: place.offset for place in places}
        consumer.assign(places)
        ends_at: float | None = None
        while ends_at is None or time.monotonic() < ends_at:
            asked_ms = self._clock.now_ms()
            found = consumer.consume(BATCH, timeout=POLL_SECONDS)
            self._on_page(number, expected, asked_ms, found)
            if self._is_ending.is_set():
                if all(expected[each] >= end for each, end in self._ends.items()):
                    break
                ends_at = ends_at or time.monotonic() + LAST_READ_SECONDS
        consumer.close()

    def _on_page(
        self, number: int, expected: dict[int, int], asked_ms: float, found: Sequence[Any]
    ) -> None:
        now_ms = self._clock.now_ms()
        for message in found:
            if message.error() is not None and message.error().code() in (
                KafkaError._AUTO_OFFSET_RESET,
                KafkaError.OFFSET_OUT_OF_RANGE,
            ):
                self._complain(message.partition(), f"an offset is gone: {message.error()}")
        records = sorted(
            (each for each in found if each.error() is None),
            key=lambda each: (each.partition(), each.offset()),
        )
        for partition, group in groupby(records, key=lambda each: int(each.partition())):
            page = list(group)
            offsets = [message.offset() for message in page]
            first = expected[partition]
            if offsets != list(range(first, first + len(offsets))):
                self._complain(partition, f"expected offsets from {first} on, found {offsets[:20]}")
            expected[partition] = offsets[-1] + 1
            values = [sequence_of(self._run_id, partition, message.value()) for message in page]
            self._counts["read"] += len(values)
            self._log.write(
                Read(
                    *(now_ms, partition, offsets[0], values, round(now_ms - asked_ms, 3)),
                    rack=f"consumer-{number}" if number else "",
                )
            )

    def _complain(self, partition: int, text: str) -> None:
        self._counts["complaints"] += 1
        self._log.write(Violation(self._clock.now_ms(), partition, text))


def read_all(bootstrap: str, topic: str, partition: int, seconds: float) -> dict[int, bytes]:
    """Offset to value, of all that is committed. Raises TimeoutError."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "chaos-read-back",
            "enable.auto.commit": False,
            "log_level": 4,
        }
    )
    found: dict[int, bytes] = {}
    ends_at = time.monotonic() + seconds
    try:
        place = TopicPartition(topic, partition)
        first, end = consumer.get_watermark_offsets(place, timeout=seconds)
        place.offset = first
        consumer.assign([place])
        read_to = first
        while read_to < end:
            if time.monotonic() > ends_at:
                raise TimeoutError(f"{topic}-{partition}: read to {read_to} of {end}")
            for message in consumer.consume(10_000, timeout=POLL_SECONDS):
                offset, value = message.offset(), message.value()
                if message.error() is None and offset is not None and value is not None:
                    found[offset] = value
                    read_to = offset + 1
    finally:
        consumer.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.chaos_workload", description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--interval-ms", type=float, default=10.0, help="of a partition's records")
    parser.add_argument("--acks", default="all")
    parser.add_argument("--idempotent", action="store_true")
    parser.add_argument("--consumers", type=int, default=0, help="each reads all partitions")
    parser.add_argument(
        *("-X", "--librdkafka"),
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the producer",
    )
    parser.add_argument("--out", type=Path, required=True)
    workload = Workload(parser.parse_args())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: workload.end())
    workload.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
