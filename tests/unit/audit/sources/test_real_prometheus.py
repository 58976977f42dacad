"""A real Prometheus over blocks that promtool made: remote read, HTTP API and the files agree."""

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tidemark_audit.audit import audit, run
from tidemark_audit.engines.local import LocalEngine
from tidemark_audit.sources.detect import sources_at
from tidemark_audit.sources.prometheus import Prometheus, PrometheusSlice, SampleFormat
from tidemark_audit.sources.source import SourceError, Window

from tests.support.audit_exports import open_metrics
from tests.support.prometheus_server import running_prometheus
from tests.support.promtool import prometheus_binaries
from tests.unit.audit.sources.test_sources import a_failover, comparable

pytestmark = pytest.mark.timeout(240)
BASE_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tsdb")
    text = open_metrics(a_failover(), directory / "text.om", base_ms=BASE_MS)
    subprocess.run(
        [
            prometheus_binaries() / "promtool", "tsdb", "create-blocks-from", "openmetrics",
            text, directory / "data",
        ],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    return directory / "data"


@pytest.fixture(scope="module")
def url(blocks: Path) -> Iterator[str]:
    """Of a server over those blocks, which scrapes nothing."""
    with running_prometheus(blocks.parent, {}, retention="100y") as server:
        assert server.data_directory == blocks
        yield server.url


def test_files_of_the_database_remote_read_and_api_give_one_audit(blocks: Path, url: str) -> None:
    window = Window(BASE_MS, BASE_MS + 119_000)
    of_text = run(None, [str(blocks.parent / "text.om")], window=window)
    of_blocks = run(None, [str(blocks)], window=window, interval_ms=1000)
    assert comparable(of_blocks) == comparable(of_text)
    assert {source.kind for source in of_blocks.sources} == {"TSDB block"}
    source = Prometheus(url)
    by_remote_read = audit(LocalEngine(), [source], window=window, interval_ms=1000)
    assert comparable(by_remote_read) == comparable(of_text)
    (part,) = source.slices(window)
    assert isinstance(part, PrometheusSlice)
    assert part.form is SampleFormat.STREAMED
    for form in (SampleFormat.API, SampleFormat.SAMPLES):
        assert samples(replace(part, form=form)) == samples(part)


def samples(part: PrometheusSlice) -> list[tuple[object, int, float]]:
    return sorted(
        (batch.series[series], at_ms, value)
        for batch in part.read()
        for series, at_ms, value in zip(
            batch.series_of.tolist(), batch.at_ms.tolist(), batch.values.tolist(), strict=True
        )
        if BASE_MS <= at_ms < BASE_MS + 119_000
    )


def test_a_damaged_block_is_refused_with_its_place(blocks: Path, tmp_path: Path) -> None:
    (block,) = (path for path in blocks.iterdir() if (path / "meta.json").exists())
    copy = tmp_path / block.name
    subprocess.run(["cp", "-r", block, copy], check=True)
    chunk_file = copy / "chunks" / "000001"
    corrupt = bytearray(chunk_file.read_bytes())
    corrupt[100] ^= 1
    chunk_file.write_bytes(corrupt)
    with pytest.raises(SourceError) as failed:
        run(None, [str(copy)])
    assert failed.value.place == str(copy)
    index = copy / "index"
    index.write_bytes(index.read_bytes()[:-30])
    with pytest.raises(SourceError, match=r"index|contents"):
        sources_at([str(copy)])[0].slices(Window())
