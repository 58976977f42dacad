"""S6: min ISR reaches the leader with the slice that dropped the eligible leaders, never before."""

from dataclasses import replace
from pathlib import Path

from tidemark_protocol.ids import PartitionEpoch
from tidemark_protocol.partition_state import TopicState

from tests.support.controller_harness import POOL, Harness
from tests.support.controller_values import shown
from tests.support.in_process_pool import TOPIC, TOPIC_ID, InProcessPool
from tests.support.waiting import run


def test_the_config_alone_does_not_let_a_lone_leader_commit(tmp_path: Path) -> None:
    """min ISR is lowered: 1 hears of the topic's config by a push, and the slice that drops the
    eligible 2 and 3 is not written yet."""
    pool = InProcessPool(tmp_path, min_insync=2)
    pool.lead(1, in_sync=[1, 2, 3])
    pool.lead(1, in_sync=[1])
    leader = pool.brokers[1]
    pool.topic = TopicState(TOPIC, TOPIC_ID, 1, 3, config={"min.insync.replicas": "1"})
    pool.push()
    unacknowledged = leader.produce("r", acks=1)
    assert unacknowledged[0].error == 0
    assert leader.replica().high_watermark == 0
    pool.state = replace(
        pool.state,
        min_insync_replicas=1,
        partition_epoch=PartitionEpoch(pool.state.partition_epoch + 1),
    )
    pool.push()
    assert leader.replica().high_watermark == 1


def test_lowering_it_drops_the_eligible_leaders_in_the_write_that_lets_one_commit_alone() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        for number in (1, 2):
            await harness.kill(harness.brokers[number])
        before = harness.partition()
        assert shown(before) == "leader 0@1 epoch 0 isr [0@1] eligible [2@3] pe 2"
        writes = harness.store.writes
        lowered = replace(harness.topic_state(), config={"min.insync.replicas": "1"})
        await harness.service.update_topic(POOL, lowered)
        after = harness.partition()
        assert harness.store.writes == writes + 1
        assert shown(after) == "leader 0@1 epoch 0 isr [0@1] eligible [] pe 3"
        assert (before.min_insync_replicas, after.min_insync_replicas) == (2, 1)

    run(scenario)
