"""Read and write PartitionSlice objects (their JSON is in the CRDs).

Reading is strict about what decides (names, epochs, members) and raises MalformedObject with the
place. Fields that others wrote into an object are kept when it is written again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tidemark_protocol.controller_messages import CommittedTruncation
from tidemark_protocol.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    TopicId,
)
from tidemark_protocol.partition_state import Member, PartitionState, TopicState

from tidemark_operator.api.kinds import PARTITION_SLICE, Object
from tidemark_operator.api.unclean_election import UncleanCause, UncleanElection

PARTITIONS_PER_SLICE = 128

POOL_LABEL = "tidemark.dev/pool"


class MalformedObject(Exception):
    """An error: an object's fields are not what this controller writes.

    The text names the place.
    """


@dataclass(frozen=True, slots=True)
class PartitionSlice:
    pool: str  # namespace/name
    name: str
    topic: TopicState
    deletion_policy: str
    is_retained: bool
    controller_epoch: ControllerEpoch
    partitions: tuple[PartitionState, ...]
    resource_version: str = ""
    uid: str = ""
    topic_object: str = ""  # "": as the slices' names say
    recoveries: tuple[UncleanElection, ...] = ()  # the last one of each partition that had any

    @property
    def object_name(self) -> str:
        """Return metadata.name of the Topic.

        It differs from the prefix if the Topic adopted the data.
        """
        return self.topic_object or self.name_prefix

    @property
    def name_prefix(self) -> str:
        """Return the name of the Topic that the slices were created for."""
        return self.name.rpartition("-")[0]

    @property
    def index(self) -> int:
        """Return the slice's index: it has the partitions from index * PARTITIONS_PER_SLICE on."""
        return int(self.name.rpartition("-")[2])

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(state.partition for state in self.partitions)

    def with_partitions(self, partitions: tuple[PartitionState, ...]) -> "PartitionSlice":
        return self if partitions == self.partitions else replace(self, partitions=partitions)

    def with_unclean_elections(self, recoveries: tuple[UncleanElection, ...]) -> "PartitionSlice":
        return self if recoveries == self.recoveries else replace(self, recoveries=recoveries)

    def with_truncations(self, truncations: Sequence[CommittedTruncation]) -> "PartitionSlice":
        """Return the slice with these truncations; those of other topics are ignored."""
        mine = [cut for cut in truncations if cut.topic_id == self.topic.topic_id]
        return self.with_unclean_elections(
            tuple(
                each.with_truncations(cut for cut in mine if cut.partition == each.partition)
                for each in self.recoveries
            )
        )

    def unclean_election_of(self, partition: int) -> UncleanElection | None:
        return next((each for each in self.recoveries if each.partition == partition), None)


def slice_name(name_prefix: str, index: int) -> str:
    return f"{name_prefix}-{index}"


def split_pool(pool: str) -> tuple[str, str]:
    """Return (namespace, name) of "namespace/name"."""
    namespace, _, name = pool.partition("/")
    return namespace, name


def labels_of(pool: str) -> dict[str, str]:
    name = split_pool(pool)[1]
    return {
        "app.kubernetes.io/name": "tidemark",
        "app.kubernetes.io/managed-by": "tidemark-operator",
        "app.kubernetes.io/instance": name,
        POOL_LABEL: name,
    }


def slice_object(value: PartitionSlice) -> Object:
    """Return the object of a slice.

    It has no owner reference: slices outlive their Topic under Retain (S4).
    """
    namespace, _ = split_pool(value.pool)
    metadata: Object = {
        "namespace": namespace,
        "name": value.name,
        "labels": labels_of(value.pool),
    }
    if value.resource_version:
        metadata["resourceVersion"] = value.resource_version
        metadata["uid"] = value.uid
    topic = value.topic
    return {
        "apiVersion": PARTITION_SLICE.api_version,
        "kind": PARTITION_SLICE.kind,
        "metadata": metadata,
        "pool": value.pool,
        "topicObject": value.object_name,
        "topicName": topic.topic,
        "topicId": topic.topic_id,
        "deletionPolicy": value.deletion_policy,
        "retained": value.is_retained,
        "config": dict(topic.config),
        "commitRule": topic.commit_rule,
        "flush": topic.flush,
        "replicationFactor": topic.replication_factor,
        "partitionCount": topic.partition_count,
        "controllerEpoch": value.controller_epoch,
        "partitions": [_partition_json(state) for state in value.partitions],
        "recoveries": [
            _unclean_election_json(unclean_election) for unclean_election in value.recoveries
        ],
    }


def read_slice(item: Object) -> PartitionSlice:
    metadata = item["metadata"]
    place = f"PartitionSlice {metadata.get('namespace')}/{metadata.get('name')}"
    try:
        topic = TopicState(
            topic=item["topicName"],
            topic_id=TopicId(item["topicId"]),
            partition_count=int(item["partitionCount"]),
            replication_factor=int(item["replicationFactor"]),
            commit_rule=item["commitRule"],
            flush=item["flush"],
            config=dict(item.get("config", {})),
        )
        found = PartitionSlice(
            pool=item["pool"],
            name=metadata["name"],
            topic=topic,
            deletion_policy=item["deletionPolicy"],
            is_retained=bool(item.get("retained", False)),
            controller_epoch=ControllerEpoch(int(item["controllerEpoch"])),
            partitions=tuple(_read_partition(state) for state in item["partitions"]),
            resource_version=metadata["resourceVersion"],
            uid=metadata.get("uid", ""),
            topic_object=item.get("topicObject", ""),
            recoveries=tuple(_read_unclean_election(each) for each in item.get("recoveries", [])),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedObject(f"{place}: {type(error).__name__} {error}") from error
    flaw = _flaw_of_place(found, metadata.get("namespace", "")) or _flaw_of_states(found)
    if flaw:
        raise MalformedObject(f"{place}: {flaw}")
    return found


def read_slices(items: Iterable[Object]) -> tuple[list[PartitionSlice], list[str]]:
    """Return the slices that can be read, and a sentence about each of the others."""
    reader = SliceReader()
    read = (reader.read(item) for item in by_age(items))
    return [value for value in read if value is not None], reader.flaws


def by_age(items: Iterable[Object]) -> list[Object]:
    return sorted(items, key=_age_and_name)


class SliceReader:
    """A reader of slices by age.

    Of two objects with the same partitions of one topic the older one counts: the other is a copy.
    """

    def __init__(self) -> None:
        self.flaws: list[str] = []
        self._names: dict[tuple[str, TopicId, int], str] = {}

    def read(self, item: Object) -> PartitionSlice | None:
        """Return the slice, or None after adding a sentence to `flaws`."""
        try:
            value = read_slice(item)
        except MalformedObject as error:
            self.flaws.append(str(error))
            return None
        first = self._names.setdefault((value.pool, value.topic.topic_id, value.index), value.name)
        if first == value.name:
            return value
        self.flaws.append(
            f"PartitionSlice {split_pool(value.pool)[0]}/{value.name}: duplicates the"
            f" partitions of the older {first}: delete this copy"
        )
        return None


def _age_and_name(item: Object) -> tuple[str, str]:
    metadata = item["metadata"]
    return metadata.get("creationTimestamp") or "", metadata.get("name") or ""


def _flaw_of_place(value: PartitionSlice, namespace: str) -> str:
    """Return a sentence about an object that was copied to another name or namespace, or ""."""
    if split_pool(value.pool)[0] != namespace:
        return f"pool {value.pool} is in another namespace"
    index = value.name.rpartition("-")[2]
    if (
        not index.isdecimal()
        or not index.isascii()
        or value.name != slice_name(value.name_prefix, int(index))
    ):
        return "expected a name that ends in the slice's index"
    first = value.index * PARTITIONS_PER_SLICE
    numbers = value.numbers
    if len(set(numbers)) != len(numbers):
        return f"a partition appears twice: {list(numbers)}"
    if any(not first <= number < first + PARTITIONS_PER_SLICE for number in numbers):
        return f"expected partitions from {first} on by its name, found {list(numbers)}"
    return ""


def _flaw_of_states(value: PartitionSlice) -> str:
    for state in value.partitions:
        flaw = _flaw_of_state(state)
        if flaw:
            return f"partition {state.partition}: {flaw}"
    return ""


def _flaw_of_state(state: PartitionState) -> str:
    """Return a sentence about a state that only an edited object has (I12, I18), or ""."""
    replicas = set(state.replicas)
    if len(replicas) != len(state.replicas) or not replicas:
        return f"expected distinct replicas, found {list(state.replicas)}"
    entries = [m.broker_id for m in (*state.in_sync_replicas, *state.eligible_leaders)]
    if len(set(entries)) != len(entries) or not replicas.issuperset(entries):
        return f"expected isr and eligibleLeaders to be disjoint and among {list(state.replicas)}"
    if state.has_leader and state.leader not in state.in_sync_ids:
        return f"leader {state.leader} is not in the isr"
    if not replicas.issuperset((*state.adding_replicas, *state.removing_replicas)):
        return f"expected adding and removing among {list(state.replicas)}"
    return ""


def _partition_json(state: PartitionState) -> Object:
    return {
        "partition": state.partition,
        "replicas": list(state.replicas),
        "adding": list(state.adding_replicas),
        "removing": list(state.removing_replicas),
        "leader": state.leader,
        "leaderBrokerEpoch": state.leader_broker_epoch,
        "leaderEpoch": state.leader_epoch,
        "isr": [_member_json(member) for member in state.in_sync_replicas],
        "eligibleLeaders": [_member_json(member) for member in state.eligible_leaders],
        "partitionEpoch": state.partition_epoch,
        "minIsr": state.min_insync_replicas,
    }


def _read_partition(item: Object) -> PartitionState:
    return PartitionState(
        partition=int(item["partition"]),
        replicas=tuple(BrokerId(int(number)) for number in item["replicas"]),
        leader=BrokerId(int(item["leader"])),
        leader_broker_epoch=BrokerEpoch(int(item["leaderBrokerEpoch"])),
        leader_epoch=LeaderEpoch(int(item["leaderEpoch"])),
        in_sync_replicas=tuple(_read_member(member) for member in item["isr"]),
        eligible_leaders=tuple(_read_member(member) for member in item["eligibleLeaders"]),
        partition_epoch=PartitionEpoch(int(item["partitionEpoch"])),
        min_insync_replicas=int(item["minIsr"]),
        adding_replicas=tuple(BrokerId(int(number)) for number in item.get("adding", [])),
        removing_replicas=tuple(BrokerId(int(number)) for number in item.get("removing", [])),
    )


def _member_json(member: Member) -> dict[str, int]:
    return {"id": member.broker_id, "epoch": member.broker_epoch}


def _read_member(item: Object) -> Member:
    return Member(BrokerId(int(item["id"])), BrokerEpoch(int(item["epoch"])))


def _unclean_election_json(unclean_election: UncleanElection) -> Object:
    return {
        "partition": unclean_election.partition,
        "cause": unclean_election.cause.value,
        "leaderEpoch": unclean_election.leader_epoch,
        "leader": unclean_election.leader,
        "startOffset": unclean_election.start_offset,
        "unheard": list(unclean_election.unheard),
        "lostRecords": unclean_election.lost_records,
        "lostCommitted": unclean_election.lost_committed,
    }


def _read_unclean_election(item: Object) -> UncleanElection:
    return UncleanElection(
        partition=int(item["partition"]),
        cause=UncleanCause(item["cause"]),
        leader_epoch=LeaderEpoch(int(item["leaderEpoch"])),
        leader=BrokerId(int(item["leader"])),
        start_offset=Offset(int(item["startOffset"])),
        unheard=tuple(BrokerId(int(number)) for number in item.get("unheard", [])),
        lost_records=int(item.get("lostRecords", 0)),
        lost_committed=int(item.get("lostCommitted", 0)),
    )
