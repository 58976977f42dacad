"""What a path holds, by its content: names and endings are somebody's habit."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from tidemark_audit.sources.json_lines import JsonLines
from tidemark_audit.sources.open_metrics import OpenMetrics
from tidemark_audit.sources.parquet import Parquet
from tidemark_audit.sources.prometheus import prometheus_at
from tidemark_audit.sources.source import Source, SourceError
from tidemark_audit.sources.tsdb_block import TsdbBlock

HEAD_BYTES = 4096
# Of a running Prometheus's directory: not settled, and in other formats.
BESIDE_BLOCKS = frozenset({"wal", "wbl", "chunks_head", "lock", "queries.active"})
_SAMPLE_LINE = re.compile(rb"(#|[a-zA-Z_:][a-zA-Z0-9_:]*[ {])")


def sources_at(places: Sequence[str], *, token_file: Path | None = None) -> list[Source]:
    """All sources at the places, a directory's files one by one. Raises SourceError."""
    found = [source for place in places for source in _at(place, token_file)]
    if not found:
        raise SourceError(
            ", ".join(places) or "no place",
            expected="at least one file of samples",
            found="none",
            to_do="name an export of Prometheus",
        )
    return found


def _at(place: str, token_file: Path | None) -> Iterator[Source]:
    if place.startswith(("http://", "https://")):
        yield prometheus_at(place, token_file)
        return
    path = Path(place)
    if path.is_dir():
        yield from _in_directory(path)
        return
    yield file_source(path)


def _in_directory(path: Path) -> Iterator[Source]:
    """Blocks as wholes, everything else file by file; what writers leave beside is passed over."""
    if (path / "meta.json").exists() and (path / "index").exists():
        yield TsdbBlock(path)
        return
    for child in sorted(path.iterdir()):
        if child.name.startswith((".", "_")) or child.name in BESIDE_BLOCKS:
            continue
        if child.is_dir():
            yield from _in_directory(child)
        else:
            yield file_source(child)


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
    if _SAMPLE_LINE.match(head.lstrip()):
        return OpenMetrics(path)
    raise SourceError(
        str(path),
        expected="Parquet, API JSON lines, OpenMetrics text or a TSDB block",
        found=f"{'an empty file' if not head else repr(head[:16])}",
        to_do="leave it out, or export it in one of these forms",
    )
