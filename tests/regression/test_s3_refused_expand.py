"""S3: a refused expand that lands later. The real leader core talks to the real controller."""

from tidemark_broker.replication.core.effects import (
    LeaderAssignment,
    LeaderEffect,
    LeaderSettings,
    ProposeIsr,
    ReplicaFetch,
)
from tidemark_broker.replication.core.leader import PartitionLeader
from tidemark_operator.api.kinds import Object, ResourceKind
from tidemark_operator.controller.service import ControllerService, ProbeVerdict
from tidemark_operator.store.object_store import OutcomeUnknown
from tidemark_protocol.controller_messages import (
    AlterPartitionRequest,
    BrokerState,
    Endpoints,
    IsrProposal,
    IsrResult,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, Offset

from tests.support.controller_harness import ORDERS, POOL, FakeStore, Harness, evaluate
from tests.support.controller_values import members
from tests.support.waiting import run

NOWHERE = Endpoints("10.0.0.1", 9092, 8080, "http://x")


class Leader:
    """Broker 0 leading partition 0 by the rig's durable state, with 10 records in its log."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.now_ms = 1_000_000
        self.proposals: list[IsrProposal] = []
        self.core = PartitionLeader(
            LeaderAssignment(
                ORDERS, BrokerId(0), BrokerEpoch(1), harness.partition(), LeaderSettings()
            ),
            self.brokers(),
            log_end_offset=Offset(0),
            high_watermark=Offset(0),
            now_ms=self.now_ms,
        )

    def brokers(self, *fenced: int) -> dict[BrokerId, BrokerState]:
        return {
            broker.broker_id: BrokerState(
                broker.broker_id,
                broker.epoch,
                is_fenced=broker.broker_id in fenced,
                is_stopping=False,
                endpoints=NOWHERE,
            )
            for broker in self.harness.brokers
        }

    def perform(self, effects: tuple[LeaderEffect, ...]) -> None:
        self.proposals += [e.proposal for e in effects if isinstance(e, ProposeIsr)]

    def append(self, log_end_offset: int) -> None:
        self.perform(self.core.on_append(Offset(log_end_offset), self.now_ms))

    def fetched(self, broker_id: int, broker_epoch: int, offset: int) -> None:
        fetch = ReplicaFetch(
            BrokerId(broker_id),
            BrokerEpoch(broker_epoch),
            self.core.leader_epoch,
            Offset(offset),
            LeaderEpoch(-1),
        )
        self.perform(
            self.core.on_fetch(fetch, leader_end=self.core.log_end_offset, now_ms=self.now_ms)
        )

    async def submit(self, controller: ControllerService) -> IsrResult | None:
        """The oldest proposal; None: no answer to use."""
        proposal = self.proposals.pop(0)
        response = await controller.alter_partition(
            AlterPartitionRequest(POOL, BrokerId(0), BrokerEpoch(1), (proposal,))
        )
        if response.error is not ErrorCode.NONE or not response.answers:
            self.proposals.append(proposal)
            return None
        (answer,) = response.answers
        assert answer.state is not None
        self.perform(self.core.on_state(answer.state, self.now_ms))
        self.perform(self.core.on_response(proposal, answer.error, self.now_ms))
        return answer


async def without_broker_2(store: FakeStore | None = None) -> tuple[Harness, Leader]:
    """ISR {0,1}; broker 2 is alive and follows, and the leader wants it back."""
    harness = await Harness(store=store).start(3)
    await harness.create()
    shrink = IsrProposal(
        ORDERS,
        0,
        harness.partition().leader_epoch,
        harness.partition().partition_epoch,
        members("0@1 1@2"),
    )
    await harness.brokers[0].alter(shrink)
    leader = Leader(harness)
    leader.append(10)
    leader.fetched(1, 2, 10)
    leader.fetched(2, 3, 10)
    assert leader.core.high_watermark == 10
    assert leader.proposals[0].new_in_sync_replicas == members("0@1 1@2 2@3")
    return harness, leader


def test_what_was_acknowledged_after_a_refusal_is_in_the_log_of_whoever_can_still_lead() -> None:
    async def scenario() -> None:
        harness, leader = await without_broker_2()
        frozen = harness.service  # it has the proposal queued
        queued = leader.proposals[0]
        successor = harness.another_controller()
        await successor.load(ControllerEpoch(2))
        harness.probe.verdicts["2-a"] = ProbeVerdict.REFUSED
        successor.suspect(POOL, BrokerId(2), "pod gone")
        await evaluate()
        response = await leader.submit(successor)
        assert response is not None
        assert response.error is ErrorCode.INELIGIBLE_REPLICA
        # The refusal was heard: r, the eleventh record, commits by {0,1} alone.
        leader.perform(leader.core.on_brokers(leader.brokers(2), leader.now_ms))
        leader.append(11)
        leader.fetched(1, 2, 11)
        assert leader.core.high_watermark == 11
        # The old controller thaws; the proposal that it still holds must not land.
        late = await frozen.alter_partition(
            AlterPartitionRequest(POOL, BrokerId(0), BrokerEpoch(1), (queued,))
        )
        assert late.error is ErrorCode.NOT_CONTROLLER
        stored = harness.stored_slice()["partitions"][0]
        assert [entry["id"] for entry in stored["isr"]] == [0, 1]
        assert stored["eligibleLeaders"] == []

    run(scenario)


class VanishingStore(FakeStore):
    """When told to, a write lands, its answer is lost, and nothing can be read after it."""

    vanishes = False

    def _write(self, kind: ResourceKind, item: Object) -> Object:
        written = super()._write(kind, item)
        if self.vanishes:
            self.is_down = True
            raise OutcomeUnknown("the answer was lost")
        return written


def test_while_the_outcome_is_unknown_the_watermark_waits_for_the_proposed_member() -> None:
    """The write commits, its answer and the store are lost: nothing may commit without 2."""

    async def scenario() -> None:
        store = VanishingStore()
        harness, leader = await without_broker_2(store)
        store.vanishes = True
        assert await leader.submit(harness.service) is None
        assert len(harness.stored_slice()["partitions"][0]["isr"]) == 3
        leader.append(11)
        leader.fetched(1, 2, 11)
        assert leader.core.high_watermark == 10
        store.vanishes = store.is_down = False
        response = await leader.submit(harness.service)
        assert response is not None
        assert leader.core.in_sync_replicas == members("0@1 1@2 2@3")
        assert leader.core.high_watermark == 10
        leader.fetched(2, 3, 11)
        assert leader.core.high_watermark == 11

    run(scenario)
