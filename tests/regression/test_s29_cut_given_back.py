"""S29: a lost kernel gives back what was cut off, below a watermark that was kept.

A follower cuts records 1 and 2, which its new leader does not have, and fetches others in their
place. They are committed, so its checkpoint says. The power fails. What was never synced is gone:
the new records, and the cut itself. The old records lie there again, and below the watermark.
"""

from collections.abc import Iterator

import pytest
from tidemark_broker.log.log_manager import LogManager
from tidemark_broker.log.partition_log import LogSettings, PartitionLog
from tidemark_protocol.ids import Offset

from tests.regression.simulated_node import Node
from tests.support.log_fixtures import TOPIC_ID, append, values_of, write_synced_prefix

KEY = (TOPIC_ID, 0)
SEEDS = range(20)  # each another fate of what was not synced
NEW = b"n" * 400
SMALL = LogSettings(segment_bytes=100)  # one record each
MIDDLE = LogSettings(segment_bytes=400)  # the old records in one, the new one in the next


def truncate_and_fill(log: PartitionLog) -> None:
    log.truncate_to(Offset(1))
    append(log, NEW, epoch=2)


@pytest.fixture(
    params=[LogSettings(), SMALL, MIDDLE],
    ids=["one segment", "segments", "the next segment"],
)
def settings(request: pytest.FixtureRequest) -> Iterator[LogSettings]:
    yield request.param


def with_three_durable_records(node: Node) -> tuple[LogManager, PartitionLog]:
    directory = node.boots()
    log = directory.create_log("orders", TOPIC_ID, 0)
    for value in (b"a", b"old", b"older"):
        append(log, value, epoch=1)
    directory.checkpoint_recovery_points()
    return directory, log


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_cut_is_never_below_the_watermark_again(seed: int, settings: LogSettings) -> None:
    node = Node(seed, settings)
    directory, log = with_three_durable_records(node)
    truncate_and_fill(log)
    directory.checkpoint_high_watermarks({KEY: Offset(2)})
    node.loses_power()
    again = node.boots()
    committed = values_of(again.logs[KEY])[: again.high_watermarks[KEY]]
    assert committed == [(0, b"a"), (1, NEW)]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cut_with_nothing_after_it_is_synced_too(seed: int, settings: LogSettings) -> None:
    node = Node(seed, settings)
    directory, log = with_three_durable_records(node)
    log.truncate_to(Offset(1))
    directory.checkpoint_recovery_points()
    append(log, NEW, epoch=2)
    node.loses_power()
    found = values_of(node.boots().logs[KEY])
    assert found in ([(0, b"a")], [(0, b"a"), (1, NEW)])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cut_of_a_killed_life_is_synced_by_the_next(seed: int, settings: LogSettings) -> None:
    """Killed before a recovery point is written below the cut."""
    node = Node(seed, settings)
    _, log = with_three_durable_records(node)
    truncate_and_fill(log)
    node.is_killed()
    again = node.boots()
    again.checkpoint_high_watermarks({KEY: Offset(2)})
    node.loses_power()
    last = node.boots()
    assert values_of(last.logs[KEY]) == [(0, b"a"), (1, NEW)]
    assert last.high_watermarks[KEY] == 2


@pytest.mark.parametrize("seed", SEEDS)
def test_records_that_came_back_keep_their_own_epoch(seed: int, settings: LogSettings) -> None:
    """Epochs are told by a file that may outlive what it tells of. Records of an old epoch that
    are taken for a new one's would never be found to diverge."""
    node = Node(seed, settings)
    _, log = with_three_durable_records(node)
    truncate_and_fill(log)
    node.loses_power()
    log = node.boots().logs[KEY]
    found = values_of(log)
    epochs = [log._checkpoint.epochs.epoch_at(Offset(offset)) for offset, _ in found]
    assert [(value, epoch) for (_, value), epoch in zip(found, epochs, strict=True)] in (
        [(b"a", 1)],
        [(b"a", 1), (b"old", 1)],
        [(b"a", 1), (b"old", 1), (b"older", 1)],
        [(b"a", 1), (NEW, 2)],
    )


@pytest.mark.parametrize("seed", range(40))
def test_what_a_lost_kernel_gave_back_is_never_taken_for_a_synced_part(
    seed: int, settings: LogSettings
) -> None:
    """The file of a part may come back from before a cut, and what was written behind the cut may
    have holes. The first start on the new kernel verifies all, and so no later one need."""
    node = Node(seed, settings)
    directory, log = with_three_durable_records(node)
    node.registers(directory)
    write_synced_prefix(log)
    directory.checkpoint_recovery_points()
    log.truncate_to(Offset(1))
    for value in (b"new", b"newer", b"newest"):
        append(log, value, epoch=2)
    node.loses_power()
    first = node.boots()
    found = values_of(first.logs[KEY])
    assert not [name for name in node.names("orders-0") if name.endswith(".synced")]
    node.registers(first)
    append(first.logs[KEY], b"next", epoch=9)
    write_synced_prefix(first.logs[KEY])
    node.is_killed()
    assert values_of(node.boots().logs[KEY]) == [*found, (len(found), b"next")]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_synced_part_holds_whatever_the_kernel_loses_after_a_kill(
    seed: int, settings: LogSettings
) -> None:
    """What it tells of was synced: a start that trusts it owes no sync and no write for that."""
    node = Node(seed, settings)
    directory, log = with_three_durable_records(node)
    node.registers(directory)
    append(log, b"synced", epoch=1)
    write_synced_prefix(log)
    append(log, b"not synced", epoch=1)
    node.is_killed()
    again = node.boots()
    node.registers(again)
    assert again.logs[KEY].recovery_point >= 4
    again.checkpoint_high_watermarks({KEY: Offset(5)})
    node.loses_power()
    assert values_of(node.boots().logs[KEY]) == [
        (0, b"a"),
        (1, b"old"),
        (2, b"older"),
        (3, b"synced"),
        (4, b"not synced"),
    ]
