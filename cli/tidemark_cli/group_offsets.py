"""Compute the offsets that a group is reset to."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidemark_client.errors import EXIT_USAGE, CommandFailed
from tidemark_client.outcomes import OffsetRange

from tidemark_cli.groups import Place
from tidemark_cli.moments import MOMENT_HELP, moment_ms


@dataclass(frozen=True, slots=True)
class Goal:
    """Hold what to reset to: `earliest`, `latest`, an offset, or a time in ms since 1970."""

    word: str = ""
    offset: int | None = None
    time_ms: int | None = None


@dataclass(frozen=True, slots=True)
class OffsetChange:
    topic: str
    partition: int
    before: int | None  # None: nothing was committed
    after: int


def read_goal(text: str, now_ms: int) -> Goal:
    """Parse what to reset to.

    Raises CommandFailed.
    """
    if text in ("earliest", "latest"):
        return Goal(word=text)
    if text.isdecimal():
        return Goal(offset=int(text))
    time_ms = moment_ms(text, now_ms)
    if time_ms is None:
        raise CommandFailed(
            expected=f"--to earliest, latest, an offset or a time as {MOMENT_HELP}",
            found=repr(text),
            to_do="use one of them",
            exit_code=EXIT_USAGE,
        )
    return Goal(time_ms=time_ms)


def changes(
    places: Iterable[Place],
    committed: Mapping[Place, int],
    ranges: Mapping[Place, OffsetRange],
    goal: Goal,
    at_time: Mapping[Place, int],
) -> list[OffsetChange]:
    """Offsets outside of what the log has go to its nearer end, as Kafka's tool has it."""
    found = []
    for place in sorted(places):
        start, end = ranges[place].log_start_offset, ranges[place].high_watermark
        if goal.word:
            after = start if goal.word == "earliest" else end
        elif goal.offset is not None:
            after = min(max(goal.offset, start), end)
        else:
            after = at_time[place] if at_time[place] >= 0 else end
        found.append(OffsetChange(*place, committed.get(place), after))
    return found
