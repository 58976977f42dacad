"""`tidemark ui` finds the live page: in local mode, and through kubectl on Kubernetes."""

import asyncio
import io
import os
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from rich.console import Console
from tidemark_cli.arguments import parse
from tidemark_cli.commands import ui
from tidemark_cli.output import Output
from tidemark_client.errors import CommandFailed
from tidemark_client.targets import Target

from tests.unit.cli.fake_controller import FakeController, run_command


class Printed(io.StringIO):
    """What a command printed, and an event once there is an address in it."""

    def __init__(self) -> None:
        super().__init__()
        self.has_address = asyncio.Event()

    def write(self, text: str) -> int:
        if "http" in text:
            self.has_address.set()
        return super().write(text)


class OnePod:
    """A kubeconfig's cluster with one operator pod."""

    @classmethod
    async def connect(cls, context: str | None, namespace: str | None) -> Self:
        return cls()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    async def operator_pods(self) -> tuple[tuple[str, str], ...]:
        return (("tidemark-system", "tidemark-operator-1"),)


def on_kubernetes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kubectl: str, *words: str
) -> tuple[str, BaseException | None]:
    """`tidemark ui` with that script as kubectl, until it prints an address or fails."""
    script = tmp_path / "kubectl"
    script.write_text(f"#!/bin/sh\n{kubectl}\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(ui, "KubernetesObjects", OnePod)

    async def found(_: object) -> Target:
        return Target(kube_context="kind-tidemark")

    monkeypatch.setattr(ui, "find_target", found)
    text = Printed()

    async def ran() -> BaseException | None:
        output = Output(is_json=False, console=Console(file=text, soft_wrap=True))
        task = asyncio.create_task(ui.run(parse(["ui", "--no-browser", *words]), output))
        printed = asyncio.create_task(text.has_address.wait())
        await asyncio.wait((task, printed), return_when=asyncio.FIRST_COMPLETED)
        printed.cancel()
        task.cancel()
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        return outcome if isinstance(outcome, BaseException) else None

    outcome = asyncio.run(asyncio.wait_for(ran(), 20))
    return text.getvalue().strip(), outcome


def test_in_local_mode_the_controller_serves_the_page() -> None:
    fake = FakeController()
    assert run_command(fake, "ui", "--no-browser").out.strip() == f"{fake.url}/ui/"
    of_pool = run_command(fake, "ui", "--no-browser", "--pool", "other").out.strip()
    assert of_pool == f"{fake.url}/ui/?pool=default/other"


def test_kubectl_forwards_the_operators_port_and_the_address_is_printed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    forwarding = "Forwarding from 127.0.0.1:41234 -> 8081"
    kubectl = f'echo "$@" > {tmp_path}/words; echo "{forwarding}"; exec sleep 9'
    printed, _ = on_kubernetes(monkeypatch, tmp_path, kubectl)
    assert printed == "http://127.0.0.1:41234/ui/"
    assert (tmp_path / "words").read_text().split() == [
        *("--context", "kind-tidemark", "-n", "tidemark-system"),
        *("port-forward", "pod/tidemark-operator-1", ":8081"),
    ]


def test_what_kubectl_refuses_is_told_with_its_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kubectl = "echo 'error: pods is forbidden' >&2; exit 1"
    _, failed = on_kubernetes(monkeypatch, tmp_path, kubectl, "--port", "9000")
    assert isinstance(failed, CommandFailed)
    assert failed.found == "error: pods is forbidden"
