"""Decide the registration of a broker process: its epoch, and which entries stay valid (S2, S9).

Decision and epoch are one compare-and-set of the Broker object, durable before the broker receives
them. Two things show that a log is complete: the clean shutdown of the stored epoch, or that its
process was only killed. Everything doubtful is unclean. That the disk is the one of the stored
epoch shows less, and enough for what was synced before it was acknowledged (S14).
`tidemark_broker.log.clean_shutdown` keeps these records on the volume.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tidemark_protocol.controller_messages import (
    BootRecord,
    RegisterRequest,
    ReplicaReport,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import NO_EPOCH, BrokerEpoch, ControllerEpoch, TopicId
from tidemark_protocol.partition_state import PartitionState

from tidemark_operator.api.broker import (
    MAX_BROKERS,
    NO_ROUND,
    BrokerControlState,
    BrokerRecord,
    round_of,
)
from tidemark_operator.controller.core.eligibility import Replica


@dataclass(frozen=True, slots=True)
class Accepted:
    record: BrokerRecord
    is_clean: bool
    is_same_epoch: bool  # the very process again: its answer was lost, or it was asked to report


@dataclass(frozen=True, slots=True)
class RegistrationError:
    error: ErrorCode
    message: str


def decided(
    request: RegisterRequest,
    *,
    stored: BrokerRecord | None,
    highest_epoch: BrokerEpoch,
    cluster_id: str,
    controller_epoch: ControllerEpoch,
    replaced: Collection[str] = (),
    lost_round: int = NO_ROUND,
) -> Accepted | RegistrationError:
    """Return the accepted record or the error.

    `highest_epoch` is of all Broker objects of the pool, `cluster_id` the pool's. `replaced` are
    incarnations of this broker that another one followed, as far as known. `lost_round` is not
    below any round of a lost record (S5).
    """
    if request.cluster_id and request.cluster_id != cluster_id:
        return RegistrationError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"broker {request.broker_id}: the volume belongs to cluster {request.cluster_id},"
            f" expected cluster {cluster_id} of pool {request.pool}: mount the right volume"
            " or an empty one",
        )
    problem = _problem(request)
    if problem:
        return RegistrationError(ErrorCode.INVALID_REGISTRATION, problem)
    if stored is not None and stored.incarnation == request.incarnation:
        is_clean = stored.clean_since < stored.broker_epoch
        return Accepted(stored, is_clean=is_clean, is_same_epoch=True)
    if is_replaced(request, replaced):
        return RegistrationError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {request.broker_id}: a later process has registered with this broker ID",
        )
    epoch = BrokerEpoch(1 + max(highest_epoch, request.highest_broker_epoch, 0))
    is_clean = stored is not None and is_clean_start(request, stored)
    is_disk_retained = is_clean or (stored is not None and is_same_disk(request, stored))
    record = BrokerRecord(
        pool=request.pool,
        broker_id=request.broker_id,
        broker_epoch=epoch,
        clean_since=stored.clean_since if stored is not None and is_clean else epoch,
        disk_since=stored.disk_since if stored is not None and is_disk_retained else epoch,
        controller_epoch=controller_epoch,
        state=BrokerControlState.STARTING,
        incarnation=request.incarnation,
        endpoints=request.endpoints,
        rack=request.rack,
        storage=request.storage,
        cluster_id=cluster_id,
        producer_id_round=max(
            NO_ROUND if stored is None else stored.producer_id_round,
            round_of(request.highest_producer_id),  # S5
            lost_round,
        ),
    )
    return Accepted(record, is_clean=is_clean, is_same_epoch=False)


def _problem(request: RegisterRequest) -> str:
    if not 0 <= request.broker_id < MAX_BROKERS:
        return f"broker id: expected 0 to {MAX_BROKERS - 1}, found {request.broker_id}"
    if not request.incarnation:
        return "incarnation: expected the UUID of the process, found none"
    texts = (
        ("incarnation", request.incarnation, 64),
        ("endpoints.host", request.endpoints.host, 253),
        ("endpoints.advertised_http_url", request.endpoints.advertised_http_url, 512),
        ("rack", request.rack, 253),
        ("storage.directory_id", request.storage.directory_id, 64),
        ("storage.claim_uid", request.storage.claim_uid, 64),
        ("storage.pod_uid", request.storage.pod_uid, 64),
        ("storage.boot_id", request.storage.boot_id, 64),
    )
    for name, text, limit in texts:
        if len(text) > limit:
            return f"{name}: expected at most {limit} characters, found {len(text)}"
    return ""


# guard: replaced-process-gets-no-life (S2)
def is_replaced(request: RegisterRequest, replaced: Collection[str]) -> bool:
    """Return whether the request is late or repeated: its process was already replaced.

    A process registers before its successor, never after. As a new registration it would end the
    present epoch, and invalidate its entries.
    """
    return request.incarnation in replaced


# guard: earlier-process-gets-no-life (S2)
def is_of_before(request: RegisterRequest, stored: BrokerRecord) -> bool:
    """Return whether the process or its volume is older than the stored epoch.

    The stored process writes its epoch to the volume before it polls, and this volume does not have
    it: the process is older, or the volume is an older copy.
    """
    return (
        is_same_volume(request, stored)
        and request.incarnation != stored.incarnation
        and request.highest_broker_epoch < stored.broker_epoch
    )


# guard: clean-start (S1)
def is_clean_start(request: RegisterRequest, stored: BrokerRecord) -> bool:
    """Return whether all that the earlier epoch had is still there; False if in doubt."""
    return (
        # guard: failed-storage-starts-unclean (S8)
        not is_storage_failed(stored)
        and is_same_volume(request, stored)
        and (is_stopped_cleanly(request, stored) or is_only_killed(request, stored))
    )


# guard: same-disk (S14)
def is_same_disk(request: RegisterRequest, stored: BrokerRecord) -> bool:
    """Return whether all that the earlier epoch synced is still there; False if in doubt (S14).

    Its kernel may have gone with the rest.
    """
    return (
        # guard: failed-storage-voids-disk (S8)
        not is_storage_failed(stored)
        and is_same_volume(request, stored)
        and is_stamped_by(request, stored)
    )


def is_storage_failed(stored: BrokerRecord) -> bool:
    """Return whether the disk lost a write in that epoch (S8).

    None of its records counts then.
    """
    return stored.clean_since > stored.broker_epoch


# guard: same-volume (S7)
def is_same_volume(request: RegisterRequest, stored: BrokerRecord) -> bool:
    """Return whether the volume is neither empty nor of another history."""
    return request.storage.directory_id == stored.storage.directory_id


# guard: stop-proof-of-stored-life (S7)
def is_stopped_cleanly(request: RegisterRequest, stored: BrokerRecord) -> bool:
    """Return whether the clean shutdown file is of the stored epoch.

    One of an earlier epoch is on a volume restored from a snapshot (S7).
    """
    return stored.broker_epoch != NO_EPOCH and request.clean_stop_epoch == stored.broker_epoch


# guard: boot-stamp-of-stored-life (S1)
def is_only_killed(request: RegisterRequest, stored: BrokerRecord) -> bool:
    """Return whether the earlier process was only killed (S1, S7).

    The boot record on the volume, what is stored of that epoch, and the requesting process are all
    of one run of the kernel, one pod and one claim. Unknown values count as different.
    """
    now, then = request.storage, stored.storage
    if not now.boot_id or not now.pod_uid or request.boot_stamp is None:
        return False
    return (
        request.boot_stamp
        == BootRecord(then.boot_id, then.pod_uid, then.claim_uid, stored.broker_epoch)
        == BootRecord(now.boot_id, now.pod_uid, now.claim_uid, stored.broker_epoch)
    )


# guard: disk-stamp-of-stored-life (S14)
def is_stamped_by(request: RegisterRequest, stored: BrokerRecord) -> bool:
    """Return whether the volume served the stored epoch last, and is still the same claim.

    One restored from a snapshot has the boot record of an earlier epoch, or is another claim (S7).
    Unknown values count as different.
    """
    now, then = request.storage, stored.storage
    if not now.claim_uid or request.disk_stamp is None:
        return False
    return (
        request.disk_stamp
        == BootRecord(then.boot_id, then.pod_uid, then.claim_uid, stored.broker_epoch)
        == BootRecord(then.boot_id, then.pod_uid, now.claim_uid, stored.broker_epoch)
    )


def report_of(request: RegisterRequest) -> dict[Replica, ReplicaReport]:
    return {(report.topic_id, report.partition): report for report in request.replicas}


def lost_replicas(
    report: Mapping[Replica, ReplicaReport],
    assigned: Iterable[tuple[TopicId, tuple[PartitionState, ...]]],
    request: RegisterRequest,
) -> frozenset[Replica]:
    """Return the replicas assigned here that are missing, failed, or too short (S9).

    Too short is a log that ends before its own high watermark checkpoint.
    """
    lost = set()
    for topic_id, partitions in assigned:
        for partition in partitions:
            if request.broker_id not in partition.replicas:
                continue
            found = report.get((topic_id, partition.partition))
            if is_lost(found):
                lost.add((topic_id, partition.partition))
    return frozenset(lost)


def found_replicas(report: Mapping[Replica, ReplicaReport]) -> frozenset[Replica]:
    return frozenset(replica for replica, found in report.items() if not is_lost(found))


# guard: lost-replica (S9)
def is_lost(found: ReplicaReport | None) -> bool:
    return found is None or found.failed or found.log_end_offset < found.high_watermark
