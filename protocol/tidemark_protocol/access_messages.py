"""Define identities, and the messages by which a broker asks the controller about its clients.

Brokers have no credentials of the Kubernetes API (0170): the controller has the API server review
tokens (TokenReview) and accesses (SubjectAccessReview) for them. HTTP POST to the controller API,
encoded as `controller_messages` are. In local mode the controller answers from a file of users.

A response with UNKNOWN_SERVER_ERROR means that the API server could not be asked: the broker uses
what it knows for its grace time, and rejects what it does not know.
"""

from dataclasses import dataclass
from enum import StrEnum

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import NO_EPOCH, BrokerEpoch, BrokerId, ControllerEpoch
from tidemark_protocol.topic_messages import RequestingBroker

REVIEW_TOKEN_PATH = "/v1/review-token"
REVIEW_ACCESS_PATH = "/v1/review-access"
REVIEW_PASSWORD_PATH = "/v1/review-password"
SCRAM_CREDENTIAL_PATH = "/v1/scram-credential"
SIGN_CERTIFICATE_PATH = "/v1/sign-certificate"

CONTROLLER_AUDIENCE = "tidemark-controller"  # of the tokens of broker pods
MAX_TOKEN_BYTES = 16 * 1024
MAX_ACCESSES = 1000  # in one request


def pool_audience(pool: str) -> str:
    """Return the audience of the tokens that clients of a pool (namespace/name) send."""
    return f"tidemark/{pool}"


@dataclass(frozen=True, slots=True)
class Principal:
    """A user as Kubernetes names it, e.g. `system:serviceaccount:shop:orders`, with its groups."""

    name: str
    groups: tuple[str, ...] = ()


ANONYMOUS = Principal("system:anonymous", ("system:unauthenticated",))


class ResourceKind(StrEnum):
    """The resources of the API group tidemark.dev that accesses are checked on."""

    TOPIC = "topics"
    GROUP = "consumergroups"
    POOL = "brokerpools"


class Verb(StrEnum):
    """The verbs of RBAC rules; the first five are ours, the others as Kubernetes has them."""

    PRODUCE = "produce"
    CONSUME = "consume"
    DESCRIBE = "describe"
    ALTER = "alter"
    DELETE = "delete"
    CREATE = "create"


@dataclass(frozen=True, slots=True)
class Access:
    """An access to one resource of the pool's namespace; an empty name means every one."""

    verb: Verb
    kind: ResourceKind
    name: str = ""


@dataclass(frozen=True, slots=True)
class ReviewTokenRequest:
    broker: RequestingBroker
    token: str


@dataclass(frozen=True, slots=True)
class ReviewTokenResponse:
    """The principal of a token; None for a token that is not valid, `message` says why."""

    error: ErrorCode
    controller_epoch: ControllerEpoch = ControllerEpoch(NO_EPOCH)
    message: str = ""
    principal: Principal | None = None
    expires_at_ms: int = 0  # wall clock; 0: not known


@dataclass(frozen=True, slots=True)
class ReviewAccessRequest:
    broker: RequestingBroker
    principal: Principal
    accesses: tuple[Access, ...]


@dataclass(frozen=True, slots=True)
class ReviewAccessResponse:
    """Whether each access is allowed, in the order of the request.

    `age_ms` is the age of the oldest of these results in the controller's cache.
    """

    error: ErrorCode
    controller_epoch: ControllerEpoch = ControllerEpoch(NO_EPOCH)
    message: str = ""
    allowed: tuple[bool, ...] = ()
    age_ms: int = 0


@dataclass(frozen=True, slots=True)
class ReviewPasswordRequest:
    broker: RequestingBroker
    user: str
    password: str


@dataclass(frozen=True, slots=True)
class ScramCredentialRequest:
    broker: RequestingBroker
    user: str
    mechanism: str  # SCRAM-SHA-256 | SCRAM-SHA-512


@dataclass(frozen=True, slots=True)
class ScramCredentialResponse:
    """What a server needs to verify a SCRAM client (RFC 5802); without a principal: no such user.

    Salt and keys are base64.
    """

    error: ErrorCode
    controller_epoch: ControllerEpoch = ControllerEpoch(NO_EPOCH)
    message: str = ""
    principal: Principal | None = None
    salt: str = ""
    iterations: int = 0
    stored_key: str = ""
    server_key: str = ""


@dataclass(frozen=True, slots=True)
class SignCertificateRequest:
    """A certificate signing request (PEM) of the broker that sends it; it need not be registered.

    The controller names the certificate by the sender's identity, not by what the request says.
    With `current_pem`, the certificate that the broker has, another one is issued only if its names
    or its authority would differ.
    """

    pool: str
    broker_id: BrokerId
    request_pem: str
    broker_epoch: BrokerEpoch = BrokerEpoch(NO_EPOCH)
    current_pem: str = ""


@dataclass(frozen=True, slots=True)
class SignCertificateResponse:
    """A certificate; none without an error: the current one has the names of now.

    After `check_after_ms` the names may be others, because they are addresses of nodes or load
    balancers; 0: they are not.
    """

    error: ErrorCode
    message: str = ""
    certificate_pem: str = ""  # with the chain
    authorities_pem: str = ""  # that the broker trusts in its peers
    not_after_ms: int = 0  # wall clock
    check_after_ms: int = 0
