"""Read the state of a cluster for `status` and the demo.

It comes from the controller's /v1/status, or from the PartitionSlice and Broker objects of a
Kubernetes namespace. `open_conditions` returns only the conditions of Topics and BrokerPools that
need attention.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tidemark_client.errors import CommandFailed
from tidemark_client.metadata import PartitionView, TopicView, UnreadableResponse, read_partition

TOLD_WHEN_TRUE = frozenset({"Attention", "Moving"})  # all others are well when they are True
NO_FAULTS = frozenset({"Closed"})  # an open pool may be meant: kubectl get brokerpool says it


@dataclass(frozen=True, slots=True)
class OpenCondition:
    kind: str  # Topic | BrokerPool
    name: str  # metadata.name
    type: str
    reason: str
    message: str

    def __str__(self) -> str:
        what = self.type if self.type in TOLD_WHEN_TRUE else f"not {self.type}"
        return f"{self.kind.lower()}/{self.name}: {what}: {self.message}"


def open_conditions(kind: str, items: Iterable[Mapping[str, Any]]) -> Iterator[OpenCondition]:
    """Yield the conditions that need attention, in the order of the objects."""
    for item in items:
        for condition in (item.get("status") or {}).get("conditions") or ():
            name, type_ = str(item["metadata"]["name"]), str(condition["type"])
            if type_ in NO_FAULTS:
                continue
            if (condition["status"] == "True") == (type_ in TOLD_WHEN_TRUE):
                reason, message = (
                    str(condition.get("reason", "")),
                    str(condition.get("message", "")),
                )
                yield OpenCondition(kind, name, type_, reason, message)


@dataclass(frozen=True, slots=True)
class ReadyCondition:
    is_true: bool
    reason: str
    message: str
    is_of_this_spec: bool  # whether the operator has seen the present spec


def ready_condition(item: Mapping[str, Any]) -> ReadyCondition | None:
    """Return the condition Ready, or None before the operator has seen the object."""
    for condition in (item.get("status") or {}).get("conditions") or ():
        if condition["type"] == "Ready":
            seen = int((item.get("status") or {}).get("observedGeneration", 0))
            return ReadyCondition(
                condition["status"] == "True",
                str(condition.get("reason", "")),
                str(condition.get("message", "")),
                seen >= int(item["metadata"].get("generation", 0)),
            )
    return None


NOT_UP = frozenset({"Starting", "Fenced"})


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
    retained: tuple[TopicView, ...] = ()  # kept after their Topics went, not served
    has_controller: bool = True  # False: the asked controller does not lead, and shows nothing

    @property
    def broker_urls(self) -> tuple[str, ...]:
        return tuple(broker.http_url for broker in self.brokers if broker.http_url)

    @property
    def active_urls(self) -> tuple[str, ...]:
        return tuple(row.http_url for row in self.brokers if row.http_url and row.state == "Active")

    @property
    def pools(self) -> tuple[str, ...]:
        named = {row.pool for row in self.brokers} | {view.pool for view in self.topics}
        return tuple(sorted(named - {""}))

    @property
    def is_starting(self) -> bool:
        """Return whether a broker that should run is not up yet, as far as its state tells."""
        return any(row.state in NOT_UP for row in self.brokers)

    @property
    def starting_sentence(self) -> str:
        """Return a sentence such as `1 of 5 brokers up`."""
        wanted = [row for row in self.brokers if row.state != "Gone"]
        up = sum(row.state not in NOT_UP for row in wanted)
        return f"{up} of {len(wanted)} brokers up"

    def of_pool(self, pool: str) -> "ClusterStatus":
        return replace(
            self,
            brokers=tuple(row for row in self.brokers if row.pool == pool),
            topics=tuple(view for view in self.topics if view.pool == pool),
            retained=tuple(view for view in self.retained if view.pool == pool),
        )

    def topic(self, name: str, pool: str | None = None) -> TopicView | None:
        """Return a topic by name; without a pool the one of the pool default comes first."""
        found = [v for v in self.topics if v.topic == name and pool in (None, v.pool)]
        return min(found, key=lambda view: (view.pool != "default", view.pool), default=None)

    def topic_of_object(self, object_name: str) -> TopicView | None:
        """Return the topic of the Topic with that metadata.name, not of one with its topicName."""
        return next((view for view in self.topics if view.object_name == object_name), None)

    def broker(self, broker_id: int) -> BrokerRow | None:
        return next((row for row in self.brokers if row.broker_id == broker_id), None)

    def check_brokers(self, pool: str, broker_ids: Iterable[int]) -> None:
        """Raise CommandFailed if one of the brokers was never in that pool, or is removed."""
        known = {row.broker_id for row in self.brokers if row.pool == pool and row.state != "Gone"}
        unknown = sorted(set(broker_ids) - known)
        if unknown:
            raise CommandFailed(
                f"BrokerPool {pool!r} has no broker {_listing(unknown)}."
                f" Brokers: {_listing(known) or 'none yet'}",
                expected=f"brokers of BrokerPool {pool}: {_listing(known) or 'none yet'}",
                found=_listing(unknown),
                to_do="find the IDs with `tidemark status`; raise spec.replicas of the BrokerPool"
                " to add brokers",
            )


def _listing(broker_ids: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(broker_ids)))


def read_status(body: Any) -> ClusterStatus:
    """Read the controller's GET /v1/status: all pools that it serves."""
    pools = body.get("pools") if isinstance(body, Mapping) else None
    if not isinstance(pools, list):
        raise UnreadableResponse(f'expected a status with "pools", found {str(body)[:200]}')
    try:
        of_topics = [
            (bool(topic.get("retained")), _read_topic(str(pool["pool"]), topic))
            for pool in pools
            for topic in pool["topics"]
        ]
        return ClusterStatus(
            has_controller=body.get("leads") is not False,
            brokers=tuple(
                _read_broker(str(pool["pool"]), broker)
                for pool in pools
                for broker in pool["brokers"]
            ),
            topics=tuple(view for is_retained, view in of_topics if not is_retained),
            retained=tuple(view for is_retained, view in of_topics if is_retained),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableResponse(f"expected a controller's status, found no {error}") from error


def _read_topic(pool: str, topic: Mapping[str, Any]) -> TopicView:
    return TopicView(
        str(topic["topic"]),
        tuple(map(read_partition, topic["partitions"])),
        pool=_name_of_pool(pool),
        object_name=str(topic.get("objectName") or topic["topic"]),
    )


def read_broker_rows(body: Any) -> tuple[BrokerRow, ...]:
    """Read a broker's GET /brokers: its metadata of its pool."""
    try:
        pool = _name_of_pool(str(body.get("pool", "")))
        rows = [
            BrokerRow(
                broker_id=int(_either(each, "brokerId", "broker_id")),
                state="Fenced"
                if _either(each, "isFenced", "is_fenced")
                else "Stopping"
                if _either(each, "isStopping", "is_stopping")
                else "Active",
                broker_epoch=int(_either(each, "brokerEpoch", "broker_epoch")),
                http_url=str(_either(each, "httpUrl", "http_url")).rstrip("/"),
                rack=str(each.get("rack") or ""),
                pool=pool,
            )
            for each in body["brokers"]
        ]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnreadableResponse(
            f"expected a broker's list of brokers, found no {error}"
        ) from error
    return tuple(sorted(rows, key=lambda row: row.broker_id))


class KafkaAddress(NamedTuple):
    host: str
    port: int
    is_tls: bool = False


def read_broker_addresses(body: Any) -> dict[int, KafkaAddress]:
    """Read a broker's GET /brokers: host and Kafka port by broker id."""
    try:
        return {
            int(_either(each, "brokerId", "broker_id")): KafkaAddress(
                str(each["host"]),
                int(_either(each, "kafkaPort", "kafka_port")),
                str(each.get("http_url", each.get("httpUrl", ""))).startswith("https://"),
            )
            for each in body["brokers"]
        }
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableResponse(
            f"expected a broker's list of brokers, found no {error}"
        ) from error


def _either(body: Mapping[str, Any], name: str, previous: str) -> Any:
    """Return the value under either key; brokers may write both styles."""
    return body[name] if name in body else body[previous]


def status_of_objects(
    brokers: Iterable[Mapping[str, Any]], slices: Iterable[Mapping[str, Any]]
) -> ClusterStatus:
    """Return the status from Broker and PartitionSlice objects."""
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
                pool=_name_of_pool(str(broker["spec"].get("pool", ""))),
            )
        )
    by_topic: dict[tuple[str, str, str, bool], list[PartitionView]] = {}
    for part in slices:
        if part.get("deleted"):
            continue
        topic, pool = str(part["topicName"]), _name_of_pool(str(part.get("pool", "")))
        key = (topic, pool, str(part.get("topicObject") or topic), bool(part.get("retained")))
        views = by_topic.setdefault(key, [])
        views.extend(read_partition(partition) for partition in part["partitions"])
    of_topics = [
        (
            is_retained,
            TopicView(topic, tuple(sorted(views, key=_number)), pool=pool, object_name=object_name),
        )
        for (topic, pool, object_name, is_retained), views in sorted(by_topic.items())
    ]
    return ClusterStatus(
        brokers=tuple(sorted(rows, key=lambda row: (row.pool, row.broker_id))),
        topics=tuple(view for is_retained, view in of_topics if not is_retained),
        retained=tuple(view for is_retained, view in of_topics if is_retained),
    )


def _number(view: PartitionView) -> int:
    return view.partition


def _read_broker(pool: str, body: Mapping[str, Any]) -> BrokerRow:
    pid = body.get("pid")
    return BrokerRow(
        broker_id=int(body["brokerId"]),
        state=str(body["state"]),
        broker_epoch=int(body.get("brokerEpoch", -1)),
        http_url=_endpoint_url(body),
        rack=str(body.get("rack", "")),
        pool=_name_of_pool(pool),
        pid=int(pid) if pid else None,
    )


def _name_of_pool(pool: str) -> str:
    """Return the name of `namespace/name`, as the controller calls a pool."""
    return pool.rpartition("/")[2]


def _endpoint_url(endpoints: Mapping[str, Any]) -> str:
    return str(endpoints.get("advertisedHttpUrl") or "").rstrip("/")
