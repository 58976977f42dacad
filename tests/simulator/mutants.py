"""Every guard with its removal: a method of production code replaced by a weaker one.

Only in the process of the mutant test, by `setattr`. A mutant that no run notices means that the
faults are too tame or a check is missing, or that the guard guards nothing: each case is work.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from tidemark_broker.replication.effects import TruncateLog
from tidemark_operator.stores.object_store import OutcomeUnknown
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import NO_EPOCH
from tidemark_protocol.partition_state import Member

from tests.simulator.disk import SimulatedLock

Weaken = Callable[[Any], Any]  # the original -> what takes its place

BROKER = "tidemark_broker."
CONTROLLER = "tidemark_operator.controller."


@dataclass(frozen=True, slots=True)
class Patch:
    target: str  # "module:Class.method" or "module:function"
    weaken: Weaken


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str  # what is no longer done
    rule: str  # the guard of invariants.md, or the rule of safety.md
    patches: tuple[Patch, ...]
    # Where the simulated faults cannot reach the guard: why, and the test that notices instead.
    why_not_seen: str = ""
    test: str = ""


def always(value: object) -> Weaken:
    return lambda original: lambda *arguments, **named: value


def always_property(value: object) -> Weaken:
    return lambda original: property(lambda self: value)


def _patch(target: str, weaken: Weaken) -> Patch:
    prefix = "" if target.startswith(("tidemark_", "tests.")) else BROKER
    return Patch(prefix + target, weaken)


def _one(name: str, rule: str, target: str, weaken: Weaken) -> Mutant:
    return Mutant(name, rule, (_patch(target, weaken),))


LEADER = "replication.leader:PartitionLeader."
FOLLOWER = "replication.follower:PartitionFollower."


def _fetches_without_divergence(original: Any) -> Any:
    def next_fetch(self: Any, log: Any, now_ms: int) -> Any:
        fetch = original(self, log, now_ms)
        return None if fetch is None else replace(fetch, last_fetched_epoch=NO_EPOCH)

    return next_fetch


def _truncates_to_watermark(original: Any) -> Any:
    def truncation(self: Any, diverging: Any, log: Any) -> TruncateLog:
        return TruncateLog(min(self.high_watermark, log.log_end_offset))

    return truncation


def _watermark_from_divergence(original: Any) -> Any:
    def on_answer(self: Any, fetch: Any, answer: Any, log: Any, now_ms: int) -> Any:
        effects = original(self, fetch, answer, log, now_ms)
        if answer.diverging_epoch is not None and effects:
            return (*self.on_appended(answer.high_watermark, log.log_end_offset), *effects)
        return effects

    return on_answer


def _admits_any_life(original: Any) -> Any:
    def admitted(member: Member, partition: Any, standings: Any, replica: Any) -> Member | None:
        standing = standings.of(member.broker_id)
        if standing is None or not standings.is_active(member.broker_id, replica):
            return None
        return Member(member.broker_id, standing.broker_epoch)

    return admitted


def _without_compare(original: Any) -> Any:
    """The last writer wins."""

    async def replaced(self: Any, current: Any, wanted: Any) -> Any:
        from tidemark_operator.controller.slices import split_pool
        from tidemark_operator.stores.object_store import PARTITION_SLICE

        namespace, _ = split_pool(current.pool)
        item = await self._store.get(PARTITION_SLICE, namespace, current.name)
        if item is not None:
            version = item["metadata"]["resourceVersion"]
            wanted = replace(wanted, resource_version=version)
        return await original(self, current, wanted)

    return replaced


def _takes_unknown_for_done(original: Any) -> Any:
    """An unknown outcome is taken for what was wanted."""

    async def replaced(self: Any, current: Any, wanted: Any) -> Any:
        try:
            return await original(self, current, wanted)
        except OutcomeUnknown:
            self._unsettled.discard(current.name)
            return self._durable(wanted)

    return replaced


def _forgets_members_on_refusal(original: Any) -> Any:
    """A proposed member is dropped when the controller says no, not when the epoch rises."""

    def on_answer(self: Any, proposal: Any, error: ErrorCode, now_ms: int) -> Any:
        if error is not ErrorCode.NONE and self._pending is not None:
            self._pending = None
            return self._advance_high_watermark(now_ms)
        return original(self, proposal, error, now_ms)

    return on_answer


def _keeps_old_epochs(original: Any) -> Any:
    """An empty epoch is not assigned before the first append (KAFKA-7415)."""
    return lambda self, epoch, start_offset: None


def _locks_nothing(original: Any) -> Any:
    def lock(self: Any, path: Path) -> SimulatedLock:
        return SimulatedLock(self._volume, self._opened(path, True))

    return lock


REPLICATION = (
    _one("fetch of another leader epoch is served", "fetch carries and checks leader epoch",
         LEADER + "_leader_epoch_error", always(ErrorCode.NONE)),
    Mutant("fetch of a former life counts", "fetch carries and checks broker epoch", (
        _patch(LEADER + "_is_former_life", always(False)),
        _patch(LEADER + "_counts_for", always(True)),
        _patch(LEADER + "_is_present_life", always(True)),
    )),
    _one("a fetch of another life counts for the entry", "S2", LEADER + "_counts_for",
         always(True)),
    _one("proposals admit whatever life lives now", "ISR proposal carries broker epochs",
         CONTROLLER + "in_sync_replicas:_admitted", _admits_any_life),
    _one("watermark waits for the applied ISR only", "high watermark waits for maximal ISR",
         LEADER + "_waited_for", lambda original: lambda self: self.state.in_sync_replicas),
    _one("watermark moves below min ISR", "high watermark waits for min.insync.replicas",
         LEADER + "_may_commit", always(True)),
    _one("truncation to the high watermark",
         "truncation asks for the divergence by epoch, not by high watermark",
         FOLLOWER + "_truncation", _truncates_to_watermark),
    _one("no truncation before the first fetch",
         "a follower truncates before it fetches in a new epoch",
         FOLLOWER + "next_fetch", _fetches_without_divergence),
    _one("joins below the watermark", "ISR entry only at or past the leader's high watermark",
         LEADER + "_has_reached_watermark", always(True)),
    _one("joins below the epoch's start", "ISR entry only past the start of its epoch",
         LEADER + "_has_reached_epoch_start", always(True)),
    _one("watermark from a diverging answer", "watermark only from a non-diverging answer",
         FOLLOWER + "on_answer", _watermark_from_divergence),
    _one("acks=all admitted below min ISR",
         "acks=all refused below min ISR before the append",
         LEADER + "has_enough_in_sync_replicas", always_property(True)),
    _one("progress kept over a missed epoch", "S27", LEADER + "_is_next_epoch_of", always(True)),
    _one("older states are applied", "I14", LEADER + "_is_newer", always(True)),
    _one("a member below the watermark stays", "S7", LEADER + "_is_below_watermark",
         always(False)),
)  # fmt: skip

CONTROLLER_MUTANTS = (
    _one("the last writer wins", "compare-and-set on the slice",
         CONTROLLER + "slice_store:SliceStore._replace", _without_compare),
    _one("an unknown outcome is taken for done", "unknown write outcome settled by a quorum read",
         CONTROLLER + "slice_store:SliceStore._replace", _takes_unknown_for_done),
    Mutant("a refusal raises no epoch", "refused expand raises the partition epoch", (
        _patch(CONTROLLER + "in_sync_replicas:raised", lambda original: lambda state: state),
        _patch(LEADER + "on_answer", _forgets_members_on_refusal),
    )),
    _one("every start counts as clean", "unclean restart voids its entries",
         CONTROLLER + "registration:is_clean_start", always(True)),
    _one("lost replicas keep their entries", "S9, empty disk never rejoins as ISR",
         CONTROLLER + "registration:lost_replicas", always(frozenset())),
    _one("void entries are valid", "S2",
         CONTROLLER + "standing:Standings.is_valid", always(True)),
)  # fmt: skip

STORAGE = (
    _one("two processes on one volume", "directory lock",
         "tests.simulator.disk:SimulatedDisk.lock", _locks_nothing),
    _one("a failed append is left behind", "failed append rolled back",
         "storage.partition_log:PartitionLog._take_back", always(None)),
    _one("an empty epoch is forgotten", "I5, KAFKA-7415",
         "storage.partition_log:PartitionLog.assign_epoch", _keeps_old_epochs),
)  # fmt: skip

MUTANTS = REPLICATION + CONTROLLER_MUTANTS + STORAGE


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """While inside, production code is as the mutant says."""
    undone: list[tuple[Any, str, Any]] = []
    try:
        for patch in mutant.patches:
            owner, name = _owner_of(patch.target)
            original = vars(owner)[name]
            undone.append((owner, name, original))
            is_class_level = isinstance(original, staticmethod | classmethod)
            given = original.__func__ if is_class_level else original
            weaker = patch.weaken(given)
            if is_class_level:
                weaker = type(original)(weaker)
            setattr(owner, name, weaker)
        yield
    finally:
        for owner, name, original in reversed(undone):
            setattr(owner, name, original)


def _owner_of(target: str) -> tuple[Any, str]:
    module, _, path = target.partition(":")
    owner: Any = import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    return owner, name
