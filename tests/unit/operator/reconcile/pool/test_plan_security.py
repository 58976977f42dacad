"""Test which security a pool's brokers get: new pools are closed, running ones never jump."""

import pytest
from tidemark_operator.api.broker_pool import BrokerPool
from tidemark_operator.api.kinds import Object
from tidemark_operator.api.objects import Invalid, parse
from tidemark_operator.api.pool_security import CLOSED, OPEN, SecuritySpec, security
from tidemark_operator.broker_runtime.broker_runtime import (
    BrokerProcess,
    ObservedBroker,
    ObservedPool,
)
from tidemark_operator.reconcile.pool.plan_security import plan_security, security_conditions
from tidemark_protocol.ids import BrokerId

MIGRATING = security("Optional", "optional")
FORMER_RELEASE: Object = {"replicas": 3, "observedGeneration": 1}


def as_object(value: SecuritySpec) -> Object:
    return {"authentication": value.authentication, "tls": {"mode": value.tls.mode}}


def pool_of(wanted: SecuritySpec | None, status: Object) -> BrokerPool:
    spec: Object = {} if wanted is None else {"security": as_object(wanted)}
    item: Object = {
        "apiVersion": "tidemark.dev/v1alpha1",
        "kind": "BrokerPool",
        "metadata": {"name": "default", "namespace": "shop", "uid": "u"},
        "spec": spec,
        "status": status,
    }
    found = parse(BrokerPool, item)
    assert not isinstance(found, Invalid), found
    return found


def recorded(value: SecuritySpec) -> Object:
    return {**FORMER_RELEASE, "security": as_object(value)}


def pods(*securities: SecuritySpec) -> ObservedPool:
    return ObservedPool(
        tuple(
            ObservedBroker(BrokerId(number), BrokerProcess.RUNNING, security=each)
            for number, each in enumerate(securities)
        )
    )


def test_new_pool_is_closed() -> None:
    found = plan_security(pool_of(None, {}), pods())
    assert (found.wanted, found.in_force) == (CLOSED, CLOSED)


def test_new_pool_is_closed_after_its_spec_was_invalid() -> None:
    found = plan_security(pool_of(None, {"observedGeneration": 1}), pods())
    assert found.in_force == CLOSED


def test_field_that_is_absent_is_set_alone() -> None:
    item = pool_of(None, {})
    part = item.with_security(SecuritySpec(authentication="none"))
    assert plan_security(part, pods()).wanted == security("Required", "none")


@pytest.mark.parametrize("running", [pods(OPEN, OPEN, OPEN), pods(OPEN), pods()])
def test_pool_of_the_former_release_stays_open(running: ObservedPool) -> None:
    found = plan_security(pool_of(None, FORMER_RELEASE), running)
    assert (found.wanted, found.in_force, found.problem) == (OPEN, OPEN, None)


def test_pool_made_again_over_running_pods_keeps_their_security() -> None:
    assert plan_security(pool_of(None, {}), pods(MIGRATING)).in_force == MIGRATING


@pytest.mark.parametrize("value", [OPEN, MIGRATING, CLOSED])
def test_replace_that_drops_the_fields_changes_nothing(value: SecuritySpec) -> None:
    found = plan_security(pool_of(None, recorded(value)), pods(value, value))
    assert (found.wanted, found.in_force) == (value, value)


def test_jump_is_not_made_and_says_which_step_comes_first() -> None:
    found = plan_security(pool_of(CLOSED, recorded(OPEN)), pods(OPEN, OPEN))
    assert found.in_force == OPEN
    assert found.problem is not None
    assert found.problem.reason == "StepSkipped"
    assert found.problem.message == (
        "spec.security.tls.mode cannot change from Disabled to Required in one step: set Optional"
        " first; spec.security.authentication cannot change from none to kubernetes in one step:"
        " set optional first"
    )


def test_jump_of_a_pool_of_the_former_release_is_not_made() -> None:
    assert plan_security(pool_of(CLOSED, FORMER_RELEASE), pods(OPEN)).in_force == OPEN


def test_next_step_waits_until_all_brokers_have_the_one_before() -> None:
    pool = pool_of(CLOSED, recorded(MIGRATING))
    waiting = plan_security(pool, pods(MIGRATING, OPEN, MIGRATING))
    assert waiting.in_force == MIGRATING
    assert waiting.problem is not None
    assert waiting.problem.reason == "StepBeforeIsRolling"
    assert waiting.problem.message.endswith("not yet: brokers 1")
    assert plan_security(pool, pods(MIGRATING, MIGRATING, MIGRATING)).in_force == CLOSED


def test_step_that_rolls_can_be_taken_back() -> None:
    pool = pool_of(OPEN, recorded(MIGRATING))
    assert plan_security(pool, pods(MIGRATING, OPEN, OPEN)).in_force == OPEN


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (OPEN, "Open"),
        (MIGRATING, "Migrating"),
        (CLOSED, "Closed"),
        (security("Required", "none"), "Migrating"),
    ],
)
def test_condition_says_whether_the_pool_is_closed(value: SecuritySpec, reason: str) -> None:
    (condition,) = security_conditions(plan_security(pool_of(value, recorded(value)), pods(value)))
    assert (condition.type, condition.reason) == ("Closed", reason)
    assert condition.is_true == (reason == "Closed")
