"""The program of an experiment's Job: what it rejects, and what it writes into the status."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from tidemark_chaos.faults.pod_faults import PodFaults
from tidemark_chaos.main import (
    EXIT_OK,
    STOPPED,
    Settings,
    StatusFaults,
    StatusPatches,
    aborted_fields,
    fault_words,
    heal_experiment,
    read_settings,
    run,
)
from tidemark_chaos.schedule import PlannedFault
from tidemark_chaos.spec import FaultName, Role

from tests.unit.chaos.fake_pods_api import FakePodsApi

SETTINGS = Settings("run", "one", "shop", "system")
KILL = PlannedFault(3, FaultName.KILL, Role.LEADER, 1, 1, 0.0, 6.0, 0.5)
PAUSE = PlannedFault(4, FaultName.PAUSE, Role.RANDOM, 0, 2, 5.0, 5.0, 0.5)


def api_of(**spec: Any) -> FakePodsApi:
    api = FakePodsApi()
    api.add_pool()
    api.add_experiment(**spec)
    return api


def ended(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            {"faults": [{"kind": "disk-full", "for": "5s"}]},
            "disk-full is not possible in a cluster: volumes share the disk of their node",
        ),
        (
            {"faults": [{"kind": "network-cut", "for": "5s"}]},
            "network-cut is not possible in a cluster: pods of the restricted profile may not do"
            " that; local mode offers it (tidemark chaos run)",
        ),
        (
            {"rounds": None, "duration": "60s", "faults": [
                {"kind": "pause", "at": "5s", "for": "20s"}, {"kind": "kill", "at": "10s"},
            ]},
            "spec.faults[1]: at 10 s it overlaps with faults[0]",
        ),
        ({"pool": "other"}, "BrokerPool other does not exist"),
        ({"faults": [{"kind": "pause"}]}, "pause without a time cannot be undone"),
    ],
)  # fmt: skip
def test_an_experiment_that_cannot_be_done_is_rejected_before_anything_is_struck(
    spec: dict[str, Any], sentence: str
) -> None:
    api = api_of(**spec)
    assert ended(run(SETTINGS, api)) == EXIT_OK
    assert api.status()["phase"] == "Rejected"
    assert sentence in "; ".join(api.status()["reasons"])
    assert api.done == []
    assert ("topics", "chaos") not in api.objects


def test_a_fault_is_in_the_status_before_it_begins() -> None:
    api = api_of()

    class Pods(PodFaults):
        async def strike(self, *_: Any) -> None:
            assert api.status()["currentFault"] == "3: kill leader of partition 1 (broker 2)"
            api.done.append("struck")

    async def scenario() -> None:
        no_pods: Any = None
        faults = StatusFaults(Pods(no_pods), StatusPatches(api, "one"))
        await faults.strike(KILL, (2,), lambda *_: None, lambda *_: None)
        api.lost = {"patch_status"}  # progress alone is no reason to end a run
        await faults.strike(KILL, (2,), lambda *_: None, lambda *_: None)

    ended(scenario())
    assert (api.done, api.status()["rounds"]) == (["struck", "struck"], 1)


def test_a_fault_is_told_in_one_phrase() -> None:
    assert fault_words(KILL, (2,)) == "3: kill leader of partition 1 (broker 2)"
    assert fault_words(PAUSE, (0, 2)) == "4: pause random, 2 brokers, for 5 s (broker 0, 2)"


def test_a_run_without_a_report_is_aborted_with_its_reason() -> None:
    fields = aborted_fields(STOPPED)
    assert (fields["verdict"], fields["sentence"]) == ("ABORTED", STOPPED)
    assert fields["currentFault"] is None  # which removes it


def test_healing_of_what_was_deleted_or_rejected_is_nothing() -> None:
    api = api_of(faults=[{"kind": "pause"}])
    assert ended(heal_experiment(SETTINGS, api)) == EXIT_OK
    api.objects.clear()
    assert ended(heal_experiment(SETTINGS, api)) == EXIT_OK
    assert api.done == []


def test_healing_resumes_the_brokers_of_the_pool() -> None:
    api = api_of()
    api.stopped = {"default-1"}
    assert ended(heal_experiment(SETTINGS, api)) == EXIT_OK
    assert api.stopped == set()


def test_settings_name_what_is_missing() -> None:
    environment = {"POD_NAMESPACE": "shop", "OPERATOR_NAMESPACE": "system"}
    assert read_settings(["run", "one"], environment) == SETTINGS
    with pytest.raises(ValueError, match=r"expected run\|heal NAME, found nothing"):
        read_settings([], environment)
    with pytest.raises(ValueError, match="OPERATOR_NAMESPACE: expected a value"):
        read_settings(["heal", "one"], {"POD_NAMESPACE": "shop"})
