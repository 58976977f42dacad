"""S30: a replica that left, erased its log and was added again must not count as what it was.

Real logs, cores and frames; the moves are the controller's own decisions (docs/decisions/0059).
"""

from pathlib import Path

from tidemark_operator.controller.core.elections import LeaderCounts, partition_after_election
from tidemark_operator.controller.core.eligibility import BrokerEligibility, Eligibility
from tidemark_operator.controller.core.reassignment import original_of, reassigned
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerEpoch, BrokerId

from tests.support.in_process_pool import InProcessPool

TARGET = (BrokerId(1), BrokerId(2), BrokerId(4))  # 4 is to take the place of 3


class MovingPool(InProcessPool):
    """1 leads; 4 was being added and has all that there is, and the move was cancelled."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, brokers=(1, 2, 3), min_insync=2)
        self.start(4)
        self.lead(1)
        self.brokers[1].produce("r")
        self.move_to(TARGET)
        self.push()
        self.replicate(rounds=3)
        # What 4 has it is not let in for: the answer is late, or the controller knows better.
        self.checker(1, reject=ErrorCode.INELIGIBLE_REPLICA)
        self.move_to(original_of(self.state))

    def move_to(self, target: tuple[BrokerId, ...]) -> None:
        """As `PoolLoop` does: begun, then settled."""
        lives = Eligibility(
            {
                broker.broker_id: BrokerEligibility(
                    broker.broker_id,
                    broker.broker_epoch,
                    BrokerEpoch(0),
                    BrokerEpoch(0),
                    is_live=True,
                )
                for broker in self.brokers.values()
            }
        )
        begun = reassigned(self.topic, self.state, lives, target)
        counts = LeaderCounts([begun])
        self.state = partition_after_election(
            self.topic, begun, lives, leader_counts=counts
        ).partition

    def proposed(self) -> list[frozenset[int]]:
        """By 1, once it may propose joins again."""
        self.time.run(300)
        self.brokers[1].partitions.on_tick()
        return [
            frozenset(int(member.broker_id) for member in proposal.new_in_sync_replicas)
            for proposal in self.brokers[1].proposals
        ]


def test_a_leader_that_hears_of_its_return_only_does_not_count_what_it_had(tmp_path: Path) -> None:
    pool = MovingPool(tmp_path)
    pool.push(2, 3, 4)  # 4 erases its log
    assert pool.brokers[4].partitions.hosted(pool.topic.topic_id, 0) is None
    pool.move_to(TARGET)
    pool.push()
    assert pool.brokers[4].replica().log.log_end_offset == 0
    assert pool.proposed() == []
    pool.replicate(rounds=3)
    assert pool.proposed() == [{1, 2, 3, 4}]
    assert pool.brokers[4].log_bytes() == pool.brokers[1].log_bytes()


def test_a_fetch_from_before_it_left_counts_for_nothing_when_it_comes_after_its_return(
    tmp_path: Path,
) -> None:
    pool = MovingPool(tmp_path)
    cancelled = pool.state
    pool.move_to(TARGET)
    pool.push(1)
    pool.replicate(4)  # it has heard of neither, and still has its log
    pool.state, returned = cancelled, pool.state
    pool.push(4)
    pool.state = returned
    pool.push(4)
    assert pool.brokers[4].replica().log.log_end_offset == 0
    assert pool.proposed() == []
