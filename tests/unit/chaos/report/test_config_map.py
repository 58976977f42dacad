"""A report in a ConfigMap: it comes back whole, and a large one within its bound."""

import base64
import random

import pytest
from msgspec.structs import replace
from tidemark_chaos.report import config_map
from tidemark_chaos.report.config_map import (
    KEY,
    MAX_BYTES,
    UnreadableReport,
    read_config_map,
    report_config_map,
)
from tidemark_chaos.report.results import ChaosReport, chaos_report
from tidemark_chaos.timeline import Change

from tests.unit.chaos.report.test_results import PARSED, observed

OWNER = {"kind": "ChaosExperiment", "name": "one", "uid": "u1"}


def report() -> ChaosReport:
    return chaos_report(PARSED, 1, observed(), command="again", version="1")


def test_a_report_comes_back_as_it_was() -> None:
    stored = report_config_map(report(), OWNER)
    assert stored["metadata"]["name"] == "one-report"
    assert stored["metadata"]["ownerReferences"] == [OWNER]
    assert read_config_map(stored) == report()


def test_a_large_report_loses_its_time_line_and_then_its_series_but_no_figure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chance = random.Random(1)
    noise = tuple(
        Change(float(n), "phase", "".join(chance.choices("abcdefgh", k=60))) for n in range(400)
    )
    large = replace(report(), timeline=noise)
    monkeypatch.setattr(config_map, "MAX_BYTES", 6_000)
    kept = read_config_map(report_config_map(large, OWNER))
    assert (kept.timeline, kept.partitions) == ((), large.partitions)
    monkeypatch.setattr(config_map, "MAX_BYTES", 100)
    kept = read_config_map(report_config_map(large, OWNER))
    assert (kept.timeline, kept.partitions[0].per_bin) == ((), ())
    assert kept.faults == large.faults
    assert MAX_BYTES * 4 / 3 < 1_000_000  # of etcd's 1 MiB, base64 included


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"binaryData": {}},
        {"binaryData": {KEY: "?"}},
        {"binaryData": {KEY: base64.b64encode(b"no gzip").decode()}},
    ],
)
def test_another_config_map_is_an_error(stored: dict[str, object]) -> None:
    with pytest.raises(UnreadableReport):
        read_config_map(stored)
