"""Who may do what in a closed pool on kind: identity x verb x protocol, by unmodified clients.

Each client is one process that tries all that it can; each cell is a test.
"""

import json
import ssl
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.kubernetes.closed_pool import ClosedPool
from tests.kubernetes.kube_cluster import ON_KUBERNETES, KubeCluster
from tests.support.access_programs import (
    ACCESS_CLIENTS,
    NO_ANSWER,
    NOT_LISTED,
    UNABLE,
    Access,
    Cell,
    accesses,
)

pytestmark = [*ON_KUBERNETES, pytest.mark.timeout(300)]

VERBS = ("produce", "consume", "group", "list", "describe", "create", "alter", "delete")
OVER_HTTP = ("produce", "consume", "group", "list", "describe")
TOKEN, SCRAM, PLAIN = "OAUTHBEARER", "SCRAM-SHA-512", "PLAIN"
UNKNOWN = "SASL_AUTHENTICATION_FAILED"
LIBRDKAFKA = ("confluent-kafka", "kcat")
NEW_TOPIC = ("create", "alter", "delete")
NO_TOPIC, NO_GROUP = "TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED"
PASSWORD = "correct-horse-battery-staple"
SHORT_MS = 5_000  # for those who are not let in: some clients try again until then


@dataclass(frozen=True)
class Identity:
    """How a client says who it is, and the verbs that it may use.

    `unknown` is what each verb gets where the client is not let in; `because` is in its message.
    """

    mechanism: str = TOKEN
    may: frozenset[str] = frozenset()
    unknown: str = ""
    because: str = ""

    def expected(self, client: str, verb: str) -> set[str]:
        """Return the errors of which the client must get one; "" where it is allowed."""
        if self.unknown:
            return self._unknown_to(client, verb)
        if verb in self.may:
            return {""}
        if verb == "list":
            return {NOT_LISTED}
        if verb == "group":  # it depends on the client what it asks for first
            return {NO_GROUP, NO_TOPIC} | ({NO_ANSWER} if client == "kafkajs" else set())
        if verb == "consume" and client in LIBRDKAFKA:  # looks for the group's coordinator too
            return {NO_GROUP, NO_TOPIC}
        return {NO_TOPIC}

    def _unknown_to(self, client: str, verb: str) -> set[str]:
        if client == "http":
            return {UNKNOWN}
        # These keep the error to themselves: KafkaJS sends its next request after a rejected token,
        # franz-go's consumers connect again and again.
        if client == "kafkajs" and self.mechanism == TOKEN:
            return {NO_ANSWER}
        if client == "franz-go" and verb in ("consume", "group"):
            return {self.unknown, NO_ANSWER}
        return {self.unknown}


WRITES = frozenset({"produce", "list", "describe"})
READS = frozenset({"consume", "group", "list", "describe"})
IDENTITIES: Mapping[str, Identity] = {
    "producer": Identity(may=WRITES),
    "consumer": Identity(may=READS),
    "viewer": Identity(may=frozenset({"list", "describe"})),
    "admin": Identity(may=frozenset(VERBS)),
    "nobody": Identity(),
    "of-another-audience": Identity(unknown=UNKNOWN, because="audience"),
    "expired": Identity(unknown=UNKNOWN, because="expired"),
    "forged": Identity(unknown=UNKNOWN, because="the token is not valid"),
    "without-credentials": Identity(mechanism="", unknown=NO_ANSWER),
    "scram": Identity(SCRAM, may=WRITES),
    "scram-wrong": Identity(SCRAM, unknown=UNKNOWN, because="wrong user or password"),
    "plain": Identity(PLAIN, may=READS),
    "plain-wrong": Identity(PLAIN, unknown=UNKNOWN, because="wrong user or password"),
}


@dataclass
class Matrix:
    pool: ClosedPool
    authorities: Path
    tokens: Mapping[str, str]
    _found: dict[str, dict[tuple[str, str], Access]] = field(default_factory=dict)

    def access(self, client: str, identity: str, verb: str) -> Access:
        """Return one cell of what this client found out, all at once at the first question."""
        if client not in self._found:
            if client == "http":
                self._found[client] = self._over_http()
            else:
                cells = [self._cell(client, *each) for each in cells_of(client)]
                bootstrap = self.pool.bootstrap()
                self._found[client] = accesses(client, bootstrap, self.authorities, cells)
        return self._found[client][identity, verb]

    def _cell(self, client: str, identity: str, verb: str) -> Cell:
        how = IDENTITIES[identity]
        name, _, is_wrong = identity.partition("-")
        is_new = (verb in NEW_TOPIC and verb in how.may) or verb == "create"
        # kcat waits 5 s for metadata before it says why it got none.
        is_short = how.unknown == NO_ANSWER or (bool(how.unknown) and client != "kcat")
        return Cell(
            identity,
            verb,
            topic=f"new-{client}-{identity}" if is_new else "orders",
            group=f"{client}-{identity}",
            mechanism=how.mechanism,
            token=self.tokens.get(identity, ""),
            user=name,
            password="wrong" if is_wrong else PASSWORD,
            **({"limit_ms": SHORT_MS} if is_short else {}),
        )

    def _over_http(self) -> dict[tuple[str, str], Access]:
        first = self.pool.bootstrap("web").split(",")[0]
        context = ssl.create_default_context(cafile=str(self.authorities))
        return {
            (identity, verb): HttpClient(
                f"https://{first}", self.tokens.get(identity, ""), context
            ).attempt(verb, f"http-{identity}")
            for identity, verb in cells_of("http")
        }


def cells_of(client: str) -> list[tuple[str, str]]:
    """Return the identities and verbs that this client can try."""
    unable = UNABLE.get(client, {})
    if client == "http":
        return [
            (identity, verb)
            for identity, how in IDENTITIES.items()
            for verb in OVER_HTTP
            if how.mechanism in (TOKEN, "")
        ]
    return [
        (identity, verb)
        for identity, how in IDENTITIES.items()
        for verb in VERBS
        if verb not in unable and how.mechanism not in unable
    ]


class HttpClient:
    def __init__(self, url: str, token: str, context: ssl.SSLContext) -> None:
        self._url = url
        self._token = token
        self._context = context

    def attempt(self, verb: str, group: str) -> Access:
        try:
            found = self._work(verb, group)
        except urllib.error.HTTPError as error:
            problem = json.loads(error.read())
            assert error.code == (401 if problem["error"] == UNKNOWN else 403), problem
            return Access(problem["error"], problem["detail"])
        if verb == "list" and "orders" not in json.dumps(found):
            return Access(NOT_LISTED, "")
        return Access("", "")

    def _work(self, verb: str, group: str) -> object:
        if verb == "produce":
            return self._send("POST", "/topics/orders", {"records": [{"value": "http"}]})
        if verb == "consume":
            return self._send("GET", "/topics/orders/partitions/0/records?offset=0")
        if verb == "list":
            return self._send("GET", "/topics")
        if verb == "describe":
            return self._send("GET", "/topics/orders")
        wanted = {"name": "c", "format": "json", "auto.offset.reset": "earliest"}
        made = self._send("POST", f"/consumers/{group}", wanted)
        assert isinstance(made, dict)
        base = made["base_uri"]
        self._send("POST", base + "/subscription", {"topics": ["orders"]})
        found = self._send("GET", base + "/records?timeout=5000")
        self._send("DELETE", base)
        return found

    def _send(self, method: str, path: str, body: object = None) -> object:
        kind = "application/vnd.kafka.json.v2+json"
        request = urllib.request.Request(
            path if path.startswith("https:") else self._url + path,
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": kind, "Accept": kind},
            method=method,
        )
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        try:
            with urllib.request.urlopen(request, timeout=30, context=self._context) as response:
                text = response.read()
        except urllib.error.HTTPError as error:
            if error.code != 307:
                raise
            return self._send(method, error.headers["Location"], body)  # to the leader
        return json.loads(text) if text else None


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Matrix]:
    cluster = KubeCluster.of_rig(f"test-{uuid.uuid4().hex[:8]}")
    pool = ClosedPool(cluster)
    pool.start()
    pool.add_account("nobody")
    pool.add_user("scram", PASSWORD)
    pool.bind("scram", "tidemark-producer", "--user=tidemark:user:scram")
    pool.add_user("plain", PASSWORD, principal=pool.account("consumer"))
    known = {
        name: pool.token(name) for name in ("producer", "consumer", "viewer", "admin", "nobody")
    }
    tokens = known | {
        "of-another-audience": pool.token("admin", audience="tidemark/elsewhere/default"),
        "expired": pool.expired_token("admin"),
        "forged": pool.forged_token("admin"),
    }
    found = Matrix(pool, pool.authorities(tmp_path_factory.mktemp("matrix")), tokens)
    seed = HttpClient(
        f"https://{pool.bootstrap('web').split(',')[0]}",
        tokens["admin"],
        ssl.create_default_context(cafile=str(found.authorities)),
    )
    cluster.until(lambda: seed.attempt("produce", "").error == "", "the first record is written")
    yield found
    cluster.delete_namespace()


CELLS = [
    pytest.param(client, identity, verb, id=f"{client}-{identity}-{verb}")
    for client in (*ACCESS_CLIENTS, "http")
    for identity, verb in cells_of(client)
]


@pytest.mark.parametrize(("client", "identity", "verb"), CELLS)
def test_access(matrix: Matrix, client: str, identity: str, verb: str) -> None:
    how = IDENTITIES[identity]
    found = matrix.access(client, identity, verb)
    assert found.error in how.expected(client, verb), found
    if found.error == UNKNOWN and client != "franz-go":  # it keeps the sentence to itself
        assert how.because in found.message, found


def test_refused_changes_change_nothing(matrix: Matrix) -> None:
    """Each admin client deletes the topics that it created."""
    for client in ACCESS_CLIENTS:
        matrix.access(client, *cells_of(client)[0])
    cluster = matrix.pool.cluster

    def left() -> list[str]:
        names = (str(item["metadata"]["name"]) for item in cluster.items("topics"))
        return [name for name in names if name.startswith("new-")]

    cluster.until(lambda: not left(), "only who may create did, and deleted it")
    assert not cluster.must_get("topic", "orders")["spec"].get("config")
