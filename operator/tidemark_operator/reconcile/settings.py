"""Define the settings of the reconcilers."""

from dataclasses import dataclass, field

from tidemark_operator.api.kinds import Object


@dataclass(frozen=True, slots=True)
class ReconcilerSettings:
    # What the pool `default` is made with, when a Topic needs it: spec fields of a BrokerPool.
    default_pool_spec: Object = field(default_factory=dict)
    # Whether spec.security is set where it is absent, and changes step by step. Brokers of local
    # mode are as it was started.
    sets_security: bool = True
    # At most one status write per object in this time (after a few at once).
    status_interval_ms: int = 1000
    # A Topic that waits for something looks again this often, should a change go unnoticed; many
    # together no more often than that many a second.
    waiting_interval_ms: int = 5000
    waiting_turns_per_second: int = 20
    # While brokers are replaced one by one: how soon to see whether the next may go.
    roll_interval_ms: int = 500
