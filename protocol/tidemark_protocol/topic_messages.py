"""Define the messages by which a broker requests changes of topics for its clients.

HTTP POST to the controller API, each with its path below, encoded as `controller_messages` are. The
change is made to the Topic object, so a response means that it is stored and that the operator will
apply it; brokers see the result in their pushes. There is one result for each item, in the order of
the request. Each request has a `request_id`, so that a repeated one changes nothing more.
"""

from dataclasses import dataclass, field
from enum import IntEnum

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerEpoch, BrokerId, ControllerEpoch, TopicId

CREATE_TOPICS_PATH = "/v1/create-topics"
DELETE_TOPICS_PATH = "/v1/delete-topics"
ADD_PARTITIONS_PATH = "/v1/add-partitions"
ALTER_CONFIGS_PATH = "/v1/alter-topic-configs"
REASSIGN_PARTITIONS_PATH = "/v1/reassign-partitions"
ELECT_LEADERS_PATH = "/v1/elect-leaders"
APPLIED_VERSION_PATH = "/v1/applied-version"

MAX_CHANGES = 1000  # in one request
DEFAULT_COUNT = -1  # partitions or replicas as the pool has them by default


@dataclass(frozen=True, slots=True)
class RequestingBroker:
    """The requesting broker; it must be registered with this epoch, else STALE_BROKER_EPOCH."""

    pool: str
    broker_id: BrokerId
    broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create.

    `assignments` has the brokers of each partition from 0 on, the first one preferred as leader;
    then the two counts are DEFAULT_COUNT. With `may_adopt` retained data of an earlier topic of
    this name is adopted, else it is a reason to reject.
    """

    topic: str
    partition_count: int = DEFAULT_COUNT
    replication_factor: int = DEFAULT_COUNT
    assignments: tuple[tuple[BrokerId, ...], ...] = ()
    config: dict[str, str] = field(default_factory=dict)
    deletion_policy: str = "Delete"  # Delete | Retain
    may_adopt: bool = False


@dataclass(frozen=True, slots=True)
class CreateTopicsRequest:
    """A request to create topics.

    A repeated request has the same `request_id`, so that a topic which the first one created is no
    reason to reject (its response may have been lost).
    """

    broker: RequestingBroker
    request_id: str
    topics: tuple[NewTopic, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class TopicToDelete:
    """A topic to delete; only the topic of that id, unless it is empty."""

    topic: str
    topic_id: TopicId = TopicId("")


@dataclass(frozen=True, slots=True)
class DeleteTopicsRequest:
    broker: RequestingBroker
    request_id: str
    topics: tuple[TopicToDelete, ...]


@dataclass(frozen=True, slots=True)
class TopicToExpand:
    """A topic to grow; `assignments` are of the new partitions only, or none."""

    topic: str
    partition_count: int  # of all partitions then
    assignments: tuple[tuple[BrokerId, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class AddPartitionsRequest:
    broker: RequestingBroker
    request_id: str
    topics: tuple[TopicToExpand, ...]
    validate_only: bool = False


class ConfigOperation(IntEnum):
    """The operations of KIP-339; append and subtract are for configs that are lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigChange:
    name: str
    operation: ConfigOperation
    value: str = ""


@dataclass(frozen=True, slots=True)
class TopicToAlter:
    """Changed configs; with `replaces_all` the others return to their defaults."""

    topic: str
    changes: tuple[ConfigChange, ...]
    replaces_all: bool = False


@dataclass(frozen=True, slots=True)
class AlterConfigsRequest:
    broker: RequestingBroker
    request_id: str
    topics: tuple[TopicToAlter, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A move of replicas; `replicas` of None cancels the move."""

    topic: str
    partition: int
    replicas: tuple[BrokerId, ...] | None


@dataclass(frozen=True, slots=True)
class ReassignPartitionsRequest:
    broker: RequestingBroker
    request_id: str
    reassignments: tuple[Reassignment, ...]
    may_change_replication_factor: bool = True


@dataclass(frozen=True, slots=True)
class ElectedPartition:
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class ElectLeadersRequest:
    """An election of preferred leaders, or with `unclean` of the replica that lost least."""

    broker: RequestingBroker
    request_id: str
    partitions: tuple[ElectedPartition, ...]
    unclean: bool = False


@dataclass(frozen=True, slots=True)
class AppliedVersionRequest:
    """A request for the version of pushes that each live broker has applied.

    A client then finds what it has just created at any broker that it asks next.
    """

    broker: RequestingBroker


TopicsRequest = (
    AppliedVersionRequest
    | CreateTopicsRequest
    | DeleteTopicsRequest
    | AddPartitionsRequest
    | AlterConfigsRequest
    | ReassignPartitionsRequest
    | ElectLeadersRequest
)


@dataclass(frozen=True, slots=True)
class TopicResult:
    """The result of one topic or one partition of it.

    `message` is for the client's user. The other fields are of a topic that was, or would be,
    created.
    """

    topic: str
    error: ErrorCode
    message: str = ""
    partition: int = -1
    topic_id: TopicId = TopicId("")
    partition_count: int = -1
    replication_factor: int = -1
    config: dict[str, str] = field(default_factory=dict)  # effective values


@dataclass(frozen=True, slots=True)
class TopicsResponse:
    """The results, and the error of the request as a whole.

    It is NOT_CONTROLLER, STALE_BROKER_EPOCH or INVALID_REQUEST.
    """

    error: ErrorCode
    message: str = ""
    controller_epoch: ControllerEpoch = ControllerEpoch(-1)
    controller_address: str = ""  # with NOT_CONTROLLER
    results: tuple[TopicResult, ...] = ()
    applied_version: int = -1  # answers AppliedVersionRequest; -1: not known
