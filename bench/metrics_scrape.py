"""What a scrape costs a broker that leads many partitions: its time, its bytes, the loop.

One process holds the broker's own HTTP server and that many led partitions of three replicas, on
real logs; another scrapes it as Prometheus does (gzip). The loop's longest turns, in processor time
of its thread, are what an append or a fetch would have to wait for; wall time would show what else
the machine does. The loop is kept turning, so a scrape takes longer here than on an idle broker.

    .venv/bin/python -m bench.metrics_scrape --partitions 2000 --scrapes 10
"""

import argparse
import asyncio
import gc
import gzip
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import uvloop
from tidemark_broker.http.app import create_app
from tidemark_broker.http.broker_view import BrokerView
from tidemark_broker.http.consumers.group_consumer import ConsumerSettings, GroupConsumer
from tidemark_broker.http.server import serve
from tidemark_broker.log.disk import OsDisk
from tidemark_broker.log.log_config import LogSettings
from tidemark_broker.log.log_manager import LogManager
from tidemark_broker.metadata.producer_id_manager import ProducerIdManager
from tidemark_broker.metrics.broker_metrics import MetricsProfile
from tidemark_broker.quota_manager import ClientQuotaManager
from tidemark_broker.replication.partition_observer import nothing
from tidemark_broker.replication.replica_manager import ReplicaManager
from tidemark_protocol.controller_messages import BrokerState, Endpoints, MetadataPush, TopicPush
from tidemark_protocol.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
)
from tidemark_protocol.partition_state import Member, PartitionState, TopicState

HELD_LIMIT_SECONDS = 0.005
EPOCH = BrokerEpoch(7)
BROKERS = tuple(BrokerId(number) for number in (0, 1, 2))
SCRAPER = """
import sys, time, urllib.request
url, count = sys.argv[1], int(sys.argv[2])
for _ in range(count):
    began = time.perf_counter()
    request = urllib.request.Request(url, headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        body = answer.read()
    print(time.perf_counter() - began, len(body), flush=True)
    open(sys.argv[3], "wb").write(body)
    time.sleep(0.2)
"""


class NoSyncDisk(OsDisk):
    """Two thousand logs are made in seconds; nothing here is about syncs."""

    def sync_file(self, path: Path) -> None: ...
    def sync_directory(self, path: Path) -> None: ...
    def write_atomically(self, path: Path, data: bytes, *, durable: bool) -> None:
        path.write_bytes(data)


class LoopTurns:
    """Processor time of the loop's thread in each of its turns, in seconds."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._is_watching = False
        self._last = 0.0

    def begin(self) -> None:
        self._is_watching, self._last = True, time.thread_time()
        asyncio.get_running_loop().call_soon(self._turn)

    def end(self) -> None:
        self._is_watching = False

    def _turn(self) -> None:
        if not self._is_watching:
            return
        now = time.thread_time()
        self.seconds.append(now - self._last)
        self._last = now
        asyncio.get_running_loop().call_soon(self._turn)

    @property
    def reported(self) -> str:
        ordered = sorted(self.seconds)
        longest = ", ".join(f"{1000 * value:.2f}" for value in ordered[-3:][::-1])
        over = sum(value > HELD_LIMIT_SECONDS for value in ordered)
        return f"longest {longest} ms; {over} of {len(ordered)} turns over 5 ms"


def led_partitions(count: int, path: Path) -> ReplicaManager:
    partitions = ReplicaManager(
        BROKERS[0], scheduler=asyncio.get_running_loop(), wall_clock_s=time.time
    )
    directory = LogManager.open(path, NoSyncDisk(), broker_id=BROKERS[0], settings=LogSettings())
    partitions.open(directory, submit=nothing)
    partitions.set_broker_epoch(EPOCH)
    topic_id = TopicId("5b0b1c34-6f0d-4a43-9d0e-5a4d9c1f0a11")
    topic = TopicState("orders-of-the-shop", topic_id, count, 3)
    states = tuple(
        PartitionState(
            partition=number,
            replicas=BROKERS,
            leader=BROKERS[0],
            leader_broker_epoch=EPOCH,
            leader_epoch=LeaderEpoch(1),
            in_sync_replicas=tuple(Member(broker_id, EPOCH) for broker_id in BROKERS),
            eligible_leaders=(),
            partition_epoch=PartitionEpoch(1),
            min_insync_replicas=2,
        )
        for number in range(count)
    )
    endpoints = Endpoints("127.0.0.1", 9092, 8080, "http://127.0.0.1:8080")
    brokers = tuple(BrokerState(broker_id, EPOCH, False, False, endpoints) for broker_id in BROKERS)
    push = MetadataPush(ControllerEpoch(1), 1, True, brokers, (TopicPush(topic, states),))
    partitions.apply_push(push)
    return partitions


async def measure(partition_count: int, scrapes: int, profile: MetricsProfile, path: Path) -> None:
    partitions = led_partitions(partition_count, path / "data")
    view = BrokerView(
        partitions=partitions,
        broker_id=BROKERS[0],
        pool="bench/default",
        incarnation="bench",
        is_ready=lambda: (True, ""),
        new_consumer=_no_consumer,
        quotas=ClientQuotaManager(tuple),
        producer_ids=ProducerIdManager(_no_producer_ids),
        metrics_profile=profile,
    )
    app = create_app(view)
    await app.load_api()
    stop, port = asyncio.Event(), asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        serve(app, host="127.0.0.1", port=0, stop=stop, on_listening=port.set_result)
    )
    body = path / "scraped"
    url = f"http://127.0.0.1:{await port}/metrics"
    await scrape(url, 1, body)  # what is loaded on first use
    gc.collect()
    gc.freeze()  # as the broker's main does
    quiet, busy = LoopTurns(), LoopTurns()
    quiet.begin()
    await asyncio.sleep(2)
    quiet.end()
    seconds, packed_bytes = await scrape(url, scrapes, body, watch=busy.begin)
    busy.end()
    stop.set()
    await serving
    text = gzip.decompress(body.read_bytes())
    samples = sum(not line.startswith(b"#") for line in text.splitlines())
    ordered = sorted(seconds)
    print(f"{partition_count} led partitions, profile {profile.value}: {samples} samples")
    print(f"  bytes    {len(text) / 1e6:.1f} MB, gzip {packed_bytes / 1e6:.2f} MB")
    print(f"  scrape   median {ordered[len(ordered) // 2]:.3f} s, longest {ordered[-1]:.3f} s")
    print(f"  loop held without scrapes  {quiet.reported}")
    print(f"  loop held during scrapes   {busy.reported}")


async def _no_producer_ids() -> None:
    return None


def _no_consumer(settings: ConsumerSettings) -> GroupConsumer:
    raise AssertionError(f"nobody asks for a consumer here: {settings}")


async def scrape(
    url: str, count: int, body: Path, watch: Callable[[], None] = lambda: None
) -> tuple[list[float], int]:
    """`watch` is called once the other process runs: its start is not the broker's."""
    scraper = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SCRAPER, url, str(count), str(body)), stdout=subprocess.PIPE
    )
    watch()
    response, _ = await scraper.communicate()
    lines = [line.split() for line in response.decode().splitlines()]
    return [float(seconds) for seconds, _ in lines], int(lines[-1][1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--partitions", type=int, default=2000)
    parser.add_argument("--scrapes", type=int, default=10)
    parser.add_argument("--profile", choices=[each.value for each in MetricsProfile])
    given = parser.parse_args()
    sys.setswitchinterval(0.0005)  # as the broker's main does
    profiles = [MetricsProfile(given.profile)] if given.profile else list(MetricsProfile)
    for profile in profiles:
        with tempfile.TemporaryDirectory() as directory:
            work = measure(given.partitions, given.scrapes, profile, Path(directory))
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(work)


if __name__ == "__main__":
    main()
