"""Start `tidemark-broker`: settings, logging, event loop.

The rest is in server/broker_server.py.
"""

import asyncio
import contextlib
import ctypes
import errno
import gc
import importlib
import logging
import resource
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

import msgspec
import uvloop
from tidemark_protocol.log_text import escape_line
from tidemark_protocol.loop_lag import LoopLag

from tidemark_broker.http.app import HttpServer, create_app
from tidemark_broker.http.broker_view import BrokerView
from tidemark_broker.http.consumers.group_consumer import GroupConsumer
from tidemark_broker.http.route_access import HttpAccess
from tidemark_broker.http.server import ConnectionRules, HttpTls, serve
from tidemark_broker.log.disk import OsDisk
from tidemark_broker.metadata.controller_channel import HttpTransport
from tidemark_broker.security.peer_addresses import PeerAddresses
from tidemark_broker.security.tls import BrokerTls, TlsMode, TrustedFile
from tidemark_broker.server.broker_server import EXIT_CRASHED, BrokerServer
from tidemark_broker.server.config import BrokerConfig, TlsSettings, parse_settings
from tidemark_broker.server.environment import BrokerEnvironment, HttpBackend

GC_OBJECTS = 10_000
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # mallopt(3)
MAPPED_FROM_BYTES = 1 * 1024 * 1024  # smaller buffers come from the heap
RETAINED_FREE_BYTES = 8 * 1024 * 1024  # at its end, before it is given back

_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """A formatter of one JSON object a line, in the operator's form.

    The message is constant, with fields beside it.
    """

    converter = staticmethod(time.gmtime)

    def __init__(self, broker_id: int) -> None:
        super().__init__()
        self._broker_id = broker_id

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "broker_id": self._broker_id,
        }
        for name, value in vars(record).items():
            if name not in _STANDARD_FIELDS:
                line[name] = value
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return escape_line(msgspec.json.encode(line, enc_hook=str).decode())


def _set_up_logging(settings: BrokerConfig) -> None:
    handler = logging.StreamHandler(sys.stderr)
    if settings.log_format == "json":
        handler.setFormatter(JsonFormatter(settings.broker_id))
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


class _Http:
    """The HTTP server: produce, fetch and health at the start, the rest when the broker serves."""

    def __init__(self, disk: OsDisk, tls: BrokerTls | None) -> None:
        self._disk = disk
        self._tls = tls
        self._app: HttpServer | None = None

    async def serve(
        self, broker: HttpBackend, stop: asyncio.Event, on_listening: Callable[[int], None]
    ) -> None:
        loop_lag = LoopLag()
        is_optional = broker.settings.tls.mode is TlsMode.OPTIONAL
        addresses = PeerAddresses(self._tls, allows_plain=is_optional)
        self._app = create_app(
            BrokerView(
                partitions=broker.partitions,
                broker_id=broker.settings.broker_id,
                pool=broker.settings.pool,
                incarnation=broker.incarnation,
                is_ready=broker.is_ready,
                new_consumer=lambda settings: GroupConsumer(
                    settings, broker.groups, broker.partitions.metadata, addresses
                ),
                quotas=broker.quotas,
                producer_ids=broker.producer_ids,
                access=HttpAccess(
                    broker.authorizer,
                    broker.partitions.metadata,
                    checked=broker.settings.authenticated_listeners,
                    optional=broker.settings.optional_listeners,
                ),
                groups=broker.groups.report,
                group_gauges=broker.groups.gauges,
                group_counts=broker.groups.counts,
                group_offsets=broker.groups.offsets,
                kafka_requests=broker.request_metrics,
                client_connections=broker.client_connections,
                rejections=broker.rejections,
                crc_failures=broker.partitions.corrupt.crc_failures,
                rack=broker.settings.rack,
                metrics_profile=broker.settings.metrics_profile,
                fsyncs=lambda: self._disk.sync_count.total,
                loop_lag=loop_lag,
                addresses=addresses,
                authenticator=broker.authenticator,
                requires_authentication=broker.settings.requires_authentication,
                may_authenticate=broker.settings.optional_listeners.__contains__,
                **({} if self._tls is None else _certificates(self._tls)),
            )
        )
        async with asyncio.TaskGroup() as tasks:
            beats = tasks.create_task(loop_lag.run(), name="loop lag")
            await serve(
                self._app,
                host=broker.settings.listen_host,
                port=broker.settings.http_port,
                listeners={port: name for name, port in broker.settings.http_listeners},
                stop=stop,
                on_listening=on_listening,
                rules=ConnectionRules(
                    broker.settings.requires_authentication,
                    broker.rejections,
                    None if self._tls is None else _http_tls(self._tls, broker.settings.tls),
                ),
            )
            beats.cancel()

    def on_serving(self) -> None:
        _settle_memory()
        assert self._app is not None
        self._app.load_api().add_done_callback(lambda _: _settle_memory())


def _http_tls(tls: BrokerTls, settings: TlsSettings) -> HttpTls:
    return HttpTls(lambda: tls.clients, settings.of, tls.next_clients)


def _certificates(tls: BrokerTls) -> dict[str, Any]:
    """Return what HTTP shows and uses of certificates."""
    return {
        "client_of": tls.client_of,
        "certificate_end_s": lambda: tls.ends_s,
        "client_authorities_end_s": lambda: tls.client_authorities_end_s,
    }


def _tune_memory() -> None:
    """Tune the allocator for many short-lived objects and buffers of 128 KiB and more.

    Measured: docs/operations/performance.md. glibc would map and unmap each such buffer, a page
    fault for every 4 KiB of it; Python would look for cycles after each 700 objects, which a few
    requests make, and there are hardly any.
    """
    gc.set_threshold(GC_OBJECTS)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, MAPPED_FROM_BYTES)
        mallopt(M_TRIM_THRESHOLD, RETAINED_FREE_BYTES)


def _raise_descriptor_limit() -> None:
    """Raise the limit of file descriptors, as the JVM does.

    A segment has one, and a connection: the usual 1024 suit neither many partitions nor many
    clients.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # a system may have a lower one of its own
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _settle_memory() -> None:
    """Exclude permanent objects from later garbage collections."""
    gc.collect()
    gc.freeze()


def _keep_grown() -> None:
    """Exclude the objects of new replicas from later garbage collections.

    A full collection over thousands of replicas would take tens of milliseconds, again and again
    while they are created; young objects in cycles are collected first.
    """
    gc.collect(1)
    gc.freeze()


def _environment(settings: BrokerConfig) -> BrokerEnvironment:
    disk = OsDisk()
    controllers, tls = _tls(settings)
    http = _Http(disk, tls)
    return BrokerEnvironment(
        disk=disk,
        new_controller_transport=lambda: HttpTransport(
            settings.controller_token_file, trusted=controllers
        ),
        serve_http=http.serve,
        new_uuid=uuid.uuid4,
        wall_clock_s=time.time,
        processing_clock_s=time.perf_counter,
        on_serving=http.on_serving,
        on_grown=_keep_grown,
        tls=tls,
        controllers=controllers,
    )


def _tls(settings: BrokerConfig) -> tuple[TrustedFile | None, BrokerTls | None]:
    """Return the trust in controllers, and the broker's own key and certificate."""
    if settings.tls.ca_file is None:
        return None, None
    controllers = TrustedFile(settings.tls.ca_file)
    if not settings.tls.is_enabled:
        return controllers, None
    # A broker without TLS does without this library and its memory.
    private_key = importlib.import_module("tidemark_broker.security.private_key")
    return controllers, BrokerTls(
        settings.pool,
        settings.broker_id,
        private_key.PrivateKey(),
        time.time,
        settings.tls.client_ca_file,
    )


async def _run(settings: BrokerConfig) -> int:
    return await BrokerServer(settings, _environment(settings)).run()


def _notify_crash(crash: BaseExceptionGroup[BaseException]) -> None:
    """Log the crash; for a port that is in use its number is enough."""
    cause, log = crash.exceptions[0], logging.getLogger(__name__)
    if isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE:
        log.error("port in use", extra={"reason": str(cause)})
    else:
        log.error("broker crashed", exc_info=crash)


def main() -> None:
    settings = parse_settings(sys.argv[1:])
    _set_up_logging(settings)
    _tune_memory()
    _raise_descriptor_limit()
    # A thread that runs Python would else keep the loop waiting 5 ms at each of its wakes.
    sys.setswitchinterval(0.0005)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            code = runner.run(_run(settings))
        except BaseExceptionGroup as crash:
            _notify_crash(crash)
            code = EXIT_CRASHED
    logging.shutdown()
    sys.exit(code)


if __name__ == "__main__":
    main()
