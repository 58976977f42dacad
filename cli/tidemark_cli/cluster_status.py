"""One picture of a cluster for `status` and the demo, read from whoever has it.

Pure readers of: the controller's /v1/status, and the PartitionSlice and Broker objects of a
Kubernetes namespace.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tidemark_cli.failures import EXIT_USAGE, CommandFailed
from tidemark_cli.metadata import (
    PartitionView,
    TopicView,
    UnreadableAnswer,
    read_partition,
)
from tidemark_cli.open_conditions import OpenCondition


@dataclass(frozen=True, slots=True)
class BrokerRow:
    broker_id: int
    state: str
    broker_epoch: int = -1
    http_url: str = ""
    rack: str = ""
    pool: str = ""
    pid: int | None = None  # local mode only


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    brokers: tuple[BrokerRow, ...] = ()
    topics: tuple[TopicView, ...] = ()
    conditions: tuple[OpenCondition, ...] = ()
    has_controller: bool = True  # False: the asked controller does not lead, and shows nothing

    @property
    def broker_urls(self) -> tuple[str, ...]:
        return tuple(broker.http_url for broker in self.brokers if broker.http_url)

    def topic(self, name: str) -> TopicView | None:
        return next((topic for topic in self.topics if topic.topic == name), None)

    def broker(self, broker_id: int) -> BrokerRow | None:
        return next((row for row in self.brokers if row.broker_id == broker_id), None)

    def check_brokers(self, pool: str, broker_ids: Iterable[int]) -> None:
        """Raises CommandFailed where one of them never was in that pool, or is gone for good."""
        known = {
            row.broker_id
            for row in self.brokers
            if row.pool.rpartition("/")[2] == pool and row.state != "Gone"
        }
        unknown = sorted(set(broker_ids) - known)
        if unknown:
            raise CommandFailed(
                expected=f"brokers of BrokerPool {pool}: {_listing(known) or 'none yet'}",
                found=_listing(unknown),
                to_do="take the ids from `tidemark status`; a higher spec.replicas of the"
                " BrokerPool brings more brokers",
                exit_code=EXIT_USAGE,
            )


def _listing(broker_ids: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(broker_ids)))


def read_status(body: Any) -> ClusterStatus:
    """The controller's GET /v1/status: all pools that it serves."""
    pools = body.get("pools") if isinstance(body, Mapping) else None
    if not isinstance(pools, list):
        raise UnreadableAnswer(f"expected a status with 'pools', found {str(body)[:200]}")
    try:
        return ClusterStatus(
            has_controller=body.get("leads") is not False,
            brokers=tuple(
                _read_broker(str(pool["pool"]), broker)
                for pool in pools
                for broker in pool["brokers"]
            ),
            topics=tuple(
                TopicView(str(topic["topic"]), tuple(map(read_partition, topic["partitions"])))
                for pool in pools
                for topic in pool["topics"]
                if not topic.get("retained")
            ),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableAnswer(f"expected a controller's status, found no {error}") from error


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
                pool=str(broker["spec"].get("pool", "")),
            )
        )
    by_topic: dict[str, list[PartitionView]] = {}
    for partition_slice in slices:
        if partition_slice.get("retained") or partition_slice.get("deleted"):
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


def _read_broker(pool: str, body: Mapping[str, Any]) -> BrokerRow:
    pid = body.get("pid")
    return BrokerRow(
        broker_id=int(body["brokerId"]),
        state=str(body["state"]),
        broker_epoch=int(body.get("brokerEpoch", -1)),
        http_url=_endpoint_url(body),
        rack=str(body.get("rack", "")),
        pool=pool,
        pid=int(pid) if pid else None,
    )


def _endpoint_url(endpoints: Mapping[str, Any]) -> str:
    return str(endpoints.get("advertisedHttpUrl") or "").rstrip("/")
