"""Production brokers and controllers in virtual time: they serve, and every run is repeatable."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tidemark_broker.kafka_wire.records.record_batch import NewRecord, build_batch
from tidemark_broker.replication.replica_manager import ProduceResult
from tidemark_protocol.controller_messages import (
    REGISTER_PATH,
    Endpoints,
    RegisterRequest,
    StorageIdentity,
    encode,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerEpoch, ControllerEpoch

from tests.simulation.engine.broker_process import BrokerSlot
from tests.simulation.engine.controller_process import CONTROLLER_PORT
from tests.simulation.engine.messages import RequestFailed, request
from tests.simulation.engine.simulated_cluster import Cluster, ClusterOptions
from tests.simulation.engine.store import REQUESTS, RESPONSES

ROOT = Path(__file__).parents[2]


def leader_of(cluster: Cluster, partition: int = 0) -> BrokerSlot:
    for broker in cluster.brokers.values():
        for replica in broker.partitions.replicas if broker.partitions else ():
            if replica.partition == partition and replica.leader is not None:
                return broker
    raise AssertionError("nobody leads")


def produce(
    cluster: Cluster,
    *values: str,
    partition: int = 0,
    key: bytes | None = None,
    timestamp_ms: int = 1_700_000_000_000,
) -> list[ProduceResult]:
    """The list gets its one result when there is one."""
    broker = leader_of(cluster, partition)
    partitions, process = broker.partitions, broker.process
    assert partitions is not None and process is not None
    records = [NewRecord(key, value.encode(), ()) for value in values]
    batch = build_batch(records, timestamp_ms=timestamp_ms)
    results: list[ProduceResult] = []

    def call() -> None:
        partitions.produce(
            "orders", partition, memoryview(batch), acks=-1, timeout_ms=5000, done=results.append
        )

    process.loop.call_soon(call)
    return results


def started(cluster: Cluster) -> None:
    cluster.start()
    cluster.create_topic(
        "orders", partitions=2, replication_factor=3, config={"min.insync.replicas": "2"}
    )
    cluster.run_for(2_000)


def ends(cluster: Cluster, partition: int = 0) -> dict[int, tuple[int, int]]:
    """(high watermark, log end) by broker."""
    return {
        int(broker.broker_id): (int(replica.high_watermark), int(replica.log.log_end_offset))
        for broker in cluster.brokers.values()
        if broker.partitions is not None
        for replica in broker.partitions.replicas
        if replica.partition == partition
    }


def test_records_replicate_in_virtual_time() -> None:
    with Cluster(1) as cluster:
        started(cluster)
        results = produce(cluster, "a", "b", "c")
        cluster.run_for(100)
        assert [result.error for result in results] == [ErrorCode.NONE]
        assert ends(cluster) == {0: (3, 3), 1: (3, 3), 2: (3, 3)}
        assert cluster.crashes == []


@pytest.mark.parametrize("seed", range(5))
def test_a_killed_leader_is_followed_by_another_and_comes_back(seed: int) -> None:
    with Cluster(seed) as cluster:
        started(cluster)
        assert not produce(cluster, "a")
        cluster.run_for(100)
        leader = leader_of(cluster)
        assert leader.process is not None
        leader.process.kill()
        cluster.run_for(500)
        assert leader_of(cluster) is not leader
        results = produce(cluster, "b")
        cluster.run_for(8_000)
        assert [result.error for result in results] == [ErrorCode.NONE]
        assert ends(cluster) == {0: (2, 2), 1: (2, 2), 2: (2, 2)}
        assert cluster.crashes == []


def test_an_orderly_stop_leaves_a_proof_and_the_restart_is_clean() -> None:
    with Cluster(3) as cluster:
        started(cluster)
        produce(cluster, "a")
        cluster.run_for(100)
        leader = leader_of(cluster)
        process = leader.process
        assert process is not None
        process.terminate()
        cluster.run_for(8_000)
        assert process.exit_code == 0
        assert ends(cluster) == {0: (1, 1), 1: (1, 1), 2: (1, 1)}


def test_a_standby_takes_over_from_a_killed_controller() -> None:
    with Cluster(4) as cluster:
        started(cluster)
        previous = cluster.leading_controller
        assert previous is not None and previous.process is not None
        previous.is_held_down = True
        previous.process.kill()
        cluster.run_for(6_000)
        assert cluster.leading_controller not in (None, previous)


@pytest.mark.parametrize("loses", [REQUESTS, RESPONSES])
def test_an_operator_that_alone_cannot_reach_the_api_server_gives_way(loses: str) -> None:
    with Cluster(4) as cluster:
        started(cluster)
        previous = cluster.leading_controller
        assert previous is not None
        cluster.store.out_of_reach[previous.name] = loses
        cluster.run_for(9_000)
        leading = [slot for slot in cluster.controllers if slot.is_leading]
        assert leading and previous not in leading
        leader = leader_of(cluster)
        assert leader.process is not None
        leader.process.kill()
        cluster.run_for(2_500)
        assert leader_of(cluster) is not leader
        assert cluster.crashes == []


@pytest.mark.parametrize("seed", range(3))
def test_a_node_that_falls_silent_with_a_leader_and_the_controller_is_done_without(
    seed: int,
) -> None:
    with Cluster(seed) as cluster:
        started(cluster)
        previous, leader = cluster.leading_controller, leader_of(cluster)
        assert previous is not None
        leader.machine.lose_power()
        previous.machine.lose_power()
        cluster.run_for(9_000)
        assert leader_of(cluster) is not leader
        results = produce(cluster, "a")
        cluster.run_for(500)
        assert [result.error for result in results] == [ErrorCode.NONE]
        assert cluster.crashes == []


SCRIPT = """
from tests.simulation.test_simulated_cluster import leader_of, produce, started
from tests.simulation.engine.simulated_cluster import Cluster, ClusterOptions
with Cluster(11, ClusterOptions(has_logs=True)) as world:
    started(world)
    produce(world, "a")
    world.run_for(100)
    leader_of(world).process.terminate()
    world.run_for(3_000)
    leader_of(world).process.kill()
    world.run_for(5_000)
    print(world.trace_digest())
"""


def test_one_seed_has_one_trace_whatever_the_hash_seed() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1", "4242")
    }
    assert len(digests) == 1


def test_different_seeds_have_different_traces() -> None:
    digests = set()
    for seed in range(3):
        with Cluster(seed, ClusterOptions(brokers=1)) as cluster:
            cluster.start()
            cluster.run_for(1_000)
            digests.add(cluster.trace_digest())
    assert len(digests) == 3


def test_a_message_as_another_broker_is_rejected_and_costs_that_broker_nothing() -> None:
    """The network says who sends, as the tokens of pods do."""
    with Cluster(7) as cluster:
        started(cluster)
        victim = leader_of(cluster)
        leading = cluster.leading_controller
        assert leading is not None and leading.service is not None
        before = leading.service.brokers(cluster.pool)
        forged = RegisterRequest(
            cluster.pool,
            victim.broker_id,
            "",
            "forged",
            Endpoints("10.0.9.9", 9092, 8080, ""),
            "",
            StorageIdentity("forged"),
            BrokerEpoch(-1),
            ControllerEpoch(-1),
            BrokerEpoch(-1),
            -1,
        )
        said: list[str] = []

        async def impersonate() -> None:
            with pytest.raises(RequestFailed) as caught:
                await request(leading.host, CONTROLLER_PORT, REGISTER_PATH, encode(forged))
            said.append(str(caught.value))
            await asyncio.Event().wait()

        another = (victim.broker_id + 1) % 3
        machine = cluster.new_machine("impostor")
        host = f"10.0.{another}.99"
        machine.add_host(host)
        cluster.spawn("impostor", machine, host).start(impersonate)
        cluster.run_for(1_000)
        (text,) = said
        assert "a broker speaks for itself only" in text
        assert leading.service.brokers(cluster.pool) == before
        assert leader_of(cluster) is victim
