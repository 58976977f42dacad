"""Export how late the operator's event loop is."""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from tidemark_protocol.loop_lag import LoopLag


class LoopLagCollector(Collector):
    def __init__(self, lag: LoopLag) -> None:
        self._lag = lag

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "tidemark_controller_loop_lag_seconds",
            "Last measured delay of the event loop",
            self._lag.last_s,
        )
        yield GaugeMetricFamily(
            "tidemark_controller_loop_lag_max_seconds",
            "Longest delay of the event loop in the last one to two minutes",
            self._lag.max_s,
        )
