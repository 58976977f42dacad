"""Plan the security of a pool: what its spec should say, and what its brokers have.

Brokers of two neighbouring steps work together, others do not. So brokers get a step when each of
them has it or a neighbour of it (decision 0180).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec import UNSET

from tidemark_operator.api.broker_pool import BrokerPool
from tidemark_operator.api.pool_security import (
    CLOSED,
    OPEN,
    SecuritySpec,
    is_one_step,
    skipped_steps,
)
from tidemark_operator.broker_runtime.broker_runtime import ObservedPool
from tidemark_operator.reconcile.conditions import Condition

HOW_TO_CLOSE = "docs/operations/security.md says how to close it without downtime"


@dataclass(frozen=True, slots=True)
class PoolSecurity:
    """The security of a pool: `wanted` with no field unsaid, and what brokers are to have now."""

    wanted: SecuritySpec
    in_force: SecuritySpec
    problem: Condition | None = None  # why the two differ
    is_new: bool = False  # no broker was made for the pool yet


def plan_security(pool: BrokerPool, observed: ObservedPool) -> PoolSecurity:
    former = _former(pool, observed)
    wanted = pool.spec.security.completed_by(CLOSED if former is None else former)
    if former is None:
        return PoolSecurity(wanted, wanted, is_new=True)
    skipped = skipped_steps(former, wanted)
    if skipped:
        problem = Condition("SecurityAsAsked", False, "StepSkipped", "; ".join(skipped))
        return PoolSecurity(wanted, former, problem)
    far = [
        str(each.broker_id)
        for each in observed.brokers
        if each.security is not None and not is_one_step(each.security, wanted)
    ]
    if far:
        return PoolSecurity(wanted, former, _waiting(far))
    return PoolSecurity(wanted, wanted)


def _former(pool: BrokerPool, observed: ObservedPool) -> SecuritySpec | None:
    """Return the security before this pass, or None for a pool that has just been created."""
    of_pods = next((each.security for each in observed.brokers if each.security is not None), None)
    # Order: pods say it first, so that an upgrade never changes the ports of a running pool.
    before = of_pods if of_pods is not None else None if _is_new(pool) else OPEN
    recorded = pool.status.security
    if recorded is UNSET:
        return before
    return recorded.steps if before is None else recorded.steps.completed_by(before)


def _is_new(pool: BrokerPool) -> bool:
    """Return whether no operator has made brokers for it, of this release or a former one."""
    return pool.status.replicas is UNSET


def _waiting(brokers: list[str]) -> Condition:
    return Condition(
        "SecurityAsAsked",
        False,
        "StepBeforeIsRolling",
        "the next step begins when all brokers have the step before; not yet: brokers "
        + ", ".join(brokers[:20]),
    )


def security_conditions(security: PoolSecurity) -> Iterator[Condition]:
    state = security.in_force.state
    said = {
        "Closed": "all clients use TLS and authenticate",
        "Migrating": (
            "plain connections or clients without authentication are still accepted, as asked:"
            f" spec.security.tls.mode {security.in_force.tls.mode}, authentication"
            f" {security.in_force.authentication}; {HOW_TO_CLOSE}"
        ),
        "Open": (
            "connections are plain and clients do not authenticate: who reaches a port may do"
            f" everything; {HOW_TO_CLOSE}"
        ),
    }
    yield Condition("Closed", state == "Closed", state, said[state])
    if security.problem is not None:
        yield security.problem
