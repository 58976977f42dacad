"""Parse a broker's settings: flags, then environment, then defaults; checked once.

Broker configs have Kafka's names where they mean the same here. All are read-only over Kafka: a
BrokerPool or a Topic sets them, and an attempt to change one is answered with the field that does.
"""

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from tidemark_protocol.ids import BrokerId
from tidemark_protocol.topic_configs import KNOWN_CONFIGS

from tidemark_broker.coordinator.core.group_config import GroupSettings
from tidemark_broker.kafka.apis.config_descriptions import TOPIC_CONFIG_DOCS
from tidemark_broker.kafka.network.limits import ListenerLimits
from tidemark_broker.metadata.controller_channel import Address
from tidemark_broker.metrics.broker_metrics import MetricsProfile
from tidemark_broker.replication.follower_session import REPLICA_FETCH_MAX_BYTES
from tidemark_broker.security.tls import TlsMode


@dataclass(frozen=True, slots=True)
class CheckpointIntervals:
    """Settings that say when recovery points and synced prefixes are written."""

    interval_seconds: float = 60.0
    appended_bytes: int = 256 * 1024 * 1024  # of all logs: what a restart writes again at most
    # Of one log: a synced part takes three calls and an fsync, and saves 8 ms for 64 KiB of small
    # batches.
    growth_bytes: int = 64 * 1024


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Settings of TLS: the authorities of controllers, and listeners."""

    ca_file: Path | None = None  # None: the controller is called without TLS
    mode: TlsMode = TlsMode.DISABLED  # of listeners that are not named here
    client_ca_file: Path | None = None  # authorities of clients' certificates
    plain_listeners: frozenset[str] = frozenset()  # named ones without TLS all the same
    tls_listeners: frozenset[str] = frozenset()  # named ones that are not optional

    @property
    def is_enabled(self) -> bool:
        """Return whether the broker has a certificate."""
        return self.mode is not TlsMode.DISABLED

    def of(self, listener: str) -> TlsMode:
        """Return which connections a listener accepts; "" is the one of the pool itself."""
        if not self.is_enabled or listener in self.plain_listeners:
            return TlsMode.DISABLED
        return TlsMode.REQUIRED if listener in self.tls_listeners else self.mode


class Authentication(StrEnum):
    """How clients of a listener say who they are."""

    NONE = "none"
    OPTIONAL = "optional"  # who does not authenticate may do everything
    KUBERNETES = "kubernetes"


_POOL = re.compile(r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")
_LISTENER = re.compile(r"^[a-z]([-a-z0-9]{0,13}[a-z0-9])?$")
_BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    broker_id: BrokerId
    pool: str  # namespace/name
    data_directory: Path
    controllers: tuple[str, ...]  # host:port
    controller_token_file: Path | None = None  # by which the controller knows this broker
    listen_host: str = "0.0.0.0"
    advertised_host: str = "127.0.0.1"  # peers dial it: an address, not a name
    advertised_kafka_port: int = 0  # of the mapping that peers dial; 0: the one listened on
    advertised_http_port: int = 0
    advertised_http_url: str = ""  # clients are sent there; "": made of host and port
    kafka_port: int = 9092
    listeners: tuple[tuple[str, int], ...] = ()  # name and port of those for clients elsewhere
    http_port: int = 8080
    http_listeners: tuple[tuple[str, int], ...] = ()
    authentication: Authentication = Authentication.NONE
    listener_authentication: Mapping[str, Authentication] = field(default_factory=dict)  # if not so
    replication_port: int = 9091  # of followers, with TLS or where clients authenticate
    advertised_replication_port: int = 0  # of the mapping that peers dial; 0: the one listened on
    rack: str = ""
    claim_uid: str = ""
    pod_uid: str = ""
    boot_id: str = ""
    log_format: str = "json"
    metrics_profile: MetricsProfile = MetricsProfile.AUDIT
    # How long a controlled shutdown waits for the controller; flush and proof come after (S14).
    stop_limit_seconds: float = 10.0
    # How long another process may hold the log directory before this one gives up.
    lock_limit_seconds: float = 120.0
    replica_fetch_max_bytes: int = REPLICA_FETCH_MAX_BYTES  # of an answer to it as a follower
    high_watermark_checkpoint_seconds: float = 5.0
    log_cleaner_backoff_seconds: float = 15.0  # between passes of compaction, as in Kafka
    recovery_points: CheckpointIntervals = field(default_factory=CheckpointIntervals)
    groups: GroupSettings = field(default_factory=GroupSettings)
    creates_topics: bool = False  # that Kafka clients ask for; Kafka's auto.create.topics.enable
    tls: TlsSettings = field(default_factory=TlsSettings)
    default_partitions: int = 1  # told as num.partitions; the operator makes the topics

    def authentication_of(self, listener: str) -> Authentication:
        """Return how clients of a listener authenticate; "" is the one of the pool itself."""
        return self.listener_authentication.get(listener, self.authentication)

    def requires_authentication(self, listener: str) -> bool:
        return self.authentication_of(listener) is Authentication.KUBERNETES

    @property
    def authenticated_listeners(self) -> frozenset[str]:
        """Return the listeners of Kafka and HTTP at which clients can say who they are."""
        return self._listeners_with(Authentication.KUBERNETES) | self.optional_listeners

    @property
    def optional_listeners(self) -> frozenset[str]:
        """Return the listeners at which a client without a name may do everything."""
        return self._listeners_with(Authentication.OPTIONAL)

    def _listeners_with(self, authentication: Authentication) -> frozenset[str]:
        names = ("", *(name for name, _ in (*self.listeners, *self.http_listeners)))
        return frozenset(name for name in names if self.authentication_of(name) is authentication)

    @property
    def has_replication_port(self) -> bool:
        """Return whether followers have a port of their own."""
        return self.tls.is_enabled or self.authentication is not Authentication.NONE

    @property
    def admits_old_followers(self) -> bool:
        """Return whether followers may fetch at ports of clients, as before there was another.

        They may while everyone may do everything there, so that a pool is closed broker by broker.
        """
        return self.tls.mode is not TlsMode.REQUIRED and not self.requires_authentication("")

    @property
    def tls_listeners(self) -> frozenset[str]:
        """Return the named listeners with TLS only."""
        names = {name for name, _ in (*self.listeners, *self.http_listeners)}
        return frozenset(name for name in names if self.tls.of(name) is TlsMode.REQUIRED)


def parse_settings(arguments: list[str]) -> BrokerConfig:
    """Return the settings; an invalid one ends the process with a sentence and status 2."""
    parser = _parser()
    found = parser.parse_args(arguments)
    if found.broker_id is None or not 0 <= found.broker_id <= 1_000_000:
        parser.error("--broker-id (TIDEMARK_BROKER_ID): expected 0 to 1000000")
    if not _POOL.match(found.pool):
        parser.error(f"--pool (TIDEMARK_POOL): expected namespace/name, found {found.pool!r}")
    if not found.data_dir:
        parser.error("--data-dir (TIDEMARK_DATA_DIR): expected a directory, found none")
    if found.metrics_profile not in {each.value for each in MetricsProfile}:
        parser.error(
            "--metrics-profile (TIDEMARK_METRICS_PROFILE): expected minimal, audit or full,"
            f" found {found.metrics_profile!r}"
        )
    if found.auto_create_topics_enable not in ("true", "false"):
        parser.error(
            "--auto-create-topics-enable (TIDEMARK_AUTO_CREATE_TOPICS_ENABLE): expected true or"
            f" false, found {found.auto_create_topics_enable!r}"
        )
    if found.authentication not in {each.value for each in Authentication}:
        parser.error(
            "--authentication (TIDEMARK_AUTHENTICATION): expected none, optional or kubernetes,"
            f" found {found.authentication!r}"
        )
    controllers = tuple(text.strip() for text in found.controllers.split(",") if text.strip())
    if not controllers:
        parser.error("--controllers (TIDEMARK_CONTROLLERS): expected host:port[,host:port]")
    for text in controllers:
        try:
            Address.parse(text)
        except ValueError as error:
            parser.error(f"--controllers (TIDEMARK_CONTROLLERS): {error}")
    return BrokerConfig(
        broker_id=BrokerId(found.broker_id),
        pool=found.pool,
        data_directory=Path(found.data_dir),
        controllers=controllers,
        controller_token_file=Path(found.controller_token_file)
        if found.controller_token_file
        else None,
        listen_host=found.host,
        advertised_host=found.advertised_host,
        advertised_kafka_port=found.advertised_kafka_port,
        advertised_http_port=found.advertised_http_port,
        advertised_http_url=found.advertised_http_url.rstrip("/"),
        kafka_port=found.kafka_port,
        http_port=found.http_port,
        listeners=_listeners(parser, "listeners", found.listeners),
        http_listeners=_listeners(parser, "http-listeners", found.http_listeners),
        authentication=Authentication(found.authentication),
        listener_authentication=_listener_authentication(parser, found.listener_authentication),
        replication_port=found.replication_port,
        advertised_replication_port=found.advertised_replication_port,
        rack=found.rack,
        claim_uid=found.claim_uid,
        pod_uid=found.pod_uid,
        boot_id=found.boot_id or _boot_id(),
        log_format=found.log_format,
        metrics_profile=MetricsProfile(found.metrics_profile),
        stop_limit_seconds=found.stop_limit_seconds,
        groups=_group_settings(found, parser),
        creates_topics=found.auto_create_topics_enable == "true",
        default_partitions=found.num_partitions,
        tls=_tls_settings(found, parser),
    )


def _tls_settings(found: argparse.Namespace, parser: argparse.ArgumentParser) -> TlsSettings:
    if found.tls not in {each.value for each in TlsMode}:
        parser.error(f"--tls (TIDEMARK_TLS): expected true, optional or false, found {found.tls!r}")
    if found.tls != "false" and not found.ca_file:
        parser.error("--ca-file (TIDEMARK_CA_FILE): expected a file, as TLS is on, found none")
    return TlsSettings(
        ca_file=Path(found.ca_file) if found.ca_file else None,
        mode=TlsMode(found.tls),
        client_ca_file=Path(found.client_ca_file) if found.client_ca_file else None,
        plain_listeners=frozenset(filter(None, found.plain_listeners.split(","))),
        tls_listeners=frozenset(filter(None, found.tls_listeners.split(","))),
    )


def _group_settings(found: argparse.Namespace, parser: argparse.ArgumentParser) -> GroupSettings:
    limits = {
        "num_partitions": (1, 10_000),
        "offsets_topic_partitions": (1, 1_000),
        "offsets_retention_minutes": (1, 10 * 366 * 24 * 60),
        "offsets_retention_check_seconds": (1, 24 * 3_600),
        "group_initial_rebalance_delay_ms": (0, 300_000),
    }
    for name, (smallest, largest) in limits.items():
        if not smallest <= getattr(found, name) <= largest:
            flag = f"--{name.replace('_', '-')} (TIDEMARK_{name.upper()})"
            parser.error(f"{flag}: expected {smallest} to {largest}, found {getattr(found, name)}")
    return GroupSettings(
        offsets_partitions=found.offsets_topic_partitions,
        offsets_retention_ms=found.offsets_retention_minutes * 60_000,
        expiry_check_ms=found.offsets_retention_check_seconds * 1_000,
        initial_rebalance_delay_ms=found.group_initial_rebalance_delay_ms,
    )


def _parser() -> argparse.ArgumentParser:
    env = os.environ.get
    parser = argparse.ArgumentParser(prog="tidemark-broker", description=__doc__)
    add = parser.add_argument
    broker_id = env("TIDEMARK_BROKER_ID", "")
    add("--broker-id", type=int, default=int(broker_id) if broker_id.isdigit() else None)
    add("--pool", default=env("TIDEMARK_POOL", ""), help="namespace/name")
    add("--data-dir", default=env("TIDEMARK_DATA_DIR", ""))
    add("--controllers", default=env("TIDEMARK_CONTROLLERS", ""), help="host:port[,host:port]")
    add(
        "--controller-token-file",
        default=env("TIDEMARK_CONTROLLER_TOKEN_FILE", ""),
        help="file with the token that is sent to controllers; read again when it changes",
    )
    add("--host", default=env("TIDEMARK_HOST", "0.0.0.0"), help="address to listen on")
    add(
        "--advertised-host",
        default=env("TIDEMARK_ADVERTISED_HOST", "127.0.0.1"),
        help="address that other brokers dial",
    )
    for name, protocol in (("KAFKA", "Kafka"), ("HTTP", "HTTP")):
        add(
            f"--advertised-{name.lower()}-port",
            type=int,
            default=int(env(f"TIDEMARK_ADVERTISED_{name}_PORT", "0")),
            help=f"port at which other brokers and the controller reach {protocol} (0: the same)",
        )
    add("--advertised-http-url", default=env("TIDEMARK_ADVERTISED_HTTP_URL", ""))
    add("--kafka-port", type=int, default=int(env("TIDEMARK_KAFKA_PORT", "9092")))
    add("--http-port", type=int, default=int(env("TIDEMARK_HTTP_PORT", "8080")))
    add("--listeners", default=env("TIDEMARK_LISTENERS", ""), help="name:port[,name:port]")
    add(
        "--http-listeners",
        default=env("TIDEMARK_HTTP_LISTENERS", ""),
        help="listeners for HTTP; names are unique in both lists",
    )
    add(
        "--authentication",
        default=env("TIDEMARK_AUTHENTICATION", "") or Authentication.NONE.value,
        help="how clients say who they are: none, optional or kubernetes",
    )
    add(
        "--listener-authentication",
        default=env("TIDEMARK_LISTENER_AUTHENTICATION", ""),
        help="name:none|optional|kubernetes[,...], of listeners that differ from --authentication",
    )
    add(
        "--replication-port",
        type=int,
        default=int(env("TIDEMARK_REPLICATION_PORT", "9091")),
        help="port for replicas of other brokers, with TLS or authentication (0: a free port)",
    )
    add("--rack", default=env("TIDEMARK_RACK", ""))
    add("--claim-uid", default=env("TIDEMARK_CLAIM_UID", ""))
    add("--pod-uid", default=env("TIDEMARK_POD_UID", ""))
    add(
        "--boot-id",
        default=env("TIDEMARK_BOOT_ID", ""),
        help="boot ID, for tests (default: of the kernel)",
    )
    add("--log-format", choices=("json", "text"), default=env("TIDEMARK_LOG_FORMAT", "json"))
    # Of the environment too: a default is not held against the choices.
    profile = env("TIDEMARK_METRICS_PROFILE", "") or MetricsProfile.AUDIT.value
    add(
        "--metrics-profile",
        default=profile,
        help=f"metric families of /metrics: {', '.join(each.value for each in MetricsProfile)}",
    )
    add(
        "--stop-limit-seconds",
        type=float,
        default=float(env("TIDEMARK_STOP_LIMIT_SECONDS", "10")),
        help="longest wait for the controller in a controlled shutdown",
    )
    _add_kafka_flags(parser)
    _add_tls_flags(parser)
    return parser


def _add_tls_flags(parser: argparse.ArgumentParser) -> None:
    env = os.environ.get
    add = parser.add_argument
    add(
        "--ca-file",
        default=env("TIDEMARK_CA_FILE", ""),
        help="certificate authorities of the controller (PEM), which is then called by TLS",
    )
    add(
        "--tls",
        default=env("TIDEMARK_TLS", "false"),
        help="TLS on listeners: true, optional (and plain connections) or false",
    )
    add(
        "--tls-listeners",
        default=env("TIDEMARK_TLS_LISTENERS", ""),
        help="names of listeners with TLS only, where --tls is optional",
    )
    add(
        "--client-ca-file",
        default=env("TIDEMARK_CLIENT_CA_FILE", ""),
        help="certificate authorities of clients (PEM), which then authenticate by certificate; "
        "read again when it changes",
    )
    add(
        "--plain-listeners",
        default=env("TIDEMARK_PLAIN_LISTENERS", ""),
        help="names of listeners without TLS",
    )
    add(
        "--advertised-replication-port",
        type=int,
        default=int(env("TIDEMARK_ADVERTISED_REPLICATION_PORT", "0")),
        help="port at which other brokers reach it (0: the same)",
    )


def _add_kafka_flags(parser: argparse.ArgumentParser) -> None:
    """Add flags named after Kafka's broker settings."""
    parser.add_argument(
        "--auto-create-topics-enable",
        default=os.environ.get("TIDEMARK_AUTO_CREATE_TOPICS_ENABLE", "false"),
        help="create topics that Kafka clients request: true or false",
    )
    for name, default, meaning in (
        (
            "num-partitions",
            1,
            "default number of partitions of a topic",
        ),
        (
            "offsets-topic-partitions",
            50,
            "number of partitions of __consumer_offsets when it is created",
        ),
        (
            "offsets-retention-minutes",
            10_080,
            "time that a group without members keeps its offsets",
        ),
        ("offsets-retention-check-seconds", 600, "interval of checks for expired offsets"),
        (
            "group-initial-rebalance-delay-ms",
            3_000,
            "time that an empty group waits for more members",
        ),
    ):
        known = os.environ.get(f"TIDEMARK_{name.upper().replace('-', '_')}", "")
        parser.add_argument(f"--{name}", type=int, default=known or default, help=meaning)


def _listeners(
    parser: argparse.ArgumentParser, flag: str, text: str
) -> tuple[tuple[str, int], ...]:
    found = []
    named = f"--{flag} (TIDEMARK_{flag.upper().replace('-', '_')})"
    for entry in filter(None, text.split(",")):
        name, _, port = entry.partition(":")
        if _LISTENER.match(name) is None or not port.isdecimal() or not 0 <= int(port) <= 65535:
            parser.error(f"{named}: expected name:port, found {entry!r}")
        found.append((name, int(port)))
    if len({name for name, _ in found}) != len(found):
        parser.error(f"{named}: a name appears twice: {text!r}")
    return tuple(found)


def _listener_authentication(
    parser: argparse.ArgumentParser, text: str
) -> Mapping[str, Authentication]:
    found = {}
    for entry in filter(None, text.split(",")):
        name, _, value = entry.partition(":")
        if _LISTENER.match(name) is None or value not in {each.value for each in Authentication}:
            parser.error(
                "--listener-authentication (TIDEMARK_LISTENER_AUTHENTICATION): expected"
                f" name:none, name:optional or name:kubernetes, found {entry!r}"
            )
        found[name] = Authentication(value)
    return found


def _boot_id() -> str:
    """Return the id of this run of the kernel, or "" if it is unknown."""
    try:
        return _BOOT_ID_FILE.read_text().strip()
    except OSError:
        return ""


DEFAULT_REPLICATION_FACTOR = 3  # the operator's, where the pool has as many brokers
MOST_EXPLAINED = 5
GROUP_CONFIG_ERROR = (
    "groups have no configs: spec.groups of the BrokerPool applies to all groups, and"
    " clients set session.timeout.ms"
)

POOL_FIELDS = {
    "advertised.listeners": "spec.listeners",
    "auto.create.topics.enable": "spec.autoCreateTopics",
    "broker.rack": "spec.rackKey",
    "follower.replication.throttled.rate": "spec.moveBytesPerSecond",
    "group.initial.rebalance.delay.ms": "spec.groups.initialRebalanceDelayMs",
    "leader.replication.throttled.rate": "spec.moveBytesPerSecond",
    "listeners": "spec.listeners",
    "num.partitions": "spec.defaultPartitions",
    "offsets.retention.minutes": "spec.groups.offsetsRetentionMinutes",
    "replica.alter.log.dirs.io.max.bytes.per.second": "spec.moveBytesPerSecond",
}
_TOPIC_CONFIGS = {
    words.broker_name: name for name, words in TOPIC_CONFIG_DOCS.items() if words.broker_name
}


def broker_configs(settings: BrokerConfig) -> Mapping[str, str]:
    defaults = {
        words.broker_name: known.default_text
        for known in KNOWN_CONFIGS
        if (words := TOPIC_CONFIG_DOCS[known.name]).broker_name
    }
    limits = ListenerLimits()
    port = settings.advertised_kafka_port or settings.kafka_port
    secured = "SSL" if settings.tls.mode is TlsMode.REQUIRED else "PLAINTEXT"
    protocol = f"SASL_{secured}" if settings.requires_authentication("") else secured
    return defaults | {
        "advertised.listeners": f"{protocol}://{settings.advertised_host}:{port}",
        "auto.create.topics.enable": str(settings.creates_topics).lower(),
        "connections.max.idle.ms": str(int(limits.idle_seconds * 1000)),
        "max.connections": str(limits.connections),
        "broker.id": str(settings.broker_id),
        "broker.rack": settings.rack,
        "default.replication.factor": str(DEFAULT_REPLICATION_FACTOR),
        "delete.topic.enable": "true",
        "group.initial.rebalance.delay.ms": str(settings.groups.initial_rebalance_delay_ms),
        "listeners": f"{protocol}://{settings.listen_host}:{settings.kafka_port}",
        "log.dirs": str(settings.data_directory),
        "node.id": str(settings.broker_id),
        "num.partitions": str(settings.default_partitions),
        "offsets.retention.minutes": str(settings.groups.offsets_retention_ms // 60_000),
        "offsets.topic.num.partitions": str(settings.groups.offsets_partitions),
        "socket.request.max.bytes": str(limits.request_bytes),
    }


def broker_config_error(names: Sequence[str]) -> str:
    """Say of each config which field sets it."""
    more = f"; and {len(names) - MOST_EXPLAINED} more" if len(names) > MOST_EXPLAINED else ""
    return "; ".join(map(_explained, names[:MOST_EXPLAINED])) + more


def _explained(name: str) -> str:
    field = POOL_FIELDS.get(name)
    if field is not None:
        return f"{name}: set {field} of the BrokerPool"
    topic_config = _TOPIC_CONFIGS.get(name)
    if topic_config is not None:
        return f"{name}: set {topic_config} in spec.config of each Topic"
    return f"{name[:100]}: not configurable in the BrokerPool"
