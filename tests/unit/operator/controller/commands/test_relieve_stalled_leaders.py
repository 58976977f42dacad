"""The decisions that take leadership off brokers that cannot write; over time: regression S20."""

from collections.abc import Collection

from tidemark_operator.controller.commands.relieve_stalled_leaders import StalledLeaders
from tidemark_operator.controller.core.decision import ChangeSlice
from tidemark_operator.controller.core.pool_state import PoolState
from tidemark_protocol.controller_messages import HeartbeatRequest
from tidemark_protocol.ids import BrokerEpoch, BrokerId, ControllerEpoch

from tests.support.command_player import POOL, SLICE, Played, play, pool_state, slice_of
from tests.support.controller_values import partition

LED = partition("0@7 1@7", leader="0@7")
LIMIT_MS = 1000


class Relief:
    """The stalled leaders of one pool, and the time."""

    def __init__(self, pool: PoolState) -> None:
        self.pool = pool
        self.now_ms = 0
        self.leaders = StalledLeaders(pool, now_ms=lambda: self.now_ms, stall_limit_ms=LIMIT_MS)

    def note(self, broker_id: int, age_ms: int) -> bool:
        return self.leaders.note(
            HeartbeatRequest(
                POOL,
                BrokerId(broker_id),
                BrokerEpoch(7),
                "a",
                ControllerEpoch(3),
                applied_image_version=1,
                wants_to_serve=True,
                wants_to_stop=False,
                oldest_append_age_ms=age_ms,
            )
        )

    def move(
        self, *, unknown: Collection[str] = (), deferred: Collection[str] = ()
    ) -> Played[None]:
        return play(self.pool, self.leaders.move_leaders_off(self.pool, unknown), deferred=deferred)


def relief() -> Relief:
    return Relief(pool_state(slice_of(LED)))


def test_a_stalled_leader_is_relieved_in_one_write_and_stays_in_sync() -> None:
    harness = relief()
    assert harness.note(0, LIMIT_MS)
    played = harness.move()
    assert played.kinds == [ChangeSlice]
    [state] = played.written[0].partitions
    assert state.leader == 1
    assert state.in_sync_ids == {0, 1}


def test_nothing_is_written_while_leaders_can_write_or_the_slice_is_not_known() -> None:
    harness = relief()
    assert not harness.note(0, LIMIT_MS - 1)
    assert harness.move().decisions == []
    assert harness.note(0, LIMIT_MS)
    assert harness.move(unknown=[SLICE]).decisions == []


def test_what_another_write_stored_is_left_alone() -> None:
    harness = relief()
    harness.note(0, LIMIT_MS)
    steps = harness.leaders.move_leaders_off(harness.pool, ())
    decision = next(steps)
    assert isinstance(decision, ChangeSlice)
    other = slice_of(partition("0@7", leader="0@7"))
    assert decision.decide(other) is other


def test_a_deferred_move_that_was_made_after_all_counts_in_its_lag_window() -> None:
    harness = relief()
    harness.note(0, LIMIT_MS)
    assert harness.move(deferred=[SLICE]).written == []
    moved = slice_of(partition("0@7 1@7", leader="1@7", leader_epoch=6, partition_epoch=10))
    harness.pool.record_durable(moved, version=0)
    harness.note(0, 0)
    harness.note(1, LIMIT_MS)
    assert harness.move().written == []
    harness.now_ms = 10**9
    assert harness.move().written[0].partitions[0].leader == 0


def test_a_deferred_move_that_was_not_made_is_tried_again() -> None:
    harness = relief()
    harness.note(0, LIMIT_MS)
    harness.move(deferred=[SLICE])
    assert harness.move().written[0].partitions[0].leader == 1
