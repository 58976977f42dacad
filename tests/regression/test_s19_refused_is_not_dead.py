"""S19: refused is not dead.

A rejecting network policy, or a restarted process that answers for its former self. A probe asks
for the incarnation, and a refusal fences only whoever's own poll is closed too. A standby takes
over early only from a holder whose pod is terminated.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from tidemark_operator.api.kinds import POD
from tidemark_operator.controller.probe import HttpProbe, ProbeVerdict
from tidemark_operator.manager.leadership import is_pod_terminated
from tidemark_protocol.controller_messages import Endpoints
from tidemark_protocol.ids import BrokerId

from tests.regression.lease_candidates import candidate
from tests.support.controller_harness import POOL, Harness, evaluate
from tests.support.waiting import run


def test_a_broker_behind_a_rejecting_network_policy_is_not_fenced_while_it_polls() -> None:
    """Followers lost it and report it for ever; it talks to us all the time."""

    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        before = harness.partition()
        harness.probe.verdicts[harness.brokers[0].incarnation] = ProbeVerdict.REFUSED
        for _ in range(100):
            reporting = harness.brokers[1].heartbeat(suspects=(BrokerId(0),))
            await harness.advance(100, *harness.brokers)
            reporting.cancel()
        assert len(harness.probe.requested) > 50
        assert harness.partition() == before

    run(scenario)


def test_between_an_answer_and_the_next_poll_a_broker_is_not_taken_for_dead() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        broker = harness.brokers[0]
        harness.probe.verdicts[broker.incarnation] = ProbeVerdict.REFUSED
        await harness.advance(500, *harness.brokers[1:])
        assert broker.poll is not None
        assert broker.poll.done()  # answered a moment ago
        harness.service.suspect(POOL, broker.broker_id, "reported by broker 1")
        await evaluate()
        assert harness.partition().leader == 0
        await broker.catch_up()
        await harness.advance(500, *harness.brokers)
        assert harness.partition().leader == 0

    run(scenario)


def test_a_refusal_fences_at_once_whoever_does_not_poll() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        before_ms = harness.clock.ms
        await harness.kill(harness.brokers[0])
        assert harness.partition().leader == 1
        assert harness.clock.ms == before_ms

    run(scenario)


def test_one_that_answers_its_probe_is_not_fenced_although_its_poll_is_closed() -> None:
    """Only its way to us is cut: that takes a session."""

    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        assert harness.brokers[0].poll is not None
        harness.brokers[0].poll.cancel()
        await harness.advance(2500, *harness.brokers[1:])
        assert harness.partition().leader == 0
        await harness.advance(700, *harness.brokers[1:])
        assert harness.partition().leader == 1

    run(scenario)


@asynccontextmanager
async def answering(body: str) -> AsyncIterator[Endpoints]:
    async def health(request: web.Request) -> web.Response:
        return web.Response(text=body)

    app = web.Application()
    app.router.add_get("/healthz", health)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield Endpoints("127.0.0.1", 0, runner.addresses[0][1], "http://x")
    finally:
        await runner.cleanup()


def test_a_process_that_answers_for_its_former_self_says_that_the_former_is_gone() -> None:
    async def scenario() -> None:
        probe = HttpProbe(2000)
        async with answering('{"incarnation": "0-b"}') as endpoints:
            assert await probe(POOL, BrokerId(0), endpoints, "0-a") is ProbeVerdict.REFUSED
            assert await probe(POOL, BrokerId(0), endpoints, "0-b") is ProbeVerdict.ALIVE

    run(scenario)


def operator_pod(name: str, uid: str, **status: object) -> dict[str, object]:
    metadata = {"namespace": "tidemark", "name": name, "uid": uid}
    return {"metadata": metadata, "status": {"phase": "Running", **status}}


def test_a_standby_takes_over_early_only_from_a_terminated_holder() -> None:
    async def scenario() -> None:
        harness = Harness()
        identity = "operator-a/uid-a"

        async def is_terminated(holder: str) -> bool:
            return await is_pod_terminated(harness.store, "tidemark", holder)

        holder, holding = candidate(harness, identity)
        standby, waiting = candidate(
            harness, "operator-b/uid-b", is_holder_terminated=is_terminated
        )
        await holder.step()
        running = {"containerStatuses": [{"state": {"running": {}}}]}
        crashing = {"containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}
        for status in (running, crashing):
            pod = operator_pod("operator-a", "uid-a", **status)
            harness.store.objects[(POD.kind, "tidemark", "operator-a")] = pod
            await standby.step()
            assert not waiting.is_leading
        pod = operator_pod(
            "operator-a", "uid-a", containerStatuses=[{"state": {"terminated": {"exitCode": 1}}}]
        )
        harness.store.objects[(POD.kind, "tidemark", "operator-a")] = pod
        await standby.step()
        assert waiting.is_leading
        await holder.step()
        assert not holding.is_leading

    run(scenario)


def test_an_api_server_that_does_not_say_whether_the_holder_lives_is_no_proof() -> None:
    async def scenario() -> None:
        harness = Harness()
        harness.store.is_down = True
        assert not await is_pod_terminated(harness.store, "tidemark", "operator-a/uid-a")
        assert not await is_pod_terminated(harness.store, "tidemark", "somebody")

    run(scenario)
