"""Define what a controller keeps in memory of each broker."""

from dataclasses import dataclass

from tidemark_protocol.controller_messages import ReplicaReport
from tidemark_protocol.ids import NO_EPOCH, BrokerEpoch, ControllerEpoch
from tidemark_protocol.partition_state import Member

from tidemark_operator.controller.core.disk_use import DiskUse
from tidemark_operator.controller.core.eligibility import Replica


@dataclass(slots=True)
class BrokerSoftState:
    """The reports of a broker to this controller.

    They are lost with the controller, and invalid for another broker epoch.
    """

    applied_controller_epoch: ControllerEpoch = ControllerEpoch(NO_EPOCH)
    applied_version: int = -1
    # Left out of its first push, as their last write had no known outcome then (S3): not told yet.
    unannounced_replicas: frozenset[Replica] = frozenset()
    heartbeat: int = 0  # the number of the newest one
    report: dict[Replica, ReplicaReport] | None = None
    # The image version that was applied when it reported: what stood still by then is as it said.
    # A process that has just started leads and follows nothing: the newest version.
    report_version: int = -1
    lost_replicas: frozenset[Replica] = frozenset()
    lost_below: BrokerEpoch = BrokerEpoch(NO_EPOCH)
    # Whole, by that registration. None: another controller had it and knows what was found.
    found_replicas: frozenset[Replica] | None = None
    failed_replicas: frozenset[Replica] = frozenset()  # as the newest heartbeat says
    evaluated_failures: frozenset[Replica] = frozenset()  # those by which all slices are settled
    drained_at_version: int | None = None
    drained_at_ms: int = -1
    was_reported_to_stop: bool = False
    is_write_stalled: bool = False  # S20
    disk: DiskUse | None = None  # None: not reported; shown to people, nothing is decided by it

    # guard: later-entry-without-log-is-void (S9)
    def record_entry(self, replica: Replica, member: Member) -> None:
        """Check an entry of a slice that appeared after the registration (S9).

        The slice was restored by hand (S12), or a deposed controller's write arrived late (S2).
        """
        if self.found_replicas is None or replica in self.found_replicas:
            return
        if self._has_another_epoch(member):
            self.lost_replicas |= {replica}

    # guard: entry-of-another-life (S2)
    def _has_another_epoch(self, member: Member) -> bool:
        """Return whether the entry has an earlier epoch, or a higher one whose record is lost."""
        return member.broker_epoch != self.lost_below

    # guard: restored-entry-of-another-life-is-void (S9)
    def record_entry_put_back(
        self, replica: Replica, member: Member, broker_epoch: BrokerEpoch
    ) -> None:
        """Invalidate an entry of another epoch in a slice that was restored by hand (S9, S12).

        The broker may have come back without that log while no controller knew of it, and
        registered with another controller than ours.
        """
        if self.found_replicas is None and member.broker_epoch != broker_epoch:
            self.lost_replicas |= {replica}
            self.lost_below = broker_epoch
