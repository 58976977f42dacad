"""Which brokers of a pool leave, and which are active."""

import asyncio

from tidemark_operator.reconcile.pool_membership import active_broker_ids, leaving_brokers

from tests.support.api_objects import broker_pool
from tests.support.controller_harness import POOL, Harness
from tests.unit.operator.reconcile.placement_values import ids


def test_brokers_to_drain_leave_and_those_at_or_above_replicas() -> None:
    spec = broker_pool(replicas=3, drain=[1]).spec
    assert leaving_brokers(spec, ids(0, 1, 2, 3, 7)) == set(ids(1, 3, 7))
    assert leaving_brokers(broker_pool(replicas=3).spec, ids(0, 1, 2)) == set()


def test_a_broker_to_drain_leaves_whether_it_is_known_or_not() -> None:
    assert leaving_brokers(broker_pool(replicas=3, drain=[2]).spec, ()) == set(ids(2))


def test_a_broker_whose_session_ended_is_not_active() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        assert active_broker_ids(harness.service, POOL) == set(ids(0, 1, 2))
        await harness.kill(harness.brokers[0])
        assert active_broker_ids(harness.service, POOL) == set(ids(1, 2))
        assert active_broker_ids(harness.service, "shop/other") == set()
        await harness.service.step_down()

    asyncio.run(scenario())
