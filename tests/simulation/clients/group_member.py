"""A member of a simulated group: finds its coordinator, joins, commits as it goes, joins again.

It speaks the Kafka protocol to the production listener. What it reads is made up: it only moves
positions on, as what is judged is who owns a partition and what becomes of its commits. Now and
then it leaves, or sleeps through its session and comes back as if nothing had been.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from tidemark_broker.coordinator.core.offsets_records import partition_of_group
from tidemark_broker.http.consumers.peer_connections import BrokerConnection, BrokerUnavailable
from tidemark_broker.kafka_wire.messages.group_membership import (
    FIND_COORDINATOR_API,
    HEARTBEAT_API,
    JOIN_GROUP_API,
    LEAVE_GROUP_API,
    SYNC_GROUP_API,
)
from tidemark_broker.kafka_wire.messages.group_offsets import OFFSET_COMMIT_API, OFFSET_FETCH_API
from tidemark_broker.kafka_wire.messages.schema import Api, Values
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.topic_names import OFFSETS_TOPIC

from tests.simulation.checks.group_checks import GroupChecks, mark_of, metadata_of
from tests.simulation.checks.invariants import Invariants
from tests.simulation.clients.clients import Surroundings
from tests.simulation.clients.desired_topics import DesiredTopic
from tests.simulation.clients.session_consumer import SessionConsumer
from tests.simulation.engine.broker_process import KAFKA_PORT
from tests.simulation.engine.simulated_cluster import Cluster

RETRY_SECONDS = 0.1
OFFSETS_PARTITIONS = 2
RESPONSE_MS = 2_500  # as long as a group write may wait; then the coordinator is looked for anew

_LOST_ID = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.ILLEGAL_GENERATION}
)
_ELSEWHERE = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)


@dataclass(frozen=True, slots=True)
class MemberPlan:
    """`kafka_port` of all brokers. `instance_id`: a static member."""

    name: str
    topic: str
    kafka_port: int
    instance_id: str | None = None
    session_timeout_ms: int = 1_500
    rebalance_timeout_ms: int = 3_000
    mishap_share: float = 0.01  # of its looks


class _Rejected(Exception):
    def __init__(self, error: int) -> None:
        super().__init__(ErrorCode(error).name)
        self.error = ErrorCode(error)


@dataclass
class GroupMember:
    plan: MemberPlan
    around: Surroundings
    chance: random.Random
    checks: GroupChecks

    def __post_init__(self) -> None:
        self._link: BrokerConnection | None = None
        self._coordinator_id = -1
        self._member_id = ""
        self._generation_id = -1
        self._positions: dict[int, int] = {}

    async def run(self) -> None:
        while not self.around.is_over():
            try:
                await self._rejoin()
                await self._read()
            except _Rejected as refused:
                self._record(refused.error)
            except BrokerUnavailable:
                self._drop()
            await asyncio.sleep(RETRY_SECONDS * self.chance.random())

    def _record(self, error: ErrorCode) -> None:
        if error in _LOST_ID:
            self._member_id, self._generation_id = "", -1
        elif error in _ELSEWHERE:
            self._drop()

    def _drop(self) -> None:
        if self._link is not None:
            self._link.close()
        self._link = None

    # ---- the coordinator

    async def _coordinator(self) -> BrokerConnection:
        if self._link is not None and self._link.is_open:
            return self._link
        plan = self.plan
        broker = self.chance.choice(self.around.brokers)
        host, _ = self.around.address_of(broker)
        requested = await BrokerConnection.open(plan.name, host, plan.kafka_port)
        try:
            values = {"key_type": 0, "keys": (self.checks.group_id,)}
            found = await requested.ask(FIND_COORDINATOR_API, values, RESPONSE_MS)
        finally:
            requested.close()
        (coordinator,) = found["coordinators"]
        _check(coordinator)
        self._link = await BrokerConnection.open(
            plan.name, coordinator["host"], coordinator["port"]
        )
        self._coordinator_id = coordinator["broker_id"]
        return self._link

    async def _ask(self, api: Api, values: Values, timeout_ms: int = RESPONSE_MS) -> Values:
        link = await self._coordinator()
        return await link.ask(api, {"group_id": self.checks.group_id, **values}, timeout_ms)

    @property
    def _identity(self) -> Values:
        return {
            "member_id": self._member_id,
            "generation_id": self._generation_id,
            "group_instance_id": self.plan.instance_id,
        }

    # ---- joining

    async def _rejoin(self) -> None:
        self.checks.on_left(self.plan.name)
        joined = await self._join()
        self._generation_id = joined["generation_id"]
        assignments: tuple[Values, ...] = ()
        if joined["leader_id"] == self._member_id and not joined["skip_assignment"]:
            assignments = self._assign([member["member_id"] for member in joined["members"]])
        values = {
            **self._identity,
            "protocol_type": joined["protocol_type"],
            "protocol": joined["protocol"],
            "assignments": assignments,
        }
        synced = await self._ask(SYNC_GROUP_API, values, self.plan.rebalance_timeout_ms * 2)
        _check(synced)
        partitions = tuple(bytes(synced["assignment"]))
        self.checks.on_assigned(self.plan.name, self._generation_id, partitions)
        await self._fetch(partitions)

    async def _join(self) -> Values:
        plan = self.plan
        while True:
            values = {
                **self._identity,
                "session_timeout_ms": plan.session_timeout_ms,
                "rebalance_timeout_ms": plan.rebalance_timeout_ms,
                "protocol_type": "consumer",
                "protocols": ({"name": "range", "metadata": b""},),
            }
            joined = await self._ask(JOIN_GROUP_API, values, plan.rebalance_timeout_ms * 2)
            if joined["error"] == ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = joined["member_id"]
                continue
            _check(joined)
            self._member_id = joined["member_id"]
            return joined

    def _assign(self, members: list[str]) -> tuple[Values, ...]:
        """Partition by partition in turn; an assignment is a byte for each."""
        shares: dict[str, list[int]] = {member: [] for member in members}
        for at, partition in enumerate(self.checks.partitions):
            shares[members[at % len(members)]].append(partition)
        return tuple(
            {"member_id": member, "assignment": bytes(share)} for member, share in shares.items()
        )

    # ---- offsets

    async def _fetch(self, partitions: tuple[int, ...]) -> None:
        before = {partition: self.checks.acknowledged(partition) for partition in partitions}
        self._positions = {}
        if not partitions:
            return
        requested = {
            "group_id": self.checks.group_id,
            "topics": ({"topic": self.plan.topic, "partitions": partitions},),
        }
        response = await self._ask(OFFSET_FETCH_API, {"groups": (requested,)})
        (found,) = response["groups"]
        _check(found)
        for entry in found["topics"][0]["partitions"]:
            mark = mark_of(entry["offset"], entry["metadata"])
            known = before[entry["partition"]]
            self.checks.on_fetched(
                entry["partition"], known, mark, self._generation_id, by=self._coordinator_id
            )
            self._positions[entry["partition"]] = max(0, entry["offset"])

    async def _commit(self) -> None:
        marks = {}
        for partition, position in self._positions.items():
            self._positions[partition] = position + self.chance.randint(1, 5)
            marks[partition] = (self._generation_id, self._positions[partition])
        before = {partition: self.checks.acknowledged(partition) for partition in marks}
        entries = tuple(
            {"partition": partition, "offset": mark[1], "metadata": metadata_of(mark[0])}
            for partition, mark in marks.items()
        )
        values = {
            **self._identity,
            "topics": ({"topic": self.plan.topic, "partitions": entries},),
        }
        response = await self._ask(OFFSET_COMMIT_API, values)
        errors = [ErrorCode.NONE]
        for entry in response["topics"][0]["partitions"]:
            partition = entry["partition"]
            errors.append(ErrorCode(entry["error"]))
            if entry["error"] == ErrorCode.NONE:
                self.checks.on_committed(partition, before[partition], marks[partition])
        worst = next((error for error in errors if error is not ErrorCode.NONE), ErrorCode.NONE)
        if worst not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            raise _Rejected(worst)

    # ---- in a generation

    async def _read(self) -> None:
        """Until something is refused. Raises _Refused, BrokerUnavailable."""
        while not self.around.is_over():
            await asyncio.sleep(self.chance.uniform(0.05, 0.3))
            if self.chance.random() < self.plan.mishap_share:
                await self._mishap()
            if self._positions and self.chance.random() < 0.5:
                await self._commit()
            _check(await self._ask(HEARTBEAT_API, self._identity))

    async def _mishap(self) -> None:
        if self.chance.random() < 0.5:
            await asyncio.sleep(self.plan.session_timeout_ms / 1000 * self.chance.uniform(0.5, 2))
            return
        leaving = {"member_id": self._member_id, "group_instance_id": self.plan.instance_id}
        self.checks.on_left(self.plan.name)
        _check(await self._ask(LEAVE_GROUP_API, {"members": (leaving,)}))
        raise _Rejected(ErrorCode.UNKNOWN_MEMBER_ID)


class SimulatedGroup:
    """Three members of one group, one of them static, and the offsets topic that they need; beside
    them a consumer that reads in fetch sessions, as Kafka clients do."""

    def __init__(self, invariants: Invariants) -> None:
        self._invariants = invariants
        self._offsets: DesiredTopic | None = None
        self.reader: SessionConsumer | None = None
        self.checks = GroupChecks(
            "readers",
            (0, 1),
            self._is_excused,
            may_forget=lambda: bool(invariants.deleted),
            coordinates=self._coordinates,
        )

    def create_topic(self, cluster: Cluster) -> None:
        self._offsets = cluster.create_topic(
            OFFSETS_TOPIC,
            partitions=OFFSETS_PARTITIONS,
            replication_factor=3,
            config={"cleanup.policy": "compact", "min.insync.replicas": "2"},
        )

    def _is_excused(self) -> bool:
        """The log of the offsets may have lost something itself."""
        assert self._offsets is not None
        mine = self._offsets.topic_id[:8] + "/"
        return any(name.startswith(mine) for name in self._invariants.suspensions())

    def _coordinates(self, broker_id: int) -> bool:
        assert self._offsets is not None
        partition = partition_of_group(self.checks.group_id, OFFSETS_PARTITIONS)
        state = self._invariants.states.get((self._offsets.topic_id, partition))
        return state is not None and state.leader == broker_id

    def missing(self) -> str:
        return "" if self._is_excused() else self.checks.missing()

    def members(
        self, around: Surroundings, chance: random.Random
    ) -> Iterator[tuple[str, Callable[[], Awaitable[None]]]]:
        for number in range(3):
            plan = MemberPlan(
                name=f"member-{number}",
                topic="orders",
                kafka_port=KAFKA_PORT,
                instance_id="static" if number == 0 else None,
            )
            yield plan.name, GroupMember(plan, around, chance, self.checks).run
        self.reader = SessionConsumer("sessions", "orders", KAFKA_PORT, around, chance)
        yield self.reader.name, self.reader.run

    @property
    def coverage(self) -> Counter[str]:
        reads = 0 if self.reader is None else self.reader.incremental_fetches
        return self.checks.coverage + Counter({"incremental fetches": reads})


def _check(answer: Values) -> None:
    if answer["error"] != ErrorCode.NONE:
        raise _Rejected(answer["error"])
