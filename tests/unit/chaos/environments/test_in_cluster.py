"""A pool of the cluster as the place of an experiment: what is checked, struck and healed."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tidemark_chaos.environments.in_cluster import InCluster, heal
from tidemark_chaos.spec import ChaosExperiment, parse_experiment
from tidemark_client.errors import CommandFailed

from tests.unit.chaos.fake_pods_api import FakePodsApi


def experiment_in(api: FakePodsApi) -> ChaosExperiment:
    return parse_experiment(msgspec.json.encode(api.objects["chaosexperiments", "one"]).decode())


def place(api: FakePodsApi, tmp_path: Path) -> InCluster:
    return InCluster(experiment_in(api), api, directory=tmp_path, operator_namespace="system")


@pytest.fixture
def api() -> FakePodsApi:
    api = FakePodsApi()
    api.add_pool()
    api.add_experiment()
    return api


def did(api: FakePodsApi, tmp_path: Path, work: Callable[[InCluster], Awaitable[Any]]) -> Any:
    async def scenario() -> Any:
        return await work(place(api, tmp_path))

    return asyncio.run(scenario())


def problems(api: FakePodsApi, tmp_path: Path) -> str:
    return "; ".join(did(api, tmp_path, lambda each: each.problems()))


def test_a_pool_that_can_hold_the_topic_has_no_problem(api: FakePodsApi, tmp_path: Path) -> None:
    assert problems(api, tmp_path) == ""


def test_what_the_experiment_names_has_to_exist(api: FakePodsApi, tmp_path: Path) -> None:
    api.objects["brokerpools", "default"]["spec"]["replicas"] = 2
    assert "pool default has 2 brokers, not 3" in problems(api, tmp_path)
    del api.objects["brokerpools", "default"]
    assert "BrokerPool default does not exist" in problems(api, tmp_path)


def test_a_topic_of_others_is_never_used(api: FakePodsApi, tmp_path: Path) -> None:
    api.add_topic("another")
    assert "the Topic chaos exists and is not of this experiment" in problems(api, tmp_path)
    api.add_topic("one")
    assert problems(api, tmp_path) == ""


def broker_object(name: str, broker_id: int, pool: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"brokerId": broker_id, "pool": f"shop/{pool}"},
        "status": {"state": "Active", "brokerEpoch": 4, "rack": "r"},
    }


def slice_object(name: str, topic: str, pool: str) -> dict[str, Any]:
    partition = {
        "partition": 0,
        "leader": 1,
        "leaderEpoch": 2,
        "replicas": [0, 1, 2],
        "isr": [0, 1, 2],
    }
    return {
        "metadata": {"name": name},
        "pool": f"shop/{pool}",
        "topicName": topic,
        "partitions": [partition],
    }


def test_brokers_and_topics_of_other_pools_are_not_seen(api: FakePodsApi, tmp_path: Path) -> None:
    """Roles are chosen among what the status shows."""
    api.watched = {
        "brokers": [broker_object("default-1", 1, "default"), broker_object("other-7", 7, "other")],
        "partitionslices": [
            slice_object("chaos-0", "chaos", "default"),
            slice_object("orders-0", "orders", "default"),
        ],
    }

    async def scenario(here: InCluster) -> None:
        await here.set_up(lambda _: None)
        status = await here.status()
        assert status is not None
        assert [row.broker_id for row in status.brokers] == [1]
        assert [view.topic for view in status.topics] == ["chaos"]
        topic = api.objects["topics", "chaos"]
        assert topic["spec"]["brokerPool"] == "default"
        assert topic["spec"]["deletionPolicy"] == "Delete"
        assert topic["metadata"]["ownerReferences"][0]["uid"] == "u1"
        await here.tear_down()

    did(api, tmp_path, scenario)


def test_tear_down_resumes_what_is_paused_and_deletes_the_topic(
    api: FakePodsApi, tmp_path: Path
) -> None:
    async def scenario(here: InCluster) -> bool:
        await here.pause(1, 600.0)
        assert api.stopped == {"default-1"}
        api.add_topic("one")
        await here.tear_down()
        return here.is_healed

    assert did(api, tmp_path, scenario)
    assert api.stopped == set()
    assert ("topics", "chaos") not in api.objects
    assert api.done[0] == "signal 19 in default-1 600"


def test_a_failed_run_leaves_its_topic_for_examination(api: FakePodsApi, tmp_path: Path) -> None:
    async def scenario(here: InCluster) -> None:
        here.keeps_data = True
        await here.tear_down()

    api.add_topic("one")
    did(api, tmp_path, scenario)
    assert ("topics", "chaos") in api.objects


@pytest.mark.parametrize("lost", ["execute", "delete"])
def test_what_cannot_be_undone_is_left_to_another_pod(
    api: FakePodsApi, tmp_path: Path, lost: str
) -> None:
    async def scenario(here: InCluster) -> bool:
        await here.pause(1, 600.0)
        api.add_topic("one")
        api.lost = {lost}
        await here.tear_down()
        return here.is_healed

    assert not did(api, tmp_path, scenario)


def test_the_operator_that_leads_is_deleted_by_force(api: FakePodsApi, tmp_path: Path) -> None:
    fault = did(api, tmp_path, lambda here: here.kill_operator())
    assert api.done == ["forced delete of pod operator-1"]
    assert "the leading operator" in fault.words
    api.leader = ""
    with pytest.raises(CommandFailed, match="an operator pod that holds the Lease"):
        did(api, tmp_path, lambda here: here.kill_operator())


def test_healing_resumes_every_running_broker_and_deletes_only_its_own_topic(
    api: FakePodsApi,
) -> None:
    api.stopped = {"default-0", "default-2"}
    api.broker_pods[1]["status"]["containerStatuses"][0]["state"] = {"waiting": {}}
    api.add_topic("another")
    told: list[str] = []
    asyncio.run(heal(api, experiment_in(api), told.append))
    assert api.stopped == set()
    assert ("topics", "chaos") in api.objects
    assert "pod default-1 does not run, so nothing in it is paused" in told
    api.add_topic("one")
    asyncio.run(heal(api, experiment_in(api), told.append))
    assert ("topics", "chaos") not in api.objects


def test_healing_that_gets_no_answer_fails_so_that_it_is_tried_again(api: FakePodsApi) -> None:
    api.lost = {"execute"}
    with pytest.raises(CommandFailed):
        asyncio.run(heal(api, experiment_in(api), lambda _: None))
