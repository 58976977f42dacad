"""`make bench-scale`: many partitions, connections and groups on three Tidemark brokers of this
machine: how long it takes to start, what it weighs, what idling costs and how long a kill is felt.

3,000 partitions of replication 3 in 30 topics, 1,000 connections that each produced once and stay
open, 200 consumers in 20 groups (with kafka-python's protocol they would cost more than the
brokers: librdkafka, all in one process). Writes build/bench-scale.json.
"""

import argparse
import contextlib
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import msgspec
from confluent_kafka import Consumer, Producer

from bench import rdkafka_load
from bench.systems import (
    BenchFailed,
    TidemarkSystem,
    compile_as_in_images,
    cpu_seconds,
    leader_of,
    resident_mb,
    running,
    wait_for,
)

ROOT = Path(__file__).parent.parent
TOPICS = 30
SETTLE_SECONDS = 3.0  # what a change of the load has set off is over
IDLE_SECONDS = 20.0
IN_SYNC_LIMIT_SECONDS = 300.0
GROUPS_LIMIT_SECONDS = 180.0
API_VERSIONS_REQUEST = bytes.fromhex("0000000a00120000000000010000")


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.scale", description=__doc__)
    parser.add_argument("--partitions", type=int, default=3000)
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--consumers", type=int, default=200)
    parser.add_argument("--groups", type=int, default=20)
    options = parser.parse_args()
    compile_as_in_images()
    system = TidemarkSystem(ROOT / "build" / "bench" / "scale")
    started = time.monotonic()
    found: dict[str, float] = {}

    def note(key: str, figure: float, unit: str) -> None:
        found[f"{key}_{unit}"] = round(figure, 3)
        print(f"{time.monotonic() - started:6.1f} s  {key}: {figure:,.2f} {unit}", flush=True)

    try:
        with running(system) as start_seconds:
            note("start, no topics", start_seconds, "s")
            _weigh(system, note, "no topics")
            _partitions(system, options.partitions, note)
            with _connections(system, options.connections, note):
                _weigh(system, note, f"{options.connections} connections more")
            with _groups(system, options.consumers, options.groups, note):
                _weigh(system, note, f"{options.consumers} consumers more")
            _failover(system, note)
    except BenchFailed as error:
        print(f"bench-scale: {error}", file=sys.stderr)
        return 1
    (ROOT / "build" / "bench-scale.json").write_bytes(
        msgspec.json.format(msgspec.json.encode(found), indent=1)
    )
    return 0


Note = Callable[[str, float, str], None]


def _partitions(system: TidemarkSystem, partitions: int, note: Note) -> None:
    each = partitions // TOPICS
    before = time.monotonic()
    system.create_topics({f"wide-{number}": each for number in range(TOPICS)} | {"gap": 1})
    note(f"{partitions} partitions created and in sync", time.monotonic() - before, "s")
    _weigh(system, note, f"{partitions} partitions")


def _weigh(system: TidemarkSystem, note: Note, with_what: str) -> None:
    """Memory, and the processor time of brokers that nobody asks anything."""
    time.sleep(SETTLE_SECONDS)
    brokers, everybody = system.broker_pids(), system.all_pids()
    note(f"memory of a broker, {with_what}", mean(resident_mb(pid) for pid in brokers), "MB")
    before = cpu_seconds(brokers), cpu_seconds(everybody)
    time.sleep(IDLE_SECONDS)
    spent = cpu_seconds(brokers) - before[0]
    note(f"idle broker, {with_what}", spent / IDLE_SECONDS / len(brokers) * 100, "% of a CPU")
    others = cpu_seconds(everybody) - before[1] - spent
    note(f"idle controller, {with_what}", others / IDLE_SECONDS * 100, "% of a CPU")


@contextlib.contextmanager
def _connections(system: TidemarkSystem, count: int, note: Note) -> Iterator[None]:
    """Open, each answered once, and silent from there on."""
    addresses = [
        (host, int(port))
        for host, port in (entry.split(":") for entry in system.bootstrap.split(","))
    ]
    before = time.monotonic()
    with contextlib.ExitStack() as open_ones:
        for number in range(count):
            address = addresses[number % len(addresses)]
            connection = open_ones.enter_context(socket.create_connection(address, timeout=30))
            connection.sendall(API_VERSIONS_REQUEST)
            if not connection.recv(4096):
                raise BenchFailed(f"connection {number} was closed")
        note(f"{count} connections made and answered", time.monotonic() - before, "s")
        yield


@contextlib.contextmanager
def _groups(system: TidemarkSystem, consumers: int, groups: int, note: Note) -> Iterator[None]:
    """Each group reads one topic of its own; all are polled from here."""
    before = time.monotonic()
    members: list[Any] = []
    for number in range(consumers):
        member = Consumer(
            {
                "bootstrap.servers": system.bootstrap,
                "group.id": f"group-{number % groups}",
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        member.subscribe([f"wide-{number % groups}"])
        members.append(member)

    def all_assigned() -> bool:
        for member in members:
            member.poll(0)
        return all(member.assignment() for member in members)

    try:
        wait_for(f"{consumers} consumers", all_assigned, seconds=GROUPS_LIMIT_SECONDS)
        note(f"{consumers} consumers in {groups} groups assigned", time.monotonic() - before, "s")
        _read_one_each(system, members, groups)
        yield
    finally:
        for member in members:
            member.close()


def _read_one_each(system: TidemarkSystem, members: list[Any], groups: int) -> None:
    """A record into each group's topic reaches the group."""
    producer = Producer({"bootstrap.servers": system.bootstrap, "log_level": 0})
    for number in range(groups):
        producer.produce(f"wide-{number}", b"one")
    producer.flush(30)
    reached: set[int] = set()

    def all_reached() -> bool:
        for number, member in enumerate(members):
            message = member.poll(0)
            if message is not None and message.error() is None:
                reached.add(number % groups)
        return len(reached) == groups

    wait_for("a record in every group", all_reached, seconds=GROUPS_LIMIT_SECONDS)


def _failover(system: TidemarkSystem, note: Note) -> None:
    """A third of all leaders dies at once."""
    leader = leader_of(system, "gap")
    gap = rdkafka_load.write_gap(
        system, "gap", lambda: system.signal_broker(leader, signal.SIGKILL)
    )
    note("write gap, a broker killed", gap, "s")
    before = time.monotonic()
    for topic in [f"wide-{number}" for number in range(TOPICS)]:
        wait_for(
            f"{topic} in sync",
            partial(system.is_in_sync, topic),
            seconds=IN_SYNC_LIMIT_SECONDS,
        )
    note("then all in sync again", time.monotonic() - before, "s")


if __name__ == "__main__":
    sys.exit(main())
