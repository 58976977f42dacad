"""One picture of a cluster for `status` and the demo, read from whoever has it.

Pure readers of: the controller's /v1/status, and the PartitionSlice and Broker objects of a
Kubernetes namespace.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tidemark_cli.metadata import (
    PartitionView,
    TopicView,
    UnreadableAnswer,
    read_partition,
)


@dataclass(frozen=True, slots=True)
class BrokerRow:
    broker_id: int
    state: str
    broker_epoch: int = -1
    http_url: str = ""
    rack: str = ""
    pid: int | None = None  # local mode only


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    brokers: tuple[BrokerRow, ...] = ()
    topics: tuple[TopicView, ...] = ()

    @property
    def broker_urls(self) -> tuple[str, ...]:
        return tuple(broker.http_url for broker in self.brokers if broker.http_url)

    def topic(self, name: str) -> TopicView | None:
        return next((topic for topic in self.topics if topic.topic == name), None)

    def broker(self, broker_id: int) -> BrokerRow | None:
        return next((row for row in self.brokers if row.broker_id == broker_id), None)


def read_status(body: Any) -> ClusterStatus:
    """The controller's GET /v1/status."""
    if not isinstance(body, Mapping) or "brokers" not in body:
        raise UnreadableAnswer(f"expected a status with 'brokers', found {str(body)[:200]}")
    brokers = tuple(_read_broker(broker) for broker in body["brokers"])
    return ClusterStatus(
        brokers=tuple(sorted(brokers, key=lambda row: row.broker_id)),
        topics=_read_topics(body),
    )


def status_of_objects(
    brokers: Iterable[Mapping[str, Any]], slices: Iterable[Mapping[str, Any]]
) -> ClusterStatus:
    """From Broker and PartitionSlice objects."""
    rows = []
    for broker in brokers:
        status = broker.get("status") or {}
        rows.append(
            BrokerRow(
                broker_id=int(broker["spec"]["brokerId"]),
                state=str(status.get("state", "Starting")),
                broker_epoch=int(status.get("brokerEpoch", -1)),
                http_url=_endpoint_url(status.get("endpoints") or {}),
                rack=str(status.get("rack", "")),
            )
        )
    by_topic: dict[str, list[PartitionView]] = {}
    for partition_slice in slices:
        if partition_slice.get("retained"):
            continue
        views = by_topic.setdefault(str(partition_slice["topicName"]), [])
        views.extend(read_partition(partition) for partition in partition_slice["partitions"])
    return ClusterStatus(
        brokers=tuple(sorted(rows, key=lambda row: row.broker_id)),
        topics=tuple(
            TopicView(topic, tuple(sorted(views, key=lambda view: view.partition)))
            for topic, views in sorted(by_topic.items())
        ),
    )


def _read_broker(body: Mapping[str, Any]) -> BrokerRow:
    endpoints = body.get("endpoints") or body
    pid = body.get("pid")
    return BrokerRow(
        broker_id=int(_any(body, "broker_id", "brokerId", "id", default=-1)),
        state=str(_any(body, "state", default="")),
        broker_epoch=int(_any(body, "broker_epoch", "brokerEpoch", default=-1)),
        http_url=_endpoint_url(endpoints),
        rack=str(_any(body, "rack", default="")),
        pid=int(pid) if pid else None,
    )


def _endpoint_url(endpoints: Mapping[str, Any]) -> str:
    url = _any(endpoints, "advertised_http_url", "advertisedHttpUrl", "http_url", "httpUrl", "url")
    return str(url or "").rstrip("/")


def _read_topics(body: Mapping[str, Any]) -> tuple[TopicView, ...]:
    topics = []
    for topic in body.get("topics") or ():
        nested = topic.get("topic")
        name = nested.get("topic") if isinstance(nested, Mapping) else nested or topic.get("name")
        partitions = topic.get("partitions")
        if not isinstance(partitions, list):
            partitions = _partitions_of(body, str(name))
        topics.append(
            TopicView(str(name), tuple(read_partition(partition) for partition in partitions))
        )
    return tuple(topics)


def _partitions_of(body: Mapping[str, Any], topic: str) -> list[Any]:
    listed = body.get("partitions") or []
    return [entry for entry in listed if isinstance(entry, Mapping) and entry.get("topic") == topic]


def _any(fields: Mapping[str, Any], *names: str, default: Any = None) -> Any:
    return next((fields[name] for name in names if fields.get(name) is not None), default)
