"""Short rounds of every fault on real processes, under load, judged by the history of all clients.

`make e2e-long` plays many of them; here each is played once.
"""

import asyncio
import io
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console
from tidemark_chaos.experiment import DemoReport, Story
from tidemark_chaos.faults.fault import RoundKind
from tidemark_cli.demo_output import Narrator

from tests.integration.linked_environment import LinkedEnvironment

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def play(kinds: Sequence[RoundKind], directory: Path) -> DemoReport:
    """Its words are the failure's explanation: pytest shows them beside the assertion."""
    told = io.StringIO()
    environment = LinkedEnvironment(events=directory / "load.ndjson")
    story = Story(environment, Narrator(Console(file=told, width=110)), quiet_seconds=0.2)
    try:
        return asyncio.run(story.tell(kinds))
    except BaseException as error:
        error.add_note(told.getvalue())
        raise


@pytest.mark.parametrize(
    "kinds",
    [
        (RoundKind.KILL, RoundKind.KILL_TWICE, RoundKind.STOP, RoundKind.ROLLING),
        (RoundKind.FREEZE, RoundKind.SHORT_FREEZE, RoundKind.SET_OF_ONE),
        (RoundKind.CUT_FOLLOWER, RoundKind.CUT_LEADER),
        (RoundKind.CUT_FROM_CONTROLLER, RoundKind.CUT_FROM_PEERS),
    ],
    ids=["killed", "frozen", "cut from all", "cut from some"],
)
def test_nothing_is_lost_doubled_reordered_or_shown_too_early(
    kinds: tuple[RoundKind, ...], tmp_path: Path
) -> None:
    report = play(kinds, tmp_path)
    assert report.notes == ()
    assert report.is_good
    assert (report.lost, report.duplicated) == (0, 0)
    assert report.acknowledged > 100
    assert [played.kind for played in report.rounds] == [kind.value for kind in kinds]
