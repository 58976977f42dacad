"""Leaders, fetches and states for tests. Broker b lives in broker epoch b + 10 unless said."""

from collections.abc import Iterable

from tidemark_broker.replication.core.effects import (
    HighWatermarkAdvanced,
    LeaderAssignment,
    LeaderEffect,
    LeaderSettings,
    ProposeIsr,
    ReplicaFetch,
)
from tidemark_broker.replication.core.leader import PartitionLeader
from tidemark_protocol.controller_messages import BrokerState, Endpoints, IsrProposal
from tidemark_protocol.ids import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    TopicId,
)
from tidemark_protocol.partition_state import Member, PartitionState

TOPIC_ID = TopicId("00000000-0000-0000-0000-000000000001")
LEADER = BrokerId(1)
LAG_MS = 10_000
START_MS = 1_000_000

Life = int | tuple[int, int]  # a broker id, or (broker id, broker epoch)


def member(life: Life) -> Member:
    broker_id, broker_epoch = life if isinstance(life, tuple) else (life, life + 10)
    return Member(BrokerId(broker_id), BrokerEpoch(broker_epoch))


def members(*lives: Life) -> tuple[Member, ...]:
    return tuple(member(life) for life in lives)


def a_state(
    in_sync: Iterable[Life] = (1, 2, 3),
    *,
    leader_epoch: int = 5,
    partition_epoch: int = 20,
    min_insync: int = 2,
    replicas: tuple[int, ...] = (1, 2, 3),
) -> PartitionState:
    return PartitionState(
        partition=0,
        replicas=tuple(BrokerId(number) for number in replicas),
        leader=LEADER,
        leader_broker_epoch=BrokerEpoch(11),
        leader_epoch=LeaderEpoch(leader_epoch),
        in_sync_replicas=members(*in_sync),
        eligible_leaders=(),
        partition_epoch=PartitionEpoch(partition_epoch),
        min_insync_replicas=min_insync,
    )


def brokers(
    *,
    fenced: Iterable[int] = (),
    stopping: Iterable[int] = (),
    epochs: dict[int, int] | None = None,
) -> dict[BrokerId, BrokerState]:
    endpoints = Endpoints("127.0.0.1", 9092, 8080, "http://127.0.0.1:8080")
    return {
        BrokerId(number): BrokerState(
            BrokerId(number),
            BrokerEpoch((epochs or {}).get(number, number + 10)),
            is_fenced=number in fenced,
            is_stopping=number in stopping,
            endpoints=endpoints,
        )
        for number in (1, 2, 3, 4)
    }


def a_leader(
    in_sync: Iterable[Life] = (1, 2, 3),
    *,
    leader_epoch: int = 5,
    log_end: int = 100,
    high_watermark: int | None = None,
    min_insync: int = 2,
    known_brokers: dict[BrokerId, BrokerState] | None = None,
    settings: LeaderSettings | None = None,
    previous: PartitionLeader | None = None,
    now_ms: int = START_MS,
    replicas: tuple[int, ...] = (1, 2, 3),
) -> PartitionLeader:
    state = a_state(in_sync, leader_epoch=leader_epoch, min_insync=min_insync, replicas=replicas)
    return PartitionLeader(
        LeaderAssignment(
            TOPIC_ID,
            LEADER,
            BrokerEpoch(11),
            state,
            settings or LeaderSettings(replica_lag_max_ms=LAG_MS),
        ),
        brokers() if known_brokers is None else known_brokers,
        log_end_offset=Offset(log_end),
        high_watermark=Offset(log_end if high_watermark is None else high_watermark),
        now_ms=now_ms,
        previous=previous,
    )


def a_fetch(
    life: Life, offset: int, *, leader_epoch: int = 5, last_epoch: int = -1, log_start: int = 0
) -> ReplicaFetch:
    who = member(life)
    return ReplicaFetch(
        who.broker_id,
        who.broker_epoch,
        LeaderEpoch(leader_epoch),
        Offset(offset),
        LeaderEpoch(last_epoch),
        Offset(log_start),
    )


def fetches(
    leader: PartitionLeader, life: Life, offset: int, *, now_ms: int = START_MS, log_start: int = 0
) -> tuple[LeaderEffect, ...]:
    """An accepted fetch, at the leader's log end of the moment."""
    fetch = a_fetch(life, offset, log_start=log_start)
    return leader.on_fetch(fetch, leader_end=leader.log_end_offset, now_ms=now_ms)


def a_proposal(*lives: Life, partition_epoch: int = 20) -> IsrProposal:
    return IsrProposal(
        TOPIC_ID, 0, LeaderEpoch(5), PartitionEpoch(partition_epoch), members(*lives)
    )


def proposes(*lives: Life, partition_epoch: int = 20) -> ProposeIsr:
    return ProposeIsr(a_proposal(*lives, partition_epoch=partition_epoch))


def advanced(offset: int) -> HighWatermarkAdvanced:
    return HighWatermarkAdvanced(Offset(offset))
