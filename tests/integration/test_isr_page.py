"""The live page in a real Chromium: it shows what the controller knows, and lives through faults.

Screenshots are kept in build/screenshots, and the time from a kill to the page in
build/isr-page.json.
"""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import ROOT, chromium, watched_page
from tests.support.local_cluster import LocalCluster, running
from tests.support.waiting import HANG_SECONDS

pytestmark = pytest.mark.cluster

WAIT_MS = HANG_SECONDS * 1000
TOPICS = """
apiVersion: tidemark.dev/v1alpha1
kind: Topic
metadata: {name: orders}
spec: {partitions: 6, replicationFactor: 3, config: {min.insync.replicas: "2"}}
---
apiVersion: tidemark.dev/v1alpha1
kind: Topic
metadata: {name: payments}
spec: {partitions: 4, replicationFactor: 3, config: {min.insync.replicas: "2"}}
---
apiVersion: tidemark.dev/v1alpha1
kind: Topic
metadata: {name: audit-log}
spec: {partitions: 3, replicationFactor: 2, config: {min.insync.replicas: "1"}}
"""
# The replica cells of all rows in view: {"orders-0": ["L0", "S1", "S2"]}.
SHOWN = """() => Object.fromEntries([...document.querySelectorAll(".row.partition")].map((row) => [
  row.querySelector(".cname").textContent,
  [...row.querySelectorAll(".cell")].map(
    (cell) => cell.dataset.cell + cell.children[2].textContent),
]))"""
# When the page first shows that broker as fenced, and an ISR without it.
STAMPS = """(broker) => {
  window.stamps = {};
  const look = () => {
    const now = Date.now();
    const card = document.querySelector(`.broker[data-id="${broker}"]`);
    if (card?.dataset.state === "Fenced") window.stamps.fenced ??= now;
    const cells = [...document.querySelectorAll(".row.partition .cell")];
    const left = cells.filter((cell) => cell.children[2].textContent === String(broker));
    if (left.length && left.every((cell) => "FE".includes(cell.dataset.cell))) {
      window.stamps.left ??= now;
    }
  };
  const all = {subtree: true, childList: true, attributes: true};
  new MutationObserver(look).observe(document.body, all);
}"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with running(tmp_path_factory.mktemp("page"), manifest=TOPICS) as started:
        for topic in ("orders", "payments", "audit-log"):
            started.wait_until_in_sync(topic)
        yield started


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


def live(page: Page) -> None:
    expect(page.locator("#link")).to_have_attribute("data-state", "live", timeout=WAIT_MS)


def healthy(page: Page) -> None:
    live(page)
    expect(page.locator("#health")).to_have_attribute("data-level", "good", timeout=WAIT_MS)


def expected_cells(cluster: LocalCluster) -> dict[str, list[str]]:
    pool = cluster.pool()
    active = {each["brokerId"] for each in pool["brokers"] if each["state"] == "Active"}

    def cell(partition: dict[str, Any], broker_id: int) -> str:
        if broker_id == partition["leader"]:
            return f"L{broker_id}"
        if broker_id in [member["id"] for member in partition["isr"]]:
            return f"S{broker_id}"
        if broker_id in [member["id"] for member in partition["eligibleLeaders"]]:
            return f"E{broker_id}"
        return f"{'C' if broker_id in active else 'F'}{broker_id}"

    return {
        f"{topic['topic']}-{each['partition']}": [cell(each, i) for i in each["replicas"]]
        for topic in pool["topics"]
        for each in topic["partitions"]
    }


def shows_what_the_controller_knows(page: Page, cluster: LocalCluster) -> None:
    deadline = time.monotonic() + HANG_SECONDS
    while (shown := page.evaluate(SHOWN)) != (expected := expected_cells(cluster)):
        assert time.monotonic() < deadline, f"expected {expected}, found {shown}"
        page.wait_for_timeout(100)


def test_first_line_of_dev_is_the_page(cluster: LocalCluster) -> None:
    first = (cluster.data_dir / "dev.log").read_text().splitlines()[0]
    assert first == f"live page: {cluster.controller_url}/ui/"


def test_page_equals_the_status_and_shows_a_kill(cluster: LocalCluster, browser: Browser) -> None:
    url = f"{cluster.controller_url}/ui/"
    with watched_page(browser, url, viewport={"width": 1440, "height": 1400}) as watched:
        page = watched.page
        healthy(page)
        shows_what_the_controller_knows(page, cluster)
        expect(page.locator("#health")).to_contain_text(
            "All 13 partitions of 3 topics are in sync."
        )
        page.evaluate(STAMPS, 1)
        began_ms = time.time() * 1000
        cluster.kill(1, signal.SIGKILL)
        page.wait_for_function("() => window.stamps.fenced && window.stamps.left", timeout=WAIT_MS)
        stamps = {name: at - began_ms for name, at in page.evaluate("() => window.stamps").items()}
        (ROOT / "build").mkdir(exist_ok=True)
        (ROOT / "build" / "isr-page.json").write_text(json.dumps({"killToPageMs": stamps}))
        expect(page.locator("#events")).to_contain_text("BrokerFenced")
        expect(page.locator("#events")).to_contain_text("Broker 1 is fenced")
        healthy(page)  # local mode starts it again
        shows_what_the_controller_knows(page, cluster)
        assert max(stamps.values()) < 3000, stamps  # on a machine with other load; else some 100


def test_time_line_shows_an_earlier_moment(cluster: LocalCluster, browser: Browser) -> None:
    with watched_page(browser, f"{cluster.controller_url}/ui/") as watched:
        page = watched.page
        healthy(page)
        pid = cluster.kill(2, signal.SIGSTOP)
        try:
            expect(page.locator('.broker[data-id="2"]')).to_have_attribute(
                "data-state", "Fenced", timeout=WAIT_MS
            )
            expect(page.locator("#health")).to_have_attribute("data-level", "warn")
            fenced = page.locator("#events li", has_text="Broker 2 is fenced").first
            while_fenced = fenced.locator("strong").inner_text()
            assert while_fenced == "BrokerFenced"
        finally:
            os.kill(pid, signal.SIGCONT)
        healthy(page)
        page.locator("#events li", has_text="IsrShrunk").first.locator(".when").first.click()
        expect(page.locator("#link")).to_have_attribute("data-state", "past")
        expect(page.locator("#health")).to_contain_text("At ")
        expect(page.locator('.broker[data-id="2"]')).to_have_attribute("data-state", "Fenced")
        assert page.locator(".row.partition .cell[data-cell=F]").count() > 0
        page.keyboard.press("l")
        healthy(page)
        expect(page.locator(".row.partition .cell[data-cell=F]")).to_have_count(0)


def test_keyboard_reaches_everything(cluster: LocalCluster, browser: Browser) -> None:
    with watched_page(browser, f"{cluster.controller_url}/ui/") as watched:
        page = watched.page
        healthy(page)
        page.keyboard.press("/")
        page.keyboard.type("orders")
        assert "q=orders" in page.url
        expect(page.locator("#shown")).to_have_text("1 topic, 6 partitions")
        page.keyboard.press("ArrowDown")
        assert focused(page).startswith("▾orders")
        page.keyboard.press("ArrowLeft")
        expect(page.locator(".row.partition")).to_have_count(0)
        page.keyboard.press("ArrowRight")
        page.keyboard.press("j")
        assert focused(page).startswith("orders-0")
        page.keyboard.press("Enter")
        assert "topic=orders" in page.url
        expect(page.locator("#subject h2")).to_have_text("orders")
        expect(page.locator(".offsets tbody tr")).to_have_count(18, timeout=WAIT_MS)
        assert "partition=0" in page.url
        expect(page.locator(".why")).to_contain_text("Is acks=all accepted?", timeout=WAIT_MS)
        page.keyboard.press("Escape")
        assert "topic=" not in page.url
        page.keyboard.press("u")
        assert "show=unwell" in page.url
        page.keyboard.press("Escape")
        page.keyboard.press("?")
        expect(page.locator("#help")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.locator("#help")).to_be_hidden()
        page.keyboard.press("g")
        assert "page=groups" in page.url
        page.go_back()
        assert "page=groups" not in page.url
        assert "q=" not in page.url
        # Each control has its turn by Tab, and none keeps the focus.
        page.evaluate("() => document.activeElement.blur()")
        seen = set()
        for _ in range(40):
            page.keyboard.press("Tab")
            seen.add(
                page.evaluate("() => document.activeElement.id || document.activeElement.className")
            )
        assert {"skip", "pools", "theme", "keys", "broker", "search", "chip", "events"} <= seen


def focused(page: Page) -> str:
    text: str = page.evaluate("() => document.activeElement.textContent")
    return text


def test_address_holds_the_filters(cluster: LocalCluster, browser: Browser) -> None:
    broker_id = cluster.partition(2, "audit-log")["replicas"][0]
    filters = f"pool=default%2Fdefault&q=audit-log-2&broker={broker_id}"
    url = f"{cluster.controller_url}/ui/?{filters}"
    with watched_page(browser, url) as watched:
        live(watched.page)
        expect(watched.page.locator(".row.partition")).to_have_count(1)
        expect(watched.page.locator(".row.partition .cname")).to_have_text("audit-log-2")
        expect(watched.page.locator("#subject h2")).to_have_text(f"Broker {broker_id}")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_no_violation_and_no_overflow(
    cluster: LocalCluster, browser: Browser, width: int, theme: str
) -> None:
    """Of all pages, healthy and under a fault; the screenshots are kept to be looked at."""
    folder = ROOT / "build" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    url = f"{cluster.controller_url}/ui/"
    options = {
        "viewport": {"width": width, "height": 900},
        "color_scheme": theme,
        "reduced_motion": "reduce",  # colours that fade are none that stay
    }
    with watched_page(browser, url, **options) as watched:
        page = watched.page
        healthy(page)

        def check(name: str) -> None:
            page.screenshot(path=folder / f"{name}-{width}-{theme}.png")
            assert watched.violations() == []
            assert page.evaluate("() => document.documentElement.scrollWidth") <= width

        check("pool")
        page.goto(f"{url}?topic=orders&partition=1")
        expect(page.locator(".why")).to_contain_text("Is acks=all accepted?", timeout=WAIT_MS)
        expect(page.locator(".offsets tbody tr")).to_have_count(18, timeout=WAIT_MS)
        check("topic")
        page.goto(f"{url}?page=groups")
        expect(page.locator("#groupspage")).to_contain_text("onsumer groups", timeout=WAIT_MS)
        live(page)
        check("groups")
        page.goto(f"{url}?broker=1")
        healthy(page)
        check("broker")
        page.goto(url)
        healthy(page)
        pid = cluster.kill(0, signal.SIGSTOP)
        try:
            expect(page.locator("#health")).to_have_attribute("data-level", "warn", timeout=WAIT_MS)
            check("fault")
            page.locator("#events li", has_text="BrokerFenced").first.locator(".when").click()
            expect(page.locator("#link")).to_have_attribute("data-state", "past")
            check("past")
            page.keyboard.press("l")
            page.evaluate("() => document.querySelector('#help').showModal()")
            check("keys")
            page.keyboard.press("Escape")
        finally:
            os.kill(pid, signal.SIGCONT)
        healthy(page)


def test_lost_connection_says_so_and_returns(tmp_path: Path, browser: Browser) -> None:
    with running(tmp_path, manifest=TOPICS) as cluster:
        cluster.wait_until_in_sync()
        url = f"{cluster.controller_url}/ui/"
        with watched_page(browser, url, reduced_motion="reduce") as watched:
            watched.expects_lost_connection = True
            page = watched.page
            healthy(page)
            before = page.locator(".row.partition").count()
            cluster.stop()
            expect(page.locator("#link")).to_have_attribute("data-state", "lost", timeout=WAIT_MS)
            expect(page.locator("#notice")).to_contain_text("Trying again")
            assert watched.violations() == []
            assert page.locator(".row.partition").count() == before  # the last that is known stays
            cluster.start()
            cluster.wait_until_in_sync()
            healthy(page)
            expect(page.locator("#notice")).to_be_hidden()
            shows_what_the_controller_knows(page, cluster)
