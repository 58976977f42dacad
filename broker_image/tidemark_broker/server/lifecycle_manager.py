"""Register this broker with the controller, and keep one long poll open.

The controller's decisions arrive as responses to the poll; what changes here (ready, stopping, a
suspect) is sent immediately by a second poll, which makes the controller answer the first. Commands
of a deposed controller are dropped by its epoch (I16); a higher epoch is stored on disk before
anything of it is applied (S16).

STALE_BROKER_EPOCH means that another process registered under our id. This one stops serving and
ends with an exit code: a new start is the one path to a broker epoch, with its clean shutdown
records, and the pause before a restart keeps two such processes from fencing each other without
end. (A request to register again, for a fresh report, is answered within this epoch: S14.)
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec
from tidemark_protocol.controller_messages import (
    HEARTBEAT_PATH,
    REGISTER_PATH,
    BootRecord,
    CommittedTruncation,
    Endpoints,
    HeartbeatRequest,
    MalformedMessage,
    RegisterRequest,
    RegisterResponse,
    ReplicaReport,
    StorageIdentity,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import (
    NO_EPOCH,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
)

from tidemark_broker.kafka_wire.records.errors import StorageError
from tidemark_broker.log.errors import DiskFull
from tidemark_broker.log.log_manager import LogKey, LogManager
from tidemark_broker.log.partition_log import PartitionLog
from tidemark_broker.metadata.controller_channel import ControllerChannel, ControllerUnavailable
from tidemark_broker.metadata.received_push import ReceivedHeartbeat, ReceivedPush
from tidemark_broker.replication.partition_observer import PartitionObserver
from tidemark_broker.replication.replica_manager import ReplicaManager
from tidemark_broker.server.applied_pushes import AppliedPushes
from tidemark_broker.server.config import BrokerConfig
from tidemark_broker.server.epoch_store import LogDirectoryEpochStore

FIRST_RETRY_SECONDS = 0.05
MAX_RETRY_SECONDS = 1.0
REGISTER_TIMEOUT_MS = 5000
MAX_OPEN_POLLS = 2  # the long poll, and one that interrupts it
REPORTS_AT_A_TIME = 1000  # some 2 ms
PATIENCE_SHARE = 6  # of a session: so long a poll waits for what its answer brings

_log = logging.getLogger(__name__)


class RegistrationRejected(Exception):
    """An error: only a person can change the controller's answer."""


@dataclass(frozen=True, slots=True)
class SessionCallbacks:
    on_superseded: Callable[[str], None]  # this life of the broker is over
    disk_probe_age_ms: Callable[[], int]
    oldest_append_age_ms: Callable[[], int]
    wall_clock_s: Callable[[], float]
    on_grown: Callable[[], None] = lambda: None  # logs were made


def next_retry(delay_seconds: float, attempt_seconds: float) -> float:
    """Return how long to wait after a failed or rejected attempt; 0 for the first delay.

    One that hung has waited already, and kept its broker from asking the controller that leads
    meanwhile: delays start again.
    """
    if attempt_seconds > MAX_RETRY_SECONDS:
        return FIRST_RETRY_SECONDS
    return min(max(2 * delay_seconds, FIRST_RETRY_SECONDS), MAX_RETRY_SECONDS)


class BrokerLifecycleManager(PartitionObserver):
    def __init__(
        self,
        channel: ControllerChannel,
        partitions: ReplicaManager,
        directory: LogManager,
        epoch_store: LogDirectoryEpochStore,
        *,
        make_registration: Callable[[], RegisterRequest],
        callbacks: SessionCallbacks,
    ) -> None:
        self.is_fenced = True
        self.may_stop = asyncio.Event()
        # Stored at the controller: this life's storage failed, or it is another's turn. Either
        # way no start can be taken for a clean one after this life any more (S8).
        self.is_clean_shutdown_invalid = asyncio.Event()
        self._channel = channel
        self._partitions = partitions
        self._directory = directory
        self._epoch_store = epoch_store
        self._make_registration = make_registration
        self._callbacks = callbacks
        self._incarnation = ""
        self._wants_to_serve = False
        self._wants_to_stop = False
        self._storage_failed = False
        self._heartbeats = 0
        self._suspects: set[BrokerId] = set()
        self._has_change = asyncio.Event()
        self._pushes = AppliedPushes(
            partitions,
            directory,
            controller_epoch=lambda: channel.controller_epoch,
            on_grown=callbacks.on_grown,
        )
        self._registering = asyncio.Lock()

    @property
    def broker_epoch(self) -> BrokerEpoch:
        return self._channel.broker_epoch

    @property
    def problem(self) -> str:
        """Return why the controller was not reached last; "" if it was."""
        return self._channel.problem

    # ---- what changes here

    def serve(self) -> None:
        self._wants_to_serve = True
        self._has_change.set()

    def stop(self) -> None:
        self._wants_to_stop = True
        self._has_change.set()

    def fail_storage(self) -> None:
        self._storage_failed = True
        self._has_change.set()

    def suspect(self, broker_id: BrokerId) -> None:
        if broker_id not in self._suspects:
            _log.info("suspected broker", extra={"suspect": broker_id})
        self._suspects.add(broker_id)
        self._has_change.set()

    def on_committed_truncation(self, cut: CommittedTruncation) -> None:
        self._has_change.set()

    async def retry_failed_roles(self) -> None:
        await self._pushes.retry_failed_roles()

    # ---- registration

    async def register(self) -> RegisterResponse:
        """Register with the controller; retry all addresses without limit.

        A superseded process is ended elsewhere. Raises RegistrationRejected.
        """
        delay = 0.0
        while True:
            request = await self._registration()
            self._incarnation = request.incarnation
            began = asyncio.get_running_loop().time()
            try:
                response = await self._channel.call(
                    REGISTER_PATH, request, RegisterResponse, timeout_ms=REGISTER_TIMEOUT_MS
                )
            except ControllerUnavailable as error:
                self._channel.record_problem("registration", str(error))
            else:
                if response.error is ErrorCode.NONE:
                    if self._is_of_this_epoch(response):
                        await self._take_registration(request.storage, response)
                    return response
                if response.error is ErrorCode.INCONSISTENT_CLUSTER_ID:
                    raise RegistrationRejected(response.message)
                if response.error is ErrorCode.STALE_BROKER_EPOCH:
                    self._callbacks.on_superseded(
                        response.message
                    )  # the caller of `register` ends this task
                if response.error is ErrorCode.NOT_CONTROLLER:
                    self._channel.prefer(response.controller_address)
                self._channel.record_problem(
                    "registration", f"{response.error.name}: {response.message}"
                )
            delay = next_retry(delay, asyncio.get_running_loop().time() - began)
            await asyncio.sleep(delay)

    # guard: registration-of-this-life (I14)
    def _is_of_this_epoch(self, response: RegisterResponse) -> bool:
        """Return whether the response has this process's epoch.

        A process has one epoch. What it leads was assigned in that epoch (S2).
        """
        return self.broker_epoch in (NO_EPOCH, response.broker_epoch)

    # guard: report-claims-no-later-version (S14)
    async def _registration(self) -> RegisterRequest:
        """Return a new request each time (S14).

        The broker continues to follow while the controller is asked. Its logs are read a part at
        a time, other tasks run in between: the version is read first, so that each log is at least
        as the version says.
        """
        metadata = self._partitions.metadata
        applied = (metadata.controller_epoch, metadata.image_version)
        replicas = await self._replica_reports()
        return replace(
            self._make_registration(),
            applied_controller_epoch=applied[0],
            applied_image_version=applied[1],
            replicas=replicas,
        )

    async def _replica_reports(self) -> tuple[ReplicaReport, ...]:
        reports: list[ReplicaReport] = []
        logs = tuple(self._directory.logs.copy().items())
        for at in range(0, len(logs), REPORTS_AT_A_TIME):
            part = logs[at : at + REPORTS_AT_A_TIME]
            reports.extend(replica_report(self._directory, *each) for each in part)
            await asyncio.sleep(0)
        return tuple(reports)

    async def _take_registration(
        self, storage: StorageIdentity, response: RegisterResponse
    ) -> None:
        self._channel.clear_problem()
        is_first = self.broker_epoch == NO_EPOCH
        self._channel.on_registration(response)
        try:
            if response.cluster_id and response.cluster_id != self._directory.cluster_id:
                await self._epoch_store.write(self._directory.set_cluster_id, response.cluster_id)
            if is_first:
                await self._epoch_store.write(self._directory.lower_high_watermarks)
            if await self._channel.accept(response.controller_epoch) and is_first:
                await self._stamp(storage, response.broker_epoch)
        except StorageError as error:
            self._partitions.fail_storage(error)
            return
        if is_first:
            self._partitions.set_broker_epoch(response.broker_epoch)
            _log.info(
                "registered",
                extra={
                    "broker_epoch": response.broker_epoch,
                    "controller_epoch": response.controller_epoch,
                    "is_clean": response.is_clean,
                },
            )

    async def _stamp(self, storage: StorageIdentity, broker_epoch: BrokerEpoch) -> None:
        """Write the boot record (S1).

        The response shows that the decision on this start is durable; not before.
        """
        stamp = BootRecord(storage.boot_id, storage.pod_uid, storage.claim_uid, broker_epoch)
        try:
            await asyncio.to_thread(self._directory.write_boot_record, stamp)
        except DiskFull as error:
            _log.warning(
                "boot record not written: a kill counts as an unclean shutdown",
                extra={"reason": str(error)},
            )

    async def _register_again(self, reason: str) -> None:
        """Send the fresh report that was requested; another epoch ends this process."""
        async with self._registering:
            epoch = self.broker_epoch
            _log.info("registering again", extra={"reason": reason})
            response = await self.register()
            if response.broker_epoch != epoch:
                self._callbacks.on_superseded(
                    f"broker epoch {response.broker_epoch} replaced broker epoch {epoch}"
                )

    # ---- the poll

    async def run(self) -> None:
        """Keep the session until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_polling(tasks), name="heartbeats")

    async def _keep_polling(self, tasks: asyncio.TaskGroup) -> None:
        polls: set[asyncio.Task[None]] = set()
        while True:
            if not polls or (self._has_change.is_set() and len(polls) < MAX_OPEN_POLLS):
                self._has_change.clear()
                poll = tasks.create_task(self._poll(tasks), name="heartbeat")
                polls.add(poll)
            waits: set[asyncio.Task[object]] = set(polls)
            news: asyncio.Task[object] | None = None
            if len(polls) < MAX_OPEN_POLLS:
                news = tasks.create_task(self._has_change.wait(), name="heartbeat-news")
                waits.add(news)
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if news is not None:
                news.cancel()
            polls = {poll for poll in polls if not poll.done()}

    async def _poll(self, tasks: asyncio.TaskGroup) -> None:
        """Send one heartbeat and handle its response; pause if there is none.

        What takes long of that runs in the background.
        """
        request = self._heartbeat()
        try:
            response = await self._channel.call(
                HEARTBEAT_PATH,
                request,
                ReceivedHeartbeat,
                # Longer than a poll is held, and half a session: a controller that went away
                # must not cost the session (KAFKA-14392).
                timeout_ms=self._channel.session_timeout_ms // 2,
            )
        except ControllerUnavailable as error:
            self._suspects.update(request.suspects)
            self._channel.record_problem("heartbeat", str(error))
            await asyncio.sleep(FIRST_RETRY_SECONDS)
            return
        match response.error:
            case ErrorCode.NONE:
                # Logs of thousands of partitions take a while: the session goes on meanwhile.
                taking = tasks.create_task(
                    self._on_heartbeat(request, response), name="heartbeat-answer"
                )
                patience_seconds = self._channel.session_timeout_ms / 1000 / PATIENCE_SHARE
                await asyncio.wait((taking,), timeout=patience_seconds)
            case ErrorCode.NOT_CONTROLLER:
                self._suspects.update(request.suspects)
                self._channel.prefer(response.controller_address)
                self._channel.record_problem("heartbeat", "no active controller yet")
                await asyncio.sleep(FIRST_RETRY_SECONDS)
            case ErrorCode.BROKER_ID_NOT_REGISTERED:
                await self._register_again(response.message)
            case ErrorCode.STALE_BROKER_EPOCH:
                if response.controller_epoch >= self._channel.controller_epoch:
                    self.is_clean_shutdown_invalid.set()
                    self._callbacks.on_superseded(response.message)
                await asyncio.sleep(FIRST_RETRY_SECONDS)
            case _:
                text = f"{response.error.name}: {response.message}"
                self._channel.record_problem("heartbeat", text)
                await asyncio.sleep(MAX_RETRY_SECONDS)

    def _heartbeat(self) -> HeartbeatRequest:
        metadata = self._partitions.metadata
        suspects = tuple(sorted(self._suspects))
        self._suspects.clear()
        self._heartbeats += 1
        return HeartbeatRequest(
            pool=self._channel.pool,
            broker_id=self._partitions.broker_id,
            broker_epoch=self.broker_epoch,
            incarnation=self._incarnation,
            applied_controller_epoch=metadata.controller_epoch,
            applied_image_version=metadata.image_version,
            wants_to_serve=self._wants_to_serve and not self._storage_failed,
            wants_to_stop=self._wants_to_stop,
            suspects=suspects,
            oldest_append_age_ms=self._callbacks.oldest_append_age_ms(),
            disk_probe_age_ms=self._callbacks.disk_probe_age_ms(),
            storage_failed=self._storage_failed,
            held_epochs=metadata.held_epochs,
            failed_replicas=tuple(
                ReplicaReport(*key, LeaderEpoch(-1), Offset(-1), Offset(-1), failed=True)
                for key in self._partitions.failed_replicas
            ),
            sent_at_ms=int(self._callbacks.wall_clock_s() * 1000),
            committed_cuts=self._partitions.committed_cuts.unrecorded(),
            number=self._heartbeats,
            disk_free_bytes=self._partitions.disk_space.free_bytes,
            disk_size_bytes=self._partitions.disk_space.total_bytes,
        )

    async def _on_heartbeat(self, request: HeartbeatRequest, response: ReceivedHeartbeat) -> None:
        if response.is_storage_failure_recorded:
            self.is_clean_shutdown_invalid.set()
        if response.controller_epoch == NO_EPOCH:
            return  # only makes room for the newer poll
        if not await self._channel.accept(response.controller_epoch):
            return
        if response.are_cuts_recorded:
            self._partitions.committed_cuts.record_recorded(request.committed_cuts)
        self._channel.clear_problem()
        if self.is_fenced != response.is_fenced:
            self.is_fenced = response.is_fenced
            _log.info("fenced" if response.is_fenced else "serving")
        if response.has_push and not await self._apply_push(request, response.push):
            return
        if response.are_failures_settled:  # an answer may come before all of its wishes are granted
            failed = ((report.topic_id, report.partition) for report in request.failed_replicas)
            self._partitions.record_failures_acknowledged(failed)
        if response.may_stop and self._wants_to_stop:
            self.may_stop.set()

    async def _apply_push(self, request: HeartbeatRequest, encoded: msgspec.Raw) -> bool:
        """Apply a push.

        False if a newer one has all of it, which comes with an answer of its own, or if it cannot
        be decoded.
        """
        try:
            return await self._pushes.apply(request, ReceivedPush(encoded))
        except MalformedMessage as error:
            self._channel.record_problem("heartbeat", str(error))
            return False


def registration_request(
    settings: BrokerConfig, directory: LogManager, *, incarnation: str, endpoints: Endpoints
) -> RegisterRequest:
    """Return the registration without replicas; `endpoints` are as bound now."""
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
        boot_stamp=directory.boot_stamp,
        disk_stamp=directory.clean_shutdown.disk_stamp,
    )


def is_marked_failed(log: PartitionLog) -> bool:
    """Return whether the log was reported failed for a corrupt batch, and that is not over.

    An earlier process may have reported it.
    """
    known = log.corruption_marker.corruption
    return known is not None and known.is_reported


def replica_report(directory: LogManager, key: LogKey, log: PartitionLog) -> ReplicaReport:
    """Return what is on disk (S9, S14), with the replica's own checkpointed high watermark."""
    topic_id, partition = key
    return ReplicaReport(
        topic_id=topic_id,
        partition=partition,
        last_epoch=log.latest_epoch,
        log_end_offset=log.log_end_offset,
        high_watermark=directory.high_watermarks.get(key, Offset(0)),
        failed=bool(log.failure) or is_marked_failed(log),
    )
