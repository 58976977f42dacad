"""Detect what a path holds by its content, not by names and endings."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from tidemark_audit.sources.json_lines import JsonExport
from tidemark_audit.sources.open_metrics import OpenMetrics, is_dump
from tidemark_audit.sources.parquet import Parquet
from tidemark_audit.sources.prometheus import prometheus_at
from tidemark_audit.sources.source import Source, SourceError
from tidemark_audit.sources.text_file import GZIP_MAGIC, TextFile
from tidemark_audit.sources.tsdb_block import TsdbBlock

HEAD_BYTES = 4096
# Of a running Prometheus's directory: not settled, and in other formats.
BESIDE_BLOCKS = frozenset({"wal", "wbl", "chunks_head", "lock", "queries.active"})
_SAMPLE_LINE = re.compile(rb"(#|[a-zA-Z_:][a-zA-Z0-9_:]*[ {])")


def sources_at(places: Sequence[str], *, token_file: Path | None = None) -> list[Source]:
    """Return all sources at the places; a directory's files are one each.

    Raises SourceError.
    """
    found = [source for place in places for source in _at(place, token_file)]
    if not found:
        raise SourceError(
            ", ".join(places) or "SOURCE",
            expected="at least one file of samples",
            found="none",
            to_do="pass a Prometheus URL or a file",
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
    """Yield the sources of a directory: blocks as a unit, other files one by one.

    What writers leave beside them is skipped.
    """
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
    """Return the source that reads this file.

    Raises SourceError.
    """
    file = TextFile(path)
    with file.opened() as opened:
        head = opened.read(HEAD_BYTES)
    if head.startswith(b"PAR1"):
        return Parquet(path)
    if head.startswith(GZIP_MAGIC):
        file = TextFile(path, is_packed=True)
        with file.opened() as opened:
            head = opened.read(HEAD_BYTES)
    text = head.lstrip()
    if is_dump(text):
        return OpenMetrics(file, is_dump=True)
    if text.startswith((b"{", b"[")):
        return JsonExport(file)
    if _SAMPLE_LINE.match(text):
        return OpenMetrics(file)
    found, to_do = _not_read(head)
    raise SourceError(
        str(path),
        expected="Parquet, JSON of the Prometheus API, OpenMetrics text, a dump of promtool, or a"
        " TSDB block",
        found=found,
        to_do=to_do,
    )


# What is known and not read: its first bytes, its name, what to do.
_NOT_READ = (
    (b"\x28\xb5\x2f\xfd", "a file packed by zstd", "unpack it: zstd -d FILE"),
    (b"\xfd7zXZ\x00", "a file packed by xz", "unpack it: xz -d FILE"),
    (b"BZh", "a file packed by bzip2", "unpack it: bzip2 -d FILE"),
    (b"PK\x03\x04", "a ZIP archive", "unpack it: unzip FILE"),
    (b"PAR1", "Parquet packed by gzip", "unpack it: gunzip FILE"),
    (b"\xff\xfe", "text in UTF-16", "write it in UTF-8"),
    (b"\xfe\xff", "text in UTF-16", "write it in UTF-8"),
    (b"\xef\xbb\xbf", "text that begins with a byte order mark", "write it in UTF-8 without one"),
    (b"\xba\xaa\xd7\x00", "the index of a TSDB block", "pass the block's directory"),
    (b"\x85\xbd\x40\xdd", "chunks of a TSDB block", "pass the block's directory"),
    (b"<", "a page in HTML or XML", "query the API, /api/v1/query, not the page of a graph"),
)
_TAR_MAGIC = slice(257, 262)


def _not_read(head: bytes) -> tuple[str, str]:
    """Return the name of a format that is not read, and what to do."""
    if not head.strip():
        return "an empty file", "remove it"
    if head[_TAR_MAGIC] == b"ustar":
        return "a tar archive", "unpack it, and pass the directory of the block: tar -xf FILE"
    for begin, name, to_do in _NOT_READ:
        if head.startswith(begin):
            return name, to_do
    if b"," in head.partition(b"\n")[0] and head.isascii():
        return "text with commas (CSV?)", "export it as JSON: /api/v1/query, or promtool tsdb dump"
    return repr(head[:16]), "remove it, or export it in one of these formats"
