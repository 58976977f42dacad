"""L1 to L5: what must become true once the last fault ended, each within its bound.

All brokers live again then and all links work, so a partition has a leader whatever its entries
prove (S14), and every replica comes back into the ISR. The bounds add up what the promises allow:
a Lease that must run out, a session granted by the new controller, restarts with their pauses; each
counts from the moment on at which its promise could be kept. L5 is judged where the pass over
leaders comes often enough for a run.
"""

from dataclasses import dataclass

from tidemark_operator.controller.core.settings import ControllerSettings
from tidemark_operator.store.lease import LeaseSettings
from tidemark_protocol.ids import BrokerId

from tests.simulation.checks.cluster_observer import ClusterObserver
from tests.simulation.checks.coverage_rows import RESTARTED_TO_READ
from tests.simulation.checks.violations import Violation

SECOND_US = 1_000_000
KILLED_MS = 500  # until a process that was killed is replaced, while all else is well
FETCHING_MS = 1000  # what was missed, at the speed of these links
USUAL_BALANCE_MS = ControllerSettings().balance_interval_ms
ALLOWANCE_SECONDS = 2.0  # the pause before a container is started again, and its start


@dataclass(frozen=True, slots=True)
class Bounds:
    """In seconds of the world, each from the moment on at which nothing else was missing."""

    leader_seconds: float  # from the last fault on, or since all were led
    in_sync_seconds: float  # since all are led, all replicas there, or all were in sync
    metadata_seconds: float  # since the last change of a state, or the last start of a broker
    preferred_seconds: float | None = None  # since all are in sync under that controller, if judged

    @staticmethod
    def of(settings: ControllerSettings, lease: LeaseSettings) -> "Bounds":
        """L1: a Lease that has to run out, the session that its successor grants to everybody, and
        one of a broker that is silent in it. L3: the session of a connection that hangs, and what
        is to be fetched. L4: such a session, and the next heartbeat. L5: one interval from the
        moment on at which a controller began to count it; not by the usual one, which is longer
        than all that follows a healing."""
        session_ms, balance_ms = settings.session_timeout_ms, settings.balance_interval_ms
        leader_ms = KILLED_MS + lease.duration_ms + 2 * session_ms
        return Bounds(
            leader_ms / 1000 + ALLOWANCE_SECONDS,
            (session_ms + FETCHING_MS) / 1000 + ALLOWANCE_SECONDS,
            (session_ms + settings.heartbeat_interval_ms) / 1000 + ALLOWANCE_SECONDS,
            balance_ms / 1000 + ALLOWANCE_SECONDS if balance_ms < USUAL_BALANCE_MS else None,
        )


class LivenessChecks:
    def __init__(self, cluster: ClusterObserver, bounds: Bounds) -> None:
        self._cluster = cluster
        self._bounds = bounds
        # L1 counts from the last fault on, or since leadership was whole once more: it may move
        # again as a broker stops that was told to before.
        self._whole_us = self._joining_us = self._changed_us = self._balanced_us = cluster.now_us
        self._reported: object = None  # of which, and to which processes
        self._placed: object = None  # where, and who lives
        self._balancing: object = None  # which of both, and by which controller
        self._retained_us: dict[str, int] = {}
        self._restarted: dict[BrokerId, None] = {}

    def are_kept(self) -> bool:
        """All at once, now. Raises Violation when one is broken past its bound."""
        now_us = self._cluster.now_us
        # A process that has just started registers before it is told anything.
        stored = self._cluster.served_partitions()
        processes = [broker.process for broker in self._cluster.live_brokers()]
        if self._reported != (stored, processes):
            self._reported, self._changed_us = (stored, processes), now_us
        placed = {(topic_id, s.partition): set(s.replicas) for _, topic_id, s in stored}
        leaderless = self.missing_leader()
        if leaderless or self._placed != (placed, processes):
            self._placed, self._joining_us = (placed, processes), now_us
        bounds = self._bounds
        is_late = now_us - self._whole_us > bounds.leader_seconds * SECOND_US
        if is_late and self._restart_who_could_not_read():
            self._whole_us = now_us
        is_led = self._is_kept("L1", leaderless, self._whole_us, bounds.leader_seconds)
        if is_led:
            self._whole_us = now_us
        is_in_sync = self._is_kept(
            "L3", self._out_of_sync(), self._joining_us, bounds.in_sync_seconds
        )
        if is_in_sync:
            self._joining_us = now_us
        return all(
            [
                is_led,
                is_in_sync,
                self._is_balanced(could_be=is_led and is_in_sync),
                self._is_kept(
                    "L4", self._behind_in_metadata(), self._changed_us, bounds.metadata_seconds
                ),
            ]
        )

    def _is_balanced(self, *, could_be: bool) -> bool:
        bound_seconds = self._bounds.preferred_seconds
        if bound_seconds is None:
            return True
        balancing = (self._placed, self._cluster.lease_epoch())
        if not could_be or balancing != self._balancing:
            self._balancing, self._balanced_us = balancing, self._cluster.now_us
        is_kept = self._is_kept("L5", self._led_by_others(), self._balanced_us, bound_seconds)
        if is_kept:
            self._balanced_us = self._cluster.now_us
        return is_kept

    def _is_kept(self, name: str, missing: str, since_us: int, bound_seconds: float) -> bool:
        waited_us = self._cluster.now_us - since_us
        if not missing:
            self._retained_us.setdefault(name, waited_us)
            return True
        self._retained_us.pop(name, None)
        if waited_us > bound_seconds * SECOND_US:
            raise Violation(name, f"{missing}, for {waited_us / SECOND_US:.1f} s")
        return False

    def _restart_who_could_not_read(self) -> bool:
        """As people do, once for each broker: in a process that lives on nobody looks again at what
        could not be read (0090), and without it the longest log of all may not be known (S14).
        Whether anybody was."""
        waiting = [
            broker
            for broker in self._cluster.live_brokers()
            if broker.broker_id not in self._restarted
            for replica in broker.partitions.replicas
            if replica.corruption is not None
            and replica.corruption.is_unreadable
            and replica.corruption.valid_from is None
            and replica.state is not None
            and not replica.state.has_leader
        ]
        for broker in waiting:
            self._restarted[broker.broker_id] = None
            self._cluster.restart(broker, RESTARTED_TO_READ)
        return bool(waiting)

    def retained_after_us(self) -> dict[str, int]:
        """How long each took, the last time."""
        return dict(self._retained_us)

    # ---- each says what is missing, "" if nothing

    def missing_leader(self, ended: BrokerId | None = None) -> str:
        """`ended`: a broker whose process may believe for ever that it leads."""
        if unserved := self._cluster.unserved():
            return unserved
        for name, topic_id, state in self._cluster.served_partitions():
            if not state.has_leader:
                return f"{name} has no leader"
            if state.leader == ended:
                return f"{name} is led by broker {ended} still"
            broker = self._cluster.live_broker(state.leader)
            replica = (
                None if broker is None else broker.partitions.hosted(topic_id, state.partition)
            )
            leader = None if replica is None else replica.leader
            if leader is None or leader.leader_epoch != state.leader_epoch:
                return f"{name}: broker {state.leader} does not lead in epoch {state.leader_epoch}"
        return ""

    def _out_of_sync(self) -> str:
        for name, _, state in self._cluster.served_partitions():
            missing = set(state.replicas) - state.in_sync_ids
            if missing:
                return f"{name}: {sorted(missing)} not in the ISR {sorted(state.in_sync_ids)}"
            if state.eligible_leaders:
                return f"{name}: eligible leaders {state.eligible_leaders} with a full ISR"
        return ""

    def _led_by_others(self) -> str:
        """Not by the preferred replica, which is in sync, unfenced and stays."""
        records = self._cluster.broker_records()
        for name, _, state in self._cluster.served_partitions():
            preferred = state.replicas[0]
            record = records.get(preferred)
            is_there = record is not None and record.is_live and not record.is_stopping
            if state.leader != preferred and preferred in state.in_sync_ids and is_there:
                return f"{name}: led by {state.leader}, preferred is {preferred}"
        return ""

    def _behind_in_metadata(self) -> str:
        for name, topic_id, state in self._cluster.served_partitions():
            for broker in self._cluster.live_brokers():
                known = broker.partitions.metadata.partitions.get((topic_id, state.partition))
                if known != state:
                    return f"{name}: broker {broker.broker_id} knows {known}, stored is {state}"
        return ""
