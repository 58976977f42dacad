"""Export how many connections the operator rejected, by reason."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector
from tidemark_protocol.connection_rejections import METRIC, ConnectionRejections


class RejectionsCollector(Collector):
    def __init__(self, rejections: ConnectionRejections) -> None:
        self._rejections = rejections

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(
            METRIC.removesuffix("_total"),
            "Connections and requests rejected before they had a known client",
            labels=["protocol", "reason"],
        )
        for labels, count in sorted(self._rejections.totals.items()):
            family.add_metric(labels, count)
        yield family
