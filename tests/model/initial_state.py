"""How a small world begins."""

from dataclasses import dataclass

from tidemark_protocol.ids import (
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
)
from tidemark_protocol.partition_state import Member, PartitionState, TopicState
from tidemark_protocol.topic_configs import UNCLEAN_LEADER_ELECTION

from tests.model.small_broker import TOPIC_ID


@dataclass(frozen=True, slots=True)
class Setting:
    """How a world begins: all live in broker epoch id + 1 and have heard who leads."""

    replicas: tuple[int, ...] = (0, 1, 2)
    in_sync: tuple[int, ...] = (0, 1, 2)
    leader: int = 0
    min_insync: int = 2
    commit_rule: str = "MinInsync"
    flush: str = "Os"
    leader_epoch: int = 0
    unclean: bool = False  # unclean.leader.election.enable


def first_partition(setting: Setting) -> PartitionState:
    leader = setting.leader
    return PartitionState(
        partition=0,
        replicas=tuple(BrokerId(i) for i in setting.replicas),
        leader=BrokerId(leader) if leader >= 0 else NO_BROKER,
        leader_broker_epoch=BrokerEpoch(leader + 1 if leader >= 0 else -1),
        leader_epoch=LeaderEpoch(setting.leader_epoch),
        in_sync_replicas=tuple(Member(BrokerId(i), BrokerEpoch(i + 1)) for i in setting.in_sync),
        eligible_leaders=(),
        partition_epoch=PartitionEpoch(0),
        min_insync_replicas=setting.min_insync,
    )


def the_topic(setting: Setting) -> TopicState:
    return TopicState(
        "orders",
        TOPIC_ID,
        1,
        len(setting.replicas),
        commit_rule=setting.commit_rule,
        flush=setting.flush,
        config={UNCLEAN_LEADER_ELECTION.name: "true"} if setting.unclean else {},
    )
