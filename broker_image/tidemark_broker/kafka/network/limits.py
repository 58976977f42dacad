"""Define the bounds of the Kafka listener, except those of a frame's content (kafka_wire/)."""

from dataclasses import dataclass, field

from tidemark_broker.kafka.network.memory_pool import MemoryLimits

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """The bounds of the listener.

    `waiting_*` and `requests_in_work` are of one connection: at them its socket is not read.
    """

    request_bytes: int = 100 * MEBIBYTE  # Kafka's socket.request.max.bytes
    connections: int = 2048
    over_limit_connections: int = (
        64  # above those, until it is known whether they are brokers of the pool
    )
    over_limit_seconds: float = 1.0
    unauthenticated_connections: int = 512  # of one listener, apart from `connections`
    unauthenticated_of_address: int = 256
    unauthenticated_bytes: int = 32 * 1024  # of a request before authentication
    authentication_seconds: float = 10.0  # from the connection on, and for each authentication
    rejection_seconds: float = 0.1  # until wrong credentials are answered
    waiting_requests: int = 8
    waiting_bytes: int = 16 * MEBIBYTE
    requests_in_work: int = 8
    idle_seconds: float = 600.0  # without a whole request or answer; connections.max.idle.ms
    closing_seconds: float = 5.0  # for answers on their way when a connection is ended
    sweep_seconds: float = 30.0  # how late an idle connection may be closed
    memory: MemoryLimits = field(default_factory=MemoryLimits)
