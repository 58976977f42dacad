"""Merge what brokers say of leaders and addresses into a client's view.

A partition's view moves only to the same or higher epochs, so a broker that lags behind cannot send
clients back to a dead leader (I14).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

NO_LEADER = -1


class UnreadableResponse(Exception):
    """An error: a body is not what the HTTP API documents; the text names the place."""


@dataclass(frozen=True, slots=True)
class PartitionView:
    partition: int
    leader: int  # broker id; NO_LEADER while there is none
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    partition_epoch: int = -1
    min_insync_replicas: int = -1
    high_watermark: int = -1
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    eligible_leaders: tuple[int, ...] = ()  # not in sync, but known to hold all committed records

    @property
    def is_moving(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def epochs(self) -> tuple[int, int]:
        return self.leader_epoch, self.partition_epoch

    @property
    def is_fully_in_sync(self) -> bool:
        return self.leader != NO_LEADER and set(self.in_sync_replicas) == set(self.replicas)


@dataclass(frozen=True, slots=True)
class TopicView:
    topic: str
    partitions: tuple[PartitionView, ...]
    pool: str = ""  # the name of its BrokerPool; "" where only a broker was asked
    object_name: str = ""  # metadata.name of the Topic that it belongs to
    topic_id: str = ""  # of a broker's answer: another one of the same name has another

    @property
    def is_internal(self) -> bool:
        return self.topic.startswith("__")

    @property
    def is_leaderless(self) -> bool:
        return any(view.leader == NO_LEADER for view in self.partitions)

    @property
    def is_fully_in_sync(self) -> bool:
        return bool(self.partitions) and all(view.is_fully_in_sync for view in self.partitions)


@dataclass(slots=True)
class ClusterMetadata:
    """The merged view; `on_...` return whether anything changed."""

    broker_urls: dict[int, str] = field(default_factory=dict)
    topics: dict[str, dict[int, PartitionView]] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)  # as they were told last

    def on_brokers(self, broker_urls: Mapping[int, str]) -> bool:
        if all(self.broker_urls.get(broker_id) == url for broker_id, url in broker_urls.items()):
            return False
        self.broker_urls.update(broker_urls)
        return True

    def on_topic(self, view: TopicView) -> bool:
        known = self.topics.setdefault(view.topic, {})
        self.topic_ids[view.topic] = view.topic_id
        has_changed = False
        for partition in view.partitions:
            before = known.get(partition.partition)
            if before is not None and partition.epochs < before.epochs:
                continue  # I14: an older view never replaces a newer one
            if before != partition:
                known[partition.partition] = partition
                has_changed = True
        return has_changed

    def partition(self, topic: str, partition: int) -> PartitionView | None:
        return self.topics.get(topic, {}).get(partition)

    def leader_url(self, topic: str, partition: int) -> str | None:
        view = self.partition(topic, partition)
        return None if view is None else self.broker_urls.get(view.leader)

    def topic(self, topic: str) -> TopicView | None:
        known = self.topics.get(topic)
        if known is None:
            return None
        partitions = tuple(known[partition] for partition in sorted(known))
        return TopicView(topic, partitions, topic_id=self.topic_ids.get(topic, ""))


def read_topic(body: Any) -> TopicView:
    """Read the response of GET /topics/{topic}."""
    topic = _field(body, "name", "topic", "topicName")
    partitions = _field(body, "partitions")
    topic_id = str(_field(body, "topic_id", "topicId", default=""))
    return TopicView(str(topic), tuple(map(read_partition, partitions)), topic_id=topic_id)


def read_partition(body: Any) -> PartitionView:
    replicas = _field(body, "replicas")
    return PartitionView(
        partition=int(_field(body, "partition")),
        leader=_leader(body),
        leader_epoch=int(_field(body, "leader_epoch", "leaderEpoch", default=-1)),
        replicas=tuple(_broker_id(replica) for replica in replicas),
        in_sync_replicas=_in_sync(body, replicas),
        partition_epoch=int(_field(body, "partition_epoch", "partitionEpoch", default=-1)),
        min_insync_replicas=int(
            _field(
                body, "min_insync_replicas", "minInsyncReplicas", "min_isr", "minIsr", default=-1
            )
        ),
        high_watermark=int(_field(body, "high_watermark", "highWatermark", default=-1)),
        adding=tuple(int(each) for each in _field(body, "adding", default=())),
        removing=tuple(int(each) for each in _field(body, "removing", default=())),
        eligible_leaders=tuple(
            _broker_id(each) for each in _field(body, "eligibleLeaders", default=())
        ),
    )


def read_brokers(body: Any) -> dict[int, str]:
    """Read the response of GET /brokers: HTTP URL by broker id, where there is one."""
    brokers = body if isinstance(body, list) else _field(body, "brokers")
    urls = {}
    for broker in brokers:
        if isinstance(broker, Mapping):
            url = str(
                _field(
                    broker,
                    "http_url",
                    "httpUrl",
                    "advertised_http_url",
                    "advertisedHttpUrl",
                    "url",
                    default="",
                )
            )
            if url:
                urls[_broker_id(broker)] = url.rstrip("/")
    return urls


def read_topic_names(body: Any) -> tuple[str, ...]:
    """Read the response of GET /topics."""
    topics = body if isinstance(body, list) else _field(body, "topics")
    return tuple(
        topic if isinstance(topic, str) else str(_field(topic, "name", "topic")) for topic in topics
    )


def _leader(body: Any) -> int:
    leader = _field(body, "leader", default=NO_LEADER)
    return NO_LEADER if leader is None else int(leader)


def _broker_id(replica: Any) -> int:
    if isinstance(replica, int):
        return replica
    return int(_field(replica, "broker", "broker_id", "brokerId", "id"))


def _in_sync(body: Any, replicas: Sequence[Any]) -> tuple[int, ...]:
    listed = _field(body, "in_sync_replicas", "inSyncReplicas", "isr", default=None)
    if listed is not None:
        return tuple(_broker_id(member) for member in listed)
    return tuple(
        _broker_id(replica)
        for replica in replicas
        if isinstance(replica, Mapping) and _field(replica, "in_sync", "inSync", default=False)
    )


_REQUIRED = object()


def _field(body: Any, *names: str, default: Any = _REQUIRED) -> Any:
    if isinstance(body, Mapping):
        for name in names:
            if name in body:
                return body[name]
    if default is not _REQUIRED:
        return default
    raise UnreadableResponse(f"expected an object with {names[0]!r}, found {str(body)[:200]}")
