"""`tidemark apply` and refusals on Kubernetes, over a fake of the API."""

import asyncio
import copy
from typing import Any

import pytest
from tidemark_client.errors import CommandFailed
from tidemark_client.kubernetes_objects import KubernetesObjects


class ApiFailure(Exception):
    def __init__(self, status: int, body: str = "") -> None:
        super().__init__(body)
        self.status, self.body = status, body


class FakeApi:
    def __init__(self) -> None:
        self.stored: dict[str, Any] | None = None
        self.validations: list[str] = []
        self.failure: ApiFailure | None = None

    async def get_namespaced_custom_object(self, *_: str) -> Any:
        if self.failure or self.stored is None:
            raise self.failure or ApiFailure(404)
        return copy.deepcopy(self.stored)

    async def create_namespaced_custom_object(self, *words: Any, field_validation: str) -> Any:
        return self._write(words[-1], field_validation)

    async def replace_namespaced_custom_object(self, *words: Any, field_validation: str) -> Any:
        return self._write(words[-1], field_validation)

    def _write(self, item: Any, field_validation: str) -> Any:
        self.validations.append(field_validation)
        before = self.stored
        self.stored = copy.deepcopy(item)
        version = int(before["metadata"]["resourceVersion"]) if before else 0
        is_same = before is not None and before == self.stored
        self.stored["metadata"]["resourceVersion"] = str(version + (not is_same))
        return copy.deepcopy(self.stored)


def objects(api: FakeApi) -> KubernetesObjects:
    found = KubernetesObjects.__new__(KubernetesObjects)
    found._objects, found._namespace, found._failure = api, "default", ApiFailure
    return found


def manifest(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "tidemark.dev/v1alpha1",
        "kind": "Topic",
        "metadata": {"name": "orders"},
        "spec": spec,
    }


def test_apply_keeps_what_a_move_wrote_and_asks_for_strict_validation() -> None:
    api = FakeApi()

    def applied(**spec: Any) -> str:
        return asyncio.run(objects(api).apply(manifest(**spec))).action

    assert applied(partitions=2, replicationFactor=3) == "created"
    assert api.stored is not None
    api.stored["spec"]["placement"] = [{"partition": 0, "replicas": [2, 1, 0]}]
    assert applied(partitions=2, replicationFactor=3) == "unchanged"
    assert applied(partitions=4) == "configured"
    assert api.stored["spec"] == {
        "partitions": 4,
        "placement": [{"partition": 0, "replicas": [2, 1, 0]}],
    }
    assert set(api.validations) == {"Strict"}


@pytest.mark.parametrize(
    ("failure", "reported"),
    [
        (
            ApiFailure(404, '{"message": "topics.tidemark.dev \\"orders\\" not found"}'),
            "Topic 'orders' not found.",
        ),
        (ApiFailure(404, "404 page not found"), "The API server does not know Topic.tidemark.dev."),
        (
            ApiFailure(403, '{"message": "topics.tidemark.dev is forbidden"}'),
            "Topic 'orders' was rejected: topics.tidemark.dev is forbidden",
        ),
    ],
)
def test_refusals_are_one_sentence(failure: ApiFailure, reported: str) -> None:
    api = FakeApi()
    api.failure = failure
    with pytest.raises(CommandFailed) as failed:
        asyncio.run(objects(api).get("Topic", "orders"))
    assert failed.value.sentence == reported
    assert failed.value.exit_code == 1
