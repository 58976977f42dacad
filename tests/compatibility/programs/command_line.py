"""What every client program is asked, and what it answers: one JSON object a line.

The words are those of Kafka's own VerifiableProducer and VerifiableConsumer, so that those two need
no translation: producer_send_success, producer_send_error, record_data, partitions_assigned,
partitions_revoked, offsets_committed. The programs of `tests/compatibility/go` know the same words.

`admin` makes a topic of two partitions that keeps records for an hour, says what it sees
(partition_count, retention_ms), makes that four partitions and two hours, says what it sees, and
deletes it. Another broker than the one that made a change hears of it a moment later, with Kafka
as here: what a client sees is asked for again until it is what it should be, for half a minute.

`access` reads a JSON list of cells from standard input, connects for each by TLS (--ca) with the
credentials of the cell, and tries one verb. Cells of one identity are tried one after another. Each
is answered by an event `access` with identity, verb and error: "" where it was allowed, else the
name of Kafka's error code; NOT_LISTED where a list lacks the topic, NO_ANSWER where the client got
no error of a broker.
"""

import argparse
import contextlib
import json
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

from tests.support.access_programs import Cell

HOUR_MS = 3_600_000
RETENTION = "retention.ms"
LOOKS, LOOK_SECONDS = 150, 0.2
AT_A_TIME = 4  # identities whose accesses are tried

Work = Callable[[argparse.Namespace], None]


class AccessRefused(Exception):
    """A broker's error, by the name of its code; or NOT_LISTED, NO_ANSWER."""

    def __init__(self, error: str, message: str = "") -> None:
        super().__init__(error, message)
        self.error, self.message = error, message


def run(works: Mapping[str, Work]) -> None:
    """Parse one of these works with its options and do it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("work", choices=sorted(works))
    parser.add_argument("--bootstrap", required=True, help="host:port,host:port")
    parser.add_argument("--topic", default="", help="required but for access")
    parser.add_argument("--prefix", type=int, default=0, help="values are PREFIX.NUMBER")
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--rate", type=int, default=0, help="records a second, 0: no pause")
    parser.add_argument("--codec", default="none")
    parser.add_argument("--idempotent", action="store_true")
    parser.add_argument("--timestamp", type=int, default=0, help="ms")
    parser.add_argument("--group", default="")
    parser.add_argument("--ca", default="", help="file of authorities")
    requested = parser.parse_args()
    works[requested.work](requested)


_output = threading.Lock()


def emit(name: str, **fields: Any) -> None:
    with _output:
        sys.stdout.write(json.dumps({"name": name, **fields}) + "\n")
        sys.stdout.flush()


def try_accesses(attempt: Callable[[Cell], None]) -> None:
    """Try the cells of standard input; `attempt` raises AccessRefused."""
    sequences: dict[str, list[Cell]] = defaultdict(list)
    for fields in json.load(sys.stdin):
        sequences[fields["identity"]].append(Cell(**fields))

    def try_each(cells: list[Cell]) -> None:
        for cell in cells:
            refused = AccessRefused("")
            try:
                attempt(cell)
            except AccessRefused as error:
                refused = error
            what = {"identity": cell.identity, "verb": cell.verb}
            emit("access", **what, error=refused.error, message=refused.message)

    with ThreadPoolExecutor(AT_A_TIME) as workers:
        for _ in workers.map(try_each, sequences.values()):
            pass


def values(requested: argparse.Namespace) -> Iterator[str]:
    """PREFIX.0, PREFIX.1, ..., each at its time."""
    began = time.monotonic()
    for number in range(requested.count):
        if requested.rate:
            time.sleep(max(0.0, began + number / requested.rate - time.monotonic()))
        yield f"{requested.prefix}.{number}"


def places(topic: str, partitions: Mapping[int, int] | list[int]) -> list[dict[str, Any]]:
    """Partitions, with offsets where they are given, as VerifiableConsumer writes them."""
    if isinstance(partitions, list):
        return [{"topic": topic, "partition": partition} for partition in partitions]
    return [
        {"topic": topic, "partition": partition, "offset": offset}
        for partition, offset in partitions.items()
    ]


def seen(look: Callable[[], int], wanted: int) -> int:
    """What `look` finds at last; a topic that a broker has not heard of is an error of clients."""
    found = -1
    for _ in range(LOOKS):
        with contextlib.suppress(Exception):
            found = look()
        if found == wanted:
            break
        time.sleep(LOOK_SECONDS)
    return found


def reported_to_end() -> threading.Event:
    """Is set by SIGTERM."""
    reported = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        reported.set()

    signal.signal(signal.SIGTERM, on_signal)
    return reported
