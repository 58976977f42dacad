"""The operator knows a TLS broker by the name in its certificate, at whatever address it is."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from aiohttp import web
from tidemark_broker.security.tls import BrokerTls
from tidemark_operator.controller.core.views import BrokerView
from tidemark_operator.controller.probe import HttpProbe, ProbeVerdict
from tidemark_operator.manager.web.broker_reads import BrokerReads
from tidemark_operator.security.broker_trust import BrokerTrust
from tidemark_operator.security.certificate_authority import bundle
from tidemark_protocol.certificate_names import broker_certificate_name
from tidemark_protocol.controller_messages import Endpoints
from tidemark_protocol.ids import BrokerId

from tests.support.certificates import POOL, TestPool, new_authority
from tests.unit.operator.manager.web.test_pool_feed import broker, partition

OTHER_POOL = "shop/other"


@asynccontextmanager
async def served(tls: BrokerTls) -> AsyncIterator[Endpoints]:
    """Serve what a broker's health and replica routes answer, with its certificate."""

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/healthz":
            return web.json_response({"incarnation": "a"})
        return web.json_response({"log_start_offset": 0, "high_watermark": 1, "log_end_offset": 2})

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls.clients).start()
        yield Endpoints("127.0.0.1", 0, runner.addresses[0][1], "", has_tls=True)
    finally:
        await runner.cleanup()


def trusting(*pools: TestPool) -> BrokerTrust:
    trust = BrokerTrust()
    for pool in pools:
        trust.trust(pool.pool, bundle((pool.authority,)))
    return trust


async def probed(trust: BrokerTrust, broker_id: int, endpoints: Endpoints) -> ProbeVerdict:
    return await HttpProbe(2000, trust)(POOL, BrokerId(broker_id), endpoints, "a")


def test_broker_1_is_not_taken_for_broker_2_at_its_address() -> None:
    async def scenario() -> None:
        pool = TestPool()
        trust = trusting(pool)
        async with served(pool.broker(1)) as endpoints:
            assert await probed(trust, 1, endpoints) is ProbeVerdict.ALIVE
            assert await probed(trust, 2, endpoints) is ProbeVerdict.NO_RESPONSE

    asyncio.run(scenario())


def test_page_reads_nothing_from_a_broker_with_another_name() -> None:
    async def scenario() -> None:
        pool = TestPool()
        sent: list[BrokerId] = []

        def authorization(pool_name: str, broker_id: BrokerId) -> dict[str, str]:
            sent.append(broker_id)
            return {"Authorization": "Bearer x"}

        async with served(pool.broker(0)) as endpoints:
            reads = BrokerReads(trusting(pool), authorization)
            views = [_at(broker(number), endpoints) for number in range(2)]
            of_0 = ("orders", partition(0, leader=0))
            of_1 = ("orders", partition(1, leader=1))
            try:
                # Also over a connection that is open to that address as broker 0.
                for _ in range(2):
                    found = await reads.leaders(POOL, [of_0, of_1], views)
                    assert [each is not None for each in found] == [True, False]
            finally:
                await reads.close()
        assert set(sent) == {0, 1}

    asyncio.run(scenario())


def test_authority_of_one_pool_is_not_trusted_in_another() -> None:
    async def scenario() -> None:
        here, other = TestPool(), TestPool(OTHER_POOL)
        posing = other.broker(1, named=broker_certificate_name(POOL, BrokerId(1)))
        async with served(posing) as endpoints:
            assert await probed(trusting(here, other), 1, endpoints) is ProbeVerdict.NO_RESPONSE

    asyncio.run(scenario())


def test_no_broker_is_trusted_before_its_authority_is_known() -> None:
    async def scenario() -> None:
        pool = TestPool()
        async with served(pool.broker(1)) as endpoints:
            assert await probed(BrokerTrust(), 1, endpoints) is ProbeVerdict.NO_RESPONSE
            trust = trusting(TestPool(authority=new_authority()))
            assert await probed(trust, 1, endpoints) is ProbeVerdict.NO_RESPONSE
            trust.trust(POOL, bundle((pool.authority,)))
            assert await probed(trust, 1, endpoints) is ProbeVerdict.ALIVE

    asyncio.run(scenario())


def _at(view: BrokerView, endpoints: Endpoints) -> BrokerView:
    return replace(view, endpoints=endpoints)
