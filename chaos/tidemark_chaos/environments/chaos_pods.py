"""Run a chaos experiment on the kind cluster, its workload in a pod, in a namespace of its own.

The state of topics and brokers comes from two watches, the workload's events from its pod as it
writes them. The namespace is deleted at the end, whatever was done in it.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from tidemark_client.cluster_status import ClusterStatus, status_of_objects
from tidemark_client.errors import CommandFailed

from tidemark_chaos.environments.kubectl import Kubectl
from tidemark_chaos.environments.kubernetes import (
    EVENTS,
    LOAD_POD,
    WATCH_AGAIN_SECONDS,
    KindEnvironment,
)
from tidemark_chaos.environments.processes import RECORD_TIMEOUT_MS
from tidemark_chaos.spec import ExperimentSpec, Workload, topic_manifest
from tidemark_chaos.workload_log import Event, decode_event

BROKER_OBJECTS = "/apis/tidemark.dev/v1alpha1/namespaces/{namespace}/brokers?watch=1"
PLAIN_TIMEOUT_MS = 5_000  # without idempotence: then the outcome is unknown
POLL_SECONDS = 0.1
LAST_LINE_SECONDS = 10.0
FINISHED = b'"event":"finished"'


class ChaosPods(KindEnvironment):
    opening = "A pool of 3 brokers in a namespace of its own on the kind cluster."
    keeps_data = False

    def __init__(self, spec: ExperimentSpec, *, kubectl: Kubectl, events: Path) -> None:
        """Create it; `events` gets the workload's events at the end."""
        super().__init__(
            topic=spec.workload.topic,
            manifest=topic_manifest(spec.workload),
            options=load_options(spec.workload),
            kubectl=kubectl,
            events=events,
            interval_ms=1000 / spec.workload.records_per_second,
        )
        self._broker_objects: dict[str, dict[str, object]] = {}
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._followers: list[asyncio.Task[None]] = []
        self._is_stopping = False
        self._last_line = asyncio.Event()

    async def prepare(self) -> None:
        """Do nothing: each run has a new namespace."""

    async def start_workload(self) -> None:
        self._followers.append(asyncio.create_task(self._watch_brokers(), name="watch-brokers"))
        await super().start_workload()
        self._followers.append(asyncio.create_task(self._follow_events(), name="workload-events"))

    async def status(self) -> ClusterStatus | None:
        return status_of_objects(self._broker_objects.values(), self._slices.values())

    async def new_events(self) -> list[Event]:
        found = []
        while not self._lines.empty():
            with contextlib.suppress(msgspec.DecodeError, msgspec.ValidationError):
                found.append(decode_event(self._lines.get_nowait()))  # `verify` counts the others
        return found

    def check_workload(self) -> None:
        """Check that events of the workload still arrive. Raises CommandFailed."""
        ended = [each for each in self._followers if each.done() and not each.cancelled()]
        if ended and not self._is_stopping:
            raise CommandFailed(
                expected=f"events of pod {LOAD_POD}",
                found=f"{ended[0].get_name()} ended",
                to_do=f"kubectl -n {self.namespace} logs {LOAD_POD}",
            )

    async def rest(self, brokers: tuple[int, ...]) -> bool:
        """Replace the pods of brokers that the kubelet would restart late."""
        worn = sorted(await self.worn_brokers() & set(brokers))
        for broker_id in worn:
            await self.renew(broker_id)
        return bool(worn)

    def note_struck(self, brokers: tuple[int, ...]) -> None:
        """Do nothing: the kubelet counts restarts."""

    async def until(self, is_so: Callable[[], Awaitable[bool]], what: str) -> None:
        await self._until(is_so, what, POLL_SECONDS)

    async def stop_workload(self) -> None:
        self._is_stopping = True
        await super().stop_workload()
        with contextlib.suppress(TimeoutError):  # the stream is behind the file
            async with asyncio.timeout(LAST_LINE_SECONDS):
                await self._last_line.wait()

    async def tear_down(self) -> None:
        for follower in self._followers:
            follower.cancel()
        await asyncio.gather(*self._followers, return_exceptions=True)
        await super().tear_down()

    async def _follow_events(self) -> None:
        command = ("exec", LOAD_POD, "--", "tail", "-c", "+1", "-F", EVENTS)
        async for line in self._kubectl.lines(*command):
            self._lines.put_nowait(line)
            if FINISHED in line:
                self._last_line.set()

    async def _watch_brokers(self) -> None:
        path = BROKER_OBJECTS.format(namespace=self.namespace)
        while True:
            async for line in self._kubectl.lines("get", "--raw", path):
                with contextlib.suppress(msgspec.DecodeError):
                    event = msgspec.json.decode(line)
                    found = event.get("object", {})
                    if event.get("type") in ("ADDED", "MODIFIED"):
                        self._broker_objects[found["metadata"]["name"]] = found
            await asyncio.sleep(WATCH_AGAIN_SECONDS)


def load_options(workload: Workload) -> list[str]:
    """Return the options of `tidemark load` for this workload."""
    options = ["--acks", workload.acks, "--producers", str(workload.producers)]
    options += ["--group-consumers", str(workload.group_consumers)]
    if workload.idempotence:
        return [*options, "--idempotent", "--timeout-ms", str(RECORD_TIMEOUT_MS)]
    in_flight = str(workload.producers)
    return [*options, "--timeout-ms", str(PLAIN_TIMEOUT_MS), "--in-flight", in_flight]
