"""Run the demo: rounds of faults under load, a recovery after each, and one report at the end.

It knows neither processes nor pods (`environments/`), and prints nothing itself (`demo_output.py`).
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidemark_cli.demo_output import ProgressOutput
from tidemark_client.errors import CommandFailed
from tidemark_client.metadata import NO_LEADER, PartitionView, TopicView

from tidemark_chaos.environments.environment import LEADER_MAY_STAY, Environment
from tidemark_chaos.faults.fault import TOPIC, Fault, FaultKind
from tidemark_chaos.verification import VerifyReport, percentile
from tidemark_chaos.workload_log import longest_stall_ms, longest_write_gap_ms

POLL_SECONDS = 0.02
RECOVERY_SECONDS = 90.0
QUIET_SECONDS = 1.0  # of plain load before a blow
WORTH_TELLING_MS = 50.0
FEW_ROUNDS = 4  # up to here every round is told in full, and figures over them mean little
OPERATOR_SECONDS = 8.0  # how long acknowledgements are watched without an operator


@dataclass(frozen=True, slots=True)
class Trial:
    """Hold the effect of one fault, in ms after it; None where it cannot occur (operator kill)."""

    kind: str
    partition: int
    killed_broker: int | None
    new_leader: int | None
    leader_after_ms: float | None
    write_gap_ms: float
    isr_full_again_ms: float | None
    load_stalled_ms: float = 0.0  # the longest time for which the load itself stood still


@dataclass(frozen=True, slots=True)
class DemoReport:
    """build/demo-report.json."""

    runtime: str
    rounds: tuple[Trial, ...]
    acknowledged: int
    found: int
    lost: int
    duplicated: int
    unknown: int
    unknown_found: int
    refused_found: int
    read_otherwise: int
    replicas_identical: bool
    write_gap_ms: float
    latency_p50_ms: float
    latency_p99_ms: float
    seconds: float
    notes: tuple[str, ...] = ()
    anomalies: Mapping[str, int] = field(default_factory=dict)  # of the history, by name
    worst_read_lag_ms: float = 0.0

    @property
    def is_good(self) -> bool:
        broken = (
            self.lost or self.duplicated or self.refused_found or self.read_otherwise or self.notes
        )
        return self.replicas_identical and not broken


class Experiment:
    def __init__(
        self,
        environment: Environment,
        progress: ProgressOutput,
        *,
        quiet_seconds: float = QUIET_SECONDS,
    ) -> None:
        self._environment = environment
        self._progress = progress
        self._quiet_seconds = quiet_seconds

    async def tell(self, kinds: Sequence[FaultKind]) -> DemoReport:
        """Run the demo: set-up, load, the rounds in turn, the verdict; always clean up.

        Raises CommandFailed.
        """
        environment, progress = self._environment, self._progress
        started = time.monotonic()
        progress.opening(environment.opening)
        try:
            progress.chapter("Set-up")
            with progress.progress("starting") as tell:
                await environment.set_up(tell)
            progress.topic(await self._topic())
            with progress.progress("starting producer and consumer"):
                await environment.start_workload()
            progress.line("a producer writes to every partition with acks=all; a consumer reads")
            rounds = []
            for number, kind in enumerate(kinds, start=1):
                progress.chapter(f"Round {number} of {len(kinds)}: {kind.value}")
                rounds.append(await self._round(number, kind))
            progress.chapter("Verdict")
            with progress.progress("waiting for the outcome of records in flight"):
                await environment.stop_workload()
            with progress.progress("reading all records and comparing all replicas"):
                verified = await environment.verify()
            report = demo_report(
                environment.runtime, rounds, verified, seconds=time.monotonic() - started
            )
            with progress.progress("auditing the samples of Prometheus"):
                audited = await environment.audit()
            progress.verdict(report)
            if len(rounds) > FEW_ROUNDS:
                progress.figures(report_fields(report)["by_kind"])
            progress.chapter("Audit")
            progress.audit(audited)
        finally:
            with progress.progress("cleaning up"):
                await environment.tear_down()
        if environment.closing:
            progress.closing(environment.closing)
        return report

    async def _round(self, number: int, kind: FaultKind) -> Trial:
        view = await self._target(number)
        partition = view.partition
        await asyncio.sleep(self._quiet_seconds)
        fault = await self._environment.strike(kind, view)
        self._progress.moment(0, fault.words)
        if kind is FaultKind.OPERATOR:
            with self._progress.progress(
                "operator killed: checking that acknowledgements continue"
            ):
                await asyncio.sleep(OPERATOR_SECONDS)
            gap_ms, stalled_ms = await self._write_gap_ms(fault)
            return Trial(kind.value, partition, None, None, None, gap_ms, None, stalled_ms)
        after, leader_after_ms, full_again_ms = await self._recovery(kind, view, fault)
        await self._acknowledged_since(time.time() * 1000)
        gap_ms, stalled_ms = await self._write_gap_ms(fault)
        return Trial(
            kind=kind.value,
            partition=partition,
            killed_broker=view.leader,
            new_leader=after.leader,
            leader_after_ms=leader_after_ms,
            write_gap_ms=gap_ms,
            isr_full_again_ms=full_again_ms,
            load_stalled_ms=stalled_ms,
        )

    async def _target(self, number: int) -> PartitionView:
        """Return the next partition whose leader would be restarted without a delay."""
        worn = await self._environment.worn_brokers()
        while True:
            partitions = (await self._settled()).partitions
            first = (number - 1) % len(partitions)
            for view in (*partitions[first:], *partitions[:first]):
                if view.leader not in worn:
                    return view
            with self._progress.progress(
                "replacing pods first, because the kubelet delays second restarts"
            ):
                for broker_id in sorted(worn):
                    await self._environment.renew(broker_id)
            worn = frozenset()

    async def _recovery(
        self, kind: FaultKind, before: PartitionView, fault: Fault
    ) -> tuple[PartitionView, float | None, float]:
        """Wait for the recovery; return the new view and two times.

        These are when a new leader was granted (None where the old one may stay), and when all
        in-sync sets were full again.
        """
        progress = self._progress
        rest = asyncio.create_task(self._environment.follow_up(kind, before), name="follow-up")
        leader_after_ms: float | None = None
        after = before
        try:
            if kind not in LEADER_MAY_STAY:
                after, leader_after_ms = await self._election(before, fault, rest)
            with progress.progress("waiting until the broker is in sync again"):
                if (second := await rest) is not None:
                    progress.moment(round(second.t_ms - fault.t_ms, 1), second.words)
                await self._settled()
        finally:
            rest.cancel()
            await asyncio.gather(rest, return_exceptions=True)
        full_again_ms = round(time.time() * 1000 - fault.t_ms, 1)
        progress.moment(full_again_ms, "all replicas in sync again")
        return after, leader_after_ms, full_again_ms

    async def _election(
        self, before: PartitionView, fault: Fault, rest: "asyncio.Task[Fault | None]"
    ) -> tuple[PartitionView, float]:
        """Wait for the election; end early if the rest of the round fails, with its error."""
        with self._progress.progress(f"waiting for a new leader of {TOPIC}-{before.partition}"):
            electing = asyncio.create_task(self._new_leader(before), name="new-leader")
            try:
                await asyncio.wait({electing, rest}, return_when=asyncio.FIRST_COMPLETED)
                if rest.done() and rest.exception() is not None:
                    await rest
                after = await electing
            finally:
                electing.cancel()
        leader_after_ms = round(time.time() * 1000 - fault.t_ms, 1)
        self._progress.moment(
            leader_after_ms,
            f"broker {after.leader} leads {TOPIC}-{before.partition}, "
            f"leader epoch {before.leader_epoch} -> {after.leader_epoch}",
        )
        return after, leader_after_ms

    async def _acknowledged_since(self, t_ms: float) -> None:
        """Wait until every partition acknowledges records again: the gap ends only then."""
        try:
            async with asyncio.timeout(RECOVERY_SECONDS):
                while True:
                    workload_log = await self._environment.workload_log()
                    if all(
                        workload_log.acknowledged_at_ms.get(partition, [0.0])[-1] > t_ms
                        for partition in range(workload_log.partitions)
                    ):
                        return
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError as late:
            raise _stuck("acknowledgements from every partition") from late

    async def _write_gap_ms(self, fault: Fault) -> tuple[float, float]:
        """Return the longest gap since the fault, and the workload's own longest stall."""
        workload_log = await self._environment.workload_log()
        window = (fault.t_ms, time.time() * 1000)
        gap_ms = round(longest_write_gap_ms(workload_log, window), 1)
        stalled_ms = longest_stall_ms(workload_log, window)
        words = f"longest time without an acknowledgement: {gap_ms:.0f} ms"
        if stalled_ms >= WORTH_TELLING_MS:
            words += f" (the load had no CPU for {stalled_ms:.0f} ms)"
        self._progress.line(words)
        return gap_ms, stalled_ms

    async def _new_leader(self, before: PartitionView) -> PartitionView:
        try:
            async with asyncio.timeout(RECOVERY_SECONDS):
                while True:
                    for view in (await self._topic()).partitions:
                        if (
                            view.partition == before.partition
                            and view.leader != NO_LEADER
                            and view.leader_epoch > before.leader_epoch
                        ):
                            return view
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError as late:
            raise _stuck(f"a new leader of {TOPIC}-{before.partition}") from late

    async def _settled(self) -> TopicView:
        try:
            async with asyncio.timeout(RECOVERY_SECONDS):
                while True:
                    view = await self._topic()
                    if view.is_fully_in_sync:
                        return view
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError as late:
            raise _stuck("all replicas in sync") from late

    async def _topic(self) -> TopicView:
        """Return the topic's view; one without partitions while the controller does not answer."""
        return await self._environment.topic() or TopicView(TOPIC, ())


def demo_report(
    runtime: str, rounds: Sequence[Trial], verified: VerifyReport, *, seconds: float
) -> DemoReport:
    verdict = verified.verdict
    return DemoReport(
        runtime=runtime,
        rounds=tuple(rounds),
        acknowledged=verdict.acknowledged,
        found=verdict.found,
        lost=verdict.lost,
        duplicated=verdict.duplicated,
        unknown=verdict.unknown,
        unknown_found=verdict.unknown_found,
        refused_found=verdict.refused_found,
        read_otherwise=verdict.read_otherwise,
        replicas_identical=all(entry.is_identical for entry in verified.replicas),
        write_gap_ms=max((entry.write_gap_ms for entry in rounds), default=verified.write_gap_ms),
        latency_p50_ms=verified.latency_p50_ms,
        latency_p99_ms=verified.latency_p99_ms,
        seconds=round(seconds, 1),
        notes=(
            *verdict.examples,
            *verdict.complaints,
            *_missing(verified),
            *(
                f"{entry.name} ({entry.count}): {sample}"
                for entry in verified.broken_guarantees
                for sample in entry.samples[:2]
            ),
        ),
        anomalies={entry.name: entry.count for entry in verified.anomalies},
        worst_read_lag_ms=verified.worst_read_lag_ms,
    )


def report_fields(report: DemoReport) -> dict[str, Any]:
    """Return the report with figures over the rounds of each kind, for measurements."""
    import msgspec

    fields: dict[str, Any] = msgspec.to_builtins(report)
    kinds = dict.fromkeys(entry.kind for entry in report.rounds)
    fields["by_kind"] = {
        kind: _figures([entry for entry in report.rounds if entry.kind == kind]) for kind in kinds
    }
    return fields


def _figures(rounds: Sequence[Trial]) -> dict[str, Any]:
    columns: dict[str, list[float | None]] = {
        "write_gap_ms": [entry.write_gap_ms for entry in rounds],
        "leader_after_ms": [entry.leader_after_ms for entry in rounds],
        "isr_full_again_ms": [entry.isr_full_again_ms for entry in rounds],
        "load_stalled_ms": [entry.load_stalled_ms for entry in rounds],
    }
    figures: dict[str, Any] = {"rounds": len(rounds)}
    for name, column in columns.items():
        values = sorted(value for value in column if value is not None)
        if values:
            figures[name] = {
                "p50": percentile(values, 50),
                "p99": percentile(values, 99),
                "max": values[-1],
            }
    return figures


def _missing(verified: VerifyReport) -> tuple[str, ...]:
    return tuple(
        f"partition {entry.partition}: {sentence}"
        for entry in verified.replicas
        for sentence in entry.missing
    )


def _stuck(what: str) -> CommandFailed:
    return CommandFailed(
        expected=f"{what} within {RECOVERY_SECONDS:g} s",
        found="none",
        to_do="read the logs in build/, or `tidemark status`",
    )
