"""One seed from beginning to verdict: clients under faults, healing, promises, the history.

A run is a function of its seed and of the faults that are left out of it (the shrinker's way). It
is bounded in events and in processor time; a run that reaches a bound is a failure of its own.
"""

import gc
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from tidemark_broker.replication.replica_manager import FetchResult
from tidemark_chaos.history_checker import Kind, Operation, check
from tidemark_operator.controller.core.settings import ControllerSettings
from tidemark_operator.store.lease import LeaseSettings
from tidemark_protocol.ids import BrokerId

from tests.simulation.checks.cluster_observer import ClusterObserver
from tests.simulation.checks.compacted_history import check_last_reads, with_compacted
from tests.simulation.checks.coverage_rows import (
    UNSEEN,
    WAIVED_AFTER_FLIPS,
    ended_early,
    kept,
    waived,
)
from tests.simulation.checks.final_log_ends import bound_ms, bring_about, end_of
from tests.simulation.checks.history_by_partition import placed
from tests.simulation.checks.invariants import Invariants
from tests.simulation.checks.liveness_checks import Bounds, LivenessChecks
from tests.simulation.checks.operation_checks import QUIET_SECONDS, QuietTime
from tests.simulation.checks.violations import BeyondPromises, Violation
from tests.simulation.clients.client_port import Fetch, Produce, serve_clients
from tests.simulation.clients.clients import (
    PARTITIONS_AT_FIRST,
    Consumer,
    ConsumerPlan,
    Producer,
    ProducerPlan,
    Surroundings,
)
from tests.simulation.clients.group_member import SimulatedGroup
from tests.simulation.clients.idempotent_client import IdempotentProducer
from tests.simulation.engine.clock import EPOCH_US
from tests.simulation.engine.shape import Shape, faults_of
from tests.simulation.engine.simulated_cluster import Cluster, ClusterOptions, NewClient
from tests.simulation.engine.timeline import FOREVER_US
from tests.simulation.faults.faults import Fault, heal, schedule
from tests.simulation.faults.identity_faults import IDENTITIES

SECOND_US = 1_000_000
CLIENT_PORT = 9000
SAFETY_SECONDS = 20.0
MAX_EVENTS = 400_000
MAX_CPU_SECONDS = 60.0
CPU_LOOK_EVENTS = 5_000
LAST_READ_SECONDS = 20
GROUP_SECONDS = 20
KILLED_LOOK_US = 1_000


@dataclass(frozen=True, slots=True)
class RunResult:
    seed: int
    options: str
    violation: tuple[str, str] | None  # name, text
    events: int
    simulated_us: int
    cpu_seconds: float
    profile: str = ""
    coverage: Counter[str] = field(default_factory=Counter)
    retained_us: dict[str, int] = field(default_factory=dict)  # promise: after which time
    trace: tuple[tuple[int, str, str], ...] = ()
    digest: str = ""


@dataclass(frozen=True, slots=True)
class RunPlan:
    seed: int
    safety_seconds: float = SAFETY_SECONDS
    faults: tuple[Fault, ...] | None = None  # None: those of the seed
    profile: str = ""  # of fault_profiles.py, and nothing else; "": what the seed brings
    keeps_trace: bool = False
    has_logs: bool = False


class ReceivedMessages:
    """What client ports report to; the invariants exist only after the world."""

    invariants: Invariants | None = None

    def on_requested(self, broker: Any, request: Produce) -> Callable[[], None]:
        assert self.invariants is not None
        return self.invariants.on_requested(broker, request)

    def on_acknowledged(self, broker: Any, request: Produce, base_offset: int) -> None:
        assert self.invariants is not None
        self.invariants.on_acknowledged(broker, request, base_offset)

    def on_shown(self, broker: Any, request: Fetch, result: FetchResult) -> None:
        assert self.invariants is not None
        self.invariants.on_shown(broker, request, result)

    def on_out_of_order(self, broker: Any, request: Produce) -> None:
        assert self.invariants is not None
        self.invariants.on_out_of_order(broker, request)

    def on_unknown_producer(self, broker: Any, request: Produce) -> None:
        assert self.invariants is not None
        self.invariants.on_unknown_producer(broker, request)

    def on_producer_id(self, producer_id: int) -> None:
        assert self.invariants is not None
        self.invariants.on_producer_id(producer_id)

    def on_overdue(self, broker: Any, request: Produce) -> None:
        assert self.invariants is not None
        self.invariants.on_overdue(broker, request)


class Run:
    def __init__(self, plan: RunPlan) -> None:
        self.plan = plan
        self.shape = Shape.of(plan.seed, plan.profile)
        self.faults = plan.faults
        if self.faults is None:
            self.faults = faults_of(plan.seed, plan.safety_seconds, plan.profile)
        self.received = ReceivedMessages()
        serve = serve_clients(self.received, lambda b: (b.settings.listen_host, CLIENT_PORT))
        options = ClusterOptions(
            brokers=len(self.shape.racks),
            racks=self.shape.racks,
            serve_clients=serve,
            has_logs=plan.has_logs,
            log_cleaner_backoff_seconds=self.shape.log_cleaner_backoff_seconds,
            balance_interval_ms=self.shape.balance_interval_ms,
            replica_fetch_max_bytes=self.shape.replica_fetch_max_bytes,
            costs=self.shape.costs,
            has_identities=IDENTITIES in self.shape.additions,
        )
        self.cluster = Cluster(plan.seed, options)
        self.cluster.call_client = self._call_client
        self.watched = ClusterObserver(self.cluster)
        self.invariants = self.received.invariants = Invariants(self.watched)
        self.group = SimulatedGroup(self.invariants) if self.shape.has_group else None
        self.history: list[Operation] = []
        self.open_sends: dict[tuple[int, ...], Operation] = {}  # whose outcome nobody knows yet
        self.on_event: Callable[[], None] | None = None
        self.events = 0
        self.retained_us: dict[str, int] = {}
        self._began = time.process_time()
        self._values = 0
        self._is_over = False

    def go(self) -> RunResult:
        violation: tuple[str, str] | None = None
        with self.cluster, _bounded():
            try:
                self._to_its_end()
            except Violation as found:
                violation = (found.name, found.text)
                self.watched.note(f"VIOLATION {found}")
            except _Endless:
                violation = ("bound", f"{2 * MAX_CPU_SECONDS:g} s, and an event does not end")
                self.watched.note(f"VIOLATION {violation[1]}")
            except Exception as error:  # the seed is told, and a campaign goes on
                *_, last = traceback.extract_tb(error.__traceback__)
                where = f"{last.name}, line {last.lineno} of {last.filename.rpartition('/')[2]}"
                violation = ("simulator", f"{type(error).__name__} in {where}: {error}")
                self.watched.note(f"ERROR {violation[1]}")
            return self._result(violation)

    def _to_its_end(self) -> None:
        try:
            self._safety_phase()
            self._heal_and_check()
        except BeyondPromises as found:
            self.invariants.coverage[ended_early(found.text)] += 1
            self.watched.note(f"the run ends here: {found.text}")
            # Each of them is found as a log is opened or as a batch is committed, before any
            # client could have been shown what came of it.
            self._is_over = True
            self._checker_history(self._without_last_reads(), but=UNSEEN)

    def _heal_and_check(self) -> None:
        try:
            self._healing_phase()
            self._quiet_phase()
            self._last_end()
        except Violation as found:
            # The only valid copy of a batch may be the damaged one: then only a human can help, and
            # what was shown until now has to be right all the same.
            if not (found.name in WAIVED_AFTER_FLIPS and self.watched.has_flipped_bits):
                raise
            self.invariants.coverage[waived(found.name)] += 1
            self._is_over = True
            self.invariants.conclude()
            self._checker_history(self._without_last_reads(), but=UNSEEN)
            return
        check_last_reads(self.history, self.invariants.committed_logs())
        self._checker_history(self.history)

    def _without_last_reads(self) -> list[Operation]:
        """Of a partition that nobody leads these show a beginning, or nothing."""
        return [replace(each, is_final=False) if each.is_final else each for each in self.history]

    def _result(self, violation: tuple[str, str] | None) -> RunResult:
        return RunResult(
            seed=self.plan.seed,
            options=self._options(),
            violation=violation,
            events=self.events,
            simulated_us=self.cluster.now_us,
            cpu_seconds=time.process_time() - self._began,
            profile=self.plan.profile,
            coverage=self._coverage(),
            retained_us=self.retained_us,
            trace=tuple(self.cluster.trace) if self.plan.keeps_trace else (),
            digest=self.cluster.trace_digest(),
        )

    def _coverage(self) -> Counter[str]:
        found = self.invariants.coverage + self.cluster.coverage
        return found if self.group is None else found + self.group.coverage

    def _options(self) -> str:
        assert self.faults is not None
        kinds = Counter(fault.kind for fault in self.faults)
        drawn = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
        return f"{self.shape}; faults: {drawn or 'none'}"

    # ---- phases

    def _safety_phase(self) -> None:
        self.cluster.start()
        self.cluster.create_topic(
            "orders",
            partitions=PARTITIONS_AT_FIRST,
            replication_factor=3,
            commit_rule=self.shape.commit_rule,
            flush=self.shape.flush,
            config={
                "min.insync.replicas": str(self.shape.min_insync),
                "replica.lag.time.max.ms": str(self.shape.replica_lag_max_ms),
                **dict(self.shape.config),
            },
        )
        if self.group is not None:
            self.group.create_topic(self.cluster)
        assert self.faults is not None
        schedule(self.cluster, self.faults)
        self._start_clients()
        self._run_to(int(self.plan.safety_seconds * SECOND_US))

    def _healing_phase(self) -> None:
        heal(self.cluster)
        promises = LivenessChecks(self.watched, Bounds.of(*self._settings()))
        self._until_retained(promises)
        self.retained_us.update(promises.retained_after_us())
        for name, retained_us in self.retained_us.items():
            self.invariants.coverage[kept(name)] += 1
            self.watched.note(f"{name} kept {retained_us / SECOND_US:.2f} s after the last fault")
        self._run_to(self.cluster.now_us + SECOND_US)  # acknowledged also after healing
        self._until_retained(promises)  # a broker that was told to stop before may have done so now
        if self.group is not None:
            self._until_group_goes_on(self.group)
        self.invariants.coverage += self.watched.log_counts()
        self._is_over = True
        self.invariants.conclude()

    def _until_retained(self, promises: LivenessChecks) -> None:
        next_look_us = 0
        while True:
            if self.cluster.now_us >= next_look_us:
                next_look_us = self.cluster.now_us + SECOND_US // 20
                if promises.are_kept():
                    return
            self._must_step()

    def _until_group_goes_on(self, group: SimulatedGroup) -> None:
        group.checks.heal()
        deadline_us = self.cluster.now_us + GROUP_SECONDS * SECOND_US
        while (missing := group.missing()) and self.cluster.now_us < deadline_us:
            self._run_to(self.cluster.now_us + SECOND_US // 20)
        if missing:
            raise Violation("G4", f"{missing}, {GROUP_SECONDS} s after everything else was well")

    def _quiet_phase(self) -> None:
        """All is well and nothing changes, whatever is applied again; then all is read."""
        self.cluster.applies_again = True
        quiet = QuietTime(self.watched)
        ends_us = self.cluster.now_us + int(QUIET_SECONDS * SECOND_US)
        self._last_reads()
        self._run_to(ends_us)
        while not quiet.is_over():
            self._run_to(self.cluster.now_us + int(QUIET_SECONDS * SECOND_US))
        self.invariants.coverage[kept("I21")] += 1

    def _settings(self) -> tuple[ControllerSettings, LeaseSettings]:
        settings = ControllerSettings(balance_interval_ms=self.shape.balance_interval_ms)
        return settings, LeaseSettings(self.cluster.namespace)

    def _last_end(self) -> None:
        """L1 where nothing else is wrong: a leader is killed or stands still, and everything it led
        is led by others."""
        if self.watched.has_flipped_bits:
            return
        promises = LivenessChecks(self.watched, Bounds.of(*self._settings()))
        # What came late in a quiet second, as a proposal to shrink an ISR, may leave nobody else
        # who can lead.
        self._until_retained(promises)
        leading = [state.leader for *_, state in self.watched.served_partitions()]
        slot = self.cluster.brokers[leading[0]]
        if slot.process is None:
            return
        end = end_of(self.plan.seed)
        most_ms = bound_ms(end, *self._settings())
        self.watched.note(f"{slot.process.name}: {end}, all is well")
        began_us = self.cluster.now_us
        bring_about(end, self.cluster, slot)
        while missing := promises.missing_leader(slot.broker_id):
            if self.cluster.now_us - began_us > most_ms * 1000:
                raise Violation("L1", f'{missing}, {most_ms} ms and not "{end}"')
            next_look_us = self.cluster.now_us + KILLED_LOOK_US
            while self.cluster.now_us < next_look_us:
                self._must_step()
        self.retained_us[end] = self.cluster.now_us - began_us
        self.invariants.coverage[kept(end)] += 1

    def _last_reads(self) -> None:
        """Everything is read from its start: what is not there then is lost. A bit that flipped
        before may be found only now, and change who leads."""
        reader = Consumer(
            ConsumerPlan("last-reader", "orders", 10), self._around(), self.cluster.random
        )
        partitions = range(self.cluster.partitions_of("orders"))
        ends: dict[int, int | None] = {}

        def is_whole(name: str, end_offset: int) -> bool:
            committed = self.invariants.committed_logs().get(name)
            return committed is None or end_offset >= committed.led_to

        async def read() -> None:
            for partition in partitions:
                ends[partition] = await reader.read_all(partition, tries=200, is_whole=is_whole)

        self._spawn("last-reader", read)
        deadline_us = self.cluster.now_us + LAST_READ_SECONDS * SECOND_US
        while len(ends) < len(partitions) and self._step(deadline_us):
            pass
        for partition in partitions:
            if ends.get(partition) is None:
                raise Violation("L1", f"partition {partition} could not be read to its end")

    def _checker_history(self, history: list[Operation], but: str = "") -> None:
        logs = self.invariants.committed_logs()
        verdict = check(
            placed([*history, *self.open_sends.values()]),
            with_compacted(self.invariants.suspensions(), logs),
        )
        for name, count in verdict.operations.items():
            self.invariants.coverage[f"client: {name}"] += count
        for anomaly in verdict.anomalies:
            self.invariants.coverage[f"history: {anomaly.name}"] += anomaly.count
        failures = [each for each in verdict.failures if each.name != but]
        if failures:
            worst = failures[0]
            raise Violation(f"history: {worst.name}", f"{worst.count} times: {worst.samples[0]}")

    # ---- steps

    def _run_to(self, until_us: int) -> None:
        while self._step(until_us):
            pass

    def _must_step(self) -> None:
        if not self._step(FOREVER_US):
            raise Violation("bound", "nothing happens any more")

    def _step(self, until_us: int) -> bool:
        """False: nothing is left that is due until then."""
        cluster = self.cluster
        if not cluster.timeline.step(until_us):
            return False
        self.events += 1
        self.invariants.after_event()
        if self.group is not None and self.group.checks.violation is not None:
            raise self.group.checks.violation
        if self.on_event is not None:
            self.on_event()
        if cluster.crashes:
            crash = cluster.crashes[0]
            if isinstance(crash.error, Violation):  # what a client saw
                raise crash.error
            raise Violation("crash", f"{crash.who}: {type(crash.error).__name__}: {crash.error}")
        if self.events % CPU_LOOK_EVENTS == 0:
            self._check_bounds()
        return True

    def _check_bounds(self) -> None:
        if self.events >= MAX_EVENTS:
            raise Violation("bound", f"{self.events} events")
        if time.process_time() - self._began > MAX_CPU_SECONDS:
            raise Violation("bound", f"{MAX_CPU_SECONDS} s of processor time")

    # ---- clients

    def _around(self) -> Surroundings:
        return Surroundings(
            brokers=tuple(self.cluster.brokers),
            partitions=self.cluster.partitions_of,
            address_of=lambda broker: (self.cluster.brokers[BrokerId(broker)].host, CLIENT_PORT),
            now_us=lambda: self.cluster.now_us,
            wall_ms=lambda: (EPOCH_US + self.cluster.now_us) // 1000,
            began=self._began_send,
            record=self._record,
            next_value=self._next_value,
            is_over=lambda: self._is_over,
        )

    def _began_send(self, send: Operation) -> None:
        self.open_sends[send.values] = send

    def _record(self, operation: Operation) -> None:
        if operation.kind is Kind.SEND:
            del self.open_sends[operation.values]
        if operation.values and _number_of(operation.partition) >= PARTITIONS_AT_FIRST:
            kind, outcome = operation.kind.name.lower(), operation.outcome.name.lower()
            self.invariants.coverage[f"partitions added later: {kind} {outcome}"] += 1
        self.history.append(operation)

    def _next_value(self) -> int:
        self._values += 1
        return self._values

    def _start_clients(self) -> None:
        for client in self._clients():
            self._spawn(client[0], client[1])

    def _clients(self) -> Iterator[tuple[str, Any]]:
        chance = self.cluster.random
        around = self._around()
        for number, acks in enumerate(self.shape.acks):
            plan = ProducerPlan(
                name=f"producer-{number}",
                topic="orders",
                partition=number % PARTITIONS_AT_FIRST,
                acks=acks,
                pause_ms=chance.choice(self.shape.pauses_ms),
                timeout_ms=chance.choice((500, 1500, 3000)),
                is_idempotent=self.shape.idempotent[number],
                give_up_seconds=self.shape.give_up_seconds,
                record_bytes=self.shape.record_bytes,
                has_keys=self.shape.is_compacted,
                rest_seconds=self.shape.rest_seconds if number == 0 else 0.0,
            )
            kind = IdempotentProducer if self.shape.idempotent[number] else Producer
            yield plan.name, kind(plan, around, chance).run
        reading = ConsumerPlan("consumer-0", "orders", 100, follower_share=0.3)
        yield reading.name, Consumer(reading, around, chance).run
        if self.group is not None:
            yield from self.group.members(around, chance)

    def _call_client(self, make: NewClient) -> None:
        client = make(self._around(), self.cluster.random)
        self._spawn(f"passing-{len(self.cluster.processes)}", client.run)

    def _spawn(self, name: str, work: Any) -> None:
        machine = self.cluster.new_machine(name)
        number = len(self.cluster.processes)
        process = self.cluster.spawn(name, machine, f"10.2.{number // 250}.{number % 250}")
        process.start(work)


def _number_of(history_name: str) -> int:
    return int(history_name.rpartition("/")[2])


class _Endless(BaseException):
    """Not an Exception: production code that never ends may pass over these."""


@contextmanager
def _bounded() -> Iterator[None]:
    """Also a callback that never ends is a failure with a seed, not a campaign that stands."""

    def stop(*_: object) -> None:
        raise _Endless

    previous = signal.signal(signal.SIGVTALRM, stop)
    # Again and again: the first one may come where nothing can be raised.
    signal.setitimer(signal.ITIMER_VIRTUAL, 2 * MAX_CPU_SECONDS, MAX_CPU_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)


def run_seed(seed: int, safety_seconds: float = SAFETY_SECONDS, profile: str = "") -> RunResult:
    result = Run(RunPlan(seed, safety_seconds, profile=profile)).go()
    gc.collect()  # it was off in the run, whose world is full of cycles
    return result
