"""Find the leader of a partition, and redirect clients that sent a request to another broker.

Clients find brokers at the address of the listener that they came in by, as on the Kafka port
(kafka/apis/advertised_listeners.py): the listener without a name is the one in the cluster; named
ones are for clients elsewhere, and the operator sends their addresses. Brokers never use these
among themselves.
"""

from urllib.parse import unquote_plus

import msgspec
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId

from tidemark_broker.http.problems import HttpProblem, Outcome
from tidemark_broker.http.request import Request
from tidemark_broker.http.response import Response
from tidemark_broker.metadata.metadata_cache import INTERNAL, Leader, MetadataCache


def client_url(
    metadata: MetadataCache, broker_id: BrokerId, listener: str, *, has_tls: bool
) -> str:
    """Return the broker's URL for clients of the listener, without an end slash, or "".

    Where TLS is optional, a client that `has_tls` keeps it.
    """
    if listener == INTERNAL:
        broker = metadata.brokers.get(broker_id)
        if broker is None:
            return ""
        url = broker.endpoints.advertised_http_url
        if has_tls and broker.endpoints.has_tls and url.startswith("http://"):
            return "https" + url.removeprefix("http")
        return url
    known = metadata.addresses.get((listener, broker_id))
    if known is None:
        return ""
    host = f"[{known.host}]" if ":" in known.host else known.host
    scheme = "https" if has_tls or listener in metadata.tls_listeners else "http"
    return f"{scheme}://{host}:{known.port}"


MAX_TOPIC_NAME = 249


def require_metadata(metadata: MetadataCache) -> None:
    """Raise HttpProblem while this broker has no metadata.

    Else a broker that has just started would answer "unknown topic or partition".
    """
    if not metadata.has_come:
        raise HttpProblem(
            ErrorCode.LEADER_NOT_AVAILABLE, "this broker has no metadata yet: try again"
        )


def unknown_partition(metadata: MetadataCache, topic: str, partition: str) -> HttpProblem:
    require_metadata(metadata)
    known = metadata.topics.get(topic)
    members = {}
    if known is None:
        detail = f"topic {topic[:MAX_TOPIC_NAME]!r}: not found: GET /topics lists the topics"
    elif known.topic_id in metadata.retained:
        detail = (
            f"topic {topic!r}: deleted, and its data is retained (deletionPolicy: Retain): apply a "
            "Topic manifest of this name to serve it again"
        )
    else:
        members["retriable"] = False  # other than of a topic that was made a moment ago
        detail = (
            f"topic {topic!r}: expected a partition from 0 to {known.partition_count - 1}, "
            f"found {partition[:40]!r}"
        )
    return HttpProblem(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, detail, members=members)


def partition_number(metadata: MetadataCache, topic: str, text: str) -> int:
    """Return the number of a known partition.

    Raises HttpProblem (404).
    """
    if text.isascii() and text.isdecimal() and len(text) <= 10:
        partition = int(text)
        is_served = metadata.served_topic(topic) is not None
        if is_served and metadata.has_partition(topic, partition):
            return partition
    raise unknown_partition(metadata, topic, text)


def no_leader(topic: str, partition: int) -> HttpProblem:
    return HttpProblem(
        ErrorCode.LEADER_NOT_AVAILABLE,
        f"partition {topic}-{partition}: no leader at the moment: try again",
    )


def led_elsewhere(topic: str, partition: int, leader: BrokerId) -> HttpProblem:
    return HttpProblem(
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        f"partition {topic}-{partition}: the leader is broker {leader}",
        outcome=Outcome.NOT_WRITTEN,
    )


def redirect(
    metadata: MetadataCache, request: Request, leader: Leader, topic: str, partition: int
) -> HttpProblem:
    """Return 307 with the same path and query; to a broker that forwarded, the error without it."""
    if request.is_forwarded:
        return led_elsewhere(topic, partition, leader.broker_id)
    url = client_url(metadata, leader.broker_id, request.listener, has_tls=request.has_tls)
    if not url:
        return HttpProblem(
            ErrorCode.LISTENER_NOT_FOUND,
            f"partition {topic}-{partition}: the leader, broker {leader.broker_id}, has no address"
            f" at listener {request.listener!r}: try again",
        )
    return HttpProblem(
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        f"partition {topic}-{partition}: the leader is broker {leader.broker_id}: repeat the"
        " request at Location",
        status=307,
        outcome=Outcome.NOT_WRITTEN,
        location=url + request.target,
        members={"leader_id": leader.broker_id, "leader_epoch": leader.leader_epoch},
    )


def require_leader(
    metadata: MetadataCache, broker_id: BrokerId, request: Request, topic: str, partition: int
) -> None:
    """Return if this broker leads, else raise 307 or 503."""
    leader = metadata.leader_of(topic, partition)
    if leader is None:
        raise no_leader(topic, partition)
    if leader.broker_id != broker_id:
        raise redirect(metadata, request, leader, topic, partition)


def leader_for_reader(
    metadata: MetadataCache, broker_id: BrokerId, request: Request, topic: str, partition: int
) -> HttpProblem:
    """Return 307 to the leader from a follower that cannot serve this reader now.

    It is without the rack, so that the leader serves and the two never redirect in turns.
    """
    problem = not_leader(metadata, broker_id, request, topic, partition)
    if problem.location:
        path, _, query = problem.location.partition("?")
        kept = [pair for pair in query.split("&") if unquote_plus(pair.partition("=")[0]) != "rack"]
        problem.location = f"{path}?{'&'.join(kept)}"
    return problem


def preferred_replica(
    metadata: MetadataCache, request: Request, partition: int, preferred: BrokerId
) -> Response | None:
    """Return 307 to the replica that the leader chose; None if the client cannot reach it."""
    url = client_url(metadata, preferred, request.listener, has_tls=request.has_tls)
    if not url:
        return None
    location = url + request.target
    return Response(
        307,
        msgspec.json.encode({"partition": partition, "preferredReadReplica": preferred}),
        headers=(
            (b"location", location.encode("latin-1")),
            (b"tidemark-preferred-read-replica", b"%d" % preferred),
        ),
    )


def not_leader(
    metadata: MetadataCache, broker_id: BrokerId, request: Request, topic: str, partition: int
) -> HttpProblem:
    """Return the problem when the partition rejected although metadata named this broker."""
    leader = metadata.leader_of(topic, partition)
    if leader is not None and leader.broker_id != broker_id:
        return redirect(metadata, request, leader, topic, partition)
    return HttpProblem(
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        f"partition {topic}-{partition}: broker {broker_id} is not the leader and knows no other:"
        " try again",
        outcome=Outcome.NOT_WRITTEN,
    )
