"""Decide which entries of an ISR or ELR are valid, and who may lead (S2, S9).

A `BrokerEligibility` is one broker as elections and ISR changes see it at one instant.

What an entry stands for depends on the topic's flush. With Os a record is acknowledged from memory,
so only a complete log keeps the entry valid. With Always it was on the disk of each member before,
so the disk does, whatever else the log lost with its kernel (S14).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidemark_protocol.ids import BrokerEpoch, BrokerId, TopicId
from tidemark_protocol.partition_state import FLUSH_ALWAYS, Member

Replica = tuple[TopicId, int]  # topic id, partition


@dataclass(frozen=True, slots=True)
class BrokerEligibility:
    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    clean_since: BrokerEpoch
    disk_since: BrokerEpoch
    is_live: bool
    is_stopping: bool = False
    # Missing in the last registration's report, or behind their own checkpoint (S9): entries of
    # epochs below `lost_below` are void for them. Joining anew, under the new epoch, is not. Those
    # above it are of a life whose record is lost, and the slice was away when epochs began anew.
    lost_replicas: frozenset[Replica] = frozenset()
    lost_below: BrokerEpoch = BrokerEpoch(-1)
    # Reported failed by the running broker: void and not to be led from, whatever the epoch.
    failed_replicas: frozenset[Replica] = frozenset()
    # This controller heard of what it holds and of what failed there: as only memory keeps both, a
    # former controller's word is nothing that a successor knows.
    has_spoken: bool = True
    unannounced_replicas: frozenset[Replica] = frozenset()  # of these it has not, whatever it said
    # It lives, but its disk takes no writes (S20): any other replica leads better.
    is_write_stalled: bool = False


class Eligibility:
    """All brokers of a pool.

    A broker without a record is not live. Its entries are kept, because absence does not show a
    loss (S12): its registration decides.
    """

    def __init__(self, eligibility: Mapping[BrokerId, BrokerEligibility]) -> None:
        self._eligibility = eligibility

    def of(self, broker_id: BrokerId) -> BrokerEligibility | None:
        return self._eligibility.get(broker_id)

    # guard: void-entry (S2)
    def is_valid(self, member: Member, replica: Replica, flush: str) -> bool:
        """Return whether the entry is valid; `flush` is the topic's."""
        broker_eligibility = self._eligibility.get(member.broker_id)
        if broker_eligibility is None:
            return True
        if member.broker_epoch < proves_since(broker_eligibility, flush):  # S2
            return False
        if replica in broker_eligibility.failed_replicas:
            return False
        has_current_epoch = member.broker_epoch == broker_eligibility.lost_below
        return has_current_epoch or replica not in broker_eligibility.lost_replicas

    # guard: fenced-broker-leads-nothing (I12)
    def is_active(self, broker_id: BrokerId, replica: Replica) -> bool:
        """Return whether the broker may lead and be in the ISR.

        It is live, not stopping, and this replica has not failed.
        """
        broker_eligibility = self._eligibility.get(broker_id)
        return (
            broker_eligibility is not None
            and broker_eligibility.is_live
            and not broker_eligibility.is_stopping
            and replica not in broker_eligibility.failed_replicas
        )

    def may_lead_on(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> bool:
        """Return whether the broker may lead, as far as no partition decides it (S2)."""
        broker_eligibility = self._eligibility.get(broker_id)
        return (
            broker_eligibility is not None
            and broker_eligibility.is_live
            and not broker_eligibility.is_stopping
            and broker_eligibility.broker_epoch == broker_epoch
        )

    # guard: elected-as-seen (I12)
    def have_spoken(self, broker_ids: Iterable[BrokerId], replica: Replica) -> bool:
        """Return whether the live ones of these brokers had reported when this was read (S17).

        Others may report while slices are written. A leader is elected by what was read, so their
        entries could not be renewed, and the leader would be one of an earlier broker epoch.
        """
        known = (self._eligibility.get(broker_id) for broker_id in broker_ids)
        return all(each is None or not each.is_live or may_renew(each, replica) for each in known)

    def can_write(self, broker_id: BrokerId) -> bool:
        """Return whether the broker can write, by its own report (S20)."""
        broker_eligibility = self._eligibility.get(broker_id)
        return broker_eligibility is not None and not broker_eligibility.is_write_stalled

    def renewed(self, member: Member, replica: Replica, flush: str) -> Member:
        """Return a valid entry with its broker's present epoch.

        An invalid entry stays invalid, whatever wrote it: its broker's present epoch does not stand
        for it (S2).
        """
        broker_eligibility = self._eligibility.get(member.broker_id)
        if broker_eligibility is None or not may_renew(broker_eligibility, replica):
            return member
        if not self.is_valid(member, replica, flush):
            return member
        return Member(member.broker_id, broker_eligibility.broker_epoch)


# guard: renew-entries-of-reporters-only (S9)
def may_renew(broker_eligibility: BrokerEligibility, replica: Replica) -> bool:
    """Return whether entries of this broker may be renewed.

    Only those of live brokers: their epoch is durable, so no later, unclean registration can get
    the same one (S2). Only of brokers that have reported: the others may lack that log, like one
    that another controller registered while the slice was away (S9).
    """
    has_spoken = (
        broker_eligibility.has_spoken and replica not in broker_eligibility.unannounced_replicas
    )
    return broker_eligibility.is_live and has_spoken


def proves_since(broker_eligibility: BrokerEligibility, flush: str) -> BrokerEpoch:
    """Return the broker epoch from which entries are valid (S2, S14)."""
    return (
        broker_eligibility.disk_since if flush == FLUSH_ALWAYS else broker_eligibility.clean_since
    )
