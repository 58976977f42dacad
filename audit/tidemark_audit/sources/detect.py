"""What a path holds, by its content: names and endings are somebody's habit."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from tidemark_audit.sources.json_lines import JsonLines
from tidemark_audit.sources.parquet import Parquet
from tidemark_audit.sources.source import Source, SourceError

HEAD_BYTES = 4096


def sources_at(places: Sequence[str]) -> list[Source]:
    """All sources at the places, a directory's files one by one. Raises SourceError."""
    found = [source for place in places for source in _at(place)]
    if not found:
        raise SourceError(
            ", ".join(places) or "no place",
            expected="at least one file of samples",
            found="none",
            to_do="name an export of Prometheus",
        )
    return found


def _at(place: str) -> Iterator[Source]:
    path = Path(place)
    if path.is_dir():
        for child in sorted(path.rglob("*")):
            if child.is_file() and not child.name.startswith((".", "_")):
                yield file_source(child)
        return
    yield file_source(path)


def file_source(path: Path) -> Source:
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        raise SourceError(
            str(path),
            expected="a file that can be read",
            found=str(error.strerror or error),
            to_do="check the path",
        ) from error
    if head.startswith(b"PAR1"):
        return Parquet(path)
    if head.lstrip().startswith(b"{"):
        return JsonLines(path)
    raise SourceError(
        str(path),
        expected="Parquet, API JSON lines, OpenMetrics text or a TSDB block",
        found=f"{'an empty file' if not head else repr(head[:16])}",
        to_do="leave it out, or export it in one of these forms",
    )
