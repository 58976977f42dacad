"""Keep a connection to each broker that leads what this broker follows.

A connection (leader_endpoint.py) that breaks or is refused makes its broker a suspect immediately:
that is how a killed leader is noticed within milliseconds. Brokers are reached at the addresses of
the metadata, never by name.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable, Sequence

from tidemark_protocol.controller_messages import Endpoints
from tidemark_protocol.ids import BrokerId

from tidemark_broker.replication.follower_session import Key
from tidemark_broker.replication.leader_endpoint import LeaderEndpoint
from tidemark_broker.replication.partition import Partition
from tidemark_broker.replication.partition_observer import PartitionObserver
from tidemark_broker.replication.replica_manager import ReplicaManager
from tidemark_broker.security.peer_addresses import PLAIN, PeerAddresses

CONNECT_TIMEOUT_SECONDS = 1.0
FIRST_RECONNECT_SECONDS = 0.02
MAX_RECONNECT_SECONDS = 1.0

_log = logging.getLogger(__name__)

Notify = Callable[[BrokerId], None]


class ReplicaFetcher:
    """A connection to one leader, kept while there is something to follow there."""

    def __init__(
        self,
        leader_id: BrokerId,
        partitions: ReplicaManager,
        *,
        suspect: Notify,
        responded: Notify,
        addresses: PeerAddresses = PLAIN,
    ) -> None:
        self.leader_id = leader_id
        self._partitions = partitions
        self._addresses = addresses
        self._suspect = suspect
        self._responded = responded
        self._followed: dict[Key, Partition] = {}
        self._connection: LeaderEndpoint | None = None
        self._endpoints: Endpoints | None = None
        self._changed = asyncio.Event()
        self._is_reconnecting = False  # of our own will
        self._tls_problem = ""

    @property
    def follows_anything(self) -> bool:
        return bool(self._followed)

    def follow(self, replicas: Sequence[Partition]) -> None:
        """Follow these replicas too, or update their roles or settings."""
        for replica in replicas:
            self._followed[replica.topic_id, replica.partition] = replica
        self.check_replicas(replicas)

    def leave(self, keys: Iterable[Key]) -> None:
        """Stop following these."""
        left = [self._followed.pop(key) for key in keys]
        self.check_replicas(left)

    def dial(self, endpoints: Endpoints | None) -> None:
        """Set the leader's address, which may have changed."""
        if endpoints != self._endpoints:
            self._endpoints = endpoints
            self._changed.set()
            if self._connection is not None:
                self._connection.close()

    def reconnect(self) -> None:
        """Connect again, with the certificate of now, and without suspecting the leader."""
        if self._connection is not None:
            self._is_reconnecting = True
            self._changed.set()
            self._connection.close()

    def check_replicas(self, replicas: Iterable[Partition]) -> None:
        if self._connection is not None:
            self._connection.check_replicas(replicas)

    def retire(self) -> None:
        """Follow nothing there any more: the end of the connection causes no suspicion."""
        self._followed = {}

    async def run(self) -> None:
        """Keep the connection until cancelled."""
        delay = FIRST_RECONNECT_SECONDS
        try:
            while True:
                self._changed.clear()
                if await self._connect_once():
                    delay = FIRST_RECONNECT_SECONDS
                try:
                    # Not wait_for: in Python 3.11 it swallows a cancellation that comes together
                    # with the event.
                    async with asyncio.timeout(delay):
                        await self._changed.wait()
                except TimeoutError:
                    delay = min(2 * delay, MAX_RECONNECT_SECONDS)
        finally:
            if self._connection is not None:
                self._connection.close()

    async def _connect_once(self) -> bool:
        """Connect and serve until the connection is lost; return whether there was one."""
        endpoints = self._endpoints
        if endpoints is None:
            return False
        loop = asyncio.get_running_loop()
        address = self._addresses.replication(self.leader_id, endpoints)
        self._is_reconnecting = False
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                _, connection = await loop.create_connection(
                    lambda: LeaderEndpoint(self.leader_id, self._partitions),
                    address.host,
                    address.port,
                    **address.connect_options(),
                )
        except TimeoutError:
            return False
        except OSError as error:
            self._log_rejected_certificate(error)
            self._report(endpoints)
            return False
        self._connection = connection
        connection.responded.add_done_callback(lambda _: self._responded(self.leader_id))
        connection.follow(list(self._followed.values()))
        try:
            await connection.lost
        finally:
            self._connection = None
            connection.close()
        self._report(endpoints)
        return True

    def _log_rejected_certificate(self, error: OSError) -> None:
        """Log that TLS failed, once for each reason; the connection is tried again and again."""
        if isinstance(error, ssl.SSLError) and str(error) != self._tls_problem:
            self._tls_problem = str(error)
            _log.error(
                "connection to leader rejected",
                extra={"leader": self.leader_id, "reason": self._tls_problem},
            )

    def _report(self, endpoints: Endpoints) -> None:
        """Suspect the leader, unless we left it or it is known to be elsewhere by now."""
        if self._followed and endpoints == self._endpoints and not self._is_reconnecting:
            self._suspect(self.leader_id)


class ReplicaFetcherManager(PartitionObserver):
    """The leaders that are followed, by the roles of the metadata."""

    def __init__(
        self,
        partitions: ReplicaManager,
        *,
        suspect: Notify,
        responded: Notify,
        tasks: asyncio.TaskGroup,
        addresses: PeerAddresses = PLAIN,
    ) -> None:
        self._partitions = partitions
        self._addresses = addresses
        self._suspect = suspect
        self._responded = responded
        self._tasks = tasks
        self._fetchers: dict[BrokerId, tuple[ReplicaFetcher, asyncio.Task[None]]] = {}
        self._leaders: dict[Key, BrokerId] = {}  # of all that is followed

    def on_roles_applied(self) -> None:
        """Update what is followed where, after roles, leaders or addresses changed."""
        followed, left = self._changes()
        for leader_id, keys in left.items():
            self._fetchers[leader_id][0].leave(keys)
        for leader_id, replicas in followed.items():
            self._fetcher(leader_id).follow(replicas)
        for leader_id, (fetcher, task) in tuple(self._fetchers.items()):
            if not fetcher.follows_anything:
                del self._fetchers[leader_id]
                fetcher.retire()
                task.cancel()
                continue
            broker = self._partitions.metadata.brokers.get(leader_id)
            fetcher.dial(None if broker is None else broker.endpoints)

    def _changes(self) -> tuple[dict[BrokerId, list[Partition]], dict[BrokerId, list[Key]]]:
        """Return, by leader, what is now followed there and what no longer is."""
        followed: dict[BrokerId, list[Partition]] = {}
        left: dict[BrokerId, list[Key]] = {}
        for key in self._partitions.roles.pop_touched():
            replica = self._partitions.hosted(*key)
            previous = self._leaders.pop(key, None)
            leader = None
            if replica is not None and replica.follower is not None:
                leader = self._leaders[key] = replica.follower.leader
                followed.setdefault(leader, []).append(replica)
            if previous is not None and previous != leader:
                left.setdefault(previous, []).append(key)
        return followed, left

    def _fetcher(self, leader_id: BrokerId) -> ReplicaFetcher:
        if leader_id not in self._fetchers:
            fetcher = ReplicaFetcher(
                leader_id,
                self._partitions,
                suspect=self._suspect,
                responded=self._responded,
                addresses=self._addresses,
            )
            task = self._tasks.create_task(fetcher.run(), name=f"follow-{leader_id}")
            self._fetchers[leader_id] = (fetcher, task)
        return self._fetchers[leader_id][0]

    def on_log_start(self, replica: Partition) -> None:
        self.kick(replica)

    def kick(self, replica: Partition) -> None:
        """Fetch now: the follower was held back (flush: Always), or deleted records."""
        if replica.follower is not None and replica.follower.leader in self._fetchers:
            self._fetchers[replica.follower.leader][0].check_replicas((replica,))

    def reconnect(self) -> None:
        """Connect to all leaders again, with the certificate of now."""
        for fetcher, _ in self._fetchers.values():
            fetcher.reconnect()

    def stop(self) -> None:
        for fetcher, task in self._fetchers.values():
            fetcher.retire()
            task.cancel()
        self._fetchers.clear()
        self._leaders.clear()
