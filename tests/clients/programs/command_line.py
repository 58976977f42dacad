"""What every client program is asked, and what it answers: one JSON object a line.

The words are those of Kafka's own VerifiableProducer and VerifiableConsumer, so that those two need
no translation: producer_send_success, producer_send_error, record_data, partitions_assigned,
partitions_revoked, offsets_committed. The programs of `tests/clients/go` know the same words.
"""

import argparse
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

Work = Callable[[argparse.Namespace], None]


def run(works: Mapping[str, Work]) -> None:
    """Parses `produce`, `consume`, `seek`, `group` or `admin` with their options and does it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("work", choices=sorted(works))
    parser.add_argument("--bootstrap", required=True, help="host:port,host:port")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--prefix", type=int, default=0, help="values are PREFIX.NUMBER")
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--rate", type=int, default=0, help="records a second, 0: no pause")
    parser.add_argument("--codec", default="none")
    parser.add_argument("--idempotent", action="store_true")
    parser.add_argument("--timestamp", type=int, default=0, help="ms")
    parser.add_argument("--group", default="")
    asked = parser.parse_args()
    works[asked.work](asked)


def emit(name: str, **fields: Any) -> None:
    sys.stdout.write(json.dumps({"name": name, **fields}) + "\n")
    sys.stdout.flush()


def values(asked: argparse.Namespace) -> Iterator[str]:
    """PREFIX.0, PREFIX.1, ..., each at its time."""
    began = time.monotonic()
    for number in range(asked.count):
        if asked.rate:
            time.sleep(max(0.0, began + number / asked.rate - time.monotonic()))
        yield f"{asked.prefix}.{number}"


def places(topic: str, partitions: Mapping[int, int] | list[int]) -> list[dict[str, Any]]:
    """Partitions, with offsets where they are given, as VerifiableConsumer writes them."""
    if isinstance(partitions, list):
        return [{"topic": topic, "partition": partition} for partition in partitions]
    return [
        {"topic": topic, "partition": partition, "offset": offset}
        for partition, offset in partitions.items()
    ]


def told_to_end() -> threading.Event:
    """Is set by SIGTERM."""
    told = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        told.set()

    signal.signal(signal.SIGTERM, on_signal)
    return told
