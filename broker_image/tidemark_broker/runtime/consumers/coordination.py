"""Questions to the coordinator of one group, wherever it is at the moment.

It is looked for in this broker's metadata. NOT_COORDINATOR and its like only mean that somebody
asks too early or too late: the next question looks anew.
"""

from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.runtime.consumers.peers import PeerLink, Peers, PeerUnavailable
from tidemark_broker.runtime.group_coordinator import GroupCoordinators
from tidemark_broker.wire.tables import Api, Values


class GroupRefusal(Exception):
    """The coordinator said no."""

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(f"the group's coordinator answered {error.name}")
        self.error = error


class Coordination:
    def __init__(self, groups: GroupCoordinators, peers: Peers, group_id: str) -> None:
        self.group_id = group_id
        self._groups = groups
        self._peers = peers

    async def ask(self, api: Api, values: Values, timeout_ms: int) -> Values:
        """Raises PeerUnavailable; errors in the answer are the caller's."""
        link = await self._link()
        return await link.ask(api, {"group_id": self.group_id, **values}, timeout_ms)

    async def _link(self) -> PeerLink:
        await self._groups.ensure_topic()
        broker = self._groups.coordinator_of(self.group_id)
        if broker is None:
            raise PeerUnavailable(self._groups.absence(self.group_id))
        return await self._peers.at(broker.endpoints.host, broker.endpoints.kafka_port)
