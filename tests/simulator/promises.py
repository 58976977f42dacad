"""L1 to L4: what must become true once the last fault ended, each within its bound.

All brokers live again then and all links work, so a partition has a leader whatever its entries
prove (S14), and every replica comes back into the ISR. The bounds add up what the promises allow:
a Lease that must run out, a session granted by the new controller, restarts with their pauses.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tests.simulator.violations import Violation
from tests.simulator.watched_world import WatchedWorld

SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """After the last fault, in seconds of the world."""

    leader_seconds: float
    in_sync_seconds: float
    metadata_seconds: float


class Promises:
    def __init__(self, world: WatchedWorld, bounds: Bounds) -> None:
        self._world = world
        self._began_us = world.now_us
        self._kept_us: dict[str, int] = {}
        self._checks: tuple[tuple[str, float, Callable[[], str]], ...] = (
            ("L1", bounds.leader_seconds, self._leaderless),
            ("L3", bounds.in_sync_seconds, self._out_of_sync),
            ("L4", bounds.metadata_seconds, self._behind_in_metadata),
        )

    def are_kept(self) -> bool:
        """All at once, now. Raises Violation when one is broken past its bound."""
        waited_us = self._world.now_us - self._began_us
        all_kept = True
        for name, bound_seconds, missing in self._checks:
            text = missing()
            if not text:
                self._kept_us.setdefault(name, waited_us)
                continue
            all_kept = False
            if waited_us > bound_seconds * SECOND_US:
                raise Violation(name, f"{text}, {waited_us / SECOND_US:.1f} s after the last fault")
        return all_kept

    def kept_after_us(self) -> dict[str, int]:
        """How long each took."""
        return dict(self._kept_us)

    # ---- each says what is missing, "" if nothing

    def _leaderless(self) -> str:
        for name, topic_id, state in self._world.served_partitions():
            if not state.has_leader:
                return f"{name} has no leader"
            broker = self._world.live_broker(state.leader)
            replica = (
                None if broker is None else broker.partitions.hosted(topic_id, state.partition)
            )
            leader = None if replica is None else replica.leader
            if leader is None or leader.leader_epoch != state.leader_epoch:
                return f"{name}: broker {state.leader} does not lead in epoch {state.leader_epoch}"
        return ""

    def _out_of_sync(self) -> str:
        for name, _, state in self._world.served_partitions():
            missing = set(state.replicas) - state.in_sync_ids
            if missing:
                return f"{name}: {sorted(missing)} not in the ISR {sorted(state.in_sync_ids)}"
            if state.eligible_leaders:
                return f"{name}: eligible leaders {state.eligible_leaders} with a full ISR"
        return ""

    def _behind_in_metadata(self) -> str:
        for name, topic_id, state in self._world.served_partitions():
            for broker in self._world.live_brokers():
                known = broker.partitions.metadata.partitions.get((topic_id, state.partition))
                if known != state:
                    return f"{name}: broker {broker.broker_id} knows {known}, stored is {state}"
        return ""
