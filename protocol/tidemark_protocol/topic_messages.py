"""Messages by which a broker asks for changes of topics on behalf of its clients, in JSON.

HTTP POST to the controller API, each with the paths below, encoded as `controller_messages` are.
What is changed is the Topic object, so that an answer means: it is stored, and the operator will
make it so; brokers see the outcome in their pushes. One result for each thing asked for, in that
order. A request that changes nothing more when it comes twice is why each has a `request_id`.
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
class AskingBroker:
    """Who asks: a broker that is registered with this epoch, else STALE_BROKER_EPOCH."""

    pool: str
    broker_id: BrokerId
    broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class NewTopic:
    """`assignments`: the brokers of each partition from 0 on, the first one preferred as leader;
    then the two counts are DEFAULT_COUNT. `may_adopt`: data that a former topic of this name left
    behind is taken up, else it is a reason to refuse."""

    topic: str
    partition_count: int = DEFAULT_COUNT
    replication_factor: int = DEFAULT_COUNT
    assignments: tuple[tuple[BrokerId, ...], ...] = ()
    config: dict[str, str] = field(default_factory=dict)
    deletion_policy: str = "Delete"  # Delete | Retain
    may_adopt: bool = False


@dataclass(frozen=True, slots=True)
class CreateTopicsRequest:
    """`request_id`: the same when it is asked again, so that what was made for it the first time
    is no reason to refuse (the answer may have been lost)."""

    broker: AskingBroker
    request_id: str
    topics: tuple[NewTopic, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class DoomedTopic:
    """Only the topic of that id, unless it is empty."""

    topic: str
    topic_id: TopicId = TopicId("")


@dataclass(frozen=True, slots=True)
class DeleteTopicsRequest:
    broker: AskingBroker
    request_id: str
    topics: tuple[DoomedTopic, ...]


@dataclass(frozen=True, slots=True)
class GrownTopic:
    """`assignments` of the new partitions only, or none."""

    topic: str
    partition_count: int  # of all partitions then
    assignments: tuple[tuple[BrokerId, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class AddPartitionsRequest:
    broker: AskingBroker
    request_id: str
    topics: tuple[GrownTopic, ...]
    validate_only: bool = False


class ConfigOperation(IntEnum):
    """Numbers of KIP-339. Append and subtract: of configs that are lists."""

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
class AlteredTopic:
    """`replaces_all`: configs that are not named go back to their defaults."""

    topic: str
    changes: tuple[ConfigChange, ...]
    replaces_all: bool = False


@dataclass(frozen=True, slots=True)
class AlterConfigsRequest:
    broker: AskingBroker
    request_id: str
    topics: tuple[AlteredTopic, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class Reassignment:
    """`replicas` None: the move under way is turned back."""

    topic: str
    partition: int
    replicas: tuple[BrokerId, ...] | None


@dataclass(frozen=True, slots=True)
class ReassignPartitionsRequest:
    broker: AskingBroker
    request_id: str
    reassignments: tuple[Reassignment, ...]
    may_change_replication_factor: bool = True


@dataclass(frozen=True, slots=True)
class ElectedPartition:
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class ElectLeadersRequest:
    """The preferred leaders, or with `unclean` whoever of the live ones lost the least."""

    broker: AskingBroker
    request_id: str
    partitions: tuple[ElectedPartition, ...]
    unclean: bool = False


@dataclass(frozen=True, slots=True)
class AppliedVersionRequest:
    """Up to where every live broker has applied the controller's pushes: so that a client finds
    what it has just made at whichever broker it asks next."""

    broker: AskingBroker


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
    """Of one topic, or one partition of it. `message` is for the client's user. The rest is of a
    topic that was made, or would be."""

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
    """`error`: of the whole request: NOT_CONTROLLER, STALE_BROKER_EPOCH, INVALID_REQUEST."""

    error: ErrorCode
    message: str = ""
    controller_epoch: ControllerEpoch = ControllerEpoch(-1)
    controller_address: str = ""  # with NOT_CONTROLLER
    results: tuple[TopicResult, ...] = ()
    applied_version: int = -1  # answers AppliedVersionRequest; -1: not known
