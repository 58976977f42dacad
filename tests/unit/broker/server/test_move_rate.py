"""How fast replicas may be moved in, as pushes say it: `moveBytesPerSecond` of the BrokerPool."""

from dataclasses import replace
from pathlib import Path

from tidemark_protocol.controller_messages import MetadataPush

from tests.support.in_process_pool import InProcessBroker, InProcessPool

PLENTY = 10**9


def may_ask_for(broker: InProcessBroker, push: MetadataPush) -> int:
    broker.partitions.apply_push(push)
    return broker.partitions.join_throttle.allowance_bytes(0, at_most=PLENTY)


def test_the_throttle_follows_what_each_push_says(tmp_path: Path) -> None:
    pool = InProcessPool(tmp_path, brokers=(1,), min_insync=1)
    pool.lead(1)
    broker = pool.brokers[1]
    found = []
    for rate in (4096, 8192, 0):
        pool.image_version += 1
        push = replace(pool.image(), topics=(), is_full=False, move_bytes_per_second=rate)
        found.append(may_ask_for(broker, push))
    assert found == [4096, 8192, PLENTY]  # 0: unlimited


def test_a_push_that_is_dropped_as_older_changes_no_rate(tmp_path: Path) -> None:
    pool = InProcessPool(tmp_path, brokers=(1,), min_insync=1)
    pool.lead(1)
    older = replace(pool.image(), image_version=pool.image_version - 1, move_bytes_per_second=1)
    assert may_ask_for(pool.brokers[1], older) == PLENTY  # S25
