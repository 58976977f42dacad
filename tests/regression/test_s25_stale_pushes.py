"""S25: a stale push never restores a former life, whichever way it comes."""

from dataclasses import replace
from pathlib import Path

from tidemark_protocol.ids import ControllerEpoch

from tests.support.in_process_pool import InProcessPool


def test_a_stale_push_does_not_make_a_former_life_count_for_the_watermark(tmp_path: Path) -> None:
    """2 dies and starts again with an empty disk: 1 leads alone. The push that still named the
    former life, late on the wire, must not let anything of that life join or count."""
    pool = InProcessPool(tmp_path, brokers=(1, 2), min_insync=1)
    pool.lead(1, in_sync=[1, 2])
    stale = pool.image()
    leader = pool.brokers[1]
    previous_epoch = pool.brokers[2].broker_epoch
    previous_life = pool.brokers[2].partitions
    pool.kill(2)
    pool.start(2)
    pool.lead(1, in_sync=[1])
    assert leader.produce("r")[0].error == 0
    assert not leader.partitions.apply_push(stale)
    assert (
        leader.partitions.metadata.brokers[pool.brokers[2].broker_id].broker_epoch > previous_epoch
    )
    core = leader.replica().leader
    assert core is not None
    assert previous_epoch not in {member.broker_epoch for member in core.maximal_in_sync_replicas}
    assert previous_life.is_stopped


def test_a_deposed_controllers_newer_looking_version_is_older_than_its_successors_first(
    tmp_path: Path,
) -> None:
    pool = InProcessPool(tmp_path, brokers=(1, 2), min_insync=1)
    pool.lead(1, in_sync=[1, 2])
    superseded = replace(pool.image(), image_version=1_000_000)
    pool.controller_epoch, pool.image_version = ControllerEpoch(2), 0
    pool.lead(2, in_sync=[2])
    assert not pool.brokers[1].partitions.apply_push(superseded)
    assert pool.brokers[1].replica().role == "follower"
