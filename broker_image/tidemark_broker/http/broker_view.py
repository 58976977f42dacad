"""What the HTTP routes may see of the broker they run in."""

from collections.abc import Callable
from dataclasses import dataclass

from tidemark_broker.runtime.partitions import Partitions
from tidemark_protocol.ids import BrokerId


@dataclass(frozen=True, slots=True)
class BrokerView:
    """`is_ready` answers (ready, reason); the reason is a sentence for `/readyz` when not ready.

    `incarnation` and `pool` are what the controller's probe compares (S19)."""

    partitions: Partitions
    broker_id: BrokerId
    pool: str
    incarnation: str
    is_ready: Callable[[], tuple[bool, str]]
