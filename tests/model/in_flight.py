"""Messages that stay on their way in a small world."""

from dataclasses import dataclass

from tidemark_broker.replication.core.effects import LeaderResponse
from tidemark_broker.replication.core.follower import FollowerFetch
from tidemark_protocol.controller_messages import IsrProposal
from tidemark_protocol.ids import BrokerEpoch, BrokerId

from tests.model.small_log import Record


@dataclass(frozen=True, slots=True)
class FetchInFlight:
    follower: BrokerId
    broker_epoch: BrokerEpoch
    leader: BrokerId
    fetch: FollowerFetch


@dataclass(frozen=True, slots=True)
class ResponseInFlight:
    follower: BrokerId
    broker_epoch: BrokerEpoch
    leader: BrokerId
    fetch: FollowerFetch
    answer: LeaderResponse
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class ProposalInFlight:
    sender: BrokerId
    broker_epoch: BrokerEpoch
    proposal: IsrProposal


InFlight = FetchInFlight | ResponseInFlight | ProposalInFlight


def address(message: InFlight) -> tuple[str, int, int]:
    if isinstance(message, ProposalInFlight):
        return ("ProposalInFlight", message.sender, message.sender)
    return (type(message).__name__, message.follower, message.leader)
