"""Plan what is due for a Topic, from the complete observation, never from an event.

A topic's id is the UID of the object that first had its data. A Topic whose name has retained data
adopts it: the id is recorded in its status first, so that a crash in between can never make the
adopted data look like that of a deleted Topic. If in doubt: a condition, no action.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tidemark_protocol.ids import BrokerId, TopicId
from tidemark_protocol.partition_state import TopicState

from tidemark_operator.api.broker_pool import DEFAULT_POOL
from tidemark_operator.api.elect_annotation import LeaderChoice
from tidemark_operator.api.topic import Topic, TopicSpec
from tidemark_operator.controller.core.placement import place
from tidemark_operator.controller.core.reassignment import is_moving
from tidemark_operator.controller.core.unclean_recovery import is_chosen
from tidemark_operator.controller.core.views import TopicView
from tidemark_operator.reconcile.conditions import Condition
from tidemark_operator.reconcile.topic.conditions import listing, ready_conditions
from tidemark_operator.reconcile.topic.plan_placement import (
    BrokerPlacement,
    any_misplaced,
    pinned_condition,
    wanted_moves,
)

Assignments = tuple[tuple[BrokerId, ...], ...]


@dataclass(frozen=True, slots=True)
class PreviousTopic:
    """Slices of this topicName in this pool whose Topic object is confirmed gone."""

    topic: TopicState
    is_retained: bool
    deletion_policy: str  # the slices' own copy


@dataclass(frozen=True, slots=True)
class ObservedTopic:
    topic: Topic
    recorded_topic_id: TopicId | None  # status.topicId: slices were made or adopted once
    view: TopicView | None  # of the recorded id, else of the object's UID
    # The rest is looked at only while there is no view to serve.
    name_owner: str | None = None  # object name of the Topic that has the topicName
    previous: PreviousTopic | None = None
    pool_replicas: int | None = None  # None: no such pool
    active_brokers: frozenset[BrokerId] = frozenset()
    racks: Mapping[BrokerId, str] = field(default_factory=dict)  # of brokers that ever registered
    pool_has_racks: bool = False
    leaving: frozenset[BrokerId] = frozenset()  # brokers that are to be emptied

    @property
    def spec(self) -> TopicSpec:
        return self.topic.spec

    @property
    def usable_brokers(self) -> tuple[BrokerId, ...]:
        """Return the manifest's brokers for placement, alive or not."""
        numbers = map(BrokerId, range(self.pool_replicas or 0))
        return tuple(number for number in numbers if number not in self.leaving)

    @property
    def topic_id(self) -> TopicId:
        return self.recorded_topic_id or TopicId(self.topic.metadata.uid)


@dataclass(frozen=True, slots=True)
class CreatePool:
    at_least_replicas: int


@dataclass(frozen=True, slots=True)
class RecordTopicId:
    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class CreateTopic:
    topic: TopicState
    assignments: Assignments
    had_slices: bool


@dataclass(frozen=True, slots=True)
class AddPartitions:
    topic_id: TopicId
    first: int
    assignments: Assignments  # of the new ones only


@dataclass(frozen=True, slots=True)
class UpdateTopic:
    topic: TopicState


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    topic_id: TopicId
    retain: bool


@dataclass(frozen=True, slots=True)
class ChooseLeaders:
    topic_id: TopicId
    choices: tuple[LeaderChoice, ...]


@dataclass(frozen=True, slots=True)
class Reassign:
    topic_id: TopicId
    targets: dict[int, tuple[BrokerId, ...]]  # by partition


TopicAction = (
    CreatePool
    | RecordTopicId
    | CreateTopic
    | AddPartitions
    | UpdateTopic
    | DeleteTopic
    | ChooseLeaders
    | Reassign
)


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A plan of at most one action, after which everything is observed again.

    `is_waiting` if it waits for brokers.
    """

    action: TopicAction | None
    conditions: tuple[Condition, ...]
    is_waiting: bool = False


def topic_state(spec: TopicSpec, topic_id: TopicId) -> TopicState:
    return TopicState(
        topic=spec.topic_name,
        topic_id=topic_id,
        partition_count=spec.partitions,
        replication_factor=spec.replication_factor,
        commit_rule=spec.commit_rule,
        flush=spec.flush,
        config=spec.config,
    )


def plan_topic(observed: ObservedTopic) -> TopicPlan:
    plan, fault = _plan(observed), observed.topic.choices_fault
    if not fault:
        return plan
    reported = Condition("Attention", True, "SeeMessage", fault)
    return replace(plan, conditions=(*plan.conditions, reported))


def _plan(observed: ObservedTopic) -> TopicPlan:
    if observed.view is None:
        return _plan_new(observed)
    if observed.view.is_retained:
        return _plan_adoption(observed, observed.view.topic)
    return _plan_existing(observed, observed.view)


def _plan_new(observed: ObservedTopic) -> TopicPlan:
    spec = observed.spec
    if observed.name_owner is not None:
        return _not_ready(
            "TopicNameTaken",
            f'topicName "{spec.topic_name}" in pool {spec.pool_name} belongs to the older'
            f" Topic {observed.name_owner}: choose another topicName, or delete one of the two",
        )
    previous = observed.previous
    if previous is not None and not previous.is_retained:
        # I20: what the manifest that is gone asked for happens first.
        retain = previous.deletion_policy != "Delete"
        return _doing(
            DeleteTopic(previous.topic.topic_id, retain),
            "Deleting",
            "deleting data of the earlier topic",
        )
    if previous is not None and observed.recorded_topic_id is None:
        mismatch = _retained_mismatch(spec, previous.topic)
        if mismatch is not None:
            return mismatch
        return _doing(RecordTopicId(previous.topic.topic_id), "Adopting", "adopting retained data")
    return _plan_placement(observed)


def _plan_placement(observed: ObservedTopic) -> TopicPlan:
    spec = observed.spec
    if observed.pool_replicas is None and spec.pool_name == DEFAULT_POOL:
        return _doing(
            CreatePool(spec.replication_factor), "MakingPool", f"creating BrokerPool {DEFAULT_POOL}"
        )
    if observed.pool_replicas is None:
        return _not_ready(
            "BrokerPoolNotFound",
            f"BrokerPool {spec.pool_name} not found in namespace {observed.topic.namespace}: create"
            f' it, or set the Topic\'s brokerPool to "{DEFAULT_POOL}", which is created'
            " automatically",
        )
    too_few = _too_few_brokers(observed)
    if too_few is not None:
        return too_few
    waiting = _waiting_for_racks(observed, observed.pool_replicas)
    if waiting is not None:
        return waiting
    assignments = _assignments(observed, first=0)
    waiting = _waiting(spec, assignments, observed.active_brokers)
    if waiting is not None:
        return waiting
    state = topic_state(spec, observed.topic_id)
    return _doing(
        CreateTopic(state, assignments, had_slices=observed.recorded_topic_id is not None),
        "Creating",
        "placing partitions",
    )


def _plan_adoption(observed: ObservedTopic, retained: TopicState) -> TopicPlan:
    """Adopt slices whose id is recorded; partitions are added afterwards."""
    spec = observed.spec
    mismatch = _retained_mismatch(spec, retained)
    if mismatch is not None:
        return mismatch
    if observed.pool_replicas is None:
        return _plan_placement(observed)  # the pool first
    too_few = _too_few_brokers(observed)
    if too_few is not None:
        return too_few
    state = topic_state(spec, retained.topic_id)
    assignments = _assignments(observed, first=0)
    return _doing(
        CreateTopic(state, assignments, had_slices=True), "Adopting", "adopting retained data"
    )


def _plan_existing(observed: ObservedTopic, view: TopicView) -> TopicPlan:
    spec = observed.spec
    if view.missing_slices:
        names = ", ".join(view.missing_slices)
        return _not_ready(
            "SliceMissing",
            f"PartitionSlice objects {names} are missing, and only they state where the"
            " records are: restore them from a backup, or delete the Topic",
        )
    mismatch = _fixed_mismatch(spec, view.topic)
    if mismatch is not None:
        return mismatch
    choices = _new_choices(observed.topic, view)
    if choices:
        return TopicPlan(ChooseLeaders(view.topic.topic_id, choices), ready_conditions(view))
    if spec.partitions > view.topic.partition_count:
        growth = _plan_growth(observed, view)
        if growth.action is not None:
            return growth
        return _waiting_to_grow(observed, view, growth)
    return _plan_changes(observed, view)


def _plan_changes(observed: ObservedTopic, view: TopicView) -> TopicPlan:
    """Plan changes of the existing partitions."""
    spec = observed.spec
    wanted = _wanted_state(spec, view)
    if wanted != view.topic or view.deletion_policy != spec.deletion_policy:
        return TopicPlan(UpdateTopic(wanted), ready_conditions(view))
    return _plan_reassignment(observed, view)


def _wanted_state(spec: TopicSpec, view: TopicView) -> TopicState:
    """Return the wanted state; more replicas count for min ISR once they exist.

    Fewer replicas count before they are removed.
    """
    wanted = topic_state(spec, view.topic.topic_id)
    wanted = replace(wanted, partition_count=view.topic.partition_count)
    stored = view.topic.replication_factor
    if spec.replication_factor > stored and any(
        is_moving(state) or len(state.replicas) < spec.replication_factor
        for state in view.partitions
    ):
        return replace(wanted, replication_factor=stored)
    return wanted


def _plan_reassignment(observed: ObservedTopic, view: TopicView) -> TopicPlan:
    spec = observed.spec
    conditions = (*ready_conditions(view), *pinned_condition(spec, observed.leaving))
    if observed.pool_replicas is None:
        return TopicPlan(None, conditions)  # everything is where it should be
    too_few = _too_few_brokers(observed)
    if too_few is not None:
        stuck = replace(too_few.conditions[0], type="Placed")
        return TopicPlan(None, (*conditions, stuck), is_waiting=True)
    places = BrokerPlacement(
        observed.usable_brokers, observed.leaving, observed.active_brokers, observed.racks
    )
    moves = wanted_moves(spec, view, places)
    if moves:
        return TopicPlan(Reassign(view.topic.topic_id, moves), conditions)
    return TopicPlan(None, conditions, is_waiting=any_misplaced(spec, view, observed.leaving))


def _new_choices(topic: Topic, view: TopicView) -> tuple[LeaderChoice, ...]:
    """Return the leader choices that apply now and that the controller does not have yet."""
    states = {state.partition: state for state in view.partitions}
    return tuple(
        choice
        for choice in topic.choices
        if choice not in view.choices
        and choice.partition in states
        and is_chosen(choice, states[choice.partition])
        and choice.leader in states[choice.partition].replicas
    )


def _plan_growth(observed: ObservedTopic, view: TopicView) -> TopicPlan:
    spec = observed.spec
    if observed.pool_replicas is None:
        return _not_ready("BrokerPoolNotFound", f"BrokerPool {spec.pool_name} was deleted")
    too_few = _too_few_brokers(observed)
    if too_few is not None:
        return too_few
    waiting = _waiting_for_racks(observed, observed.pool_replicas)
    if waiting is not None:
        return waiting
    first = view.topic.partition_count
    assignments = _assignments(observed, first=first)
    waiting = _waiting(spec, assignments, observed.active_brokers)
    if waiting is not None:
        return waiting
    return TopicPlan(AddPartitions(view.topic.topic_id, first, assignments), ready_conditions(view))


def _waiting_to_grow(observed: ObservedTopic, view: TopicView, growth: TopicPlan) -> TopicPlan:
    """Plan changes of the existing partitions, and say why others are not created."""
    plan = _plan_changes(observed, view)
    missing = listing(list(range(view.topic.partition_count, observed.spec.partitions)))
    reported = (
        replace(condition, message=f"{missing} are not created yet: {condition.message}")
        for condition in growth.conditions
    )
    others = (each for each in plan.conditions if each.type != "Ready" or not each.is_true)
    return TopicPlan(plan.action, (*reported, *others), is_waiting=True)


def _too_few_brokers(observed: ObservedTopic) -> TopicPlan | None:
    """Return a plan that waits, or None if enough brokers stay for a partition's replicas."""
    spec, replicas, usable = observed.spec, observed.pool_replicas or 0, observed.usable_brokers
    missing = spec.replication_factor - len(usable)
    if missing <= 0:
        return None
    drained = [str(number) for number in sorted(observed.leaving) if number < replicas]
    beside = f" besides the brokers to drain ({', '.join(drained[:20])})" if drained else ""
    other_way = (
        "remove brokers from its spec.drain"
        if drained
        else f"create the Topic with replicationFactor {len(usable)}"
    )
    return _not_ready(
        "NotEnoughBrokers",
        f"replicationFactor {spec.replication_factor} needs {spec.replication_factor}"
        f" brokers, BrokerPool {spec.pool_name} has {len(usable)}{beside}: set its"
        f" spec.replicas to at least {replicas + missing}, or {other_way}",
    )


def _assignments(observed: ObservedTopic, *, first: int) -> Assignments:
    """Return assignments of partitions from `first` on, by spec.placement or the formula.

    The formula uses broker ids, not live brokers, so the result is always the same.
    """
    spec = observed.spec
    placed = place(
        spec.partitions - first,
        spec.replication_factor,
        observed.usable_brokers,
        first_partition=first,
        racks=observed.racks,
    )
    usable = set(observed.usable_brokers)
    requested = [spec.placement.get(number) for number in range(first, spec.partitions)]
    return tuple(
        wanted if wanted is not None and usable.issuperset(wanted) else replicas
        for wanted, replicas in zip(requested, placed, strict=True)
    )


def _waiting_for_racks(observed: ObservedTopic, pool_replicas: int) -> TopicPlan | None:
    """Return a plan that waits until all racks are known, or None.

    A broker's rack is known from its first registration on, and replicas do not move afterwards.
    """
    if not observed.pool_has_racks:
        return None
    unknown = [str(number) for number in range(pool_replicas) if number not in observed.racks]
    if not unknown:
        return None
    plan = _not_ready(
        "WaitingForBrokers",
        f"waiting for the first registration of brokers {', '.join(unknown[:20])} of pool"
        f" {observed.spec.pool_name}, which tells their racks",
    )
    return TopicPlan(None, plan.conditions, is_waiting=True)


def _waiting(
    spec: TopicSpec, assignments: Assignments, active_brokers: frozenset[BrokerId]
) -> TopicPlan | None:
    """Return a plan that waits for brokers, or None.

    Each partition starts with at least min.insync.replicas active brokers, so that its first
    acks=all record can be acknowledged.
    """
    if all(
        sum(broker_id in active_brokers for broker_id in replicas) >= spec.min_insync_replicas
        for replicas in assignments
    ):
        return None
    needed = sorted({broker_id for replicas in assignments for broker_id in replicas})
    missing = [str(broker_id) for broker_id in needed if broker_id not in active_brokers]
    plan = _not_ready(
        "WaitingForBrokers",
        f"{len(needed) - len(missing)} of {len(needed)} brokers of pool {spec.pool_name} are "
        f"active; not active: {', '.join(missing[:20])}",
    )
    return TopicPlan(None, plan.conditions, is_waiting=True)


def _retained_mismatch(spec: TopicSpec, retained: TopicState) -> TopicPlan | None:
    if spec.partitions < retained.partition_count:
        return _not_ready(
            "RetainedDataDiffers",
            f"the retained data of {spec.topic_name} has {retained.partition_count}"
            " partitions, which cannot be lowered: set partitions to"
            f" {retained.partition_count}",
        )
    if spec.replication_factor != retained.replication_factor:
        found = retained.replication_factor
        return _not_ready(
            "RetainedDataDiffers",
            f"the retained data of {spec.topic_name} has replicationFactor {found}: create"
            f" the Topic with replicationFactor {found}, and change it after it is Ready",
        )
    return _fixed_mismatch(spec, retained)


def _fixed_mismatch(spec: TopicSpec, stored: TopicState) -> TopicPlan | None:
    """Return a plan if an immutable field differs from the stored data, or None.

    The Topic was created again over its data with other values.
    """
    fields = (
        ("commitRule", spec.commit_rule, stored.commit_rule),
        ("flush", spec.flush, stored.flush),
        ("topicName", spec.topic_name, stored.topic),
    )
    for name, requested, found in fields:
        if requested != found:
            return _not_ready(
                "RetainedDataDiffers",
                f"the data of this topic has {name} {found}, which cannot be changed to"
                f" {requested}: create the Topic with {name} {found}",
            )
    if spec.partitions < stored.partition_count:
        return _not_ready(
            "PartitionsNeverShrink",
            f"the topic has {stored.partition_count} partitions, which cannot be lowered to"
            f" {spec.partitions}: set partitions to {stored.partition_count}",
        )
    return None


def _not_ready(reason: str, message: str) -> TopicPlan:
    return TopicPlan(None, (Condition("Ready", False, reason, message),))


def _doing(action: TopicAction, reason: str, message: str) -> TopicPlan:
    return TopicPlan(action, (Condition("Ready", False, reason, message),))
