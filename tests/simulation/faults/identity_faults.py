"""Faults of identity: processes that speak as a broker they are not, reviews without a response,
certificates that end; and the fault profile made of them.

They need a run whose senders have tokens (`identities.py`), which a share of the ordinary seeds is.
A message of an impersonator that is answered breaks S33.
"""

import asyncio
from random import Random

from tidemark_protocol.controller_messages import (
    ALLOCATE_PRODUCER_IDS_PATH,
    ALTER_PARTITION_PATH,
    HEARTBEAT_PATH,
    REGISTER_PATH,
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    Endpoints,
    HeartbeatRequest,
    IsrProposal,
    RegisterRequest,
    StorageIdentity,
    encode,
)
from tidemark_protocol.ids import NO_EPOCH, BrokerEpoch, ControllerEpoch
from tidemark_protocol.partition_state import Member

from tests.simulation.checks.violations import Violation
from tests.simulation.engine.broker_process import BrokerSlot
from tests.simulation.engine.clock import EPOCH_US
from tests.simulation.engine.controller_process import CONTROLLER_PORT, ControllerSlot
from tests.simulation.engine.identities import TOKEN_SECONDS, PodIdentities
from tests.simulation.engine.messages import RequestFailed, request
from tests.simulation.engine.simulated_cluster import Cluster
from tests.simulation.faults.fault_plan import Arguments
from tests.simulation.faults.faults import broker_of, fault
from tests.simulation.faults.triggered_faults import leading

IDENTITIES = "brokers are impersonated"
REJECTED = "impersonators rejected"
# `other`: the valid token of another broker's pod. `former`: a token of a pod of the victim that is
# gone. `stolen`: the victim's own token, once its time is over. `none`: no token, from another
# broker's machine. `address`: no token, from the victim's own address.
HOW = ("other", "former", "stolen", "none", "address")
RESPONSE_SECONDS = 0.5
PAUSE_SECONDS = 0.1
MARGIN_US = 50_000  # of a token's expiry


@fault
def impersonate_broker(cluster: Cluster, number: int, how: str, for_us: int) -> None:
    """A process knows all epochs of a broker and sends the controllers messages in its name."""
    identities = cluster.identities
    if identities is None:
        return
    victim, other = (broker_of(cluster, (number + more) % len(cluster.brokers)) for more in (0, 1))
    cluster.coverage[f"impersonated: {how}"] += 1
    slot = victim if how == "address" else other
    process = cluster.spawn(f"impersonator-{len(cluster.processes)}", slot.machine, slot.host)
    token = _token(identities, victim, other, how)
    impersonator = _Impersonator(cluster, victim, how, token, ends_us=cluster.now_us + for_us)
    process.start(impersonator.run)


def _token(identities: PodIdentities, victim: BrokerSlot, other: BrokerSlot, how: str) -> str:
    if how == "other":
        return identities.token_of(other.broker_id, other.pod_uid)
    if how == "former":
        ends_us = identities.now_us + int(TOKEN_SECONDS * 1e6)
        return identities.issued(victim.broker_id, f"{victim.name}-pod-0", expires_us=ends_us)
    return identities.token_of(victim.broker_id, victim.pod_uid) if how == "stolen" else ""


class _Impersonator:
    def __init__(
        self, cluster: Cluster, victim: BrokerSlot, how: str, token: str, ends_us: int
    ) -> None:
        self._cluster = cluster
        self._victim = victim
        self._how = how
        self._token = token
        self._ends_us = ends_us
        self._pod_uid = victim.pod_uid
        self._chance = Random(f"impersonator of {victim.name} at {cluster.now_us}")

    async def run(self) -> int:
        await self._wait_until_expired()
        while self._cluster.now_us < self._ends_us and not self._cluster.is_healed:
            for controller in self._cluster.controllers:
                await self._speak(controller)
            await asyncio.sleep(PAUSE_SECONDS)
        return 0

    async def _wait_until_expired(self) -> None:
        if self._how != "stolen" or self._cluster.identities is None:
            return
        expires_us = self._cluster.identities.expiry_us(self._token) - EPOCH_US
        wait_us = max(0, expires_us + MARGIN_US - self._cluster.now_us)
        self._ends_us += wait_us
        await asyncio.sleep(wait_us / 1e6)

    async def _speak(self, controller: ControllerSlot) -> None:
        """Send one message; an answer is a violation."""
        if controller.process is None or not self._is_wrong_at(controller):
            return
        path, message = self._message()
        try:
            async with asyncio.timeout(RESPONSE_SECONDS):
                await request(controller.host, CONTROLLER_PORT, path, encode(message), self._token)
        except RequestFailed:
            self._cluster.coverage[REJECTED] += 1
            return
        except (OSError, TimeoutError):
            return
        if self._is_wrong_at(controller):
            text = f"{controller.name} answered {path} of an impersonator ({self._how})"
            raise Violation("S33", text)

    def _is_wrong_at(self, controller: ControllerSlot) -> bool:
        """Return whether this controller can know: by its clock and the API server's, and by what
        it was sent. A clock may run fast, be ahead, or jump back while a message is under way."""
        if self._how == "stolen":
            identities = self._cluster.identities
            assert identities is not None
            expires_us = identities.expiry_us(self._token)
            return min(identities.now_us, controller.machine.clock.wall_us()) > expires_us
        if self._how == "address":  # until then who has its address is taken for it
            return controller.has_seen_token_of(self._pod_uid)
        return True

    def _message(self) -> tuple[str, object]:
        victim, pool = self._victim, self._cluster.pool
        epoch = self._epoch()
        kind = self._chance.randrange(4)
        if kind == 0:
            return HEARTBEAT_PATH, HeartbeatRequest(
                pool,
                victim.broker_id,
                epoch,
                "impersonator",
                ControllerEpoch(NO_EPOCH),
                -1,
                wants_to_serve=False,
                wants_to_stop=True,
            )
        if kind == 1:
            return REGISTER_PATH, RegisterRequest(
                pool,
                victim.broker_id,
                "",
                f"impersonator-{self._chance.getrandbits(32)}",
                Endpoints(victim.host, 9092, 8080, f"http://{victim.host}:8080"),
                "",
                StorageIdentity("impersonator"),
                BrokerEpoch(NO_EPOCH),
                ControllerEpoch(NO_EPOCH),
                BrokerEpoch(NO_EPOCH),
                -1,
            )
        if kind == 2:
            proposals = self._proposals()
            return ALTER_PARTITION_PATH, AlterPartitionRequest(
                pool, victim.broker_id, epoch, proposals
            )
        return ALLOCATE_PRODUCER_IDS_PATH, AllocateProducerIdsRequest(pool, victim.broker_id, epoch)

    def _epoch(self) -> BrokerEpoch:
        partitions = self._victim.partitions
        return BrokerEpoch(NO_EPOCH) if partitions is None else partitions.broker_epoch

    def _proposals(self) -> tuple[IsrProposal, ...]:
        """Return for each partition that the victim leads: it alone is in sync."""
        found = []
        for _, slot, replica in leading(self._cluster):
            if slot is not self._victim:
                continue
            state = replica.leader.state
            alone = (Member(state.leader, state.leader_broker_epoch),)
            found.append(
                IsrProposal(
                    replica.topic_id,
                    replica.partition,
                    state.leader_epoch,
                    state.partition_epoch,
                    alone,
                )
            )
        return tuple(found)


@fault
def reviews_away(cluster: Cluster, for_us: int) -> None:
    """Reviews of tokens have no response; all else of the API server goes on."""
    if cluster.identities is not None:
        cluster.identities.is_away = True
        cluster.timeline.after(for_us, setattr, cluster.identities, "is_away", False)


@fault
def end_certificate(cluster: Cluster, number: int, for_us: int) -> None:
    """Until it is renewed a broker's certificate is of no use: its connections to the others end,
    and it makes none with them, in either direction. TLS itself is not simulated."""
    slot, network = broker_of(cluster, number), cluster.network
    for other in cluster.brokers.values():
        if other is slot:
            continue
        for link in (
            (slot.machine.name, other.machine.name),
            (other.machine.name, slot.machine.name),
        ):
            network.reject(*link)
            cluster.timeline.after(for_us, network.rejected.pop, link, None)
        if slot.process is not None:
            for transport in tuple(slot.process.sockets):
                peer = transport.peer
                if peer is not None and peer.owner.machine is other.machine:
                    network.reset(transport)


IDENTITY_FAULTS: dict[str, Arguments] = {
    "impersonate_broker": lambda d: (d.broker, d.chance.choice(HOW), d.us(500, 4_000)),
    "reviews_away": lambda d: (d.us(300, 9_000),),
    "end_certificate": lambda d: (d.broker, d.us(200, 6_000)),
}

IDENTITY_PROFILES: dict[str, dict[str, int]] = {
    IDENTITIES: {
        "impersonate_broker": 8,
        "reviews_away": 2,
        "end_certificate": 3,
        "kill_broker": 3,
        "delete_pod_by_force": 3,
        "freeze_leading_controller": 1,
    },
}
IDENTITY_SECONDS: dict[str, float] = {IDENTITIES: 14.0}
