"""What only the active controller knows is read through the API server, at the port that has it."""

import asyncio
from typing import Any, cast

import pytest
from tidemark_client.controller_api import EVENTS_PATH, FIGURES_PATH, _BehindApiServer
from tidemark_client.errors import CommandFailed
from tidemark_client.kubernetes_objects import KubernetesObjects


class Pods:
    """Two pods of the operator; the first one is on standby."""

    def __init__(self, status: int = 200, body: bytes = b"{}") -> None:
        self.asked: list[tuple[str, str, int]] = []
        self.answer = (status, body)

    async def operator_pods(self) -> list[tuple[str, str]]:
        return [("ns", "a"), ("ns", "b")]

    async def read_pod(self, _: str, pod: str, path: str, *, port: int) -> tuple[int, bytes]:
        self.asked.append((pod, path, port))
        return (503, b"") if pod == "a" else self.answer


def read(pods: Pods, path: str) -> dict[str, Any]:
    return asyncio.run(_BehindApiServer(cast(KubernetesObjects, pods)).get(path, pool="ns/p"))


def test_each_path_is_read_at_its_port_until_a_pod_leads() -> None:
    pods = Pods()
    assert read(pods, EVENTS_PATH) == {}
    assert pods.asked == [(pod, "/v1/events?pool=ns%2Fp", 8070) for pod in ("a", "b")]
    pods = Pods()
    assert read(pods, FIGURES_PATH) == {}
    assert pods.asked == [(pod, "/v1/isr/figures?pool=ns%2Fp", 8080) for pod in ("a", "b")]


@pytest.mark.parametrize(("status", "exit_code"), [(400, 2), (404, 1), (503, 1)])
def test_what_is_not_found_and_wrong_usage_have_their_exit_codes(
    status: int, exit_code: int
) -> None:
    with pytest.raises(CommandFailed, match="a sentence") as failed:
        read(Pods(status, b'{"problems": ["a sentence"]}'), EVENTS_PATH)
    assert failed.value.exit_code == exit_code
