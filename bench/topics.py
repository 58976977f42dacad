"""`make bench-topics`: what many topics and large topics cost, and what they do to others.

Each part starts a cluster of its own, the systems one after the other. Topics have three replicas;
"in sync" is what clients read in Metadata. Kafka has no figure where it has nothing of the kind.
Writes build/bench-topics.json.

    requests  100 topics in one request, on an empty pool and beside 5,000 partitions
    wide      one topic of 2,000 partitions under a load with acks=all to another one
    kill      10,000 partitions: memory, idling, the kill of a broker that leads a third of them
    growth    time and memory at 1,000 to 30,000 partitions
    cycle     topics created and deleted for 15 minutes
"""

import argparse
import math
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import msgspec
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)
from confluent_kafka.cimpl import NewTopic

from bench.rdkafka_load import SteadyProducer
from bench.rows import KAFKA, TIDEMARK
from bench.systems import (
    REPLICAS,
    BenchFailed,
    KafkaSystem,
    System,
    TidemarkSystem,
    compile_as_in_images,
    cpu_seconds,
    leader_of,
    metadata,
    resident_mb,
    running,
    wait_for,
)

ROOT = Path(__file__).parent.parent
REQUEST_LIMIT_SECONDS = 300.0
SYNC_LIMIT_SECONDS = 900.0
LOOK_SECONDS = 0.1
SETTLE_SECONDS = 5.0
IDLE_SECONDS = 20.0
LOAD_RATE = 1000  # records a second
TOPICS_OF_A_REQUEST = 100
TOPICS_OF_A_CYCLE = 50
PARTS = ("requests", "wide", "kill", "growth", "cycle")

Note = Callable[[str, float, str], None]


def main() -> int:
    options = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started ends with it
    compile_as_in_images()
    found: dict[str, dict[str, float]] = {}
    for name in options.systems.split(","):
        for part in options.parts.split(","):
            figures = found.setdefault(f"{part}, {name}", {})
            try:
                _PARTS[part](name, options, _noting(f"{part} {name}", figures))
            except (BenchFailed, KafkaException) as error:
                print(f"bench-topics: {part} {name}: {error}", file=sys.stderr)
                figures["failed"] = 1.0
            written = msgspec.json.format(msgspec.json.encode(found), indent=1)
            (ROOT / "build" / "bench-topics.json").write_bytes(written)
    return 1 if any("failed" in figures for figures in found.values()) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.topics",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--systems", default=f"{TIDEMARK},{KAFKA}")
    parser.add_argument("--parts", default="requests,wide,kill,growth")
    parser.add_argument("--partitions", type=int, default=10_000, help="of the part `kill`")
    parser.add_argument("--growth", default="1000,3000,10000,30000")
    parser.add_argument("--minutes", type=float, default=15, help="of the part `cycle`")
    options = parser.parse_args()
    unknown = set(options.parts.split(",")) - set(PARTS)
    if unknown:
        parser.error(f"--parts: expected some of {', '.join(PARTS)}, found {', '.join(unknown)}")
    return options


def _noting(place: str, figures: dict[str, float]) -> Note:
    def note(key: str, figure: float, unit: str) -> None:
        figures[f"{key} ({unit})"] = round(figure, 3)
        print(f"{place}: {key}: {figure:,.2f} {unit}", flush=True)

    return note


@contextmanager
def _cluster(name: str, note: Note, *, brokers: int = 3) -> Iterator[System]:
    data = ROOT / "build" / "bench" / f"topics-{name}"
    system: System
    if name == TIDEMARK:
        system = TidemarkSystem(data, brokers=brokers)
    else:
        jars = subprocess.run(
            [str(ROOT / "hack/kafka/jars")], check=True, stdout=subprocess.PIPE, text=True
        ).stdout.strip()
        system = KafkaSystem(data, Path(jars), brokers=brokers)
    with running(system):
        yield system
        if isinstance(system, TidemarkSystem):
            _note_log(system, note)


def _note_log(system: TidemarkSystem, note: Note) -> None:
    messages = [line.get("message", "") for line in system.operator_log()]
    note("Lease lost", messages.count("leadership lost"), "times")
    note("brokers fenced, faults of the bench included", messages.count("broker fenced"), "times")


def _requests(name: str, _: argparse.Namespace, note: Note) -> None:
    with _cluster(name, note) as system:
        create(system, {"other": 1})
        time.sleep(SETTLE_SECONDS)  # what the start has left to do is not what is measured
        with _other_client(system) as waits:
            _create_and_delete(system, "empty pool", note)
        note("other client's longest admin request, empty pool", max(waits), "s")
        create(system, {f"there-{number}": 100 for number in range(50)})
        wait_in_sync(system, 50 * 100)
        with _other_client(system) as waits:
            _create_and_delete(system, "beside 5,000 partitions", note)
        note("other client's longest admin request, beside 5,000", max(waits), "s")


def _create_and_delete(system: System, where: str, note: Note) -> None:
    names = [f"asked-{where[:5].strip()}-{number}" for number in range(TOPICS_OF_A_REQUEST)]
    note(f"100 topics created, {where}", create(system, dict.fromkeys(names, 1)), "s")
    time.sleep(SETTLE_SECONDS)
    note(f"100 topics deleted, {where}", delete(system, names), "s")


def _wide(name: str, _: argparse.Namespace, note: Note) -> None:
    for brokers in (3, 5):
        with _cluster(name, note, brokers=brokers) as system:
            create(system, {"gap": 6})
            with _load(system) as load:
                note(
                    f"2,000 partitions created, {brokers} brokers", create(system, {"w": 2000}), "s"
                )
                before = time.monotonic()
                wait_in_sync(system, 2000 + 6)
                note(f"then in sync, {brokers} brokers", time.monotonic() - before, "s")
            note(f"write gap, {brokers} brokers", longest_gap(load) * 1000, "ms")


def _kill(name: str, options: argparse.Namespace, note: Note) -> None:
    with _cluster(name, note) as system:
        create(system, {"gap": 1})
        _fill(system, options.partitions, note)
        _weigh(system, note, f"{options.partitions} partitions")
        victim = leader_of(system, "gap")
        with _load(system) as load:
            before = time.monotonic()
            system.signal_broker(victim, signal.SIGKILL)
            _wait_led_without(system, victim)
            note("broker killed: last partition led", time.monotonic() - before, "s")
            system.bring_back(victim)
            wait_in_sync(system, options.partitions + 1)
            note("then all in sync again", time.monotonic() - before, "s")
        note("broker killed: write gap", longest_gap(load) * 1000, "ms")


def _growth(name: str, options: argparse.Namespace, note: Note) -> None:
    """The exponent e of a step: the figure grows as partitions to the power of e."""
    with _cluster(name, note) as system:
        there, spent, former = 0, 0.0, (0, 0.0)
        for size in map(int, options.growth.split(",")):
            spent += _fill(system, size, note, there=there)
            if former[0]:
                exponent = math.log(spent / former[1]) / math.log(size / former[0])
                note(f"exponent of the time, {former[0]} to {size}", exponent, "")
            _weigh(system, note, f"{size} partitions")
            there, former = size, (size, spent)


def _cycle(name: str, options: argparse.Namespace, note: Note) -> None:
    with _cluster(name, note) as system:
        create(system, {"gap": 1})
        deadline = time.monotonic() + options.minutes * 60
        rounds = 0
        with _load(system) as load:
            while time.monotonic() < deadline:
                names = [f"cycle-{rounds}-{number}" for number in range(TOPICS_OF_A_CYCLE)]
                create(system, dict.fromkeys(names, 1))
                delete(system, names)
                rounds += 1
                if rounds % 20 == 1:
                    _note_memory(system, note, f"after {rounds * TOPICS_OF_A_CYCLE} topics")
        note("topics created and deleted", rounds * TOPICS_OF_A_CYCLE, "")
        note("write gap", longest_gap(load) * 1000, "ms")
        _note_memory(system, note, "at the end")


_PARTS: dict[str, Callable[[str, argparse.Namespace, Note], None]] = {
    "requests": _requests,
    "wide": _wide,
    "kill": _kill,
    "growth": _growth,
    "cycle": _cycle,
}


# ---- what is done


def create(system: System, topics: dict[str, int]) -> float:
    """Seconds until one request for all of them was answered."""
    admin = _admin(system)
    before = time.monotonic()
    asked = admin.create_topics(
        [NewTopic(name, partitions, REPLICAS) for name, partitions in topics.items()],
        request_timeout=REQUEST_LIMIT_SECONDS,
        operation_timeout=REQUEST_LIMIT_SECONDS,
    )
    for future in asked.values():
        future.result(REQUEST_LIMIT_SECONDS)
    return time.monotonic() - before


def delete(system: System, topics: list[str]) -> float:
    admin = _admin(system)
    before = time.monotonic()
    asked = admin.delete_topics(
        topics, request_timeout=REQUEST_LIMIT_SECONDS, operation_timeout=REQUEST_LIMIT_SECONDS
    )
    for future in asked.values():
        future.result(REQUEST_LIMIT_SECONDS)
    return time.monotonic() - before


def _fill(system: System, partitions: int, note: Note, *, there: int = 0) -> float:
    """Topics of at most 1,000 partitions, up to so many; seconds until all are in sync."""
    before = time.monotonic()
    while there < partitions:
        part = min(1000, partitions - there)
        create(system, {f"fill-{there}": part})
        there += part
    note(f"created up to {partitions} partitions", time.monotonic() - before, "s")
    wait_in_sync(system, partitions)
    seconds = time.monotonic() - before
    note(f"in sync up to {partitions} partitions", seconds, "s")
    return seconds


def _admin(system: System) -> Any:
    return AdminClient({"bootstrap.servers": system.bootstrap, "log_level": 0})


@contextmanager
def _other_client(system: System) -> Iterator[list[float]]:
    """Changes a config of its own topic again and again; gives the seconds of each request."""
    waits: list[float] = []
    failures: list[Exception] = []
    ended = threading.Event()

    def ask() -> None:
        admin = _admin(system)
        entry = ConfigEntry("retention.ms", "86400000", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource("TOPIC", "other", incremental_configs=[entry])
        while not ended.wait(LOOK_SECONDS):
            before = time.monotonic()
            try:
                for future in admin.incremental_alter_configs([resource]).values():
                    future.result(REQUEST_LIMIT_SECONDS)
            except KafkaException as error:
                failures.append(error)
            waits.append(time.monotonic() - before)

    thread = threading.Thread(target=ask, name="other client")
    thread.start()
    try:
        yield waits
    finally:
        ended.set()
        thread.join()
    if failures:
        raise BenchFailed(f"{len(failures)} requests of another client failed: {failures[0]}")


@contextmanager
def _load(system: System) -> Iterator[SteadyProducer]:
    """Its reports are taken in all the time: a full pipe would stop it."""
    with SteadyProducer(system, "gap", per_second=LOAD_RATE, record_bytes=100) as load:
        wait_for("a first acknowledgement", lambda: _has_flowed(load), seconds=30)
        ended = threading.Event()

        def take_in() -> None:
            while not ended.wait(LOOK_SECONDS):
                load.look()

        thread = threading.Thread(target=take_in, name="reports of the load")
        thread.start()
        try:
            time.sleep(2)
            yield load
            time.sleep(2)
        finally:
            ended.set()
            thread.join()
    if load.failed:
        raise BenchFailed(f"{load.failed} records of the load failed")


def _has_flowed(load: SteadyProducer) -> bool:
    load.look()
    return bool(load.acknowledged_at)


def longest_gap(load: SteadyProducer) -> float:
    """Seconds between two acknowledgements, the first two seconds of the load left out."""
    times = [at for at in load.acknowledged_at if at > load.acknowledged_at[0] + 2]
    return max((b - a for a, b in pairwise(times)), default=math.inf)


# ---- what is looked at


def wait_in_sync(system: System, partitions: int) -> None:
    def is_in_sync() -> bool:
        topics = metadata(system.bootstrap, timeout_seconds=30).topics.values()
        found = [each for topic in topics for each in topic.partitions.values()]
        return len(found) >= partitions and all(
            each.leader >= 0 and len(each.isrs) == len(each.replicas) for each in found
        )

    wait_for(f"{partitions} partitions in sync", is_in_sync, seconds=SYNC_LIMIT_SECONDS)


def _wait_led_without(system: System, victim: int) -> None:
    """By the metadata of the brokers that live on."""
    others = [each for each in range(system.brokers) if each != victim]
    bootstrap = ",".join(system.bootstrap.split(",")[each] for each in others)

    def is_led() -> bool:
        topics = metadata(bootstrap, timeout_seconds=30).topics.values()
        leaders = {each.leader for topic in topics for each in topic.partitions.values()}
        return -1 not in leaders and victim not in leaders

    wait_for("all partitions led", is_led, seconds=SYNC_LIMIT_SECONDS)


def _weigh(system: System, note: Note, with_what: str) -> None:
    time.sleep(SETTLE_SECONDS)
    _note_memory(system, note, with_what)
    brokers = system.broker_pids()
    before = cpu_seconds(brokers)
    time.sleep(IDLE_SECONDS)
    spent = (cpu_seconds(brokers) - before) / IDLE_SECONDS / len(brokers)
    note(f"idle broker, {with_what}", spent * 100, "% of a CPU")


def _note_memory(system: System, note: Note, when: str) -> None:
    brokers = mean(resident_mb(pid) for pid in system.broker_pids())
    note(f"memory of a broker, {when}", brokers, "MB")
    if system.name == TIDEMARK:
        note(f"memory of the operator, {when}", resident_mb(system.controller_pid()), "MB")


if __name__ == "__main__":
    sys.exit(main())
