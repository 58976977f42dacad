"""Define the bounds of the HTTP API: bodies, counts, waits, concurrency.

A limit that is reached is answered with a problem that names it (problems.py), except for
connections that send or read too slowly: those are closed (server.py).
"""

from dataclasses import dataclass

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True, eq=False)  # hashed by identity: a key of caches
class HttpLimits:
    body_bytes: int = 8 * MEBIBYTE
    # A peer forwards records as base64 (4/3) with longer member names; it checked body_bytes.
    forwarded_body_bytes: int = 16 * MEBIBYTE
    body_seconds: float = 30.0  # a whole request body must have come by then
    records: int = 10_000  # of one produce request, and of one fetch answer
    record_headers: int = 100
    batches: int = 1000  # of one produce request in record batches
    streams: int = 512  # open at once
    stream_bytes: int = 256 * 1024  # of log, in one step of a stream
    stream_idle_seconds: float = 10.0  # then an empty line, which also finds a client that is gone
    json_depth: int = 64
    produce_timeout_default_ms: int = 30_000
    produce_timeout_max_ms: int = 120_000
    fetch_bytes_default: int = MEBIBYTE
    fetch_bytes_max: int = 8 * MEBIBYTE
    decompressed_bytes: int = (
        8 * MEBIBYTE
    )  # of records, inflated: then an answer takes no further batch
    fetch_wait_max_ms: int = 30_000
    response_grace_seconds: float = (
        2.0  # past its own timeout a wait is given up here (a lost callback)
    )
    requests_in_flight: int = 2048
    bytes_in_flight: int = 256 * MEBIBYTE  # bodies being read and answers being sent
    digests_in_flight: int = 2
    digest_seconds: float = 120.0


@dataclass(frozen=True, slots=True)
class ServerLimits:
    connections: int = 4096
    unauthenticated_connections: int = 512  # of a listener that authenticates
    unauthenticated_of_address: int = 256
    header_bytes: int = 32 * 1024  # request line and headers of one request
    header_seconds: float = 10.0
    stalled_write_seconds: float = 30.0  # a client that does not read its answer
    keep_alive_seconds: int = 75
    backlog: int = 1024
    graceful_stop_seconds: int = 3
