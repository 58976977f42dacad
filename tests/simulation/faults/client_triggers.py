"""Ambushes of what clients are told: producers that come, ask for an id and go, around controllers
that part or die; words of a former epoch that come late; and fault profiles made of them.

For mutants and hunting, as those of `triggered_faults.py`.
"""

import asyncio
from random import Random
from typing import Any

from tidemark_operator.api.broker import (
    BLOCK_SIZE,
    BrokerRecord,
    broker_object_name,
    first_producer_id,
    read_broker,
)
from tidemark_operator.api.kinds import BROKER, LEASE
from tidemark_protocol.ids import BrokerId

from tests.simulation.clients.clients import PARTITIONS_AT_FIRST, ProducerPlan, Surroundings
from tests.simulation.clients.idempotent_client import PassingProducer
from tests.simulation.engine.network import SimulatedTransport
from tests.simulation.engine.simulated_cluster import Cluster
from tests.simulation.engine.store import StoreFaults
from tests.simulation.faults.fault_plan import Arguments
from tests.simulation.faults.faults import block_link, broker_of, fault, freeze, isolate
from tests.simulation.faults.triggered_faults import when

WAIT_US = 10_000_000
SLOW_US = 150_000  # the API server, while two controllers lead
APART_US = 2_500_000  # a holder that stood still for longer gives up by itself
TERM_US = 1_000_000  # until who was deposed knows it
BACK_US = 300_000


# ---- producer ids (S5)


@fault
def ask_for_ids(cluster: Cluster, batches: int) -> None:
    """Of every broker, by a new producer each; it writes so many batches and goes."""
    for number in range(len(cluster.brokers)):
        _ask(cluster, number, batches)


def _ask(cluster: Cluster, number: int, batches: int) -> None:
    if cluster.is_healed:
        return
    broker_id = broker_of(cluster, number).broker_id

    def make(around: Surroundings, chance: Random) -> PassingProducer:
        return PassingProducer(
            _plan(cluster, 3.0), around, chance, broker=broker_id, batches=batches
        )

    cluster.call_client(make)


def _plan(cluster: Cluster, give_up_seconds: float) -> ProducerPlan:
    number = len(cluster.processes)
    return ProducerPlan(
        name=f"passing-{number}",
        topic="orders",
        partition=number % PARTITIONS_AT_FIRST,
        acks=-1,
        pause_ms=50,
        timeout_ms=500,
        is_idempotent=True,
        give_up_seconds=give_up_seconds,
    )


@fault
def give_ids_apart(cluster: Cluster) -> None:
    """The Lease is deleted by hand while its holder stands still and the API server is slow. It
    wakes as another one leads, whom no broker reaches yet, and every broker asks it for ids; later,
    under the one that stays, every broker's next life does."""
    holder = cluster.leading_controller
    if holder is None or holder.process is None:
        return
    process = holder.process
    cluster.store.delete(LEASE, cluster.namespace, "tidemark-controller")
    cluster.store.faults = StoreFaults(most_delay_us=SLOW_US)
    cluster.timeline.after(2 * APART_US, setattr, cluster.store, "faults", StoreFaults())
    freeze(cluster, process, APART_US)
    others = [slot for slot in cluster.controllers if slot is not holder]
    for other in others:
        for slot in cluster.brokers.values():
            block_link(cluster, slot.machine.name, other.machine.name, APART_US + TERM_US)

    def give() -> None:
        cluster.coverage["ids asked for while two controllers lead"] += 1
        process.thaw()
        ask_for_ids(cluster, 0)
        cluster.timeline.after(APART_US + TERM_US, _ask_next_lives, cluster)

    when(cluster, lambda: any(slot.is_leading for slot in others), give, APART_US)


@fault
def give_ids_and_die(cluster: Cluster) -> None:
    """The leading controller gives ids and is killed; under the next one every broker's next life
    is asked for ids."""
    ask_for_ids(cluster, 0)
    leading = cluster.leading_controller
    if leading is None:
        return

    def kill() -> None:
        if leading.process is not None:
            leading.process.kill()
        when(cluster, has_another, lambda: _ask_next_lives(cluster), WAIT_US)

    def has_another() -> bool:
        return any(slot.is_leading for slot in cluster.controllers if slot is not leading)

    cluster.timeline.after(BACK_US, kill)


def _ask_next_lives(cluster: Cluster) -> None:
    cluster.coverage["ids asked for in a next life"] += 1
    for slot in cluster.brokers.values():
        if slot.process is not None and not cluster.is_healed:
            slot.process.kill()
    cluster.timeline.after(BACK_US, ask_for_ids, cluster, 0)


@fault
def lose_broker_object(cluster: Cluster, number: int) -> None:
    """A broker gives an id of a new block, whose producer writes; then its Broker object is deleted
    by hand, and no controller is left that knew it. Only its disk says what was given."""
    slot = broker_of(cluster, number)
    if slot.process is None:
        return
    slot.process.kill()
    _ask(cluster, number, 2)

    def is_on_disk() -> bool:
        record = _record(cluster, slot.broker_id)
        directory = None if slot.broker is None else slot.broker.directory
        if record is None or directory is None:
            return False
        first = first_producer_id(record.producer_id_round, slot.broker_id)
        is_this_epoch = directory.highest_broker_epoch == record.broker_epoch
        return is_this_epoch and first <= directory.highest_producer_id < first + BLOCK_SIZE

    def lose() -> None:
        record = _record(cluster, slot.broker_id)
        assert record is not None
        cluster.coverage["Broker objects deleted by hand"] += 1
        cluster.store.delete(BROKER, cluster.namespace, broker_object_name(record))
        for process in (*(each.process for each in cluster.controllers), slot.process):
            if process is not None:
                process.kill()
        _ask(cluster, number, 0)

    when(cluster, is_on_disk, lose, WAIT_US)


def _record(cluster: Cluster, broker_id: BrokerId) -> BrokerRecord | None:
    records = map(read_broker, cluster.store.objects(BROKER))
    return next((r for r in records if r is not None and r.broker_id == broker_id), None)


# ---- words that come late


@fault
def hold_up_producer(cluster: Cluster, for_us: int) -> None:
    """A new producer's first batch takes another way than all others, and it gives up waiting: its
    next epoch has written when the batch comes (B8)."""

    def hold_up(connections: list[asyncio.Transport]) -> None:
        for connection in connections:
            assert isinstance(connection, SimulatedTransport)
            cluster.network.hold_up(connection, for_us)
        cluster.coverage["producers held up"] += 1

    def make(around: Surroundings, chance: Random) -> PassingProducer:
        return PassingProducer(
            _plan(cluster, 0.5), around, chance, broker=None, batches=2, on_first_epoch=hold_up
        )

    cluster.call_client(make)


@fault
def leave_to_clients(cluster: Cluster, number: int, for_us: int) -> None:
    """A broker is cut off from all others, and clients reach it (B10)."""
    slot = broker_of(cluster, number)
    if slot.broker_id in cluster.cut_off_since_us:
        return
    isolate(cluster, slot.machine.name, "both", for_us)
    cluster.cut_off_since_us[slot.broker_id] = cluster.now_us
    cluster.timeline.after(for_us, cluster.cut_off_since_us.pop, slot.broker_id, None)


CLIENT_TRIGGERED_FAULTS: dict[str, Arguments] = {
    "ask_for_ids": lambda d: (d.chance.choice((0, 0, 0, 1)),),
    "give_ids_apart": lambda d: (),
    "give_ids_and_die": lambda d: (),
    "lose_broker_object": lambda d: (d.broker,),
    "hold_up_producer": lambda d: (d.us(1_500, 3_000),),
    "leave_to_clients": lambda d: (d.broker, d.us(2_000, 5_000)),
}

CLIENT_PROFILES: dict[str, dict[str, int]] = {
    "producers pass by": {"ask_for_ids": 3, "give_ids_and_die": 2},
    "controllers part and give ids": {"give_ids_apart": 2},
    "broker objects go": {"lose_broker_object": 2},
    "old batches come late": {"hold_up_producer": 6, "slow_followers": 2},
    "followers are cut off": {"leave_to_clients": 3},
}

# Of Shape, beside what the seed drew.
CLIENT_SHAPES: dict[str, dict[str, Any]] = {"followers are cut off": {"replica_lag_max_ms": 500}}
