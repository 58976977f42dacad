"""How fast samples come out of a real Prometheus: streamed remote read beside the JSON API.

The samples are those of a file of `samples.py`, made into blocks by promtool; server and reader
share this machine. Both ways give what the kernel takes, decoded and in columns.
"""

import json
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

import pyarrow.compute as pc
import pyarrow.parquet as pq
from tidemark_audit.sources.prometheus import Prometheus, PrometheusSlice, SampleFormat
from tidemark_audit.sources.source import Window

from bench.audit.samples import LABELS
from bench.systems import HOST, free_ports, wait_for

ROOT = Path(__file__).parents[2]
WAYS = {
    "remote_read_streamed": SampleFormat.STREAMED,
    "remote_read_samples": SampleFormat.SAMPLES,
    "json_api": SampleFormat.API,
}
MAKE_LIMIT_SECONDS = 900.0
START_LIMIT_SECONDS = 120.0
LINES_AT_A_TIME = 100_000
Say = Callable[[str], None]


def samples_per_second(samples: Path, rounds: int, say: Say) -> dict[str, float]:
    """Of each way, the median of its rounds; the ways take turns."""
    times = pq.read_table(samples, columns=["timestamp_ms"])["timestamp_ms"]
    window = Window(pc.min(times).as_py(), pc.max(times).as_py() + 1)
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as directory:
        say("making blocks for Prometheus")
        data = _blocks(samples, Path(directory))
        with _running_prometheus(data, Path(directory)) as url:
            slices = Prometheus(url).slices(window)
            parts = [part for part in slices if isinstance(part, PrometheusSlice)]
            for number in range(rounds):
                counts = set()
                for way, form in WAYS.items():
                    began = time.perf_counter()
                    read = sum(
                        len(batch) for part in parts for batch in replace(part, form=form).read()
                    )
                    found[way].append(read / (time.perf_counter() - began))
                    counts.add(read)
                    say(f"round {number + 1}: {way} {found[way][-1]:,.0f} samples/s")
                if counts != {len(times)}:
                    raise ValueError(f"expected {len(times)} samples either way, found {counts}")
    return {way: median(figures) for way, figures in found.items()}


def _blocks(samples: Path, directory: Path) -> Path:
    text, data = directory / "samples.om", directory / "data"
    with text.open("w") as file:
        for lines in _open_metrics(samples):
            file.write("\n".join(lines) + "\n")
        file.write("# EOF\n")
    subprocess.run(
        [
            *(_binary("promtool"), "tsdb", "create-blocks-from", "openmetrics", "--quiet"),
            # promtool reads the whole text once for each block.
            *("--max-block-duration=24h", text, data),
        ],
        check=True,
        timeout=MAKE_LIMIT_SECONDS,
    )
    text.unlink()
    return data


def _open_metrics(samples: Path) -> Iterator[list[str]]:
    """Lines of the text format; a family may not be taken up again once another began."""
    file = pq.ParquetFile(samples, read_dictionary=["metric", *LABELS])
    families = sorted(pc.unique(file.read(columns=["metric"])["metric"].cast("string")).to_pylist())
    for family in families:
        yield [f"# TYPE {family} unknown"]
        for group in range(file.metadata.num_row_groups):
            table = file.read_row_group(group)
            mine = table.filter(pc.equal(table["metric"].cast("string"), family))
            for batch in mine.to_batches(max_chunksize=LINES_AT_A_TIME):
                yield [
                    f"{family}{{{_labels(row)}}} {row['value']!r} {row['timestamp_ms'] / 1000:.3f}"
                    for row in batch.to_pylist()
                ]


def _labels(row: dict[str, str]) -> str:
    return ",".join(f'{label}="{row[label]}"' for label in LABELS if row[label])


@contextmanager
def _running_prometheus(data: Path, directory: Path) -> Iterator[str]:
    url = f"http://{HOST}:{free_ports(1)[0]}"
    configuration = directory / "prometheus.yml"
    configuration.write_text(json.dumps({"global": {"scrape_interval": "1m"}}))
    with (directory / "prometheus.log").open("wb") as log:
        server = subprocess.Popen(
            [
                _binary("prometheus"), f"--config.file={configuration}",
                f"--storage.tsdb.path={data}", "--storage.tsdb.retention.time=100y",
                f"--web.listen-address={url.removeprefix('http://')}",
            ],
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip

    def is_ready() -> bool:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=5) as response:
            return bool(response.status == 200)

    try:
        wait_for("Prometheus to be ready", is_ready, seconds=START_LIMIT_SECONDS)
        yield url
    finally:
        server.terminate()
        server.wait(30)


def _binary(name: str) -> Path:
    found = subprocess.run(
        [ROOT / "hack/prometheus/binaries"], stdout=subprocess.PIPE, text=True, check=True
    )
    return Path(found.stdout.strip()) / name
