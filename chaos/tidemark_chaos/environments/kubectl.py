"""kubectl of the kind rig: found by `hack/kind/cluster env`, every call with a time limit."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from tidemark_client.errors import EXIT_USAGE, CommandFailed

from tidemark_chaos.environments import child_processes

RIG = Path("hack/kind/cluster")
DEPLOY = Path("hack/deploy")
OPERATOR_NAMESPACE = "tidemark-system"
INSTALL_SECONDS = 300
NODE_SECONDS = 30.0
MAX_LINE_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Kubectl:
    env: Mapping[str, str]
    namespace: str = "default"

    @classmethod
    async def of_rig(cls) -> "Kubectl":
        """Return the kubectl of the checkout's kind cluster.

        Raises CommandFailed outside a checkout, or when no cluster is up.
        """
        if not await asyncio.to_thread(RIG.is_file):
            raise CommandFailed(
                expected=f"a checkout of Tidemark with {RIG} as the current directory",
                found=f"no such file in {Path.cwd()}",
                to_do="change to the checkout, or use --on local",
                exit_code=EXIT_USAGE,
            )
        script = f'eval "$({RIG} env)" && env -0'
        ended = await child_processes.run(["bash", "-ec", script], within_seconds=60)
        pairs = (entry.partition("=") for entry in os.fsdecode(ended.stdout).split("\0") if entry)
        env = {name: value for name, _, value in pairs}
        kubeconfig = Path(env.get("KUBECONFIG", "/nowhere"))
        if ended.exit_code != 0 or not await asyncio.to_thread(kubeconfig.is_file):
            raise CommandFailed(
                expected="the kind cluster `tidemark` to be up",
                found=ended.stderr.decode(errors="replace").strip() or "no build/kubeconfig",
                to_do="run `make cluster`, or `make demo ON=kind` for cluster and demo",
            )
        return cls(env)

    def within(self, namespace: str) -> "Kubectl":
        return Kubectl(self.env, namespace)

    async def run(
        self, *arguments: str, stdin: bytes | None = None, within_seconds: float = 30.0
    ) -> child_processes.Terminated:
        return await child_processes.run(
            self._command(arguments), within_seconds=within_seconds, env=self.env, stdin=stdin
        )

    async def must(
        self, *arguments: str, stdin: bytes | None = None, within_seconds: float = 30.0
    ) -> bytes:
        """Run kubectl and return its stdout.

        Raises CommandFailed with its stderr.
        """
        try:
            ended = await self.run(*arguments, stdin=stdin, within_seconds=within_seconds)
        except TimeoutError as error:
            raise self._failed(arguments, f"no response within {within_seconds:g} s") from error
        if ended.exit_code != 0:
            raise self._failed(arguments, ended.stderr.decode(errors="replace").strip())
        return ended.stdout

    async def in_node(self, node: str, script: str) -> str:
        """Run a shell script in a node of kind, a container of Docker; return its stdout.

        Raises CommandFailed with its stderr.
        """
        command = ("docker", "exec", node, "sh", "-c", script)
        try:
            ended = await child_processes.run(command, within_seconds=NODE_SECONDS, env=self.env)
            found = ended.stderr.decode(errors="replace").strip()
        except TimeoutError:
            found = f"no response within {NODE_SECONDS:g} s"
        else:
            if ended.exit_code == 0:
                return ended.stdout.decode()
        raise CommandFailed(
            expected=f"a script in node {node} to succeed",
            found=found or "a failure without output",
            to_do=f"try it by hand: docker exec {node} sh",
        )

    async def install_chart(self) -> None:
        """Installs or renews Tidemark; returns when its operator is ready. Raises CommandFailed."""
        ended = await child_processes.run(
            [str(DEPLOY)], within_seconds=INSTALL_SECONDS, env=self.env
        )
        if ended.exit_code != 0:
            raise CommandFailed(
                expected=f"{DEPLOY} to install Tidemark",
                found=ended.stderr.decode(errors="replace").strip()[-1000:],
                to_do=f"run: kubectl -n {OPERATOR_NAMESPACE} get pods",
            )

    async def items(self, *arguments: str) -> list[dict[str, Any]]:
        listed = msgspec.json.decode(await self.must("get", *arguments, "-o", "json"))
        return list(listed["items"])

    async def lines(self, *arguments: str) -> AsyncIterator[bytes]:
        """stdout line by line until it ends; the child goes with the iterator."""
        process = await asyncio.create_subprocess_exec(
            *self._command(arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=dict(self.env),
            limit=MAX_LINE_BYTES,
        )
        assert process.stdout is not None
        try:
            async for line in process.stdout:
                yield line
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        return ["kubectl", "--namespace", self.namespace, *arguments]

    def _failed(self, arguments: tuple[str, ...], found: str) -> CommandFailed:
        return CommandFailed(
            expected=f"kubectl {' '.join(arguments)[:200]} to succeed",
            found=found or "a failure without output",
            to_do=f"try it by hand: KUBECONFIG={self.env.get('KUBECONFIG', '')}",
        )
