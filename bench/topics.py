"""`make bench-topics`: what many topics and large topics cost, and what they do to others.

Each part starts a cluster of its own, the systems one after the other. Topics have three replicas;
"in sync" is what clients read in Metadata, topic by topic: each is read until it is, and then no
more. The load writes what is due each 5 ms, so that it leaves the processors to what is measured.
Kafka has no figure where it has nothing of the kind.
Writes build/bench-topics.json.

    requests  100 topics in one request, on an empty pool and beside 5,000 partitions
    wide      one topic of 2,000 partitions under a load with acks=all to another one
    kill      10,000 partitions: memory, idling, the kill of a broker that leads a third of them
    growth    time and memory at 1,000 to 30,000 partitions
    cycle     topics created and deleted for 15 minutes
"""

import argparse
import math
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from statistics import linear_regression, mean
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
    BROKERS,
    REPLICAS,
    BenchFailed,
    KafkaSystem,
    System,
    TidemarkSystem,
    compile_as_in_images,
    cpu_seconds,
    leader_of,
    resident_mb,
    running,
    wait_for,
)

ROOT = Path(__file__).parent.parent
REQUEST_LIMIT_SECONDS = 300.0
REQUEST_GRACE_SECONDS = 5.0  # for librdkafka to say itself that the time is over
SYNC_LIMIT_SECONDS = 900.0
LOOK_SECONDS = 0.1
SETTLE_SECONDS = 5.0
IDLE_SECONDS = 20.0
LOAD_RATE = 1000  # records a second
LOAD_TICK_SECONDS = 0.005
TURNS_LOOK_SECONDS = 20.0  # the gauges are of the last minute at least
LEAST_FILL_SECONDS = 120.0
FILL_SECONDS_EACH = 0.06  # a partition of three replicas, on a slow disk
TOPICS_OF_A_REQUEST = 100
TOPICS_OF_A_CYCLE = 50
PARTITIONS_OF_A_TOPIC = 1000
TOPICS_PER_LINE = 5
OTHER_OPEN_FILES = 1000  # of a broker: connections, checkpoints, libraries
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
            except (BenchFailed, KafkaException, OSError) as error:
                print(f"bench-topics: {part} {name}: {error}", file=sys.stderr, flush=True)
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
    parser.add_argument("--brokers", type=int, default=BROKERS, help="of the part `growth`")
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
        try:
            yield system
        finally:  # also of a part that failed
            if isinstance(system, TidemarkSystem):
                _record_log(system, note)


def _record_log(system: TidemarkSystem, note: Note) -> None:
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
        there = {f"there-{number}": 100 for number in range(50)}
        create(system, there)
        wait_in_sync(system, there)
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
                wait_in_sync(system, {"w": 2000, "gap": 6})
                note(f"then in sync, {brokers} brokers", time.monotonic() - before, "s")
            note(f"write gap, {brokers} brokers", longest_gap(load) * 1000, "ms")


def _kill(name: str, options: argparse.Namespace, note: Note) -> None:
    with _cluster(name, note) as system:
        create(system, {"gap": 1})
        there, _ = fill(system, options.partitions, note)
        _weigh(system, note, f"{options.partitions} partitions")
        victim = leader_of(system, "gap")
        with _load(system) as load, _longest_turns(system) as turns:
            before = time.monotonic()
            system.signal_broker(victim, signal.SIGKILL)
            _wait_led_without(system, {**there, "gap": 1}, victim)
            note("broker killed: last partition led", time.monotonic() - before, "s")
            system.bring_back(victim)
            wait_in_sync(system, {**there, "gap": 1})
            note("then all in sync again", time.monotonic() - before, "s")
        note("broker killed: write gap", longest_gap(load) * 1000, "ms")
        for whose, seconds in turns.items():
            note(f"longest turn of the loop, {whose}", seconds * 1000, "ms")


def _growth(name: str, options: argparse.Namespace, note: Note) -> None:
    sizes = [int(size) for size in options.growth.split(",")]
    check_open_files(max(sizes), options.brokers, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    with _cluster(name, note, brokers=options.brokers) as system:
        there, spent = 0, 0.0
        seconds: dict[int, float] = {}
        for size in sizes:
            with _longest_turns(system) as turns:
                _, more = fill(system, size, note, there=there)
            _record_turns(turns, note, f", growing to {size}")
            there, spent = size, spent + more
            seconds[size] = spent
            if len(seconds) > 1:
                previous = list(seconds)[-2]
                step = {each: seconds[each] for each in (previous, size)}
                note(f"exponent of the time, {previous} to {size}", exponent(step), "")
            _weigh(system, note, f"{size} partitions")
        if len(seconds) > 2:
            note("exponent of the time, all sizes", exponent(seconds), "")


def check_open_files(partitions: int, brokers: int, allowed: int) -> None:
    """Each log has a file open. Raise BenchFailed rather than wait for logs that cannot be made."""
    needed = -(-partitions * REPLICAS // brokers) + OTHER_OPEN_FILES
    if needed > allowed:
        enough = -(-partitions * REPLICAS // max(1, allowed - OTHER_OPEN_FILES))
        raise BenchFailed(
            f"{partitions} partitions on {brokers} brokers need {needed} open files in each, this"
            f" machine allows {allowed} (ulimit -Hn): raise that, or give --brokers {enough}"
        )


def exponent(figures: dict[int, float]) -> float:
    """e of the curve that fits best: a figure grows as its size to the power of e."""
    return linear_regression(
        [math.log(size) for size in figures], [math.log(figure) for figure in figures.values()]
    ).slope


def _cycle(name: str, options: argparse.Namespace, note: Note) -> None:
    with _cluster(name, note) as system:
        create(system, {"gap": 1})
        time.sleep(SETTLE_SECONDS)
        _record_memory(system, note, "at the beginning")
        deadline = time.monotonic() + options.minutes * 60
        rounds = 0
        with _load(system) as load, _longest_turns(system) as turns:
            while time.monotonic() < deadline:
                names = [f"cycle-{rounds}-{number}" for number in range(TOPICS_OF_A_CYCLE)]
                create(system, dict.fromkeys(names, 1))
                delete(system, names)
                rounds += 1
                if rounds % 20 == 1:
                    _record_memory(system, note, f"after {rounds * TOPICS_OF_A_CYCLE} topics")
        note("topics created and deleted", rounds * TOPICS_OF_A_CYCLE, "")
        note("write gap", longest_gap(load) * 1000, "ms")
        _record_turns(turns, note)
        time.sleep(SETTLE_SECONDS)
        _record_memory(system, note, "at the end")


def _record_turns(turns: dict[str, float], note: Note, when: str = "") -> None:
    for whose, seconds in turns.items():
        note(f"longest turn of the loop, {whose}{when}", seconds * 1000, "ms")


@contextmanager
def _longest_turns(system: System) -> Iterator[dict[str, float]]:
    """Seconds, of operator and brokers; complete when it ends, empty where loops have no gauge."""
    longest: dict[str, float] = {}
    if not isinstance(system, TidemarkSystem):
        yield longest
        return
    # The gauge still shows a turn of the start: values count once they differ from these.
    unchanged = system.longest_turns()
    ended = threading.Event()

    def look() -> None:
        for whose, seconds in system.longest_turns().items():
            if unchanged.get(whose) != seconds:
                unchanged.pop(whose, None)
                longest[whose] = max(seconds, longest.get(whose, 0.0))

    def look_again_and_again() -> None:
        while not ended.wait(TURNS_LOOK_SECONDS):
            with suppress(OSError):  # a broker that is busy: the next look will do
                look()

    thread = threading.Thread(target=look_again_and_again, name="longest turns")
    thread.start()
    try:
        yield longest
    finally:
        ended.set()
        thread.join()
    look()


_PARTS: dict[str, Callable[[str, argparse.Namespace, Note], None]] = {
    "requests": _requests,
    "wide": _wide,
    "kill": _kill,
    "growth": _growth,
    "cycle": _cycle,
}


# ---- what is done


def create(
    system: System, topics: dict[str, int], *, limit: float = REQUEST_LIMIT_SECONDS
) -> float:
    """Seconds until one request for all of them was answered."""
    admin = _admin(system)
    before = time.monotonic()
    requested = admin.create_topics(
        [NewTopic(name, partitions, REPLICAS) for name, partitions in topics.items()],
        request_timeout=limit,
        operation_timeout=limit,
    )
    for future in requested.values():
        future.result(limit + REQUEST_GRACE_SECONDS)
    return time.monotonic() - before


def delete(system: System, topics: list[str]) -> float:
    admin = _admin(system)
    before = time.monotonic()
    requested = admin.delete_topics(
        topics, request_timeout=REQUEST_LIMIT_SECONDS, operation_timeout=REQUEST_LIMIT_SECONDS
    )
    for future in requested.values():
        future.result(REQUEST_LIMIT_SECONDS)
    return time.monotonic() - before


def fill(
    system: System, partitions: int, note: Note, *, there: int = 0
) -> tuple[dict[str, int], float]:
    """Topics of at most 1,000 partitions, one request each, up to so many partitions; these topics,
    and the seconds until all are in sync. Raises BenchFailed with how far it came."""
    made: dict[str, int] = {}
    limit = max(LEAST_FILL_SECONDS, (partitions - there) * FILL_SECONDS_EACH)
    before = time.monotonic()

    def left() -> float:
        return before + limit - time.monotonic()

    for first in range(there, partitions, PARTITIONS_OF_A_TOPIC):
        topic = {f"fill-{first}": min(PARTITIONS_OF_A_TOPIC, partitions - first)}
        try:
            create(system, topic, limit=max(1.0, left()))
        except KafkaException as error:
            raise BenchFailed(
                f"growing to {partitions} partitions, {limit:.0f} s allowed: {first} are made after"
                f" {time.monotonic() - before:.0f} s, the next topic failed: {error}"
            ) from error
        made |= topic
        if len(made) % TOPICS_PER_LINE == 0:
            now = first + PARTITIONS_OF_A_TOPIC
            print(f"  {now:,} partitions after {time.monotonic() - before:.1f} s", flush=True)
    note(f"created up to {partitions} partitions", time.monotonic() - before, "s")
    wait_in_sync(system, made, limit=max(1.0, left()))
    seconds = time.monotonic() - before
    note(f"in sync up to {partitions} partitions", seconds, "s")
    return made, seconds


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
    steady = SteadyProducer(
        system, "gap", per_second=LOAD_RATE, record_bytes=100, tick_seconds=LOAD_TICK_SECONDS
    )
    with steady as load:
        wait_for("a first acknowledgement", lambda: _has_flowed(load), seconds=30)
        ended = threading.Event()

        def swap_in() -> None:
            while not ended.wait(LOOK_SECONDS):
                load.look()

        thread = threading.Thread(target=swap_in, name="reports of the load")
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


def wait_in_sync(
    system: System, topics: dict[str, int], *, limit: float = SYNC_LIMIT_SECONDS
) -> None:
    """`topics`: how many partitions each has."""

    def is_in_sync(partition: Any) -> bool:
        return partition.leader >= 0 and len(partition.isrs) == len(partition.replicas)

    _wait_each(system.bootstrap, topics, "in sync", is_in_sync, limit)


def _wait_led_without(system: System, topics: dict[str, int], victim: int) -> None:
    """By the metadata of the brokers that live on."""
    others = [each for each in range(system.brokers) if each != victim]
    bootstrap = ",".join(system.bootstrap.split(",")[each] for each in others)
    _wait_each(bootstrap, topics, "led", lambda partition: partition.leader not in (-1, victim))


def _wait_each(
    bootstrap: str,
    topics: dict[str, int],
    what: str,
    is_so: Callable[[Any], bool],
    limit: float = SYNC_LIMIT_SECONDS,
) -> None:
    """A topic that is so is looked at no more: an answer about all of thousands of partitions takes
    a broker longer than what is measured."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    left = deque(topics)
    so_far = 0  # of the first that is left

    def are_all() -> bool:
        nonlocal so_far
        while left:
            found = admin.list_topics(left[0], timeout=30).topics[left[0]].partitions.values()
            so_far = sum(map(is_so, found))
            if so_far != topics[left[0]]:
                return False
            left.popleft()
        return True

    partitions = sum(topics.values())
    try:
        wait_for(f"{partitions} partitions {what}", are_all, seconds=limit)
    except BenchFailed as error:
        if not left:
            raise
        raise BenchFailed(
            f"{error}: {len(left)} of {len(topics)} topics are left, {so_far} of"
            f" {topics[left[0]]} partitions of {left[0]} are {what}"
        ) from error


def _weigh(system: System, note: Note, with_what: str) -> None:
    time.sleep(SETTLE_SECONDS)
    _record_memory(system, note, with_what)
    brokers = system.broker_pids()
    before = cpu_seconds(brokers)
    time.sleep(IDLE_SECONDS)
    spent = (cpu_seconds(brokers) - before) / IDLE_SECONDS / len(brokers)
    note(f"idle broker, {with_what}", spent * 100, "% of a CPU")


def _record_memory(system: System, note: Note, when: str) -> None:
    brokers = mean(resident_mb(pid) for pid in system.broker_pids())
    note(f"memory of a broker, {when}", brokers, "MB")
    if system.name == TIDEMARK:
        note(f"memory of the operator, {when}", resident_mb(system.controller_pid()), "MB")


if __name__ == "__main__":
    sys.exit(main())
