"""The state of a volume has the limits of the alerts and of the brokers."""

import re
from pathlib import Path

import pytest
from tidemark_broker.log.disk import DiskSpace
from tidemark_broker.server.background import disk_space
from tidemark_operator.controller.core import disk_use
from tidemark_operator.controller.core.disk_use import DiskState, DiskUse

ALERTS = Path(__file__).parents[5] / "charts/tidemark/rules/alerts.yaml"
GB = 1024**3


@pytest.mark.parametrize(
    ("free", "size", "state"),
    [
        (50 * GB, 100 * GB, DiskState.OK),
        (15 * GB, 100 * GB, DiskState.OK),
        (15 * GB - 1, 100 * GB, DiskState.NEARLY_FULL),
        (GB // 4, 100 * GB, DiskState.NEARLY_FULL),
        (GB // 4 - 1, 100 * GB, DiskState.FULL),
        (GB // 20 - 1, GB, DiskState.FULL),
        (0, 1, DiskState.NEARLY_FULL),  # a twentieth of it is nothing
    ],
)
def test_state_by_free_bytes(free: int, size: int, state: DiskState) -> None:
    assert DiskUse(free, size).state is state


def test_limits_are_those_of_the_alerts() -> None:
    alerts = ALERTS.read_text()
    nearly = re.search(r"disk_size_bytes > 0\) < ([0-9.]+)", alerts)
    full = re.search(r"disk_size_bytes > 0\) / ([0-9]+), ([0-9]+)\)", alerts)
    assert nearly is not None and full is not None
    assert float(nearly[1]) == disk_use.NEARLY_FULL_SHARE
    assert (int(full[1]), int(full[2])) == (disk_use.FULL_SHARE, disk_use.FULL_BYTES)


@pytest.mark.parametrize("size", [GB, 4 * GB, 100 * GB])
def test_full_is_where_brokers_reject_records(size: int) -> None:
    least = disk_space.least_free_bytes(DiskSpace(0, size))
    assert DiskUse(least - 1, size).state is DiskState.FULL
    assert DiskUse(least, size).state is DiskState.NEARLY_FULL
