"""Name the current leader in answers of a broker that is not, or no longer, the leader (KIP-951).

A hint saves the client a metadata request and the backoff before it. A broker that the client
cannot reach by its listener is not named, nor is this broker itself, which has just rejected.
"""

from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.kafka.apis.advertised_listeners import client_address
from tidemark_broker.kafka_wire.messages.current_leaders import CurrentLeader, NodeEndpoint
from tidemark_broker.replication.replica_manager import ReplicaManager

_HINTED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class CurrentLeaders:
    """The hints of one answer; `nodes` has each named leader once."""

    __slots__ = ("_listener", "_partitions", "nodes")

    def __init__(self, partitions: ReplicaManager, listener: str) -> None:
        self._partitions = partitions
        self._listener = listener
        self.nodes: dict[int, NodeEndpoint] = {}

    def leader(self, error: ErrorCode, topic: str, partition: int) -> CurrentLeader | None:
        """Return the leader to try for this error, or None if no hint would help."""
        if error not in _HINTED:
            return None
        metadata = self._partitions.metadata
        leader = metadata.leader_of(topic, partition)
        if leader is None or leader.broker_id == self._partitions.broker_id:
            return None
        broker = metadata.brokers[leader.broker_id]
        address = client_address(metadata, broker, self._listener)
        if address is None:
            return None
        self.nodes[leader.broker_id] = NodeEndpoint(
            leader.broker_id, address["host"], address["port"], broker.rack or None
        )
        return CurrentLeader(leader.broker_id, leader.leader_epoch)
