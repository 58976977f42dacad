"""The decisions of ISR proposals; what a proposal may ask: core/test_isr.py."""

from dataclasses import replace

import pytest
from tidemark_operator.api.partition_slice import PARTITIONS_PER_SLICE
from tidemark_operator.controller.commands.alter_partition import alter_partition
from tidemark_operator.controller.core.decision import ChangeSlices, Evaluate, Outcome
from tidemark_protocol.controller_messages import AlterPartitionRequest, IsrProposal
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch

from tests.support.command_player import POOL, SLICE, play, pool_state, slice_of
from tests.support.controller_values import TOPIC_ID, partition, proposal

LED = partition("0@7 1@7", leader="0@7")


def request(*proposals: IsrProposal, epoch: int = 7) -> AlterPartitionRequest:
    return AlterPartitionRequest(POOL, BrokerId(0), BrokerEpoch(epoch), proposals)


def test_proposals_for_two_slices_are_one_step_and_each_is_answered() -> None:
    further = replace(LED, partition=PARTITIONS_PER_SLICE)
    pool = pool_state(slice_of(LED), slice_of(further, name="orders-1"))
    second = replace(proposal("0@7 1@7 2@7"), partition=PARTITIONS_PER_SLICE)
    played = play(pool, alter_partition(pool, request(proposal("0@7 1@7 2@7"), second)))
    [decision] = played.decisions
    assert isinstance(decision, ChangeSlices)
    assert list(decision.changes) == [SLICE, "orders-1"]
    assert [response.error for response in played.result.answers] == [ErrorCode.NONE] * 2
    assert all(value.partitions[0].in_sync_ids == {0, 1, 2} for value in played.written)


def test_a_slice_whose_write_is_deferred_is_not_answered() -> None:
    pool = pool_state(slice_of(LED))
    steps = alter_partition(pool, request(proposal("0@7 1@7 2@7")))
    played = play(pool, steps, deferred=[SLICE])
    assert (played.result.error, played.result.answers) == (ErrorCode.NONE, ())


def test_the_answer_is_of_the_last_try_on_what_is_stored() -> None:
    pool = pool_state(slice_of(LED))
    steps = alter_partition(pool, request(proposal("0@7 1@7 2@7")))
    decision = next(steps)
    assert isinstance(decision, ChangeSlices)
    decide = decision.changes[SLICE]
    assert decide(slice_of(LED)).partitions[0].in_sync_ids == {0, 1, 2}
    later = slice_of(replace(LED, leader_epoch=LeaderEpoch(6), partition_epoch=PartitionEpoch(10)))
    assert decide(later) is later  # another write came first
    with pytest.raises(StopIteration) as end:
        steps.send(Outcome({SLICE: later}))
    [response] = end.value.value.answers
    assert (response.error, response.state) == (ErrorCode.FENCED_LEADER_EPOCH, later.partitions[0])


def test_a_proposal_in_a_move_lets_the_move_go_on() -> None:
    moving = partition("0@7 1@7", leader="0@7", replicas=(0, 1, 2), adding=(2,))
    pool = pool_state(slice_of(moving))
    played = play(pool, alter_partition(pool, request(proposal("0@7 1@7 2@7"))))
    assert played.decisions[1:] == [Evaluate((TOPIC_ID,))]


def test_an_unknown_partition_and_another_epoch_write_nothing() -> None:
    pool = pool_state(slice_of(LED))
    played = play(pool, alter_partition(pool, request(replace(proposal("0@7"), partition=9))))
    assert played.decisions == []
    assert played.result.answers[0].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    played = play(pool, alter_partition(pool, request(proposal("0@7"), epoch=6)))
    assert (played.decisions, played.result.error) == ([], ErrorCode.STALE_BROKER_EPOCH)
