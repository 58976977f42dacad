"""Ambushes of partitions on the way to other brokers: a newcomer that leaves and comes back while
its leader stands still, one that is left alone; and fault profiles made of them.

For mutants and hunting, as those of `triggered_faults.py`. There is one broker more than replicas.
"""

from dataclasses import dataclass
from typing import Any

from tidemark_protocol.ids import BrokerId
from tidemark_protocol.partition_state import PartitionState

from tests.simulation.clients.desired_topics import DesiredTopic, states_of
from tests.simulation.engine.broker_process import BrokerSlot
from tests.simulation.engine.simulated_cluster import Cluster
from tests.simulation.faults.fault_plan import Arguments
from tests.simulation.faults.faults import api_outage, block_link, fault, freeze
from tests.simulation.faults.triggered_faults import keep_down, leading, when

WAIT_US = 5_000_000
UNTIL_HEALED_US = 60_000_000
STILL_US = 2_500_000  # less than a session
CUT_OFF_US = 1_500_000
HEARD_US = 50_000


@dataclass(frozen=True, slots=True)
class _Move:
    """Under way, and not done before `away` is back: its place in the target keeps it open."""

    cluster: Cluster
    desired_topic: DesiredTopic
    number: int  # of the partition
    target: tuple[BrokerId, ...]
    newcomer: BrokerSlot
    leader: BrokerSlot
    other: BrokerSlot

    def state(self) -> PartitionState | None:
        states = states_of(self.cluster, self.desired_topic)
        return next((s for s in states if s.partition == self.number), None)

    def has_newcomer_in_sync(self) -> bool:
        state = self.state()
        return state is not None and self.newcomer.broker_id in state.in_sync_ids

    def is_hosted_by_newcomer(self) -> bool:
        partitions = self.newcomer.partitions
        return (
            partitions is not None
            and partitions.hosted(self.desired_topic.topic_id, self.number) is not None
        )

    def ask(self) -> None:
        self.desired_topic.moves[self.number] = self.target


def _begun(cluster: Cluster, which: int, *, keeps_leader: bool) -> _Move | None:
    """One of the followers is kept down; the newcomer takes the place of the other one, or of the
    leader."""
    found = leading(cluster)
    desired_topic = next((each for each in cluster.topics if each.is_wanted), None)
    if not found or desired_topic is None:
        return None
    _, leader, replica = found[which % len(found)]
    state = replica.leader.state
    followers = [b for b in state.replicas if b != leader.broker_id]
    spare = [slot for slot in cluster.brokers.values() if slot.broker_id not in state.replicas]
    if len(followers) != 2 or not spare or replica.topic_id != desired_topic.topic_id:
        return None
    away, other = followers
    stays = leader.broker_id if keeps_leader else other
    target = (stays, away, spare[0].broker_id)
    move = _Move(
        cluster, desired_topic, replica.partition, target, spare[0], leader, cluster.brokers[other]
    )
    _keep_down(cluster, cluster.brokers[away])
    move.ask()
    return move


def _keep_down(cluster: Cluster, slot: BrokerSlot, down_us: int = UNTIL_HEALED_US) -> None:
    keep_down(cluster, tuple(cluster.brokers.values()).index(slot), down_us)


@fault
def take_back_and_ask_again(cluster: Cluster, which: int) -> None:
    """A newcomer is in sync when its move is taken back, and asked for again as soon as it has
    erased its log. The leader stands still and hears of both at once (S30)."""
    move = _begun(cluster, which, keeps_leader=True)
    if move is None:
        return
    leader = move.leader

    def take_back() -> None:
        if leader.process is None:
            return
        freeze(cluster, leader.process, STILL_US)
        move.desired_topic.is_cancelling = True
        when(cluster, lambda: not move.is_hosted_by_newcomer(), ask_again, WAIT_US)

    def ask_again() -> None:
        move.ask()
        when(cluster, move.is_hosted_by_newcomer, cut_off, WAIT_US)

    def cut_off() -> None:
        """What it has now is not said before the leader has decided."""
        cluster.coverage["newcomers that left and came back"] += 1
        block_link(cluster, move.newcomer.machine.name, leader.machine.name, CUT_OFF_US)
        if leader.process is not None:
            cluster.timeline.after(HEARD_US, leader.process.thaw)

    when(cluster, move.has_newcomer_in_sync, take_back, WAIT_US)


@fault
def leave_newcomer_alone(cluster: Cluster, which: int) -> None:
    """All but the newcomer die, and the move is taken back: of those that would stay nobody has
    what it commits meanwhile (I19)."""
    move = _begun(cluster, which, keeps_leader=False)
    if move is None:
        return

    def leave() -> None:
        _keep_down(cluster, move.other)
        _keep_down(cluster, move.leader)
        when(cluster, is_alone, take_back, WAIT_US)

    def is_alone() -> bool:
        state = move.state()
        return state is not None and state.in_sync_ids == {move.newcomer.broker_id}

    def take_back() -> None:
        cluster.coverage["newcomers left alone"] += 1
        move.desired_topic.is_cancelling = True

    when(cluster, move.has_newcomer_in_sync, leave, WAIT_US)


@fault
def take_back_as_leader_dies(cluster: Cluster, which: int, outage_us: int) -> None:
    """The leader dies while the API server is away, so that nobody can be written down in its
    place; and the move is taken back: whichever of the two is written first then."""
    move = _begun(cluster, which, keeps_leader=True)
    if move is None:
        return

    def die() -> None:
        cluster.coverage["moves taken back as the leader died"] += 1
        api_outage(cluster, outage_us)
        _keep_down(cluster, move.leader, 2 * outage_us)
        move.desired_topic.is_cancelling = True

    when(cluster, move.has_newcomer_in_sync, die, WAIT_US)


MOVE_TRIGGERED_FAULTS: dict[str, Arguments] = {
    "take_back_and_ask_again": lambda d: (d.chance.randrange(2),),
    "leave_newcomer_alone": lambda d: (d.chance.randrange(2),),
    "take_back_as_leader_dies": lambda d: (d.chance.randrange(2), d.us(1_200, 3_000)),
}

MOVE_PROFILES: dict[str, dict[str, int]] = {
    "moves are taken back": {"take_back_and_ask_again": 1},
    "newcomers are left alone": {"leave_newcomer_alone": 1},
    "moves lose their leader": {"take_back_as_leader_dies": 1},
}

_RACKS = ("a", "b", "c", "d")
# Of Shape, beside what the seed drew.
MOVE_SHAPES: dict[str, dict[str, Any]] = {
    # What is written while the leader stands still would be more than the newcomer had.
    "moves are taken back": {
        "racks": _RACKS,
        "min_insync": 2,
        "acks": (-1, -1),
        "idempotent": (False, False),
        "pauses_ms": (500, 700, 900),
    },
    "newcomers are left alone": {"racks": _RACKS, "min_insync": 1, "commit_rule": "MinInsync"},
    "moves lose their leader": {"racks": _RACKS, "min_insync": 2},
}
