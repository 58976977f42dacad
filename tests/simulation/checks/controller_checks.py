"""What controllers owe beside safety: nobody fenced, evicted or moved in vain (S18 to S21), rising
controller epochs (S16), what people put back left alone (S12, I20)."""

from tidemark_operator.api.broker import BrokerRecord
from tidemark_operator.api.partition_slice import PartitionSlice
from tidemark_operator.controller.core.settings import ControllerSettings

from tests.simulation.checks.cluster_observer import ClusterObserver
from tests.simulation.checks.lease_checks import LeaseChecker
from tests.simulation.checks.session_checks import check_not_in_vain, check_one_event, kinds_so_far
from tests.simulation.checks.stall_checks import MoveChecker, both, check_evicted_in_vain
from tests.simulation.checks.violations import Violation


class ControllerChecker:
    """Each method raises Violation."""

    def __init__(self, cluster: ClusterObserver) -> None:
        self._cluster = cluster
        interval_ms = cluster.cluster.options.balance_interval_ms
        is_often = interval_ms < ControllerSettings().balance_interval_ms
        self._moves = MoveChecker(cluster.cannot_write, balances_often=is_often)
        self._lease = LeaseChecker()

    def on_broker(self, before: BrokerRecord | None, after: BrokerRecord) -> None:
        cluster = self._cluster.cluster
        is_held_down = cluster.brokers[after.broker_id].is_held_down
        check_not_in_vain(
            before,
            after,
            cluster.coverage,
            is_held_down=is_held_down,
            healed_for_us=cluster.healed_for_us,
        )
        self._lease.on_object(after.controller_epoch, cluster.now_us)

    def on_slice(self, before: PartitionSlice | None, after: PartitionSlice) -> None:
        """`before`: None also where a backup came between them."""
        cluster = self._cluster.cluster
        self._lease.on_object(after.controller_epoch, cluster.now_us)
        if before is None:
            return
        held_down = [slot.broker_id for slot in cluster.brokers.values() if slot.is_held_down]
        check_evicted_in_vain(
            before, after, cluster.coverage, excused=[*cluster.stalled, *held_down]
        )
        self._moves.on_slice(before, after, cluster.now_us)
        if cluster.is_healed:
            return  # who is killed from here on is alone
        up = [slot.broker_id for slot in cluster.brokers.values() if slot.machine.is_up]
        for old, new in both(before, after):
            check_one_event(old, new, cluster.coverage, up=up)

    def look(self) -> None:
        """Whenever something was written."""
        cluster = self._cluster.cluster
        befell = None if cluster.is_healed else kinds_so_far(cluster.coverage)
        self._lease.on_lease(self._cluster.lease_epoch(), self._cluster.now_us, befell=befell)
        for name in self._cluster.gone_again():
            raise Violation("I20", f"{name}, which somebody put back, is deleted, nobody asked")
