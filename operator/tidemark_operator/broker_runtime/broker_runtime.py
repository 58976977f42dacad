"""Define the interface to what runs brokers: pods of Kubernetes or processes of this machine.

A runtime observes one pool and performs one action a call; `reconcile/pool/plan.py` decides which
actions are due, from the complete observation, in the same way for both runtimes. Each action is
idempotent: what already exists, or is already gone, is no error. A runtime without a part (a
process needs no claim) reports it as present and is never asked to create it.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from tidemark_protocol.ids import BrokerId

from tidemark_operator.api.broker_pool import BrokerPool, ListenerSpec
from tidemark_operator.api.pool_security import SecuritySpec


class BrokerProcess(Enum):
    """The state of the process of one broker id."""

    ABSENT = "Absent"
    STARTING = "Starting"  # made, not yet serving
    RUNNING = "Running"  # ready
    STOPPING = "Stopping"  # told to stop, still there
    EXITED = "Exited"  # ended for good: its remains have to go before it can start again


@dataclass(frozen=True, slots=True)
class ObservedBroker:
    """One broker id of a pool, whether a process runs for it or only its storage is left."""

    broker_id: BrokerId
    process: BrokerProcess
    instance: str = ""  # pod UID or process id: names this very process
    has_storage: bool = True
    storage_is_going: bool = False  # being deleted: nothing may start on it
    storage_policy: str = ""  # its own copy of the pool's deletionPolicy (S4); "": has none
    storage_access_mode: str = ""  # as it was made; "": this storage has no such thing
    has_endpoint: bool = True  # its own Service
    is_outdated: bool = False  # made of another template than the pool's present one
    node_address: str = ""  # of the machine that it runs on
    security: SecuritySpec | None = None  # of the pool as its process was made; None: no process


@dataclass(frozen=True, slots=True)
class ObservedListener:
    """The Service of a listener for one broker, or (None) its bootstrap Service."""

    name: str
    uid: str
    listener: str
    broker_id: BrokerId | None
    type: str
    port: int
    node_port: int = 0  # 0: none yet
    balancer_host: str = ""  # "": none yet


@dataclass(frozen=True, slots=True)
class PoolCertificates:
    """The authorities of a pool with TLS; `problem` is of the user's Secret, for the user."""

    issuer: str = ""  # fingerprint; "": there is none yet
    ends_s: int = 0
    trusted: int = 0
    newest: str = ""
    secret_name: str = ""  # of the user, if it comes from one
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ObservedPool:
    """All that runs or is kept for one pool; brokers in the order of their ids."""

    brokers: tuple[ObservedBroker, ...]
    has_bootstrap: bool = True
    has_disruption_budget: bool = True
    listeners: tuple[ObservedListener, ...] | None = None  # None: this runtime has no such thing
    certificates: PoolCertificates | None = None  # None: not known, or without TLS


@dataclass(frozen=True, slots=True)
class CreateVolumeClaim:
    broker_id: BrokerId


@dataclass(frozen=True, slots=True)
class LabelVolumeClaim:
    """An action: copy the pool's deletionPolicy to storage that has another one."""

    broker_id: BrokerId


@dataclass(frozen=True, slots=True)
class CreateBrokerService:
    broker_id: BrokerId


@dataclass(frozen=True, slots=True)
class StartBroker:
    broker_id: BrokerId


@dataclass(frozen=True, slots=True)
class StopBroker:
    """An action: shut a broker down, or remove what is left of one that ended."""

    broker_id: BrokerId
    instance: str  # only this very process


@dataclass(frozen=True, slots=True)
class CreateBootstrapService:
    pass


@dataclass(frozen=True, slots=True)
class CreateListenerService:
    listener: ListenerSpec
    broker_id: BrokerId | None  # None: the one to begin with


@dataclass(frozen=True, slots=True)
class DeleteListenerService:
    """An action: remove a Service of a removed listener or broker, or of another type or port."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class CreateDisruptionBudget:
    pass


PoolAction = (
    CreateVolumeClaim
    | LabelVolumeClaim
    | CreateBrokerService
    | StartBroker
    | StopBroker
    | CreateBootstrapService
    | CreateDisruptionBudget
    | CreateListenerService
    | DeleteListenerService
)


class BrokerRuntime(Protocol):
    """A runtime of brokers.

    Methods raise StoreError or OSError where the environment failed; the caller retries.
    """

    async def observe(self, pool: BrokerPool) -> ObservedPool: ...

    async def apply(self, pool: BrokerPool, action: PoolAction) -> None: ...

    async def on_pool_gone(self, namespace: str, name: str) -> None:
        """End all that runs for a BrokerPool that is confirmed absent.

        Its storage stays, unless the storage's own copy of the policy says Delete (S4).
        """
        ...
