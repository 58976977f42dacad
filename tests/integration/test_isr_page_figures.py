"""Disks, replicas that catch up, and actions on the live page in a real Chromium."""

import json
import re
import urllib.request
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.integration.test_isr_page import WAIT_MS, healthy
from tests.support.browser import ROOT, chromium, watched_page
from tests.support.local_cluster import LocalCluster, get_json, run_command, running
from tests.support.waiting import wait_for

pytestmark = pytest.mark.cluster

TOPICS = """
apiVersion: tidemark.dev/v1alpha1
kind: Topic
metadata: {name: orders}
spec: {partitions: 6, replicationFactor: 3, config: {min.insync.replicas: "2"}}
---
apiVersion: tidemark.dev/v1alpha1
kind: Topic
metadata: {name: history}
spec: {partitions: 1, replicationFactor: 2, placement: [{partition: 0, replicas: [0, 1]}]}
"""
SLOW = """
apiVersion: tidemark.dev/v1alpha1
kind: BrokerPool
metadata: {name: default}
spec: {replicas: 3, moveBytesPerSecond: 300000}
"""
# What a page would show of other disks, until the next beat: the stream is paused for that.
DISKS = """async (disks) => {
  const { stream } = await import("/ui/app.js");
  stream.pause();
  stream.pool.disk = disks;
  stream.on.beat({ nowMs: Date.now() });
}"""
GB = 10**9


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("figures")
    with running(folder, manifest=TOPICS, arguments=("--actions",)) as started:
        for topic in ("orders", "history"):
            started.wait_until_in_sync(topic)
        yield started


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


def url_of(cluster: LocalCluster, query: str = "") -> str:
    return f"{cluster.controller_url}/ui/{query}"


def screenshot(page: Page, name: str, width: int, theme: str) -> None:
    folder = ROOT / "build" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=folder / f"{name}-{width}-{theme}.png")


LOOKS = pytest.mark.parametrize(
    ("width", "theme"), [(390, "light"), (390, "dark"), (1440, "light"), (1440, "dark")]
)


def test_cards_and_pages_show_the_disks(cluster: LocalCluster, browser: Browser) -> None:
    with watched_page(browser, url_of(cluster)) as watched:
        page = watched.page
        for broker in cluster.pool()["brokers"]:
            disk = page.locator(f'.broker[data-id="{broker["brokerId"]}"] .bdisk')
            expect(disk).to_have_attribute("data-disk", broker["diskState"], timeout=WAIT_MS)
            expect(disk).to_contain_text(" free")
        page.goto(url_of(cluster, "?broker=1"))
        expect(page.locator(".diskline")).to_contain_text(" free of ", timeout=WAIT_MS)


@LOOKS
def test_full_disks_are_warned_of(
    cluster: LocalCluster, browser: Browser, width: int, theme: str
) -> None:
    options = {"viewport": {"width": width, "height": 900}, "color_scheme": theme}
    with watched_page(browser, url_of(cluster), reduced_motion="reduce", **options) as watched:
        page = watched.page
        healthy(page)
        disks = {"0": [60 * GB, 100 * GB, "Ok"], "1": [12 * GB, 100 * GB, "NearlyFull"]}
        page.evaluate(DISKS, disks)
        health = page.locator("#health")
        expect(health).to_have_attribute("data-level", "warn")
        expect(health).to_contain_text("The disk of broker 1 is nearly full.")
        expect(page.locator('.broker[data-id="2"] .bdisk')).to_have_text("disk not reported")
        page.evaluate(DISKS, disks | {"2": [GB // 10, 100 * GB, "Full"]})
        expect(health).to_have_attribute("data-level", "bad")
        expect(health).to_contain_text("The disk of broker 2 is full: records are rejected there.")
        expect(page.locator('.broker[data-id="2"] .bdisk')).to_have_text("disk full: 100 MB free")
        screenshot(page, "disks", width, theme)
        assert watched.violations() == []
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width


def fill(cluster: LocalCluster, megabytes: int) -> None:
    leader = cluster.partition(0, "history")["leader"]
    records = [{"value": f"{number}-" + "x" * 1000} for number in range(1000)]
    for _ in range(megabytes):
        request = urllib.request.Request(
            f"{cluster.broker_url(leader)}/topics/history/partitions/0?acks=all",
            data=json.dumps({"records": records}).encode(),
            headers={"Content-Type": "application/vnd.kafka.json.v2+json"},
            method="POST",
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            assert response.status == 200


def test_cells_show_how_replicas_catch_up(cluster: LocalCluster, browser: Browser) -> None:
    """A move with a limit is a replica that catches up for some seconds."""
    fill(cluster, 6)
    pool = cluster.data_dir / "pool.yaml"
    pool.write_text(SLOW)
    assert run_command(cluster, "apply", "-f", str(pool)).returncode == 0
    assert run_command(cluster, "move", "history", "0", "--to", "0,2").returncode == 0
    with watched_page(browser, url_of(cluster), viewport={"width": 1440, "height": 900}) as watched:
        page = watched.page
        cell = page.locator('.cell[data-cell="C"]', has=page.locator(".progress"))
        expect(cell).to_have_count(1, timeout=WAIT_MS)
        expect(cell.locator(".speed")).to_contain_text("/s", timeout=WAIT_MS)
        expect(cell).to_have_attribute("title", to_go(), timeout=WAIT_MS)
        expect(page.locator('.broker[data-id="2"] .bfacts')).to_contain_text(" · lag ")
        page.emulate_media(reduced_motion="reduce")
        assert watched.violations() == []
        for width in (1440, 390):
            page.set_viewport_size({"width": width, "height": 900})
            for theme in ("light", "dark"):
                page.emulate_media(color_scheme=theme)
                screenshot(page, "catching-up", width, theme)
        page.set_viewport_size({"width": 1440, "height": 900})
        said = run_command(cluster, "isr").stdout
        assert "CATCHING UP\nhistory-0 on broker 2: " in said, said
        assert all(len(line) <= 80 for line in said.splitlines()), said
        assert " free" in said
        pool.write_text(SLOW.replace("300000", "0"))
        assert run_command(cluster, "apply", "-f", str(pool)).returncode == 0
        expect(page.locator(".progress")).to_have_count(0, timeout=WAIT_MS)
    wait_for("the move", lambda: cluster.partition(0, "history")["replicas"] == [0, 2], seconds=60)
    figures = f"{cluster.controller_url}/v1/isr/figures"
    wait_for("no replica that catches up", lambda: get_json(figures)["catchingUp"] == [])


def to_go() -> re.Pattern[str]:
    return re.compile(r"Broker 2: catching up.*[0-9,]+ records behind, copies [0-9,]+/s, .* to go")


@LOOKS
def test_kill_names_what_will_happen_and_is_recorded(
    cluster: LocalCluster, browser: Browser, width: int, theme: str
) -> None:
    options = {"viewport": {"width": width, "height": 900}, "color_scheme": theme}
    url = url_of(cluster, "?broker=1")
    with watched_page(browser, url, reduced_motion="reduce", **options) as watched:
        page = watched.page
        healthy(page)
        before = cluster.broker(1)["brokerEpoch"]
        page.get_by_role("button", name="Kill this process").click()
        confirm = page.locator("#confirm")
        expect(confirm).to_contain_text("The process of broker 1 gets SIGKILL")
        expect(confirm).to_contain_text("It leads")
        expect(confirm).to_contain_text("All partitions keep a leader and accept acks=all writes.")
        screenshot(page, "kill", width, theme)
        assert watched.violations() == []
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width
        page.get_by_role("button", name="Cancel").click()
        expect(confirm).to_be_hidden()
        assert cluster.broker(1)["brokerEpoch"] == before
        if (width, theme) != (1440, "dark"):
            return
        page.get_by_role("button", name="Kill this process").click()
        page.locator("#confirm .danger").click()
        expect(confirm).to_be_hidden(timeout=WAIT_MS)
        events = page.locator("#events")
        expect(events).to_contain_text("Kill of broker 1 requested on the live page from 127.0.0.1")
        wait_for("a new process", lambda: cluster.broker(1)["brokerEpoch"] > before)
        healthy(page)


def test_drain_that_cannot_end_says_so(cluster: LocalCluster, browser: Browser) -> None:
    with watched_page(browser, url_of(cluster, "?broker=2")) as watched:
        watched.expects_lost_connection = True  # the console names the rejected request
        page = watched.page
        healthy(page)
        page.get_by_role("button", name="Drain broker 2").click()
        expect(page.locator("#confirm")).to_contain_text("spec.drain of BrokerPool default")
        page.locator("#confirm .danger").click()
        expect(page.locator("#confirm .outcome")).to_contain_text(
            "Broker 2 cannot be drained: a topic has replication factor 3", timeout=WAIT_MS
        )
        page.keyboard.press("Escape")
        expect(page.locator("#confirm")).to_be_hidden()


def test_preferred_leader_is_elected_from_the_page(cluster: LocalCluster, browser: Browser) -> None:
    preferred = cluster.partition(0)["replicas"][0]
    cluster.kill(preferred)
    wait_for("another leader", lambda: cluster.partition(0)["leader"] not in (preferred, -1))
    cluster.wait_until_in_sync()
    with watched_page(browser, url_of(cluster, "?topic=orders&partition=0")) as watched:
        page = watched.page
        healthy(page)
        elect = page.get_by_role("button", name="Elect preferred leader")
        if cluster.partition(0)["leader"] == preferred:  # the controller balanced it meanwhile
            return
        elect.click(timeout=WAIT_MS)
        expect(page.locator("#confirm")).to_contain_text(f"Broker {preferred} becomes the leader")
        page.locator("#confirm .danger").click()
        wait_for("the election", lambda: cluster.partition(0)["leader"] == preferred)
        expect(elect).to_have_count(0, timeout=WAIT_MS)
