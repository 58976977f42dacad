"""Kafka's own DumpLogSegments over a data directory of ours: rolled, compacted, truncated."""

import re
import subprocess
from pathlib import Path

import pytest
from tidemark_broker.kafka_wire.records.record_batch import Batch
from tidemark_broker.log.disk import OsDisk
from tidemark_broker.log.log_config import LogSettings
from tidemark_broker.log.log_manager import LogManager
from tidemark_protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch

from tests.support.compacted_log_fixtures import (
    NOW_MS,
    compact,
    compressed,
    keyed_batch,
    linked,
    seal,
)
from tests.support.log_fixtures import OTHER_TOPIC_ID, TOPIC_ID, headers_of, open_log

ROOT = Path(__file__).parents[3]
SETTINGS = LogSettings(
    segment_bytes=16_384,
    index_interval_bytes=512,
    compacts=True,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=10,
)


def data_directory(path: Path) -> Path:
    directory = LogManager.open(path, OsDisk(), broker_id=BrokerId(1), settings=SETTINGS)
    for topic, topic_id in (("plain", TOPIC_ID), ("compacted", OTHER_TOPIC_ID)):
        log = directory.create_log(topic, topic_id, 0)
        for number in range(400):
            tombstone_or_value = None if number % 23 == 0 else "v" * (number % 90)
            batch = keyed_batch(
                (f"k{number % 17}", tombstone_or_value),
                (f"k{number % 5}", f"{number}"),
                timestamp_ms=NOW_MS - 1000 + number,
                producer=(5, 2 * number),
            )
            log.append_as_leader([batch], leader_epoch=LeaderEpoch(number // 100))
        if topic == "compacted":
            for codec in range(5):
                log.append_as_leader([rest_of(codec)], leader_epoch=LeaderEpoch(4))
            log.append_as_leader([linked(rest_of(0))], leader_epoch=LeaderEpoch(4))
            for turn in range(3):
                assert compact(log, OsDisk(), now_ms=NOW_MS + turn * 100) is not None
                batch = keyed_batch(("x", "y"), timestamp_ms=NOW_MS, producer=(6, turn))
                log.append_as_leader([batch], leader_epoch=LeaderEpoch(4))
                seal(log)
        else:
            log.truncate_to(log.log_end_offset - 30)
    directory.write_clean_stop(BrokerEpoch(3))
    directory.close()
    return path


def rest_of(codec: int) -> Batch:
    """Compaction keeps a part of it, packed again: more than a block of LZ4. From 5 on: plain."""
    once, value = f"once-{codec}", "x" * 70_000
    batch = keyed_batch(("x", "1"), (once, value), timestamp_ms=NOW_MS)
    return compressed(batch, codec if codec < 5 else 0)


def dump(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ROOT / "hack" / "dump-log-segments"), str(path)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_kafka_opens_every_codec_that_compaction_packs(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0", settings=SETTINGS)
    for codec in range(5):
        log.append_as_leader([rest_of(codec)], leader_epoch=LeaderEpoch(0))
    log.append_as_leader([linked(rest_of(5))], leader_epoch=LeaderEpoch(0))
    seal(log)
    assert compact(log, OsDisk()) is not None
    found = subprocess.run(
        java("DumpLogSegments", tmp_path, "*.log", "--deep-iteration", "--print-data-log"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Exception" not in found.stdout + found.stderr
    keys = re.findall(r"key: (once-\d)", found.stdout)
    assert keys == [f"once-{number}" for number in range(6)]


def java(tool: str, path: Path, pattern: str, *options: str) -> list[str]:
    jars = subprocess.run(
        [str(ROOT / "hack" / "kafka" / "jars")], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()
    quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp", f"{jars}/*"]
    files = ",".join(map(str, sorted(path.glob(f"*/{pattern}"))))
    return ["java", *quick, f"org.apache.kafka.tools.{tool}", *options, "--files", files]


@pytest.mark.long
@pytest.mark.timeout(600)  # the first time it fetches Kafka's jars
def test_kafkas_dump_log_segments_finds_every_file_as_it_should_be(tmp_path: Path) -> None:
    path = data_directory(tmp_path / "data")
    found = dump(path)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "2 logs" in found.stdout
    segments = [each.read_bytes() for each in path.glob("compacted-0/*.log")]
    codecs = {header.compression for data in segments for header in headers_of(data)}
    assert codecs == set(range(5)), "what Kafka opened was in every codec"
    segment = sorted(path.glob("plain-0/*.log"))[1]
    data = bytearray(segment.read_bytes())
    data[500] ^= 1
    segment.write_bytes(data)
    corrupt = dump(path)
    assert corrupt.returncode == 1
    assert "isvalid: false" in corrupt.stdout
