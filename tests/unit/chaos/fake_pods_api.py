"""The API server as an experiment in a pod sees it: objects, pods, and the brokers in them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from tidemark_chaos.environments.pods_api import PodsApi
from tidemark_client.errors import CommandFailed

Manifest = dict[str, Any]


class FakePodsApi(PodsApi):
    """`lost`: names of methods that fail as without an answer."""

    def __init__(self) -> None:
        self.namespace = "shop"
        self.objects: dict[tuple[str, str], Manifest] = {}
        self.statuses: list[Manifest] = []
        self.config_maps: list[Manifest] = []
        self.done: list[str] = []
        self.stopped: set[str] = set()  # pods whose broker is paused
        self.broker_pods: list[Manifest] = []
        self.lost: set[str] = set()
        self.watched: dict[str, list[Manifest]] = {}
        self.leader = "operator-1"

    def add_pool(self, replicas: int = 3) -> None:
        self.objects["brokerpools", "default"] = {"spec": {"replicas": replicas}}
        for number in range(replicas):
            self.broker_pods.append(
                {
                    "metadata": {
                        "name": f"default-{number}",
                        "labels": {"tidemark.dev/broker-id": str(number)},
                    },
                    "status": {
                        "containerStatuses": [{"restartCount": 0, "state": {"running": {}}}]
                    },
                }
            )

    def add_experiment(self, **spec: Any) -> None:
        self.objects["chaosexperiments", "one"] = {
            "apiVersion": "tidemark.dev/v1alpha1",
            "kind": "ChaosExperiment",
            "metadata": {"name": "one", "namespace": "shop", "uid": "u1"},
            "spec": {"rounds": 1, "faults": [{"kind": "kill"}], **spec},
        }

    def add_topic(self, experiment: str) -> None:
        labels = {"tidemark.dev/chaos-experiment": experiment}
        self.objects["topics", "chaos"] = {"metadata": {"name": "chaos", "labels": labels}}

    def status(self) -> Manifest:
        found: Manifest = {}
        for fields in self.statuses:
            found |= fields
        return {name: value for name, value in found.items() if value is not None}

    def _answer(self, method: str) -> None:
        if method in self.lost:
            raise CommandFailed(f"{method}: no answer")

    async def get(self, plural: str, name: str) -> Manifest | None:
        self._answer("get")
        return self.objects.get((plural, name))

    async def create(self, plural: str, manifest: Manifest) -> None:
        self.objects[plural, manifest["metadata"]["name"]] = manifest

    async def delete(self, plural: str, name: str) -> None:
        self._answer("delete")
        self.objects.pop((plural, name), None)
        self.done.append(f"delete {plural} {name}")

    async def patch_status(self, plural: str, name: str, fields: Manifest) -> None:
        self._answer("patch_status")
        self.statuses.append(fields)

    async def watch(self, plural: str) -> AsyncIterator[tuple[str, Manifest]]:
        for item in self.watched.get(plural, ()):
            yield "ADDED", item
        await asyncio.Event().wait()

    async def pods(self, labels: str, namespace: str | None = None) -> list[Manifest]:
        if namespace is not None:
            return [{"metadata": {"name": "operator-1"}}]
        return self.broker_pods

    async def delete_pod(
        self, name: str, *, namespace: str | None = None, is_forced: bool = False
    ) -> None:
        self.done.append(f"{'forced ' * is_forced}delete of pod {name}")

    async def execute(self, pod: str, command: Sequence[str]) -> str:
        self._answer("execute")
        number, resumed_after = command[-2:]
        self.done.append(f"signal {number} in {pod} {resumed_after}".strip())
        if number == "19":
            self.stopped.add(pod)
        elif number == "18":
            self.stopped.discard(pod)
        return "1700000000000000000 7\n"

    async def leading_operator(self, namespace: str) -> str:
        return self.leader

    async def create_config_map(self, manifest: Manifest) -> None:
        self._answer("create_config_map")
        self.config_maps.append(manifest)
