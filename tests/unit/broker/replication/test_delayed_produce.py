"""Produces that wait: what a replica keeps for them."""

import sys

from tidemark_broker.replication.delayed_produce import DelayedProducePurgatory
from tidemark_broker.replication.results import ProduceResult
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import Offset

RESULT = ProduceResult(ErrorCode.NONE)


def add(
    purgatory: DelayedProducePurgatory, end: int, *, for_sync_only: bool = False
) -> list[ErrorCode]:
    reported: list[ErrorCode] = []
    purgatory.add(
        Offset(end),
        deadline_ms=1000,
        result=RESULT,
        done=lambda result: reported.append(result.error),
        for_sync_only=for_sync_only,
    )
    return reported


def test_replicas_of_which_none_waits_keep_no_deque_of_their_own() -> None:
    one, other = DelayedProducePurgatory(), DelayedProducePurgatory()
    assert one._for_commit is other._for_commit is one._for_sync
    assert not hasattr(one, "__dict__")
    assert sys.getsizeof(one) < 100


def test_what_waits_at_one_replica_waits_at_no_other() -> None:
    one, other = DelayedProducePurgatory(), DelayedProducePurgatory()
    for_commit, for_sync = add(one, 5), add(one, 5, for_sync_only=True)
    assert (len(one), len(other)) == (2, 0)
    other.on_synced(Offset(9))
    other.expire(2000)
    other.fail_all(ErrorCode.NOT_LEADER_OR_FOLLOWER, "gone")
    assert (for_commit, for_sync) == ([], [])
    one.on_synced(Offset(5))
    assert (for_commit, for_sync, len(one)) == ([], [ErrorCode.NONE], 1)
    one.expire(1000)
    assert (for_commit, len(one)) == ([ErrorCode.REQUEST_TIMED_OUT], 0)
    again = add(one, 7)
    one.fail_all(ErrorCode.NOT_LEADER_OR_FOLLOWER, "gone")
    assert (again, len(one)) == ([ErrorCode.NOT_LEADER_OR_FOLLOWER], 0)
