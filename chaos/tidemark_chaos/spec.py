"""Read an experiment: one object of the kind ChaosExperiment, checked before anything is hurt.

The structs are the object's schema; `parse_experiment` also checks what a schema cannot say
(overlapping faults, targets that cannot exist, faults that never end) and returns every problem as
a sentence with its place. Pure: what an environment cannot do is checked there.
"""

import difflib
import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from tidemark_protocol.manifests import UnreadableManifest, read_objects

from tidemark_chaos.spec_fields import Problem, readable_fields

API_VERSION = "tidemark.dev/v1alpha1"
KIND = "ChaosExperiment"
DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?")
RESTART_SECONDS = 6.0  # how long a killed broker counts as away, for the check of overlaps
NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
MAX_PLANNED = 10_000
MAX_FAULTS = 100
MAX_SECONDS = 7 * 86_400.0


class FaultName(StrEnum):
    KILL = "kill"
    KILL_TWICE = "kill-twice"
    TERMINATE = "terminate"
    PAUSE = "pause"
    ROLLING_RESTART = "rolling-restart"
    POD_DELETE = "pod-delete"
    NODE_DOWN = "node-down"
    NETWORK_CUT = "network-cut"
    NETWORK_DELAY = "network-delay"
    NETWORK_LOSS = "network-loss"
    BANDWIDTH = "bandwidth"
    DISK_FULL = "disk-full"
    DISK_SLOW = "disk-slow"
    DISK_ERROR = "disk-error"
    CLOCK_JUMP = "clock-jump"
    API_SERVER_OUTAGE = "api-server-outage"


class Party(StrEnum):
    """Whom a broker is disconnected from."""

    PEERS = "peers"
    CONTROLLER = "controller"


class Direction(StrEnum):
    BOTH = "both"
    OUT = "out"  # what the broker sends
    IN = "in"


class Role(StrEnum):
    LEADER = "leader"
    FOLLOWER = "follower"
    CONTROLLER = "controller"
    RANDOM = "random"
    ALL = "all"


# Faults that last until they are ended: `for` says when.
LASTING = frozenset(FaultName) - {
    FaultName.KILL,
    FaultName.KILL_TWICE,
    FaultName.TERMINATE,
    FaultName.ROLLING_RESTART,
    FaultName.POD_DELETE,
}
OF_THE_CONTROLLER = frozenset(
    {FaultName.KILL, FaultName.TERMINATE, FaultName.PAUSE, FaultName.API_SERVER_OUTAGE}
)
OF_THE_NETWORK = frozenset(
    {
        FaultName.NETWORK_CUT,
        FaultName.NETWORK_DELAY,
        FaultName.NETWORK_LOSS,
        FaultName.BANDWIDTH,
    }
)
OF_THE_DISK = frozenset({FaultName.DISK_FULL, FaultName.DISK_SLOW, FaultName.DISK_ERROR})
# After these the broker starts again, as after a kill.
RESTARTED_AFTER = frozenset({FaultName.NODE_DOWN, FaultName.DISK_ERROR})

Positive = Annotated[int, Meta(ge=1)]


class _Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    pass


class Target(_Struct, frozen=True):
    """Brokers by role; they are chosen when the fault begins."""

    role: Role = Role.LEADER
    topic: str = ""  # the workload's
    partition: Annotated[int, Meta(ge=0)] | None = None  # None: drawn from the seed
    count: Positive = 1  # of followers, or of random brokers


class FaultSpec(_Struct, frozen=True):
    kind: FaultName
    target: Target = Target()
    at: str | None = None  # since the first moment of the faults
    every: str | None = None
    for_: str | None = msgspec.field(default=None, name="for")
    from_: tuple[Party, ...] = msgspec.field(default=tuple(Party), name="from")  # network only
    direction: Direction = Direction.BOTH  # network only
    delay: str | None = None  # network-delay and disk-slow only
    loss: Annotated[float, Meta(gt=0, le=0.9)] | None = None  # network-loss only
    bytes_per_second: Positive | None = None  # bandwidth only

    @property
    def delay_seconds(self) -> float:
        return 0.0 if self.delay is None else seconds(self.delay)

    @property
    def for_seconds(self) -> float:
        return 0.0 if self.for_ is None else seconds(self.for_)

    @property
    def away_seconds(self) -> float:
        """Return how long its brokers count as away, at least."""
        if self.kind in LASTING:
            restart = RESTART_SECONDS if self.kind in RESTARTED_AFTER else 0.0
            return self.for_seconds + restart
        each = RESTART_SECONDS * (2 if self.kind is FaultName.KILL_TWICE else 1)
        return each * 4 if self.kind is FaultName.ROLLING_RESTART else each


class Workload(_Struct, frozen=True):
    topic: Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")] = "chaos"
    partitions: Annotated[int, Meta(ge=1, le=100)] = 3
    replication_factor: Annotated[int, Meta(ge=1, le=9)] = 3
    config: dict[str, str] = {}
    acks: Literal["all", "1", "mixed"] = "all"
    idempotence: bool = True
    producers: Annotated[int, Meta(ge=1, le=1000)] = 32  # of a partition: its records in flight
    consumers: Annotated[int, Meta(ge=1, le=9)] = 2  # of a partition: all but one near a rack
    group_consumers: Annotated[int, Meta(ge=0, le=9)] = 0  # members of one consumer group
    records_per_second: Annotated[float, Meta(gt=0, le=1000)] = 100.0  # of a partition


class SteadyState(_Struct, frozen=True):
    """What has to hold before the first fault."""

    for_: str = msgspec.field(default="3s", name="for")
    within: str = "60s"
    min_rate: Annotated[float, Meta(gt=0, le=1)] = 0.5  # acknowledged, as a part of what is sent


class AbortWhen(_Struct, frozen=True):
    write_gap_seconds: Annotated[float, Meta(gt=0)] = 60.0
    violations: Positive = 1  # that the workload or the online check saw


class Guards(_Struct, frozen=True):
    min_in_sync: Annotated[int, Meta(ge=0)] = 1
    for_seconds: Annotated[float, Meta(gt=0)] = 30.0
    max_brokers_at_once: Positive = 1
    abort_when: AbortWhen = AbortWhen()


class ExperimentSpec(_Struct, frozen=True):
    faults: Annotated[tuple[FaultSpec, ...], Meta(max_length=MAX_FAULTS)]
    pool: str = "default"
    seed: Annotated[int, Meta(ge=0)] = 1
    duration: str | None = None
    rounds: Annotated[int, Meta(ge=1, le=MAX_PLANNED)] | None = None
    order: Literal["file", "random"] = "file"
    quiet: str = "2s"  # load without a fault before each fault that has no time of its own
    recover_within: str = "90s"
    workload: Workload = Workload()
    steady_state: SteadyState = SteadyState()
    guards: Guards = Guards()

    @property
    def is_timed(self) -> bool:
        """Return whether each fault has its time, else they are played one after the other."""
        return any(fault.at is not None or fault.every is not None for fault in self.faults)

    @property
    def duration_seconds(self) -> float | None:
        return None if self.duration is None else seconds(self.duration)


class Metadata(msgspec.Struct, frozen=True):
    """Other fields of Kubernetes' metadata are let through."""

    name: Annotated[str, Meta(pattern=NAME, max_length=253)]
    namespace: str = "default"


class ChaosExperiment(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    metadata: Metadata
    spec: ExperimentSpec


class InvalidExperiment(Exception):
    """An error that holds a sentence for each problem of an experiment.

    `spec` is what could be read, for the checks of an environment: defaults stand for the rest.
    """

    def __init__(self, problems: Sequence[str], spec: ExperimentSpec | None = None) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)
        self.spec = spec


def seconds(text: str) -> float:
    """Return the seconds of a duration such as 1h, 1m30s or 500ms. Raises ValueError."""
    match = DURATION.fullmatch(text)
    if match is None or not text:
        raise ValueError(text)
    hours, minutes, rest, milliseconds = (float(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + rest + milliseconds / 1000


def parse_experiment(text: str) -> ChaosExperiment:
    """Return the experiment of a file. Raises InvalidExperiment."""
    try:
        documents = read_objects(text)
    except UnreadableManifest as error:
        raise InvalidExperiment([str(error)]) from error
    if len(documents) != 1 or not isinstance(documents[0], dict):
        found = f"{len(documents)} documents" if len(documents) != 1 else f"{documents[0]!r:.80}"
        raise InvalidExperiment([f"expected one object of kind {KIND}, found {found}"])
    document = documents[0]
    if (document.get("apiVersion"), document.get("kind")) != (API_VERSION, KIND):
        found = f"{document.get('apiVersion')} {document.get('kind')}"
        raise InvalidExperiment([f"expected apiVersion {API_VERSION}, kind {KIND}; found {found}"])
    return _experiment_of(document)


def with_duration(experiment: ChaosExperiment, duration: str) -> ChaosExperiment:
    """Return the experiment with another duration, or with one instead of rounds.

    Raises InvalidExperiment.
    """
    spec = msgspec.structs.replace(experiment.spec, duration=duration, rounds=None)
    if problems := list(_problems_of(spec, list(range(len(spec.faults))), set())):
        raise InvalidExperiment(problems)
    return msgspec.structs.replace(experiment, spec=spec)


def _experiment_of(document: dict[str, Any]) -> ChaosExperiment:
    """Return the experiment of an object. Raises InvalidExperiment with all of its problems."""
    named = list(_unknown_names(document))
    readable, unreadable = readable_fields(document, ChaosExperiment, "")
    places = {problem.place for problem in named}
    wrong = [*named, *(problem for problem in unreadable if problem.place not in places)]
    spec, read = _with_stand_ins(readable)
    problems = [problem.sentence for problem in wrong]
    problems += _problems_of(spec, read, {problem.place for problem in wrong})
    if problems:
        raise InvalidExperiment(problems, spec)
    return msgspec.convert(document, ChaosExperiment)


def _with_stand_ins(readable: dict[str, Any]) -> tuple[ExperimentSpec, list[int]]:
    """Return the readable part of an experiment, and the numbers of the faults in it.

    Each other fault is a kill there.
    """
    fields = readable.get("spec", {})
    found = fields.get("faults", ())
    faults = [{"kind": FaultName.KILL} if fault is None else fault for fault in found]
    spec = msgspec.convert({**fields, "faults": faults}, ExperimentSpec)
    return spec, [number for number, fault in enumerate(found) if fault is not None]


def _problems_of(spec: ExperimentSpec, read: list[int], unreadable: set[str]) -> Iterator[str]:
    """Yield the problems of what could be read; what depends on the rest is not checked."""
    for problem in _unreadable_durations(spec):
        yield problem.sentence
        unreadable.add(problem.place)

    def is_read(*places: str) -> bool:
        return not any(
            f"{place}.".startswith(f"{other}.") or other.startswith((f"{place}.", f"{place}["))
            for place in places
            for other in unreadable
        )

    if not spec.faults and is_read("spec.faults"):
        yield "spec.faults: expected at least one fault, found none"
    has_bounds = is_read("spec.workload", "spec.guards")
    if has_bounds:
        yield from _workload_problems(spec)
    for number in read:
        sentences = list(_fault_problems(spec.faults[number]))
        if has_bounds:
            sentences += _target_problems(spec, spec.faults[number])
        yield from (f"spec.faults[{number}]: {sentence}" for sentence in sentences)
    if is_read("spec.duration", "spec.rounds"):
        timed = [number for number in read if is_read(f"spec.faults[{number}]")]
        timing = list(_timing_problems(spec, timed))
        yield from timing
        if spec.is_timed and not timing and has_bounds:
            yield from _overlaps(spec, timed)


def _unknown_names(document: dict[str, Any]) -> Iterator[Problem]:
    """Yield a problem for each kind and role that does not exist, with the nearest that does."""
    spec = document.get("spec")
    faults = spec.get("faults") if isinstance(spec, dict) else None
    for number, fault in enumerate(faults if isinstance(faults, list) else ()):
        place = f"spec.faults[{number}]"
        if not isinstance(fault, dict):
            text = f"{place}: expected an object with kind and target, found {fault!r:.60}"
            yield Problem(place, text)
            continue
        yield from _unless_named(f"{place}.kind", "kind", fault.get("kind"), FaultName)
        target = fault.get("target")
        if isinstance(target, dict) and "role" in target:
            yield from _unless_named(f"{place}.target.role", "role", target["role"], Role)


def _unless_named(place: str, what: str, found: object, names: type[StrEnum]) -> Iterator[Problem]:
    known = [name.value for name in names]
    if found in known:
        return
    near = difflib.get_close_matches(str(found), known, n=1)
    hint = f", did you mean {near[0]}?" if near else ";"
    text = f"{place}: unknown {what} {found!r:.60}{hint} choose from {', '.join(known)}"
    yield Problem(place, text)


def _unreadable_durations(spec: ExperimentSpec) -> Iterator[Problem]:
    values: list[tuple[str, str | None, bool]] = [
        ("spec.duration", spec.duration, True),
        ("spec.quiet", spec.quiet, False),
        ("spec.recoverWithin", spec.recover_within, True),
        ("spec.steadyState.for", spec.steady_state.for_, True),
        ("spec.steadyState.within", spec.steady_state.within, True),
    ]
    for number, fault in enumerate(spec.faults):
        place = f"spec.faults[{number}]"
        values += [
            (f"{place}.at", fault.at, False),
            (f"{place}.every", fault.every, True),
            (f"{place}.for", fault.for_, True),
            (f"{place}.delay", fault.delay, True),
        ]
    for place, text, is_positive in values:
        if text is None:
            continue
        try:
            found = seconds(text)
        except ValueError:
            wanted = "expected a duration such as 90s, 1m30s or 500ms"
            yield Problem(place, f"{place}: {wanted}, found {text!r:.60}")
            continue
        if (is_positive and found <= 0) or found > MAX_SECONDS:
            wanted = "expected a duration above 0 and up to 168h"
            yield Problem(place, f"{place}: {wanted}, found {text!r:.60}")


def _workload_problems(spec: ExperimentSpec) -> Iterator[str]:
    workload = spec.workload
    if workload.acks == "mixed" and not workload.idempotence:
        yield "spec.workload: acks mixed has idempotent producers too; remove idempotence: false"
    if workload.idempotence and workload.acks == "1":
        yield (
            "spec.workload: an idempotent producer needs acks all; set acks: all or idempotence:"
            f" false, found acks: {workload.acks}"
        )
    if spec.guards.min_in_sync > workload.replication_factor:
        yield (
            f"spec.guards.minInSync: {spec.guards.min_in_sync} replicas can never be in sync,"
            f" because replicationFactor is {workload.replication_factor}"
        )


def _fault_problems(fault: FaultSpec) -> Iterator[str]:
    if fault.kind in LASTING and fault.for_ is None:
        yield f"{fault.kind} without a time cannot be undone, because it never ends: add for"
    if fault.kind not in LASTING and fault.for_ is not None:
        yield f"{fault.kind} happens once, brokers start again by themselves: remove for"
    yield from _option_problems(fault)
    if fault.target.role is Role.CONTROLLER and fault.kind not in OF_THE_CONTROLLER:
        yield f"{fault.kind} cannot be done to the controller; choose kill, terminate or pause"
    if fault.kind is FaultName.API_SERVER_OUTAGE and fault.target.role is not Role.CONTROLLER:
        yield f"{fault.kind} strikes no broker; set target.role to controller"


def _target_problems(spec: ExperimentSpec, fault: FaultSpec) -> Iterator[str]:
    target, workload = fault.target, spec.workload
    if target.topic not in ("", workload.topic):
        yield (
            f"target.topic: {target.topic!r} does not exist in this experiment, whose topic is"
            f" {workload.topic!r}"
        )
    if target.partition is not None and target.partition >= workload.partitions:
        yield (
            f"target.partition: partition {target.partition} does not exist, {workload.topic!r} has"
            f" 0 to {workload.partitions - 1}"
        )
    if target.role in (Role.CONTROLLER, Role.ALL, Role.RANDOM) and target.partition is not None:
        yield f"target.partition: the role {target.role} is not of a partition; remove it"
    if target.role is Role.FOLLOWER and target.count >= workload.replication_factor:
        yield (
            f"target.count: a partition with replicationFactor {workload.replication_factor} has"
            f" {workload.replication_factor - 1} followers, not {target.count}"
        )
    if target.role not in (Role.FOLLOWER, Role.RANDOM) and target.count != 1:
        yield f"target.count: the role {target.role} has no count; remove it"
    elif target.count > spec.guards.max_brokers_at_once:
        yield (
            f"target.count: {target.count} brokers at the same time are more than"
            f" guards.maxBrokersAtOnce: {spec.guards.max_brokers_at_once}"
        )


def _option_problems(fault: FaultSpec) -> Iterator[str]:
    is_default = fault.from_ == tuple(Party) and fault.direction is Direction.BOTH
    if fault.kind not in OF_THE_NETWORK and not is_default:
        yield f"{fault.kind} has no from and no direction; remove them"
    if not fault.from_ or len(set(fault.from_)) != len(fault.from_):
        yield f"from: expected one or each of {', '.join(Party)}"
    if (fault.delay is None) == (fault.kind in (FaultName.NETWORK_DELAY, FaultName.DISK_SLOW)):
        yield "delay: expected with kind network-delay or disk-slow, and only there"
    if (fault.loss is None) == (fault.kind is FaultName.NETWORK_LOSS):
        yield "loss: expected with kind network-loss, and only there"
    if (fault.bytes_per_second is None) == (fault.kind is FaultName.BANDWIDTH):
        yield "bytesPerSecond: expected with kind bandwidth, and only there"


def _timing_problems(spec: ExperimentSpec, faults: Sequence[int]) -> Iterator[str]:
    """Yield problems with the times of these faults, given by their numbers."""
    if (spec.duration is None) == (spec.rounds is None):
        yield "spec: expected either duration or rounds"
        return
    if not spec.is_timed:
        return
    duration = spec.duration_seconds
    if duration is None:
        yield "spec.rounds: faults with at or every have their own times; use duration"
        return
    planned = 0.0
    for number in faults:
        fault, place = spec.faults[number], f"spec.faults[{number}]"
        if (fault.at is None) == (fault.every is None):
            yield f"{place}: expected either at or every, because other faults have a time too"
            continue
        first = seconds(fault.at or fault.every or "0s")
        planned += 1 if fault.every is None else duration / first
        if first + fault.away_seconds > duration:
            yield (
                f"{place}: it would last until {first + fault.away_seconds:g} s, but the experiment"
                f" ends after {duration:g} s"
            )
    if planned > MAX_PLANNED:
        yield f"spec.faults: expected at most {MAX_PLANNED} planned faults, found {planned:.0f}"


def windows(
    spec: ExperimentSpec, faults: Sequence[int] | None = None
) -> list[tuple[float, float, int]]:
    """Return begin and end of each fault that has a time, with its place in the file."""
    duration = spec.duration_seconds or 0.0
    found = []
    for number in range(len(spec.faults)) if faults is None else faults:
        fault = spec.faults[number]
        begins = [seconds(fault.at)] if fault.at is not None else _repeated(fault, duration)
        found += [(begin, begin + fault.away_seconds, number) for begin in begins]
    return sorted(found)


def _repeated(fault: FaultSpec, duration: float) -> list[float]:
    step = seconds(fault.every or "0s")
    count = int((duration - fault.away_seconds) / step + 1e-9)
    return [step * number for number in range(1, count + 1)]


def _overlaps(spec: ExperimentSpec, faults: Sequence[int]) -> Iterator[str]:
    """Yield a problem for each pair of faults that together strike too many brokers at once."""
    limit = spec.guards.max_brokers_at_once
    active: list[tuple[float, float, int]] = []
    told: set[tuple[int, int]] = set()
    for begin, end, number in windows(spec, faults):
        active = [entry for entry in active if entry[1] > begin]
        at_once = sum(_brokers(spec.faults[entry[2]]) for entry in active)
        own = _brokers(spec.faults[number])
        if at_once and own and at_once + own > limit:
            other = next(entry for entry in active if _brokers(spec.faults[entry[2]]))
            if (other[2], number) not in told:
                told.add((other[2], number))
                yield (
                    f"spec.faults[{number}]: at {begin:g} s it overlaps with faults[{other[2]}], "
                    f"which lasts from {other[0]:g} s to {other[1]:g} s; guards.maxBrokersAtOnce"
                    f" is {limit}"
                )
        active.append((begin, end, number))


def _brokers(fault: FaultSpec) -> int:
    if fault.target.role is Role.CONTROLLER:
        return 0
    return 1_000 if fault.target.role is Role.ALL else fault.target.count


def topic_manifest(
    workload: Workload, *, deletion_policy: Literal["Retain", "Delete"] = "Retain"
) -> str:
    """Return the manifest of the workload's Topic."""
    topic = {
        "apiVersion": API_VERSION,
        "kind": "Topic",
        "metadata": {"name": workload.topic},
        "spec": {
            "partitions": workload.partitions,
            "replicationFactor": workload.replication_factor,
            "deletionPolicy": deletion_policy,
            "config": dict(workload.config),
        },
    }
    return msgspec.json.encode(topic).decode()  # JSON is YAML
