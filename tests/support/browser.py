"""A Chromium that looks at our pages, and remembers what they must not do."""

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).parents[2]
ARGUMENTS = (
    "--no-sandbox",  # tests run as root in containers
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
# What counts beyond WCAG's rules is Axe's best practice; both are asked.
AXE_RUN = "async () => (await axe.run(document, {resultTypes: ['violations']})).violations"


@cache
def chromium_path() -> str:
    """Return the path of a Chromium, installed if need be."""
    found = subprocess.run([ROOT / "hack" / "chromium"], capture_output=True, text=True, check=True)
    return found.stdout.strip()


@dataclass
class Watched:
    """A page, with the errors of its console and the requests that left its server."""

    page: Page
    errors: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    # A stream that breaks is an error of the console too: tests of that expect it.
    expects_lost_connection: bool = False

    def violations(self) -> list[str]:
        """Return what Axe finds, one line for each element."""
        self.page.evaluate(AXE_SCRIPT)
        found: list[dict[str, Any]] = self.page.evaluate(AXE_RUN)
        return [
            f"{each['id']}: {node['html'][:120]}: {node['failureSummary'][:300]}"
            for each in found
            for node in each["nodes"]
        ]


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def watched_page(browser: Browser, url: str, **options: Any) -> Iterator[Watched]:
    """Open a page; at the end it has neither console errors nor requests to elsewhere."""
    context = browser.new_context(**options)
    watched = Watched(context.new_page())
    server = urlsplit(url).netloc
    watched.page.on(
        "console",
        lambda said: (
            watched.errors.append(said.text) if said.type in ("error", "warning") else None
        ),
    )
    watched.page.on("pageerror", lambda error: watched.errors.append(str(error)))
    watched.page.on(
        "request",
        lambda request: (
            None if urlsplit(request.url).netloc == server else watched.outside.append(request.url)
        ),
    )
    try:
        watched.page.goto(url)
        yield watched
        errors = watched.errors
        if watched.expects_lost_connection:
            errors = [each for each in errors if "Failed to load resource" not in each]
        assert errors == []
        assert watched.outside == []
    finally:
        context.close()
