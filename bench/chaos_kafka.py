"""Apache Kafka as the cluster of a chaos experiment: the same file, seed, faults and checks.

Three brokers and one controller are processes of their own, as in local mode, where the operator is
one: with combined nodes a third of the killed leaders would take the controller along. Settings are
Kafka's defaults with min.insync.replicas from the experiment. A process that ends is started again
after 0.2 s, as local mode does.
"""

import asyncio
import contextlib
import hashlib
import os
import re
import shutil
import signal
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tidemark_chaos.environments import child_processes
from tidemark_chaos.environments.chaos_environment import Notify
from tidemark_chaos.environments.processes import HOST, PortRange
from tidemark_chaos.environments.volumes import Volume
from tidemark_chaos.faults.local_faults import impossible
from tidemark_chaos.heal_journal import HealJournal
from tidemark_chaos.history_checker import check as check_history
from tidemark_chaos.links import Links
from tidemark_chaos.spec import ChaosExperiment, ExperimentSpec, FaultName, Workload
from tidemark_chaos.verification import ReplicaComparison, VerifyReport, check, percentile
from tidemark_chaos.workload_log import (
    Event,
    decode_event,
    longest_write_gap_ms,
    operations,
    read_workload_log,
    sequence_of,
)
from tidemark_client.cluster_status import ClusterStatus
from tidemark_client.errors import CommandFailed
from tidemark_client.outcomes import ReplicaDigest
from tidemark_client.waiting import until

from bench.chaos_workload import read_all
from bench.kafka_metadata import MetadataWatch
from bench.systems import JVM_OPTIONS

BROKERS = 3
CONTROLLER = 100  # node id
VERSION = "4.4.0"
START_SECONDS = 90.0
POLL_SECONDS = 0.05
RESTART_SECONDS = 0.2
STOP_SECONDS = 70.0
READ_SECONDS = 120.0
ENOUGH_RECORDS = 100
BY_SIGNALS = frozenset(
    {
        *(FaultName.KILL, FaultName.KILL_TWICE, FaultName.TERMINATE, FaultName.PAUSE),
        FaultName.ROLLING_RESTART,
    }
)
REGISTERED = re.compile(rb"Successfully registered broker \d+ with broker epoch (\d+)")


def impossible_on_kafka(spec: ExperimentSpec) -> list[str]:
    """A sentence for each part of an experiment that this environment cannot do."""
    problems = impossible(spec, BROKERS)
    if spec.workload.acks == "mixed":
        problems.append("spec.workload.acks: mixed is not possible with one librdkafka producer")
    problems += [
        f"spec.faults[{number}].kind: {fault.kind} is not possible with Kafka's processes"
        for number, fault in enumerate(spec.faults)
        if fault.kind not in BY_SIGNALS
    ]
    return problems


def workload_command(bootstrap: str, workload: Workload, events: Path) -> list[str]:
    """The workload of both systems, if they are compared by one client."""
    return [
        *(sys.executable, "-m", "bench.chaos_workload", "--bootstrap", bootstrap),
        *("--topic", workload.topic, "--partitions", str(workload.partitions)),
        *("--interval-ms", str(1000 / workload.records_per_second), "--acks", workload.acks),
        *(("--idempotent",) if workload.idempotence else ()),
        *("--consumers", str(workload.consumers), "--out", str(events)),
    ]


class KafkaProcesses:
    opening = (
        f"Apache Kafka {VERSION}: {BROKERS} brokers and a controller, as processes of this machine."
    )
    brokers = BROKERS

    def __init__(
        self,
        experiment: ChaosExperiment,
        *,
        out: Path,
        journal: HealJournal,
        jars: Path,
        settings: Sequence[str] = (),
    ) -> None:
        """`settings`: name=value of brokers, beyond the defaults."""
        self._workload = experiment.spec.workload
        self.topic_name = self._workload.topic
        self.keeps_data = False
        self.links = Links(lambda _: None, ())
        self._out = out
        self.data = self._directory = out / "data"
        self.volumes: Mapping[int, Volume] = {}  # disk faults are not played here
        self._events = out / "workload.ndjson"
        self._journal = journal
        self._jars = jars
        self._settings = tuple(settings)
        self._ports = PortRange(BROKERS + 1)
        first = self._ports.first
        self.bootstrap = ",".join(f"{HOST}:{first + each}" for each in range(BROKERS))
        self._nodes: dict[int, asyncio.subprocess.Process] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._epochs: dict[int, int] = {}
        self._log_positions: dict[int, int] = {}
        self._watch = MetadataWatch(
            self.topic_name, {each: first + each for each in range(BROKERS)}
        )
        self._load: asyncio.subprocess.Process | None = None
        self._position = 0

    # ---- before

    async def prepare(self) -> None:
        await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True)
        for log in self._out.glob("kafka-*.log"):
            log.unlink()

    async def set_up(self, tell: Notify) -> None:
        tell("formatting the directories of a controller and 3 brokers")
        cluster_id = uuid.uuid4().hex[:22]
        nodes = (CONTROLLER, *range(BROKERS))
        for node in nodes:
            self._properties(node).write_text(self._settings_of(node))
        formatted = await asyncio.gather(
            *(
                child_processes.run(
                    self._java(
                        *("kafka.tools.StorageTool", "format", "-t", cluster_id),
                        *("-c", str(self._properties(node))),
                    ),
                    within_seconds=START_SECONDS,
                )
                for node in nodes
            )
        )
        for ended in formatted:
            if ended.exit_code:
                raise CommandFailed(f"Kafka's format failed: {ended.stderr.decode()[-1000:]}")
        tell("starting them")
        for node in nodes:
            await self._start(node)
            self._keepers.append(asyncio.create_task(self._keep(node), name=f"keep-{node}"))
        self._watch.start()
        await self.until(self._is_serving, "three brokers in the metadata")
        tell(f"creating the topic {self.topic_name}")
        await asyncio.to_thread(self._create_topic)
        await self.until(self._is_in_sync, f"{self.topic_name} to be led and in sync")

    async def start_workload(self) -> None:
        self._events.unlink(missing_ok=True)
        self._load = await child_processes.start(
            workload_command(self.bootstrap, self._workload, self._events), log=self._log("load")
        )
        self._journal.add("stop", self._load.pid, "the workload")
        await self.until(self._is_acknowledged, "the load to be acknowledged")

    def _create_topic(self) -> None:
        workload = self._workload
        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        topic = NewTopic(
            workload.topic,
            workload.partitions,
            workload.replication_factor,
            config=dict(workload.config),
        )
        for future in client.create_topics([topic]).values():
            future.result(START_SECONDS)

    def _settings_of(self, node: int) -> str:
        first = self._ports.first
        controller = f"CONTROLLER://{HOST}:{first + BROKERS}"
        lines = [
            f"node.id={node}",
            f"controller.quorum.voters={CONTROLLER}@{HOST}:{first + BROKERS}",
            "controller.listener.names=CONTROLLER",
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            f"log.dirs={self._data(node)}",
            "offsets.topic.num.partitions=1",  # not 50 that move with each leader: to its favour
            "offsets.topic.replication.factor=3",
            "transaction.state.log.replication.factor=3",
        ]
        if node == CONTROLLER:
            lines += ["process.roles=controller", f"listeners={controller}", *self._settings]
        else:
            listener = f"PLAINTEXT://{HOST}:{first + node}"
            lines += ["process.roles=broker", f"listeners={listener}", *self._settings]
            lines += [f"advertised.listeners={listener}"]
        return "\n".join((*lines, ""))

    # ---- what faults see

    @property
    def operator_pid(self) -> int:
        return self._nodes[CONTROLLER].pid

    async def restart_operator(self, number: signal.Signals) -> None:
        ended = self._nodes[CONTROLLER]
        os.kill(ended.pid, number)

        async def is_restarted() -> bool:
            return self._nodes[CONTROLLER] is not ended

        await self.until(is_restarted, "a new process of the controller")

    async def pid_of(self, broker_id: int) -> int | None:
        process = self._nodes.get(broker_id)
        return None if process is None or process.returncode is not None else process.pid

    async def status(self) -> ClusterStatus | None:
        self._read_epochs()
        running = frozenset(
            node for node, process in self._nodes.items() if process.returncode is None
        )
        return self._watch.status(running, self._epochs)

    async def rest(self, brokers: tuple[int, ...]) -> bool:
        """Restarts are never late here."""
        return False

    def note_struck(self, brokers: tuple[int, ...]) -> None:
        """Restarts are never late here."""

    # ---- meanwhile and after

    async def new_events(self) -> list[Event]:
        def read_on() -> list[Event]:
            with self._events.open("rb") as file:
                file.seek(self._position)
                data = file.read()
            whole = data.rfind(b"\n") + 1
            self._position += whole
            return [decode_event(line) for line in data[:whole].splitlines()]

        return await asyncio.to_thread(read_on)

    def check_workload(self) -> None:
        if self._load is not None and self._load.returncode is not None:
            raise CommandFailed(
                expected="a running workload",
                found=f"it ended: {self._log('load').read_bytes()[-1500:].decode()}",
                to_do=f"read {self._log('load')}",
            )

    async def until(self, is_so: Callable[[], Awaitable[bool]], what: str) -> None:
        await until(
            is_so,
            what,
            within_seconds=START_SECONDS,
            every_seconds=POLL_SECONDS,
            to_do=f"read {self._out}/kafka-*.log",
        )

    async def stop_workload(self) -> None:
        assert self._load is not None
        self._load.terminate()
        async with asyncio.timeout(STOP_SECONDS):
            await self._load.wait()

    async def verify(self) -> VerifyReport:
        return await asyncio.to_thread(self._verify)

    async def tear_down(self) -> None:
        await child_processes.stop(self._load)
        await self._watch.stop()
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        for process in self._nodes.values():
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()  # its data are of no more use
        await asyncio.gather(*(process.wait() for process in self._nodes.values()))
        self._ports.close()
        if not self.keeps_data:
            await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)

    # ---- processes

    async def _start(self, node: int) -> None:
        process = await child_processes.start(
            self._java("kafka.Kafka", str(self._properties(node))), log=self._log(str(node))
        )
        self._nodes[node] = process
        self._journal.add("stop", process.pid, f"node {node} of Kafka")

    async def _keep(self, node: int) -> None:
        while True:
            process = self._nodes[node]
            await process.wait()
            self._journal.remove("stop", process.pid)
            await asyncio.sleep(RESTART_SECONDS)
            await self._start(node)

    def _java(self, *words: str) -> list[str]:
        options = (*JVM_OPTIONS, "-Dorg.slf4j.simpleLogger.showDateTime=true")
        return ["java", *options, "-cp", f"{self._jars}/*", *words]

    def _read_epochs(self) -> None:
        """A broker logs the epoch of each of its registrations."""
        for node in range(BROKERS):
            path = self._log(str(node))
            if not path.exists():
                continue
            with path.open("rb") as file:
                file.seek(self._log_positions.get(node, 0))
                data = file.read()
            whole = data.rfind(b"\n") + 1
            self._log_positions[node] = self._log_positions.get(node, 0) + whole
            for found in REGISTERED.findall(data[:whole]):
                self._epochs[node] = int(found)

    def _properties(self, node: int) -> Path:
        return self._directory / f"{node}.properties"

    def _data(self, node: int) -> Path:
        return self._directory / f"node-{node}"

    def _log(self, name: str) -> Path:
        return self._out / f"kafka-{name}.log"

    # ---- conditions

    async def _is_serving(self) -> bool:
        status = await self.status()
        return status is not None and all(row.state == "Active" for row in status.brokers)

    async def _is_in_sync(self) -> bool:
        status = await self.status()
        view = None if status is None else status.topic(self.topic_name)
        return (
            view is not None
            and len(view.partitions) == self._workload.partitions
            and view.is_fully_in_sync
        )

    async def _is_acknowledged(self) -> bool:
        self.check_workload()
        if not self._events.exists():
            return False
        lines = await asyncio.to_thread(self._events.read_bytes)
        return lines.count(b'"acknowledged"') >= ENOUGH_RECORDS

    # ---- the verdict

    def _verify(self) -> VerifyReport:
        events: list[Event] = []
        with self._events.open("rb") as lines:
            log = read_workload_log(lines, events)
        found = {
            partition: {
                offset: sequence_of(log.run_id, partition, value)
                for offset, value in read_all(
                    self.bootstrap, self.topic_name, partition, READ_SECONDS
                ).items()
            }
            for partition in range(log.partitions)
        }
        latencies = sorted(log.latencies_ms)
        history = check_history(operations(events, found, at_ms=time.time() * 1000))
        return VerifyReport(
            topic=log.topic,
            run_id=log.run_id,
            verdict=check(log, found),
            replicas=tuple(
                self._compare_replicas(partition, max(offsets, default=-1) + 1)
                for partition, offsets in found.items()
            ),
            write_gap_ms=round(longest_write_gap_ms(log), 1),
            latency_p50_ms=percentile(latencies, 50),
            latency_p99_ms=percentile(latencies, 99),
            anomalies=history.anomalies,
            worst_read_lag_ms=round(history.worst_realtime_lag_us / 1000, 1),
        )

    def _compare_replicas(self, partition: int, to_offset: int) -> ReplicaComparison:
        """Compare the bytes of their segments, as writes have ended and all are in sync."""
        digests = []
        for broker_id in range(BROKERS):
            whole = hashlib.sha256()
            directory = self._data(broker_id) / f"{self.topic_name}-{partition}"
            for segment in sorted(directory.glob("*.log")):
                whole.update(segment.read_bytes())
            digests.append(
                ReplicaDigest(
                    *(broker_id, "replica", 0, to_offset, to_offset, -1, to_offset),
                    whole.hexdigest(),
                )
            )
        return ReplicaComparison(partition, to_offset, tuple(digests), ())
