"""Define the messages between brokers and the controller, and their JSON.

HTTP POST to the controller API: `/v1/register`, `/v1/heartbeat`, `/v1/alter-partition`,
`/v1/allocate-producer-ids`. Bodies are the JSON of these values, decoded strictly (`decode` raises
`MalformedMessage` naming the place). The heartbeat is a long poll: the response comes at the
heartbeat interval, or immediately when there is something to push. A response with `error ==
NOT_CONTROLLER` has the leader's address if known.

Each push has (controller epoch, image version); a broker drops older ones (S25).
"""

from dataclasses import dataclass
from typing import TypeVar

import msgspec

from tidemark_protocol.error_codes import ErrorCode
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

MAX_MESSAGE_BYTES = 64 * 1024 * 1024

REGISTER_PATH = "/v1/register"
HEARTBEAT_PATH = "/v1/heartbeat"
ALTER_PARTITION_PATH = "/v1/alter-partition"
ALLOCATE_PRODUCER_IDS_PATH = "/v1/allocate-producer-ids"


class MalformedMessage(Exception):
    """An error: the bytes are not the expected message; the text names the place."""


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The addresses of a broker: its own for other brokers, the advertised one for clients."""

    host: str
    kafka_port: int
    http_port: int
    advertised_http_url: str  # as clients see it, e.g. http://default-0.shop.svc:8080, no end slash
    replication_port: int = 0  # of the listener for replicas; 0: brokers use the Kafka port
    has_tls: bool = False  # on the ports above, for brokers and the controller


@dataclass(frozen=True, slots=True)
class StorageIdentity:
    """The volume and its mount, which tell a restart from a replacement (S7)."""

    directory_id: str  # from meta.properties; new for an empty volume
    claim_uid: str = ""
    pod_uid: str = ""
    boot_id: str = ""


@dataclass(frozen=True, slots=True)
class BootRecord:
    """The mount under which a broker epoch had its volume open (S1, S7).

    The volume says so after a kill. A killed process loses nothing that `write()` returned, as long
    as the same kernel (`boot_id`) has the same claim mounted for the same pod.
    """

    boot_id: str
    pod_uid: str
    claim_uid: str
    broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """A replica found on disk at the start (S9, S14)."""

    topic_id: TopicId
    partition: int
    last_epoch: LeaderEpoch
    log_end_offset: Offset
    high_watermark: Offset  # its own checkpoint
    failed: bool = False


@dataclass(frozen=True, slots=True)
class RegisterRequest:
    pool: str  # namespace/name: broker ids are unique within a pool only
    broker_id: BrokerId
    cluster_id: str  # from meta.properties; empty on a new volume
    incarnation: str  # UUID of this process
    endpoints: Endpoints
    rack: str
    storage: StorageIdentity
    clean_stop_epoch: BrokerEpoch  # the epoch that the stop proof names; -1: no proof
    highest_controller_epoch: ControllerEpoch  # highest ever seen, from disk (S16)
    highest_broker_epoch: BrokerEpoch
    highest_producer_id: int
    replicas: tuple[ReplicaReport, ...] = ()
    boot_stamp: BootRecord | None = None  # of the former life; None: no proof of a mere kill
    # Of the life that this volume's disk served last; None: no proof, or something speaks against
    # it. Its kernel may be gone: it stands for what was synced, and for nothing else (S14).
    disk_stamp: BootRecord | None = None
    # What was applied before `replicas` were looked at; -1: nothing yet, so they stood still (S14).
    applied_controller_epoch: ControllerEpoch = ControllerEpoch(-1)
    applied_image_version: int = -1


@dataclass(frozen=True, slots=True)
class RegisterResponse:
    error: ErrorCode
    message: str = ""
    controller_epoch: ControllerEpoch = ControllerEpoch(-1)
    controller_address: str = ""  # host:port of the leading controller, with NOT_CONTROLLER
    broker_epoch: BrokerEpoch = BrokerEpoch(-1)
    cluster_id: str = ""
    is_clean: bool = False  # the durable verdict on this start
    session_timeout_ms: int = 3000
    heartbeat_interval_ms: int = 500


@dataclass(frozen=True, slots=True)
class ReportedEpoch:
    """A partition whose epochs on this broker are above those pushed (S17)."""

    topic_id: TopicId
    partition: int
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    has_other_state: bool = False  # the pushed one has the same partition epoch, and differs


@dataclass(frozen=True, slots=True)
class CommittedTruncation:
    """A truncation of a follower below its own high watermark, to follow `leader_epoch`'s leader.

    It is the cost of an unclean election. The positions are of the log before the first truncation
    in that leader epoch, so a second report of it says no less.
    """

    topic_id: TopicId
    partition: int
    leader_epoch: LeaderEpoch
    to_offset: Offset
    last_epoch: LeaderEpoch
    log_end_offset: Offset
    high_watermark: Offset


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    pool: str
    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    incarnation: str
    applied_controller_epoch: ControllerEpoch  # of the last push applied; -1: none
    applied_image_version: int
    wants_to_serve: bool  # logs are open and listeners are up: may be unfenced
    wants_to_stop: bool  # SIGTERM: controlled shutdown
    suspects: tuple[BrokerId, ...] = ()  # leaders whose replication connection broke
    oldest_append_age_ms: int = 0
    disk_probe_age_ms: int = 0
    storage_failed: bool = False
    held_epochs: tuple[ReportedEpoch, ...] = ()
    failed_replicas: tuple[ReplicaReport, ...] = ()
    sent_at_ms: int = 0  # the broker's wall clock: how far it is from the controller's; 0: unsaid
    committed_cuts: tuple[
        CommittedTruncation, ...
    ] = ()  # until an answer says that they are recorded
    number: int = 0  # rises from one heartbeat of a process to the next: two may be under way
    # Of the volume of the logs; -1: not known yet, or a broker that does not report it.
    disk_free_bytes: int = -1
    disk_size_bytes: int = -1


@dataclass(frozen=True, slots=True)
class BrokerState:
    """A broker as all others know it.

    Fenced brokers are included: ISR expansion needs their epochs.
    """

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    is_fenced: bool
    is_stopping: bool  # in controlled shutdown, or being fenced: may not enter an ISR
    endpoints: Endpoints
    rack: str = ""


@dataclass(frozen=True, slots=True)
class TopicPush:
    """A topic with its changed partitions (all of them in a full push).

    A push may name a topic twice: elected partitions come first.

    Only `is_deleted` means deletion; absence never does (S12). `is_retained`: its Topic is deleted,
    its replicas are kept without a leader, and clients do not see it.
    """

    topic: TopicState
    partitions: tuple[PartitionState, ...]
    is_deleted: bool = False
    is_retained: bool = False


@dataclass(frozen=True, slots=True)
class ClientQuota:
    """What a client id may use of each broker; None is the default, else unlimited."""

    client_id: str  # "": the default, of every client id by itself
    produce_bytes_per_second: int | None = None
    fetch_bytes_per_second: int | None = None
    request_percentage: float | None = None  # of the time of a broker's event loop


@dataclass(frozen=True, slots=True)
class ListenerAddress:
    """A broker's address for clients of a named listener."""

    listener: str
    broker_id: BrokerId
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class MetadataPush:
    """The state up to `image_version`.

    `is_full` for the first push after a registration or a change of controller; else it has what
    changed since the version that the broker reported as applied.
    """

    controller_epoch: ControllerEpoch
    image_version: int
    is_full: bool
    brokers: tuple[BrokerState, ...]  # always all brokers of the pool
    topics: tuple[TopicPush, ...]
    move_bytes_per_second: int = 0  # per broker, for replicas that are being added; 0: unlimited
    quotas: tuple[ClientQuota, ...] | None = None  # None: the controller has not read them yet
    addresses: tuple[ListenerAddress, ...] | None = None  # the same


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """All of a HeartbeatResponse but the push."""

    error: ErrorCode
    message: str = ""
    controller_epoch: ControllerEpoch = ControllerEpoch(-1)
    controller_address: str = ""
    is_fenced: bool = True
    may_stop: bool = False
    is_storage_failure_recorded: bool = False  # stored: the next start is unclean (S8)
    are_cuts_recorded: bool = False  # what this heartbeat's `committed_cuts` cost is stored
    are_failures_settled: bool = False  # no stored set counts on this heartbeat's `failed_replicas`


@dataclass(frozen=True, slots=True)
class HeartbeatResponse(HeartbeatAnswer):
    push: MetadataPush | None = None


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """A leader's proposal of a new ISR (Kafka's AlterPartition, one partition)."""

    topic_id: TopicId
    partition: int
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch  # the one the proposal is based on
    new_in_sync_replicas: tuple[Member, ...]  # broker_epoch -1: no fetch seen from it yet


@dataclass(frozen=True, slots=True)
class AlterPartitionRequest:
    pool: str
    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    proposals: tuple[IsrProposal, ...]


@dataclass(frozen=True, slots=True)
class IsrResult:
    """The result of a proposal; `state` is the complete durable state, also with an error."""

    topic_id: TopicId
    partition: int
    error: ErrorCode
    state: PartitionState | None = None


@dataclass(frozen=True, slots=True)
class AlterPartitionResponse:
    error: ErrorCode  # of the whole request: STALE_BROKER_EPOCH, NOT_CONTROLLER
    message: str = ""
    controller_epoch: ControllerEpoch = ControllerEpoch(-1)
    answers: tuple[IsrResult, ...] = ()


@dataclass(frozen=True, slots=True)
class AllocateProducerIdsRequest:
    """A registered broker's request for a block of producer ids (Kafka's, KIP-730)."""

    pool: str
    broker_id: BrokerId
    broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class AllocateProducerIdsResponse:
    """A block of producer ids that is this broker's alone.

    It has `count` ids from `first_producer_id` on; a block whose response was lost is never
    allocated again (S5). Errors: NOT_CONTROLLER, STALE_BROKER_EPOCH, REQUEST_TIMED_OUT (the counter
    could not be written: ask again).
    """

    error: ErrorCode
    message: str = ""
    controller_epoch: ControllerEpoch = ControllerEpoch(-1)
    controller_address: str = ""  # with NOT_CONTROLLER
    first_producer_id: int = -1
    count: int = 0


Message = TypeVar("Message")


def encode(message: object) -> bytes:
    return msgspec.json.encode(message)


def decode(data: bytes | msgspec.Raw, kind: type[Message]) -> Message:
    """Decode a message.

    Raises MalformedMessage with the JSON path of the first mismatch.
    """
    if len(data) > MAX_MESSAGE_BYTES:
        raise MalformedMessage(
            f"{kind.__name__}: expected at most {MAX_MESSAGE_BYTES} bytes, found {len(data)}"
        )
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage(f"{kind.__name__}: {error}") from error
