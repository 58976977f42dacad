"""What a process says of itself and of its volume when it registers."""

from tidemark_protocol.controller_messages import (
    Endpoints,
    RegisterRequest,
    ReplicaReport,
    StorageIdentity,
)
from tidemark_protocol.ids import Offset

from tidemark_broker.runtime.settings import BrokerSettings
from tidemark_broker.storage.log_directory import LogDirectory
from tidemark_broker.storage.partition_log import PartitionLog


def registration_request(
    settings: BrokerSettings, directory: LogDirectory, *, incarnation: str, endpoints: Endpoints
) -> RegisterRequest:
    """`endpoints`: as they are bound now."""
    return RegisterRequest(
        pool=settings.pool,
        broker_id=settings.broker_id,
        cluster_id=directory.cluster_id,
        incarnation=incarnation,
        endpoints=endpoints,
        rack=settings.rack,
        storage=StorageIdentity(
            directory.directory_id, settings.claim_uid, settings.pod_uid, settings.boot_id
        ),
        clean_stop_epoch=directory.clean_stop_epoch,
        highest_controller_epoch=directory.highest_controller_epoch,
        highest_broker_epoch=directory.highest_broker_epoch,
        highest_producer_id=directory.highest_producer_id,
        replicas=replica_reports(directory),
        boot_stamp=directory.boot_stamp,
        disk_stamp=directory.proofs.disk_stamp,
    )


def is_marked_failed(log: PartitionLog) -> bool:
    """It was reported failed for a corrupt batch, maybe in a former life, and that is not over."""
    known = log.damage_mark.damage
    return known is not None and known.is_reported


def replica_reports(directory: LogDirectory) -> tuple[ReplicaReport, ...]:
    """What is on disk (S9, S14), with each replica's own checkpointed high watermark."""
    return tuple(
        ReplicaReport(
            topic_id=topic_id,
            partition=partition,
            last_epoch=log.latest_epoch,
            log_end_offset=log.log_end_offset,
            high_watermark=directory.high_watermarks.get((topic_id, partition), Offset(0)),
            failed=bool(log.failure) or is_marked_failed(log),
        )
        for (topic_id, partition), log in tuple(directory.logs.items())
    )
