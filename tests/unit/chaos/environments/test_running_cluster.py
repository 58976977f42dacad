"""Which processes belong to a `tidemark dev`, and which faults it cannot have."""

from pathlib import Path

import pytest
from tidemark_chaos.environments.running_cluster import NOT_ITS_OWN, controller_of, not_possible
from tidemark_chaos.spec import (
    OF_THE_DISK,
    OF_THE_NETWORK,
    ExperimentSpec,
    FaultName,
    FaultSpec,
    Role,
    Target,
)

DATA = Path("/data/one")
BROKER = [
    *("python", "-m", "tidemark_broker.main", "--broker-id", "1", "--pool", "default/default"),
    *("--data-dir", "/data/one/brokers/default.default/1", "--controllers", "127.0.0.1:17070"),
]


def test_a_broker_names_its_data_and_its_controller() -> None:
    assert controller_of(BROKER, DATA) == "127.0.0.1:17070"


@pytest.mark.parametrize(
    "words",
    [
        [],
        [word.replace("/data/one/", "/data/one-more/") for word in BROKER],
        [word.replace("default.default", "default.other") for word in BROKER],
        [word.replace("tidemark_broker.main", "other") for word in BROKER],
        ["tidemark", "dev", "--data-dir", "/data/one"],
    ],
    ids=["none", "other data", "other pool", "other program", "controller"],
)
def test_other_processes_are_not_its_brokers(words: list[str]) -> None:
    assert controller_of(words, DATA) == ""


def test_faults_that_need_a_cluster_of_their_own_are_rejected() -> None:
    assert set(NOT_ITS_OWN) == OF_THE_NETWORK | OF_THE_DISK | {FaultName.NODE_DOWN}
    controller = Target(role=Role.CONTROLLER)
    faults = (
        FaultSpec(FaultName.KILL),
        FaultSpec(FaultName.PAUSE, controller, for_="1s"),
        FaultSpec(FaultName.API_SERVER_OUTAGE, controller, for_="1s"),
        FaultSpec(FaultName.NODE_DOWN, for_="1s"),
        FaultSpec(FaultName.KILL, controller),
    )
    problems = not_possible(ExperimentSpec(faults))
    assert [problem.partition(": ")[0] for problem in problems] == [
        "spec.faults[3].kind",
        "spec.faults[4].kind",
    ]
