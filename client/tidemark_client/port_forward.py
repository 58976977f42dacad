"""Bring a port of an operator's pod to this machine by `kubectl port-forward`.

Kubernetes authorises that (`create` on pods/portforward), so the port listens on the pod's loopback
address only and asks for no token.
"""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tidemark_client.errors import CommandFailed

PEOPLE_PORT = 8081  # of the operator, on loopback
START_SECONDS = 20.0
END_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ForwardedPort:
    port: int  # on this machine
    process: asyncio.subprocess.Process

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextlib.asynccontextmanager
async def forwarded(
    kube_context: str | None, namespace: str, pod: str, *, port: int = 0
) -> AsyncIterator[ForwardedPort]:
    """Forward `port` of this machine, or a free one, to the pod. Raises CommandFailed."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise CommandFailed(
            expected="kubectl on the PATH, which forwards the port",
            found="none",
            to_do=f"install kubectl, or forward port {PEOPLE_PORT} of the operator's pod by other"
            " means",
        )
    context = ("--context", kube_context) if kube_context else ()
    process = await asyncio.create_subprocess_exec(
        *(kubectl, *context, "-n", namespace, "port-forward", f"pod/{pod}"),
        f"{port or ''}:{PEOPLE_PORT}",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield ForwardedPort(await _local_port(process), process)
    finally:
        await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError, TimeoutError):
        process.terminate()
        async with asyncio.timeout(END_SECONDS):
            await process.wait()


async def _local_port(process: asyncio.subprocess.Process) -> int:
    """Return the local port, as kubectl says it: `Forwarding from 127.0.0.1:41234 -> 8081`."""
    assert process.stdout is not None and process.stderr is not None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(START_SECONDS):
            while line := (await process.stdout.readline()).decode(errors="replace"):
                local = line.partition("127.0.0.1:")[2].partition(" ")[0]
                if local.isdecimal():
                    return int(local)
    await _end(process)
    problem = (await process.stderr.read()).decode(errors="replace").strip()
    raise CommandFailed(
        "kubectl forwarded no port.",
        expected=f"a line `Forwarding from` within {START_SECONDS:g} s",
        found=problem[:1000] or "nothing",
        to_do="check the permission `create` on pods/portforward, or choose another --port",
    )
