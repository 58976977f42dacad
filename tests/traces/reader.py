"""Transcripts: files of moves, and under each group of them what has to come of it.

    # S3 (safety.md): a title. Why it ends as it ends, as comments.
    world isr=0,1

    append 0 r
    fetch 1
    ----
    1: follows 0 in epoch 0, log [r@0], watermark 0

The first line names the source. `python -m tests.traces` writes what the cores do now below
the moves, for review: what is expected is what the rules say, whoever wrote it down.
"""

from dataclasses import dataclass
from pathlib import Path

from tests.model.script import begun, reported

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Replay:
    text: str  # the file as it should be
    broken: tuple[str, ...]  # invariants


def transcripts() -> list[Path]:
    return sorted(FOLDER.glob("*.txt"))


def replayed(text: str) -> Replay:
    groups = text.strip().split("\n\n")
    first, *rest = groups
    cluster = begun(first.splitlines()[-1])
    written, broken = [first], []
    for group in rest:
        moves, _, _ = group.partition("\n----")
        effects: list[str] = []
        for line in moves.splitlines():
            if not line.startswith("#"):
                cluster, lines = reported(cluster, line)
                effects = [each for each in effects if not _is_replaced(each, lines)] + lines
        broken += [line for line in effects if line.startswith("BROKEN")]
        written.append("\n".join([moves, "----", *effects]))
    return Replay("\n\n".join(written) + "\n", tuple(broken))


_ROLES = ("leads ", "follows ", "idle", "down")


def _is_replaced(earlier: str, lines: list[str]) -> bool:
    """Of a broker and of the slice only the last state of a group is shown."""
    subject = _subject(earlier)
    return subject != "" and any(_subject(line) == subject for line in lines)


def _subject(line: str) -> str:
    """Whose state the line gives; "": it tells of an event."""
    before, _, rest = line.partition(": ")
    if before.startswith("slice "):
        return "slice"
    return before if rest.startswith(_ROLES) else ""
