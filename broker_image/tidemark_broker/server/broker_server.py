"""Run one broker process from lock to exit: connect all parts, decide nothing about replication.

Start: HTTP (health, produce and fetch at once, the rest later), lock of the log directory, logs,
register, Kafka server, serve. SIGTERM: controlled shutdown, with a limit; then flush, checkpoints,
the clean shutdown file, exit 0. A second signal does not wait for the controller. A storage failure
or a superseded identity ends the process without that file (S8), with a code that makes its runtime
start it again.

The end of a process whose disk failed (S8): a failed fsync may have dropped pages that the kernel
now calls clean, and the next process on the same kernel would find a log that looks complete. So
this one does not end before the controller stored that its storage failed, or the boot record is
off the volume: either makes the next start unclean. Both are tried at once and retried. If a kill
comes before, the next process writes what the disk may lack again, whatever it finds
(`log.recovery`).

Ticks: leaders check their followers' lag, and a stall of this process counts for none of them
(S21). A process that was frozen, or whose loop was blocked, did not serve its followers meanwhile.
Their lag is counted without that time, and the broker reads the fetches that arrived meanwhile
before it checks lag.
"""

import asyncio
import logging
import signal
from collections.abc import Coroutine, Mapping
from typing import Any
from uuid import UUID

from tidemark_protocol.connection_rejections import ConnectionRejections
from tidemark_protocol.controller_messages import Endpoints, RegisterRequest
from tidemark_protocol.ids import NO_EPOCH, BrokerId, Offset

from tidemark_broker.clock import monotonic_ms
from tidemark_broker.coordinator.group_coordinator_service import GroupCoordinatorService
from tidemark_broker.kafka.apis.fetch_sessions import MAX_SESSION_ID
from tidemark_broker.kafka.apis.handler_context import HandlerContext
from tidemark_broker.kafka.network.client_session import ListenerRules
from tidemark_broker.kafka.network.replica_rights import ReplicaRights
from tidemark_broker.kafka.network.request_metrics import KafkaRequestMetrics
from tidemark_broker.kafka.network.socket_server import SocketServer
from tidemark_broker.kafka_wire.records.errors import StorageError
from tidemark_broker.log.clean_shutdown import Mount
from tidemark_broker.log.disk import Disk
from tidemark_broker.log.errors import DirectoryLocked, DiskFull
from tidemark_broker.log.log_manager import LogKey, LogManager
from tidemark_broker.log.partition_log import LogSettings
from tidemark_broker.metadata.controller_channel import ControllerChannel
from tidemark_broker.metadata.leader_changes import LeaderChanges
from tidemark_broker.metadata.producer_id_manager import ProducerIdManager
from tidemark_broker.metadata.topic_admin_client import TopicAdminClient
from tidemark_broker.metrics.broker_metrics import MetricsProfile
from tidemark_broker.quota_manager import ClientQuotaManager
from tidemark_broker.replication.alter_partition import AlterPartitionManager
from tidemark_broker.replication.fetcher_manager import ReplicaFetcherManager
from tidemark_broker.replication.follower_fetch import FollowerFetchHandler
from tidemark_broker.replication.partition_observer import PartitionObserver
from tidemark_broker.replication.replica_manager import ReplicaManager
from tidemark_broker.security.authenticator import Authenticator
from tidemark_broker.security.authorizer import Authorizer
from tidemark_broker.security.certificate_renewal import CertificateRenewal
from tidemark_broker.security.client_connections import ClientConnections
from tidemark_broker.security.peer_addresses import PeerAddresses
from tidemark_broker.security.tls import TlsMode
from tidemark_broker.server.background.checkpointing import CheckpointWriter
from tidemark_broker.server.background.cleaner_scheduler import LogCleaner
from tidemark_broker.server.background.disk_probe import DiskProbe
from tidemark_broker.server.background.disk_space import DiskSpaceMonitor
from tidemark_broker.server.background.group_commit import GroupCommit
from tidemark_broker.server.background.replica_digests import ReplicaDigests
from tidemark_broker.server.config import BrokerConfig, broker_configs
from tidemark_broker.server.environment import BrokerEnvironment
from tidemark_broker.server.epoch_store import LogDirectoryEpochStore
from tidemark_broker.server.lifecycle_manager import (
    BrokerLifecycleManager,
    RegistrationRejected,
    SessionCallbacks,
    registration_request,
)

# The controller's record is the better end: it also fences us. So long it is waited for alone.
RECORD_LIMIT_SECONDS = 5.0
CERTIFICATE_TIMEOUT_MS = 5000
REMOVAL_RETRY_SECONDS = 0.5

_log = logging.getLogger(__name__)


async def invalidate_clean_shutdown(
    session: BrokerLifecycleManager,
    directory: LogManager,
    *,
    record_limit_seconds: float = RECORD_LIMIT_SECONDS,
) -> None:
    """Return once no later start can be taken for clean; `session` is polling."""
    session.fail_storage()
    removal = asyncio.create_task(remove_stored_boot_record(directory), name="boot-stamp-removal")
    record = asyncio.create_task(session.is_clean_shutdown_invalid.wait(), name="failure-record")
    try:
        await asyncio.wait((record,), timeout=record_limit_seconds)
        await asyncio.wait((record, removal), return_when=asyncio.FIRST_COMPLETED)
        _log.info(
            "clean shutdown file invalidated",
            extra={"recorded": record.done(), "stamp_removed": removal.done()},
        )
    finally:
        removal.cancel()
        record.cancel()


async def remove_stored_boot_record(directory: LogManager) -> None:
    """Remove the boot record; retry without limit.

    An end before that could be taken for a mere kill.
    """
    while True:
        try:
            await asyncio.to_thread(directory.remove_boot_record)
        except StorageError as error:
            _log.error("boot record not removed yet", extra={"reason": str(error)})
            await asyncio.sleep(REMOVAL_RETRY_SECONDS)
        else:
            return


TICK_SECONDS = 0.25
STALL_MS = 250  # a tick later than this was a stall
# Long enough for the loop to look at every connection at least once, whatever order it works in.
FETCHES_FIRST_SECONDS = 0.01


async def run_ticks(partitions: ReplicaManager, probe: DiskProbe) -> None:
    """Tick until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        began = loop.time()
        await asyncio.sleep(TICK_SECONDS)
        late_ms = int((loop.time() - began - TICK_SECONDS) * 1000)
        if late_ms > STALL_MS:
            _log.warning("event loop stalled", extra={"stall_ms": late_ms})
            probe.on_stall(late_ms)
            for _ in partitions.on_stall(late_ms):
                await asyncio.sleep(0)
            await asyncio.sleep(FETCHES_FIRST_SECONDS)
        for _ in partitions.ticking():
            await asyncio.sleep(0)


EXIT_CLEAN = 0
EXIT_CRASHED = 70
EXIT_STORAGE_FAILED = 74
EXIT_SUPERSEDED = 75  # start again: another life of this broker registered
EXIT_REJECTED = 78  # wrong volume or cluster: a human has to look

LOCK_RETRY_SECONDS = 0.1


class BrokerServer(PartitionObserver):
    def __init__(self, settings: BrokerConfig, environment: BrokerEnvironment) -> None:
        self.settings = settings
        self._environment = environment
        self.incarnation = str(environment.new_uuid())
        self.exit_code = EXIT_CLEAN
        self.directory: LogManager | None = None
        self.session: BrokerLifecycleManager | None = None
        self.kafka_port = settings.kafka_port
        self.http_port = settings.http_port
        self.replication_port = 0
        self._not_ready = "starting"
        self._loop = asyncio.get_running_loop()
        self.partitions = ReplicaManager(
            settings.broker_id,
            scheduler=self._loop,
            wall_clock_s=environment.wall_clock_s,
            replica_fetch_max_bytes=settings.replica_fetch_max_bytes,
            tls_listeners=settings.tls_listeners,
        )
        metadata = self.partitions.metadata
        self._channel = ControllerChannel(
            settings.controllers,
            environment.new_controller_transport,
            pool=settings.pool,
            broker_id=settings.broker_id,
            has_tls=settings.tls.ca_file is not None,
        )
        self.producer_ids = ProducerIdManager(self._channel.request_producer_ids)
        self.leader_changes = LeaderChanges(metadata, scheduler=self._loop)
        self._topic_admin = TopicAdminClient(
            metadata,
            ask=self._channel.request_topics,
            requesting=self._channel.requesting_broker,
        )
        self.authenticator = self._new_authenticator() if settings.authenticated_listeners else None
        self.authorizer = Authorizer(self._channel.review_accesses, pool=settings.pool)
        self.quotas = ClientQuotaManager(lambda: metadata.quotas)
        self.groups = GroupCoordinatorService(
            self.partitions,
            self._topic_admin,
            settings.groups,
            scheduler=self._loop,
            wall_clock_s=environment.wall_clock_s,
        )
        self._tls = environment.tls
        self._renewal = self._new_renewal(environment)
        self.request_metrics = KafkaRequestMetrics()
        self.client_connections = ClientConnections()
        self.rejections = ConnectionRejections(monotonic_ms)
        self._fetches = FollowerFetchHandler(self.partitions, scheduler=self._loop)
        self._stop = asyncio.Event()  # an end was asked for, in whatever way
        self._hurry = asyncio.Event()
        self._http_stop = asyncio.Event()
        self._http_up = asyncio.Event()
        self._storage_error: Exception | None = None
        self._stale = ""
        self._tasks: asyncio.TaskGroup | None = None
        self._background: list[asyncio.Task[None]] = []
        self._fetchers: ReplicaFetcherManager | None = None

    def _new_renewal(self, environment: BrokerEnvironment) -> CertificateRenewal | None:
        if environment.tls is None or environment.controllers is None:
            return None
        return CertificateRenewal(
            environment.tls,
            environment.controllers,
            sign=lambda pem, current_pem: self._channel.request_certificate(
                pem, current_pem, CERTIFICATE_TIMEOUT_MS
            ),
            wall_clock_s=environment.wall_clock_s,
        )

    def _new_authenticator(self) -> Authenticator:
        return Authenticator(
            self._channel.review,
            requesting=self._channel.requesting_broker,
            wall_clock_s=self._environment.wall_clock_s,
            random_prefix=self._environment.new_uuid().bytes,
        )

    def is_ready(self) -> tuple[bool, str]:
        if self._not_ready:
            return False, self._not_ready
        session = self.session
        if session is None or session.is_fenced:
            return False, "Fenced: " + (session.problem if session else "not registered")
        return True, ""

    # ---- life

    async def run(self) -> int:
        """Run the broker; return the exit code."""
        self._loop.set_exception_handler(self._on_loop_error)
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._on_signal)
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            http = tasks.create_task(self._serve_http(), name="http")
            try:
                await self._live()
            finally:
                self._http_stop.set()
            await http
        return self.exit_code

    async def _live(self) -> None:
        if not await self._until_stop(self._http_up.wait()):
            return
        directory = await self._open_directory()
        if directory is None:
            return
        self.directory = directory
        epoch_store = LogDirectoryEpochStore(
            directory, self.partitions, record_problem=self._channel.record_problem
        )
        await self._channel.start(epoch_store)
        try:
            await self._serve(directory, epoch_store)
        finally:
            self.partitions.stop("the broker process stops")  # however it does
            for task in self._background:  # before the workers that they use
                task.cancel()
            await self.authorizer.close()
            await self._channel.close()
            # I17: no worker may still write here once the lock is gone.
            await self._loop.shutdown_default_executor()
            directory.close()

    async def _serve(self, directory: LogManager, epoch_store: LogDirectoryEpochStore) -> None:
        alter_partition = AlterPartitionManager(
            send=self._channel.send_proposals, on_responses=self.partitions.on_in_sync_responses
        )
        checkpointing = self._wire(directory, epoch_store, alter_partition)
        if not await self._has_certificate():
            await self._leave_unregistered(directory, checkpointing)
            return
        try:
            listener = await self._start_listener(directory)
        except OSError:  # a port is taken: nothing was changed, and the next start may have it
            await self._leave_unregistered(directory, checkpointing)
            raise
        assert self.session is not None
        renewal = self._renewal
        if renewal is not None:
            self._start_background(renewal.run(self._use_certificate), "certificate-renewal")
        try:
            self._not_ready = "Starting: registering with the controller"
            try:
                if not await self._until_stop(self.session.register()):
                    await self._leave_unregistered(directory, checkpointing)
                    return
            except RegistrationRejected as error:
                _log.error("registration rejected", extra={"reason": str(error)})
                self.exit_code = EXIT_REJECTED
                await self._leave_unregistered(directory, checkpointing)
                return
            assert self._tasks is not None
            self._start_background(alter_partition.run(), "in-sync-proposals")
            polling = self._tasks.create_task(self.session.run(), name="controller-session")
            self._not_ready = ""
            self.session.serve()
            self._environment.on_serving()
            await self._stop.wait()
            await self._end_serving()
        finally:
            await listener.stop()
        try:
            await self._leave_disk(directory)
        finally:
            polling.cancel()

    # ---- start

    def _wire(
        self,
        directory: LogManager,
        epoch_store: LogDirectoryEpochStore,
        alter_partition: AlterPartitionManager,
    ) -> CheckpointWriter:
        assert self._tasks is not None
        partitions, settings = self.partitions, self.settings
        probe = DiskProbe(
            self._environment.disk, settings.data_directory, on_failure=partitions.fail_storage
        )
        self._fetchers = ReplicaFetcherManager(
            partitions,
            suspect=self._on_suspect,
            responded=self.leader_changes.on_response,
            tasks=self._tasks,
            addresses=PeerAddresses(self._tls, allows_plain=settings.tls.mode is TlsMode.OPTIONAL),
        )
        group_commit = GroupCommit(partitions, on_flushed=self._fetchers.kick)
        self.session = BrokerLifecycleManager(
            self._channel,
            partitions,
            directory,
            epoch_store,
            make_registration=lambda: self._registration(directory),
            callbacks=SessionCallbacks(
                on_superseded=self._on_superseded,
                disk_probe_age_ms=probe.age_ms,
                oldest_append_age_ms=group_commit.oldest_age_ms,
                wall_clock_s=self._environment.wall_clock_s,
                on_grown=self._environment.on_grown,
            ),
        )
        checkpointing = CheckpointWriter(
            partitions, directory, self._environment.wall_clock_s, settings.recovery_points
        )
        partitions.open(
            directory,
            submit=alter_partition.submit,
            observers=(  # in the order in which they handle an event
                self._fetches,
                self.groups,
                self._fetchers,
                group_commit,
                self.session,
                *self._digests(directory.reserve.data),
                checkpointing,
                self,
            ),
        )
        self._start_background(probe.run(), "disk-probe")
        self._start_background(group_commit.run(), "flusher")
        self._start_background(run_ticks(partitions, probe), "tick")
        space = DiskSpaceMonitor(
            self._environment.disk,
            settings.data_directory,
            partitions,
            keep_reserve=directory.reserve.keep,
            apply_roles=self.session.retry_failed_roles,
        )
        self._start_background(space.run(), "space-watch")
        cleaner = LogCleaner(partitions, directory.reserve.data, self._environment.wall_clock_s)
        self._start_background(cleaner.run(settings.log_cleaner_backoff_seconds), "log-cleaner")
        self._start_background(
            checkpointing.run_high_watermarks(settings.high_watermark_checkpoint_seconds),
            "high-watermarks",
        )
        self._start_background(checkpointing.run_recovery_points(), "recovery-points")
        return checkpointing

    def _on_suspect(self, broker_id: BrokerId) -> None:
        assert self.session is not None
        self.session.suspect(broker_id)  # first: who waits for the verdict waits for this
        self.leader_changes.suspect(broker_id)

    def _digests(self, disk: Disk) -> tuple[ReplicaDigests, ...]:
        """Start the digests of replicas if the metrics show them."""
        if not self.settings.metrics_profile.includes(MetricsProfile.FULL):
            return ()
        replica_digests = ReplicaDigests(self.partitions, disk, self.settings.data_directory)
        self._start_background(replica_digests.run(), "digests")
        return (replica_digests,)

    def _start_background(self, work: Coroutine[Any, Any, None], name: str) -> None:
        assert self._tasks is not None
        self._background.append(self._tasks.create_task(work, name=name))

    async def _has_certificate(self) -> bool:
        """Return whether there is a certificate, or none is needed; False: the stop came first."""
        if self._renewal is None:
            return True
        self._not_ready = "Starting: waiting for a certificate of the controller"
        return await self._until_stop(self._renewal.first())

    async def _use_certificate(self) -> None:
        assert self._fetchers is not None
        self._fetchers.reconnect()

    async def _start_listener(self, directory: LogManager) -> SocketServer:
        context = HandlerContext(
            self.partitions,
            self._fetches,
            self.groups,
            self._loop,
            self._environment.new_uuid,
            self.quotas,
            self.leader_changes,
            self.producer_ids,
            self._topic_admin,
            cluster_id=lambda: directory.cluster_id,
            controller_address=self._channel.leader,
            first_session_id=UUID(self.incarnation).int % MAX_SESSION_ID + 1,
            log_directory=str(self.settings.data_directory),
            space=lambda: self._environment.disk.space(self.settings.data_directory),
            creates_topics=self.settings.creates_topics,
            broker_configs=broker_configs(self.settings),
            processing_clock_s=self._environment.processing_clock_s,
            request_metrics=self.request_metrics,
            client_connections=self.client_connections,
            rejections=self.rejections,
            authenticator=self.authenticator,
            authorizer=self.authorizer,
            authenticated=self.settings.authenticated_listeners,
            optional=self.settings.optional_listeners,
        )
        listener = SocketServer(context, self._tls)
        modes = self.settings.tls
        host = self.settings.listen_host
        port = self.settings.kafka_port
        self.kafka_port = await listener.start(host, port, rules=self._rules(""), mode=modes.of(""))
        for name, port in self.settings.listeners:
            await listener.start(
                host,
                port,
                listener=name,
                rules=self._rules(name),
                mode=modes.of(name),
            )
        if self.settings.has_replication_port:
            port = self.settings.replication_port
            self.replication_port = await listener.start_replication(host, port, modes.mode)
        return listener

    def _rules(self, listener: str) -> ListenerRules:
        """Return the rules of a listener for clients."""
        settings = self.settings
        return ListenerRules(
            requires_authentication=settings.requires_authentication(listener),
            may_authenticate=listener in settings.optional_listeners,
            replicas=ReplicaRights.ANY if settings.admits_old_followers else ReplicaRights.NONE,
        )

    async def _open_directory(self) -> LogManager | None:
        """Wait for the lock of the log directory and open it (I17).

        A killed predecessor may live on for seconds.
        """
        settings = self.settings
        deadline = self._loop.time() + settings.lock_limit_seconds
        has_said_so = False
        while True:
            self._not_ready = "Starting: opening logs"
            try:
                directory = await asyncio.to_thread(
                    LogManager.open,
                    settings.data_directory,
                    self._environment.disk,
                    broker_id=settings.broker_id,
                    settings=LogSettings(),
                    new_uuid=self._environment.new_uuid,
                    mount=Mount(settings.boot_id, settings.pod_uid, settings.claim_uid),
                )
                await asyncio.to_thread(directory.secure_logs)
                return directory
            except DirectoryLocked as error:
                self._not_ready = f"LogDirectoryLocked: {error}"
                if not has_said_so:
                    _log.warning("log directory is locked, waiting", extra={"reason": str(error)})
                    has_said_so = True
                if self._loop.time() > deadline:
                    self.exit_code = EXIT_SUPERSEDED
                    return None
            except StorageError as error:
                _log.error("log directory cannot be used", extra={"reason": str(error)})
                self.exit_code = EXIT_REJECTED
                return None
            if await self._until_stop(asyncio.sleep(LOCK_RETRY_SECONDS)):
                continue
            return None

    async def _until_stop(self, work: Coroutine[Any, Any, Any]) -> bool:
        """Run `work`; False if the stop came first, which cancels it.

        Raises the exception of `work`.
        """
        doing = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((doing, stopping), return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                doing.result()
                return True
            return False
        finally:
            stopping.cancel()
            doing.cancel()

    def _registration(self, directory: LogManager) -> RegisterRequest:
        settings = self.settings
        scheme = "https" if settings.tls.mode is TlsMode.REQUIRED else "http"
        http_url = f"{scheme}://{settings.advertised_host}:{self.http_port}"
        endpoints = Endpoints(
            settings.advertised_host,
            settings.advertised_kafka_port or self.kafka_port,
            settings.advertised_http_port or self.http_port,
            settings.advertised_http_url or http_url,
            settings.advertised_replication_port or self.replication_port,
            has_tls=self._tls is not None,
        )
        return registration_request(
            settings, directory, incarnation=self.incarnation, endpoints=endpoints
        )

    async def _serve_http(self) -> None:
        def on_listening(port: int) -> None:
            self.http_port = port
            self._http_up.set()

        await self._environment.serve_http(self, self._http_stop, on_listening)

    # ---- end

    def _on_signal(self) -> None:
        if self._stop.is_set():
            self._hurry.set()
        _log.info("shutdown requested", extra={"hurry": self._hurry.is_set()})
        self._stop.set()

    def on_storage_failure(self, error: Exception) -> None:
        self._storage_error = self._storage_error or error
        self.exit_code = EXIT_STORAGE_FAILED
        self._not_ready = f"StorageFailed: {error}"
        self._stop.set()

    def _on_superseded(self, reason: str) -> None:
        _log.error("broker superseded, stopping", extra={"reason": reason})
        self._stale = reason
        self.exit_code = EXIT_SUPERSEDED
        self._not_ready = f"Stale: {reason}"
        self.partitions.stop("the broker process was superseded")
        self._stop.set()

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log a callback's exception; an assertion ends the process, whose state may be wrong."""
        error = context.get("exception")
        _log.error(
            "error in a callback", exc_info=error, extra={"what": str(context.get("message"))}
        )
        if isinstance(error, AssertionError):
            self.exit_code = EXIT_CRASHED
            self._not_ready = "Crashed"
            self.partitions.stop("an assertion failed")
            self._stale = "an assertion failed"
            self._stop.set()

    async def _end_serving(self) -> None:
        assert self.session is not None
        if self._storage_error is None and not self._stale:
            self._not_ready = "Stopping"
            self.session.stop()
            await self._wait(self.session.may_stop, self.settings.stop_limit_seconds)
            _log.info("stopping", extra={"granted": self.session.may_stop.is_set()})

    async def _wait(self, event: asyncio.Event, limit_seconds: float) -> None:
        waits = {asyncio.ensure_future(event.wait()), asyncio.ensure_future(self._hurry.wait())}
        await asyncio.wait(waits, timeout=limit_seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in waits:
            task.cancel()

    async def _leave_disk(self, directory: LogManager) -> None:
        """Write only what a clean shutdown leaves."""
        watermarks = self.partitions.high_watermarks()
        self.partitions.stop("the broker is shutting down")
        assert self._fetchers is not None
        self._fetchers.stop()
        for task in self._background:
            task.cancel()
        if self._storage_error is None and not self._stale:
            await self._prove_clean_stop(directory, watermarks)
        if self._storage_error is not None:
            assert self.session is not None
            await invalidate_clean_shutdown(self.session, directory)

    async def _leave_unregistered(
        self, directory: LogManager, checkpointing: CheckpointWriter
    ) -> None:
        assert self.session is not None
        if self._storage_error is None:
            await checkpointing.in_worker(directory.restore_clean_shutdown)
        elif self.session.broker_epoch != NO_EPOCH:  # the answer came, and with it a stamp
            await remove_stored_boot_record(directory)

    async def _prove_clean_stop(
        self, directory: LogManager, watermarks: Mapping[LogKey, Offset]
    ) -> None:
        epoch = self.partitions.broker_epoch
        try:
            await asyncio.to_thread(
                directory.checkpoint_high_watermarks, watermarks, truncations=directory.truncations
            )
            await asyncio.to_thread(directory.write_clean_stop, epoch)
        except StorageError as error:
            _log.error("clean shutdown not recorded", extra={"reason": str(error)})
            self.exit_code = EXIT_STORAGE_FAILED
            if not isinstance(error, DiskFull):
                self._storage_error = error  # what was to be flushed may be lost (S8)
            return
        _log.info("stopped cleanly", extra={"broker_epoch": epoch})
