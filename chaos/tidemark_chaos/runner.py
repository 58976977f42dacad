"""Run one chaos experiment: steady state, faults under guards, healing, recovery, verdict.

What is struck is healed whichever way a run ends. The runner prints nothing (`tell`) and draws
nothing (`report/`); it returns what happened, as `Observations`.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
from tidemark_client.cluster_status import ClusterStatus
from tidemark_client.errors import CommandFailed
from tidemark_client.waiting import until

from tidemark_chaos.environments.chaos_environment import ChaosEnvironment, Faults
from tidemark_chaos.guards import GuardWatch
from tidemark_chaos.online_check import OnlineCheck
from tidemark_chaos.schedule import PlannedFault, schedule
from tidemark_chaos.spec import (
    LASTING,
    RESTARTED_AFTER,
    ChaosExperiment,
    FaultName,
    Role,
    seconds,
)
from tidemark_chaos.targets import NoTarget, choose, led_by
from tidemark_chaos.timeline import Timeline
from tidemark_chaos.verification import VerifyReport
from tidemark_chaos.workload_series import WorkloadSeries

SAMPLE_SECONDS = 0.025
EVENTS_SECONDS = 0.25
POLL_SECONDS = 0.05
TARGET_SECONDS = 20.0  # how long a fault waits until something has its role
AFTER_SECONDS = 3.0  # load after the last recovery: the latency after it


class FaultRecord(msgspec.Struct, rename="camel"):
    """What was planned, and what was done; times are Unix ms."""

    number: int
    kind: str
    role: str
    detail: str = ""
    brokers: tuple[int, ...] = ()
    led: tuple[int, ...] = ()  # the partitions that these led before
    text: str = ""
    begin_ms: float = 0.0
    heal_ms: float | None = None
    recovered_ms: float | None = None
    skipped: str = ""  # why nothing was done


@dataclass(slots=True)
class Observations:
    """Everything a report is made of."""

    started_ms: float
    ended_ms: float = 0.0
    steady_ms: float = 0.0  # the first fault may come from here on
    stopped_ms: float = 0.0  # the workload ends here
    timeline: Timeline = field(default_factory=lambda: Timeline(""))
    series: WorkloadSeries = field(default_factory=WorkloadSeries)
    faults: list[FaultRecord] = field(default_factory=list)
    aborted: str = ""
    problems: list[str] = field(default_factory=list)  # recovery, verification, the workload
    online_violations: list[str] = field(default_factory=list)
    verified: VerifyReport | None = None

    def on_abort(self, reason: str) -> None:
        self.aborted = reason

    @property
    def is_good(self) -> bool:
        is_verified = self.verified is not None and self.verified.is_good
        return is_verified and not (self.aborted or self.problems or self.online_violations)


class ChaosRun:
    def __init__(
        self,
        experiment: ChaosExperiment,
        seed: int,
        environment: ChaosEnvironment,
        faults: Faults,
        tell: Callable[[str], None],
    ) -> None:
        self._spec = experiment.spec
        self._seed = seed
        self._environment = environment
        self._faults = faults
        self._tell = tell
        topic = experiment.spec.workload.topic
        self._seen = Observations(_now_ms(), timeline=Timeline(topic))
        self._guards = GuardWatch(experiment.spec.guards, topic)
        self._online = OnlineCheck()
        self._struck: dict[int, tuple[int, ...]] = {}  # by number of the fault that holds them
        self._next_line = 0
        self._status: ClusterStatus | None = None  # of the last sample
        self._known: ClusterStatus | None = None  # of the last one that the controller answered

    async def run(self) -> Observations:
        """Run the experiment; heal and clean up also when it is cancelled.

        Raises CommandFailed if the steady state was not reached: then nothing was struck.
        """
        environment, seen = self._environment, self._seen
        try:
            await environment.prepare()
            await environment.set_up(self._tell)
            self._tell("starting the workload")
            await environment.start_workload()
            await self._observed(self._until_steady())
            seen.steady_ms = _now_ms()
            self._note("phase", "steady state: the faults begin")
            await self._observed(self._hurt())
            if not seen.aborted:
                await asyncio.sleep(AFTER_SECONDS)
            seen.stopped_ms = _now_ms()
            self._note("phase", "the workload stops")
            await self._verify()
            environment.keeps_data = not seen.is_good
        finally:
            self._faults.heal()
            await asyncio.shield(environment.tear_down())
        seen.ended_ms = _now_ms()
        return seen

    # ---- before

    async def _until_steady(self) -> None:
        """Wait for the steady state. Raises CommandFailed."""
        wanted = self._spec.steady_state
        rate = self._spec.workload.records_per_second * self._spec.workload.partitions
        window_s, least = seconds(wanted.for_), wanted.min_rate * rate
        self._tell(
            f"steady state: all replicas in sync and {least:.0f} records/s for {wanted.for_}"
        )
        since_ms = _now_ms()
        found = "no sample"
        try:
            async with asyncio.timeout(seconds(wanted.within)):
                while True:
                    await asyncio.sleep(POLL_SECONDS)
                    now_ms = _now_ms()
                    if self._online.violations:
                        found = self._online.violations[0]
                        raise TimeoutError
                    if not self._is_full():
                        since_ms, found = now_ms, "not all replicas in sync"
                        continue
                    if now_ms - since_ms < window_s * 1000:
                        continue
                    begin_ms = now_ms - window_s * 1000
                    count = self._seen.series.acknowledged_between(begin_ms, now_ms)
                    found = f"{count / window_s:.0f} records/s acknowledged"
                    if count / window_s >= least:
                        return
        except TimeoutError as late:
            raise CommandFailed(
                f"No steady state within {wanted.within}, so no fault began.",
                expected=f"all replicas in sync and {least:.0f} records/s for {wanted.for_}",
                found=found,
                to_do="lower workload.recordsPerSecond or steadyState.minRate, or use a machine"
                " with more free processors",
            ) from late

    # ---- faults

    async def _hurt(self) -> None:
        """Play the schedule, then wait until all is well again; problems are noted."""
        try:
            if self._spec.is_timed:
                await self._play_timed()
            else:
                await self._play_in_turn()
            await self._recover((), {})
            if all(fault.skipped for fault in self._seen.faults):
                self._problem("no fault was injected, so the experiment shows nothing")
        except CommandFailed as failed:
            self._problem(str(failed))

    async def _play_in_turn(self) -> None:
        duration = self._spec.duration_seconds
        ends = None if duration is None else time.monotonic() + duration
        for fault in schedule(self._spec, self._seed):
            expected_s = fault.quiet_seconds + fault.away_seconds
            if ends is not None and time.monotonic() + expected_s > ends:
                return
            await asyncio.sleep(fault.quiet_seconds)
            await self._play(fault, rests=True)

    async def _play_timed(self) -> None:
        began = time.monotonic()

        async def play_at(fault: PlannedFault) -> None:
            assert fault.at_seconds is not None
            await asyncio.sleep(began + fault.at_seconds - time.monotonic())
            await self._play(fault, rests=False)

        try:
            async with asyncio.TaskGroup() as tasks:
                for fault in schedule(self._spec, self._seed):
                    tasks.create_task(play_at(fault), name=f"fault-{fault.number}")
                await asyncio.sleep(self._spec.duration_seconds or 0.0)
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from group

    async def _play(self, fault: PlannedFault, *, rests: bool) -> None:
        record = FaultRecord(fault.number, fault.kind.value, fault.role.value, fault.detail)
        self._seen.faults.append(record)
        try:
            await self._play_recorded(fault, record, rests=rests)
        finally:
            if not record.begin_ms:
                record.begin_ms = _now_ms()
                record.skipped = record.skipped or "the experiment ended before it began"

    async def _play_recorded(
        self, fault: PlannedFault, record: FaultRecord, *, rests: bool
    ) -> None:
        brokers = await self._targets(fault, record, rests=rests)
        if brokers is None:
            return
        status = self._known
        record.brokers = brokers
        record.led = led_by(status, self._spec.workload.topic, brokers)
        epochs = _epochs(status)

        def on_begin(t_ms: float, text: str) -> None:
            record.begin_ms, record.text = t_ms, text
            self._environment.note_struck(brokers)
            self._seen.timeline.note(t_ms, "fault", f"fault {fault.number}: {text}")
            self._tell_at(t_ms, text)

        def on_heal(t_ms: float, text: str) -> None:
            record.heal_ms = t_ms
            self._seen.timeline.note(t_ms, "heal", f"fault {fault.number}: {text}")
            self._tell_at(t_ms, text)

        self._struck[fault.number] = brokers
        try:
            await self._faults.strike(fault, brokers, on_begin, on_heal)
        finally:
            del self._struck[fault.number]
        if rests:
            restarted = () if fault.kind in LASTING - RESTARTED_AFTER else brokers
            if fault.role is Role.CONTROLLER and fault.kind is not FaultName.PAUSE:
                restarted = ()
            await self._recover(restarted, epochs)
            record.recovered_ms = _now_ms()
            took_ms = record.recovered_ms - record.begin_ms
            self._tell_at(record.recovered_ms, f"all replicas in sync again after {took_ms:.0f} ms")

    async def _targets(
        self, fault: PlannedFault, record: FaultRecord, *, rests: bool
    ) -> tuple[int, ...] | None:
        """Return the brokers that have the fault's role; None, noted, if none has it in time.

        With `rests` they are brokers that are restarted without a delay: roles are read again
        after each wait, because leaders move meanwhile.
        """
        ends = time.monotonic() + TARGET_SECONDS
        while True:
            struck = frozenset(each for brokers in self._struck.values() for each in brokers)
            try:
                brokers = choose(fault, self._known, self._spec.workload.topic, struck)
                if not rests or not await self._environment.rest(brokers):
                    return brokers
            except NoTarget as error:
                if time.monotonic() > ends:
                    record.skipped = str(error)
                    self._tell_at(_now_ms(), f"fault {fault.number} skipped: {error}")
                    return None
            await asyncio.sleep(POLL_SECONDS)

    async def _recover(self, restarted: tuple[int, ...], epochs: dict[int, int]) -> None:
        """Wait until all replicas are in sync and all partitions acknowledge after that.

        `restarted` are brokers whose new process is waited for. Raises CommandFailed.
        """
        full_ms: float | None = None

        async def is_recovered() -> bool:
            nonlocal full_ms
            now = _epochs(self._status)
            if not self._is_full() or any(now.get(b, -1) <= epochs.get(b, -1) for b in restarted):
                full_ms = None
                return False
            # Not since the fault began: a broker that ends in order still acknowledges meanwhile.
            full_ms = full_ms or _now_ms()
            gaps = self._seen.series.gaps_ms(_now_ms())
            limit_ms = _now_ms() - full_ms
            return len(gaps) == self._spec.workload.partitions and all(
                gap < limit_ms for gap in gaps.values()
            )

        await until(
            is_recovered,
            "all replicas in sync and acknowledgements from each partition after the fault",
            within_seconds=seconds(self._spec.recover_within),
            every_seconds=POLL_SECONDS,
            to_do="read the logs next to the report",
        )

    # ---- meanwhile

    async def _observed(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something while status and workload are watched; a guard ends it early."""
        doing = asyncio.create_task(work, name="experiment")
        watching = asyncio.create_task(self._watch(), name="watch")
        try:
            await asyncio.wait({doing, watching}, return_when=asyncio.FIRST_COMPLETED)
            if watching.done() and not doing.done():
                self._abort(_reason_of(watching))
                doing.cancel()
                with suppress(asyncio.CancelledError):
                    await doing
                healed = self._faults.heal()
                self._note("heal", f"aborted: resumed {', '.join(healed) or 'nothing'}")
            else:
                await doing
        finally:
            for task in (doing, watching):
                task.cancel()
            await asyncio.gather(doing, watching, return_exceptions=True)

    async def _watch(self) -> str:
        """Sample status and events until a guard is violated; return why."""
        events_at = 0.0
        while True:
            began = time.monotonic()
            self._status = await self._environment.status()
            self._known = self._status or self._known
            now_ms = _now_ms()
            self._seen.timeline.on_sample(now_ms, self._status)
            self._tell_changes()
            reason = self._guards.on_sample(time.monotonic(), self._status)
            if began >= events_at:
                events_at = began + EVENTS_SECONDS
                await self._read_events()
                reason = reason or self._guards.on_violations(self._online.violations)
                gaps = self._seen.series.gaps_ms(now_ms)
                seconds_of = {partition: gap / 1000 for partition, gap in gaps.items()}
                reason = reason or self._guards.on_write_gap(seconds_of)
            # Before the first fault a guard has nothing to protect from.
            if reason and self._seen.steady_ms:
                return reason
            await asyncio.sleep(max(0.0, began + SAMPLE_SECONDS - time.monotonic()))

    async def _read_events(self) -> None:
        self._environment.check_workload()
        for event in await self._environment.new_events():
            self._online.on_event(event)
            self._seen.series.on_event(event)

    def _abort(self, reason: str) -> None:
        self._seen.on_abort(reason)
        self._note("guard", f"aborted: {reason}")
        self._tell_at(_now_ms(), f"aborted: {reason}")

    # ---- after

    async def _verify(self) -> None:
        """Stop the workload and check all records; what goes wrong is a problem of the run."""
        environment, seen = self._environment, self._seen
        try:
            if seen.aborted:
                await environment.until(self._is_full_now, "all replicas in sync after the abort")
            self._tell("waiting for the outcome of records in flight")
            await environment.stop_workload()
            for event in await environment.new_events():
                self._online.on_event(event)
                seen.series.on_event(event)
            self._tell("reading all records and comparing all replicas")
            seen.verified = await environment.verify()
        except CommandFailed as failed:
            self._problem(str(failed))
        except TimeoutError:
            self._problem("the records could not be read in time, so they are not verified")
        seen.online_violations = list(self._online.violations)

    def _problem(self, sentence: str) -> None:
        self._seen.problems.append(sentence)
        self._note("phase", sentence)
        self._tell_at(_now_ms(), sentence)

    async def _is_full_now(self) -> bool:
        self._status = await self._environment.status()
        self._seen.timeline.on_sample(_now_ms(), self._status)
        return self._is_full()

    def _is_full(self) -> bool:
        view = None if self._status is None else self._status.topic(self._spec.workload.topic)
        return view is not None and view.is_fully_in_sync

    def _note(self, what: Any, text: str) -> None:
        self._seen.timeline.note(_now_ms(), what, text)

    def _tell_changes(self) -> None:
        changes = self._seen.timeline.changes
        for change in changes[self._next_line :]:
            if change.what == "leader" and self._seen.steady_ms:
                self._tell_at(change.t_ms, change.text)
        self._next_line = len(changes)

    def _tell_at(self, t_ms: float, text: str) -> None:
        start_ms = self._seen.steady_ms or self._seen.started_ms
        self._tell(f"{(t_ms - start_ms) / 1000:8.3f} s  {text}")


def _reason_of(watching: "asyncio.Task[str]") -> str:
    error = watching.exception()
    return str(error) if error is not None else watching.result()


def _epochs(status: ClusterStatus | None) -> dict[int, int]:
    return {} if status is None else {row.broker_id: row.broker_epoch for row in status.brokers}


def _now_ms() -> float:
    return time.time() * 1000
