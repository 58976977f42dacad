"""The live page of a pool of 10,000 partitions, and of hostile topic names, in a real Chromium.

The controller is real, its brokers and its store are not. Figures are in build/isr-page-large.json.
"""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from aiohttp import web
from playwright.sync_api import Browser, Page, expect
from tidemark_operator.controller.core.placement import place
from tidemark_operator.manager.web.live_pools import LivePools
from tidemark_operator.manager.web.routes import add_web_routes
from tidemark_protocol.ids import TopicId
from tidemark_protocol.partition_state import TopicState

from tests.support.browser import ROOT, chromium, watched_page
from tests.support.controller_harness import POOL, Harness
from tests.support.waiting import HANG_SECONDS

WAIT_MS = HANG_SECONDS * 1000
HOSTILE = (
    '<img src=x onerror="window.hacked = 1">',
    "<script>window.hacked = 1</script>",
    "\u202e\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd",
    "x" * 249,
    "'\"`&amp;${1}\u0000",
)
FIRST_ROWS = """() => {
  new MutationObserver((_, observer) => {
    if (!document.querySelector(".row")) return;
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(() => { window.firstRowsMs = performance.now(); }));
  }).observe(document, {subtree: true, childList: true});
}"""


class Rig:
    """A controller with its page on a loop in a thread of its own."""

    def __init__(self, topics: list[tuple[str, int]]) -> None:
        self.url = ""
        self.loop = asyncio.new_event_loop()
        self._topics = topics
        self._is_ready = threading.Event()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self.loop.run_until_complete, args=(self._serve(),))

    @contextmanager
    def running(self) -> Iterator["Rig"]:
        self._thread.start()
        try:
            assert self._is_ready.wait(HANG_SECONDS)
            yield self
        finally:
            self.loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
            self.loop.close()

    def kill(self, number: int) -> None:
        killing = self.harness.kill(self.harness.brokers[number])
        asyncio.run_coroutine_threadsafe(killing, self.loop).result(HANG_SECONDS)

    async def _serve(self) -> None:
        self.harness = Harness()
        await self.harness.start(3)
        service = self.harness.service
        for number, (name, partitions) in enumerate(self._topics):
            state = TopicState(name, TopicId(f"id-{number}"), partitions, 3)
            placed = place(partitions, 3, [broker.broker_id for broker in self.harness.brokers])
            await service.create_topic(POOL, state, placed, object_name=f"topic-{number}")
        live_pools = LivePools(service, wall_clock_ms=lambda: 1_700_000_000_000)
        app = web.Application()
        add_web_routes(app, service, live_pools)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{port}/ui/"
        self._is_ready.set()
        await self._stop.wait()
        await live_pools.close()
        await runner.cleanup()
        await service.step_down()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


def live(page: Page) -> None:
    expect(page.locator("#link")).to_have_attribute("data-state", "live", timeout=WAIT_MS)


def test_hostile_names_are_text(browser: Browser) -> None:
    topics = [(name, 2) for name in HOSTILE]
    with Rig(topics).running() as rig, watched_page(browser, rig.url) as watched:
        page = watched.page
        live(page)
        names = page.locator(".row.topic .name").all_text_contents()
        assert sorted(names) == sorted(HOSTILE)
        for name in HOSTILE:
            page.locator(".row.topic .name", has_text=name).first.click(timeout=WAIT_MS)
        rig.kill(1)
        expect(page.locator("#events")).to_contain_text("is fenced", timeout=WAIT_MS)
        page.locator(".row.topic").first.focus()
        page.keyboard.press("Enter")
        expect(page.locator("#subject h2")).to_contain_text(names[0])
        assert page.evaluate("() => window.hacked") is None
        assert page.locator("main img, main script").count() == 0
        width = page.evaluate("() => innerWidth")
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("topics", [100, 1000])
def test_large_pool_is_usable(browser: Browser, topics: int) -> None:
    partitions = 10 * topics
    named = [(f"topic-{number:04}", 10) for number in range(topics)]
    with Rig(named).running() as rig, browser.new_context() as context:
        figures: dict[str, Any] = {"partitions": partitions}
        for visit in ("cold", "warm"):
            page = context.new_page()
            page.add_init_script(f"({FIRST_ROWS})()")
            page.goto(rig.url)
            page.wait_for_function("() => window.firstRowsMs", timeout=WAIT_MS)
            figures[f"firstRowsMs.{visit}"] = round(page.evaluate("() => window.firstRowsMs"))
            entries = page.evaluate(
                "() => performance.getEntriesByType('resource').map((r) => r.transferSize)"
            )
            figures[f"bytes.{visit}"] = sum(entries)
        live(page)
        health = page.locator("#health")
        expect(health).to_contain_text(f"All {partitions:,} partitions of {topics:,} topics")
        assert page.locator(".row").count() < 80
        page.locator("#search").fill(f"topic-{topics - 1:04}-7")
        expect(page.locator(".row.partition .cname")).to_have_text(f"topic-{topics - 1:04}-7")
        page.locator("#search").fill("")
        page.locator("#table").press("End")
        expect(page.locator(".row.topic").last).to_contain_text(f"topic-{topics - 1:04}")
        rig.kill(2)
        expect(health).to_contain_text("Broker 2 is fenced", timeout=WAIT_MS)
        expect(health).to_contain_text(f"All {partitions:,} partitions are at min", timeout=WAIT_MS)
        assert page.locator(".row").count() < 80
        (ROOT / "build").mkdir(exist_ok=True)
        path = ROOT / "build" / f"isr-page-{partitions}.json"
        path.write_text(json.dumps(figures))
