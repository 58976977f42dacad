"""Short rounds of every fault on real processes, under load, judged by the history of all clients.

`make e2e-long` plays many of them; here each is played once.
"""

import asyncio
import io
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console
from tidemark_chaos.experiment import DemoReport, Experiment
from tidemark_chaos.faults.fault import FaultKind
from tidemark_cli.demo_output import ProgressOutput

from tests.integration.linked_environment import LinkedEnvironment

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def play(kinds: Sequence[FaultKind], directory: Path) -> DemoReport:
    """Its words are the failure's explanation: pytest shows them beside the assertion."""
    reported = io.StringIO()
    environment = LinkedEnvironment(events=directory / "load.ndjson")
    experiment = Experiment(
        environment, ProgressOutput(Console(file=reported, width=110)), quiet_seconds=0.2
    )
    try:
        return asyncio.run(experiment.tell(kinds))
    except BaseException as error:
        error.add_note(reported.getvalue())
        raise


@pytest.mark.parametrize(
    "kinds",
    [
        (FaultKind.KILL, FaultKind.KILL_TWICE, FaultKind.STOP, FaultKind.ROLLING),
        (FaultKind.FREEZE, FaultKind.SHORT_FREEZE, FaultKind.SET_OF_ONE),
        (FaultKind.CUT_FOLLOWER, FaultKind.CUT_LEADER),
        (FaultKind.CUT_FROM_CONTROLLER, FaultKind.CUT_FROM_PEERS),
    ],
    ids=["killed", "frozen", "cut from all", "cut from some"],
)
def test_nothing_is_lost_doubled_reordered_or_shown_too_early(
    kinds: tuple[FaultKind, ...], tmp_path: Path
) -> None:
    report = play(kinds, tmp_path)
    assert report.notes == ()
    assert report.is_good
    assert (report.lost, report.duplicated) == (0, 0)
    assert report.acknowledged > 100
    assert [played.kind for played in report.rounds] == [kind.value for kind in kinds]
