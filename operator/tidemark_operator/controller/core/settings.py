"""Define the controller's settings: default, unit and reason of each field."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    # Without contact for this long a broker is fenced (Kafka: 9000).
    session_timeout_ms: int = 3000
    # An open poll with nothing to say is answered after this long.
    heartbeat_interval_ms: int = 500
    # How often sessions and polls are looked at; what a tick comes late by is our own stall.
    tick_interval_ms: int = 50
    # A probe that has no answer by then is no verdict (S19).
    probe_timeout_ms: int = 250
    # A leader whose oldest unfinished append or last good disk probe is that old is no better than
    # a silent one, so as long as a session (S20).
    write_stall_limit_ms: int = 3000
    # A stopping broker waits this long at most for the others to apply what moved away from it.
    stop_acknowledgement_ms: int = 2000
    # Preferred-leader pass.
    balance_interval_ms: int = 30_000
    # Decide-again rounds after Conflict or OutcomeUnknown before a decision is put off to a tick.
    write_attempts: int = 5
    # Pause before an unsettled slice is read again.
    evaluate_retry_ms: int = 100
    # How many topic ids whose deletion every broker has applied are remembered as deleted.
    deleted_topics_retained: int = 10_000
    # A pool of at least this many brokers gets the mass-expiry guard (S18).
    mass_expiry_pool_size: int = 3
    # Which operators stand for one another, in metrics: the namespace that they run in.
    installation: str = "local"
    # host:port told to brokers that ask a standby.
    advertised_address: str = ""
