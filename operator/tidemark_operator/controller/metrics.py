"""Export the controller's metrics, computed from its state when Prometheus scrapes."""

import asyncio
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from tidemark_operator.api.broker import BrokerControlState
from tidemark_operator.api.unclean_election import UncleanCause
from tidemark_operator.controller.partition_metrics import PartitionMetrics
from tidemark_operator.controller.service import ControllerService

CONTENT_TYPE = CONTENT_TYPE_LATEST


async def exposition(service: ControllerService, *more: Collector) -> bytes:
    """Return the metrics; let other tasks run in between, for sessions do not wait for a scrape."""
    registry = CollectorRegistry()
    for collector in (ControllerCollector(service), *more):
        registry.register(collector)
    partitions = PartitionMetrics()
    for pool in service.pools() if service.is_leading else ():
        for view in service.topics(pool) if service.is_leading else ():
            if not view.is_retained:
                for _ in partitions.add(pool, view):
                    await asyncio.sleep(0)
    pieces = partitions.pieces() if service.is_leading else ()
    return generate_latest(registry) + "".join(pieces).encode()


class ControllerCollector(Collector):
    def __init__(self, service: ControllerService) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        service = self._service
        leads = GaugeMetricFamily(
            "tidemark_controller_leads", "1 on the leading controller", labels=["installation"]
        )
        leads.add_metric([service.installation], float(service.is_leading))
        epoch = GaugeMetricFamily(
            "tidemark_controller_epoch",
            "Controller epoch, -1 on standby",
            labels=["installation"],
        )
        epoch.add_metric([service.installation], float(service.controller_epoch))
        yield from (leads, epoch)
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
            "tidemark_controller_leaderless_partitions",
            "Partitions without a leader",
            labels=["pool"],
        )
        under_replicated = GaugeMetricFamily(
            "tidemark_controller_under_replicated_partitions",
            "Partitions whose ISR is smaller than their replica set",
            labels=["pool"],
        )
        recovered = GaugeMetricFamily(
            "tidemark_controller_recovered_partitions",
            "Partitions whose last election was an unclean recovery",
            labels=["pool", "cause"],
        )
        lost = GaugeMetricFamily(
            "tidemark_controller_lost_records",
            "Records lost by unclean recoveries, as far as other replicas have reported",
            labels=["pool", "topic"],
        )
        planned = GaugeMetricFamily(
            "tidemark_broker_planned_restart",
            "1 from a controlled shutdown until the broker is in sync in all partitions again",
            labels=["pool", "broker"],
        )
        restarts = CounterMetricFamily(
            "tidemark_broker_planned_restarts",
            "Planned restarts that began, short ones included",
            labels=["pool", "broker"],
        )
        skew = GaugeMetricFamily(
            "tidemark_broker_clock_skew_seconds",
            "Wall clock of the broker minus that of the operator",
            labels=["pool", "broker"],
        )
        for pool in self._service.pools():
            for broker in self._service.brokers(pool):
                named = [pool, str(broker.broker_id)]
                planned.add_metric(named, float(broker.is_planned_restart))
                restarts.add_metric(named, broker.planned_restarts)
                if broker.clock_skew_ms is not None:
                    skew.add_metric(named, broker.clock_skew_ms / 1000)
            states = [view.state for view in self._service.brokers(pool)]
            for state in BrokerControlState:
                brokers.add_metric([pool, state.value], states.count(state.value))
            views = self._service.topics(pool)
            served = [
                partition for view in views if not view.is_retained for partition in view.partitions
            ]
            partitions.add_metric([pool], len(served))
            leaderless.add_metric([pool], sum(not p.has_leader for p in served))
            under_replicated.add_metric(
                [pool], sum(len(p.in_sync_replicas) < len(p.replicas) for p in served)
            )
            causes = [each.cause for view in views for each in view.recoveries]
            for cause in UncleanCause:
                recovered.add_metric([pool, cause.value], causes.count(cause))
            for view in views:
                if view.recoveries:
                    count = sum(each.lost_records for each in view.recoveries)
                    lost.add_metric([pool, view.topic.topic], count)
        yield from (brokers, partitions, leaderless, under_replicated, recovered, lost)
        yield from (planned, restarts, skew)
