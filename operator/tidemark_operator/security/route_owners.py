"""Name who may use each route of the operator's HTTP servers; a route that is not here is closed.

A route is its method and its path as it was registered. HEAD is as GET.
"""

from collections.abc import Mapping
from enum import Enum

from tidemark_protocol import access_messages, controller_messages, topic_messages


class Owner(Enum):
    BROKERS = "brokers"
    PEER_OPERATOR = "the peer operator"
    PEOPLE = "people"
    MONITORING = "monitoring"  # everyone, unless the settings want a token
    EVERYONE = "everyone"


Owners = frozenset[Owner]
Route = tuple[str, str]

BROKERS = frozenset({Owner.BROKERS})
PEOPLE = frozenset({Owner.PEOPLE})
PEOPLE_BY_PEER = frozenset({Owner.PEOPLE, Owner.PEER_OPERATOR})  # a standby forwards them
MONITORING = frozenset({Owner.MONITORING})
EVERYONE = frozenset({Owner.EVERYONE})

BROKER_PATHS = (
    controller_messages.REGISTER_PATH,
    controller_messages.HEARTBEAT_PATH,
    controller_messages.ALTER_PARTITION_PATH,
    controller_messages.ALLOCATE_PRODUCER_IDS_PATH,
    topic_messages.CREATE_TOPICS_PATH,
    topic_messages.DELETE_TOPICS_PATH,
    topic_messages.ADD_PARTITIONS_PATH,
    topic_messages.ALTER_CONFIGS_PATH,
    topic_messages.REASSIGN_PARTITIONS_PATH,
    topic_messages.ELECT_LEADERS_PATH,
    topic_messages.APPLIED_VERSION_PATH,
    access_messages.REVIEW_TOKEN_PATH,
    access_messages.REVIEW_ACCESS_PATH,
    access_messages.REVIEW_PASSWORD_PATH,
    access_messages.SCRAM_CREDENTIAL_PATH,
    access_messages.SIGN_CERTIFICATE_PATH,
)
PROBE_PATHS = ("/healthz", "/readyz")
PEOPLE_PATHS = ("/v1/status", "/v1/events", "/v1/why")
PAGE_PATHS = ("/", "/ui", "/ui/{name}")  # files of every installation, no data
PAGE_READS = (
    "/v1/pools",
    "/v1/isr",
    "/v1/isr/events",
    "/v1/isr/topic",
    "/v1/isr/why",
    "/v1/isr/groups",
    "/v1/isr/stream",
    "/v1/isr/figures",
)
# They change what a pool does; served only where the settings switch them on.
PAGE_ACTIONS = ("/v1/actions/elect", "/v1/actions/drain", "/v1/actions/kill")
# The others show all pools, whatever `pool` says.
NAMES_POOL = frozenset({"/v1/events", "/v1/why", *PAGE_READS} - {"/v1/pools"})
LOCAL_OBJECTS = "/v1/{plural}"
LOCAL_OBJECT = "/v1/{plural}/{name}"

ROUTE_OWNERS: Mapping[Route, Owners] = {
    **{("POST", path): BROKERS for path in BROKER_PATHS},
    **{("GET", path): EVERYONE for path in (*PROBE_PATHS, *PAGE_PATHS)},
    ("GET", "/metrics"): MONITORING,
    **{("GET", path): PEOPLE for path in PEOPLE_PATHS},
    **{("GET", path): PEOPLE_BY_PEER for path in PAGE_READS},
    **{("POST", path): PEOPLE_BY_PEER for path in PAGE_ACTIONS},
    # Local mode only.
    ("GET", "/v1/local"): PEOPLE,
    ("POST", "/v1/apply"): PEOPLE,
    ("GET", LOCAL_OBJECTS): PEOPLE,
    ("POST", LOCAL_OBJECTS): PEOPLE,
    ("GET", LOCAL_OBJECT): PEOPLE,
    ("PATCH", LOCAL_OBJECT): PEOPLE,
    ("DELETE", "/v1/topics/{name}"): PEOPLE,
}


def owners_of(method: str, path: str) -> Owners:
    """Return the owners of a route; none for a route that is not in the table."""
    return ROUTE_OWNERS.get(("GET" if method == "HEAD" else method, path), frozenset())


def names_pool(path: str) -> bool:
    """Return whether the query of a route names the one pool that it shows."""
    return path in NAMES_POOL


def is_action(path: str) -> bool:
    """Return whether a route changes what a pool does, instead of reading."""
    return path in PAGE_ACTIONS
