"""Keep the report of a run in a ConfigMap, within its bound, and read it back. Pure.

The JSON is compressed. A report that is too large even so loses its time line first and then its
acknowledgements per 100 ms; figures and verdict always stay.
"""

import base64
import gzip
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from tidemark_chaos.report.results import ChaosReport

KEY = "report.json.gz"
MAX_BYTES = 700_000  # of the compressed report: base64 makes it 4/3, and etcd's limit is 1 MiB

Manifest = dict[str, Any]


class UnreadableReport(Exception):
    """An error: a ConfigMap that holds no report; the text says what was found."""


def config_map_name(experiment: str) -> str:
    return f"{experiment}-report"


def report_config_map(report: ChaosReport, owner: Manifest) -> Manifest:
    """Return the ConfigMap of a report; it is deleted with its owner, the experiment."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": config_map_name(report.name),
            "labels": {
                "app.kubernetes.io/name": "tidemark",
                "app.kubernetes.io/component": "chaos",
            },
            "ownerReferences": [owner],
        },
        "binaryData": {KEY: base64.b64encode(_bounded(report)).decode()},
    }


def read_config_map(manifest: Mapping[str, Any]) -> ChaosReport:
    """Return the report in a ConfigMap. Raises UnreadableReport."""
    try:
        data = gzip.decompress(base64.b64decode(manifest["binaryData"][KEY]))
        return msgspec.json.decode(data, type=ChaosReport)
    except (KeyError, ValueError, OSError, EOFError) as error:
        raise UnreadableReport(f"expected a report under {KEY}: {error}") from error


def _bounded(report: ChaosReport) -> bytes:
    data = _compressed(report)
    if len(data) > MAX_BYTES:
        data = _compressed(report := replace(report, timeline=()))
    if len(data) > MAX_BYTES:
        partitions = tuple(replace(row, per_bin=()) for row in report.partitions)
        data = _compressed(replace(report, partitions=partitions))
    return data


def _compressed(report: ChaosReport) -> bytes:
    return gzip.compress(msgspec.json.encode(report), mtime=0)
