"""The controller's gauges, computed from its state when Prometheus asks (nothing is counted)."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from tidemark_operator.controller.broker_record import BrokerLifeState
from tidemark_operator.controller.recoveries import Cause
from tidemark_operator.controller.service import ControllerService

CONTENT_TYPE = CONTENT_TYPE_LATEST


def exposition(service: ControllerService, *more: Collector) -> bytes:
    registry = CollectorRegistry()
    for collector in (ControllerCollector(service), *more):
        registry.register(collector)
    return generate_latest(registry)


class ControllerCollector(Collector):
    def __init__(self, service: ControllerService) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        service = self._service
        yield GaugeMetricFamily(
            "tidemark_controller_leads", "1 on the leading controller", float(service.is_leading)
        )
        yield GaugeMetricFamily(
            "tidemark_controller_epoch",
            "Controller epoch, -1 while standing by",
            float(service.controller_epoch),
        )
        if service.is_leading:
            yield from self._pools()

    def _pools(self) -> Iterator[Metric]:
        brokers = GaugeMetricFamily(
            "tidemark_controller_brokers", "Brokers by state", labels=["pool", "state"]
        )
        partitions = GaugeMetricFamily(
            "tidemark_controller_partitions", "Partitions served", labels=["pool"]
        )
        leaderless = GaugeMetricFamily(
            "tidemark_controller_leaderless_partitions", "Without a leader", labels=["pool"]
        )
        under_replicated = GaugeMetricFamily(
            "tidemark_controller_under_replicated_partitions",
            "With an ISR smaller than the replica set",
            labels=["pool"],
        )
        recovered = GaugeMetricFamily(
            "tidemark_controller_recovered_partitions",
            "Last led by a replica that could not prove that it has every committed record",
            labels=["pool", "cause"],
        )
        lost = GaugeMetricFamily(
            "tidemark_controller_lost_records",
            "In other replicas' logs past the start of such a leader, as far as they reported",
            labels=["pool", "topic"],
        )
        for pool in self._service.pools():
            states = [view.state for view in self._service.brokers(pool)]
            for state in BrokerLifeState:
                brokers.add_metric([pool, state.value], states.count(state.value))
            served = [
                partition
                for view in self._service.topics(pool)
                if not view.is_retained
                for partition in view.partitions
            ]
            partitions.add_metric([pool], len(served))
            leaderless.add_metric([pool], sum(not p.has_leader for p in served))
            under_replicated.add_metric(
                [pool], sum(len(p.in_sync_replicas) < len(p.replicas) for p in served)
            )
            causes = [e.cause for view in self._service.topics(pool) for e in view.recoveries]
            for cause in Cause:
                recovered.add_metric([pool, cause.value], causes.count(cause))
            for view in self._service.topics(pool):
                if view.recoveries:
                    count = sum(each.lost_records for each in view.recoveries)
                    lost.add_metric([pool, view.topic.topic], count)
        yield from (brokers, partitions, leaderless, under_replicated, recovered, lost)
