"""Say what a controller's event is: its kind, its sentence with the reason, and its JSON."""

from tidemark_protocol.ids import NO_BROKER, BrokerId
from tidemark_protocol.partition_state import PartitionState, TopicState
from tidemark_protocol.topic_configs import REPLICA_LAG_TIME_MAX_MS, integer_of

from tidemark_operator.controller.core.eligibility import Eligibility
from tidemark_operator.controller.core.reassignment import is_moving, target_of
from tidemark_operator.controller.core.timeline import (
    ActionRequested,
    BrokerChanged,
    BrokerTurn,
    Cause,
    ControllerTookOver,
    Event,
    PageAction,
    PartitionChanged,
    PartitionsCreated,
    RollStep,
    TopicRetired,
)

WARNINGS = frozenset(
    {
        "BrokerFenced",
        "BrokerStorageFailed",
        "BrokerWriteStalled",
        "IsrChangeRejected",
        "IsrShrunk",
        "LeaderLost",
        "UncleanElection",
    }
)


def kind_of(event: Event) -> str:
    """Return the kind of an event, in the form of a Kubernetes Event's reason."""
    match event.fact:
        case PartitionChanged():
            return _partition_kind(event.fact)
        case BrokerChanged(turn):
            return turn.value
        case PartitionsCreated():
            return "PartitionsCreated"
        case TopicRetired(_, is_retained):
            return "TopicRetained" if is_retained else "TopicDeleted"
        case ControllerTookOver():
            return "ControllerTookOver"
        case RollStep(_, is_waiting):
            return "RollWaits" if is_waiting else "RollStep"
        case ActionRequested():
            return "ActionRequested"


def _partition_kind(change: PartitionChanged) -> str:
    before, after = change.before, change.after
    if change.unclean_election is not None:
        return "UncleanElection"
    if after.leader_epoch > before.leader_epoch and after.has_leader:
        return "LeaderElected"
    if before.has_leader and not after.has_leader:
        return "LeaderLost"
    if is_moving(before) != is_moving(after):
        return "ReassignmentStarted" if is_moving(after) else "ReassignmentCompleted"
    lost, won = _moved(before, after)
    if lost:
        return "IsrShrunk"
    if won:
        return "IsrExpanded"
    if change.grounds is not None and change.grounds.cause is Cause.REJECTION:
        return "IsrChangeRejected"
    return "PartitionChanged"


def is_warning(event: Event) -> bool:
    return kind_of(event) in WARNINGS


def sentence_of(event: Event) -> str:
    """Return one sentence: what changed, and why."""
    match event.fact:
        case PartitionChanged():
            return _partition_sentence(event.at_ms, event.fact)
        case PartitionsCreated(topic, partitions):
            return (
                f"{_counted(len(partitions), 'partition')} of topic {topic.topic} created with"
                f" {_counted(topic.replication_factor, 'replica')} each"
            )
        case TopicRetired(topic, is_retained):
            fate = "is retained" if is_retained else "is being deleted"
            return f"topic {topic.topic} is not served any more, its data {fate}"
        case BrokerChanged():
            return _broker_sentence(event.fact)
        case ControllerTookOver(epoch, brokers, partitions, is_second_opinion):
            why = (
                ": the previous controller received heartbeats of too few brokers and stepped down"
                if is_second_opinion
                else ""
            )
            return (
                f"this controller took over under controller epoch {epoch} with"
                f" {_counted(brokers, 'broker')} and {_counted(partitions, 'partition')}{why}"
            )
        case RollStep(_, _, reason):
            return reason
        case ActionRequested():
            return _action_sentence(event.fact)


def _action_sentence(request: ActionRequested) -> str:
    broker = f"broker {request.broker_id}"
    what = {PageAction.DRAIN: f"drain of {broker}", PageAction.KILL: f"kill of {broker}"}.get(
        request.action, f"election of {broker}"
    )
    if request.topic is not None:
        what += f", the preferred leader of {request.topic.topic}-{request.partition},"
    return f"{what} requested on the live page from {request.requested_by}"


def _broker_sentence(change: BrokerChanged) -> str:
    name = f"broker {change.broker_id}"
    silence = "" if change.silence_ms is None else f", last heartbeat {change.silence_ms} ms ago"
    texts = {
        BrokerTurn.REGISTERED: f"{name} registered under broker epoch {change.broker_epoch}",
        BrokerTurn.ACTIVE: f"{name} is active: it may lead and join the ISR",
        BrokerTurn.SUSPECTED: f"{name} is suspected",
        BrokerTurn.DRAINING: f"{name} is draining: it stops in order",
        BrokerTurn.FENCED: f"{name} is fenced",
        BrokerTurn.STORAGE_FAILED: f"{name} reported that its storage failed",
        BrokerTurn.WRITE_STALLED: f"{name} cannot write to its disk",
        BrokerTurn.WRITES_AGAIN: f"{name} can write to its disk again",
        BrokerTurn.RETIRED: f"{name} is removed from the pool",
    }
    reason = f": {change.reason}" if change.reason else ""
    return f"{texts[change.turn]}{reason}{silence}"


def _partition_sentence(at_ms: int, change: PartitionChanged) -> str:
    parts = []
    if change.after.leader_epoch > change.before.leader_epoch:
        parts.append(_leader_text(at_ms, change))
    parts += _isr_texts(at_ms, change)
    parts += _move_texts(change.before, change.after)
    if change.before.min_insync_replicas != change.after.min_insync_replicas:
        parts.append(f"min ISR is {change.after.min_insync_replicas} now")
    if not parts and change.grounds is not None and change.grounds.cause is Cause.REJECTION:
        parts.append(
            f"ISR change of leader {change.grounds.proposer} rejected:"
            " a proposed broker is not active or has registered again"
        )
    text = "; ".join(parts) or "epochs of ISR entries renewed"
    return f"{change.topic.topic}-{change.after.partition}: {text}"


def _leader_text(at_ms: int, change: PartitionChanged) -> str:
    before, after, grounds = change.before, change.after, change.grounds
    if not after.has_leader:
        rest = _passed_over(at_ms, change, after.leader)
        return f"broker {before.leader} leads no more, no leader can be elected{rest}"
    how = f"broker {after.leader} leads under leader epoch {after.leader_epoch}"
    if change.unclean_election is not None:
        return f"{how} (unclean election): {change.unclean_election.sentence()}"
    if after.leader == before.leader:
        return f"{how} again"
    if grounds is None:
        return how
    why = {
        Cause.BALANCE: "leadership returns to the first replica",
        Cause.REQUEST: "a client asked for the preferred leader",
        Cause.STALLED_DISK: f"the disk of broker {before.leader} takes no writes",
    }.get(grounds.cause)
    if grounds.cause in (Cause.BALANCE, Cause.REQUEST):
        return f"{how}: {why}"
    chosen = why or _choice(change)
    return f"{how}, chosen: {chosen}{_passed_over(at_ms, change, after.leader)}"


def _choice(change: PartitionChanged) -> str:
    """Return what made the new leader the best of the candidates."""
    before, after, grounds = change.before, change.after, change.grounds
    assert grounds is not None
    candidates = [b for b in before.replicas if _may_lead(change, b)]
    source = "in sync" if after.leader in before.in_sync_ids else "eligible leader"
    if candidates == [after.leader]:
        return f"{source}, the only one that is active"
    counts = _counts_before(change)
    led = counts.get(after.leader, 0)
    others = [counts.get(b, 0) for b in candidates if b != after.leader]
    if led < min(others, default=led):
        return f"{source}, fewest leaderships ({led})"
    return (
        f"{source}, first in the order of assignment among those with {_counted(led, 'leadership')}"
    )


def _may_lead(change: PartitionChanged, broker_id: BrokerId) -> bool:
    return standing(change.topic, change.before, _eligibility(change), broker_id) in (
        IN_SYNC,
        ELIGIBLE_LEADER,
    )


def _eligibility(change: PartitionChanged) -> Eligibility:
    return change.grounds.eligibility if change.grounds is not None else Eligibility({})


def _counts_before(change: PartitionChanged) -> dict[BrokerId, int]:
    """Return how many partitions each replica led when the leader was chosen."""
    assert change.grounds is not None
    counts = dict(zip(change.after.replicas, change.grounds.leader_counts, strict=False))
    if change.after.leader in counts and change.after.leader != change.before.leader:
        counts[change.after.leader] -= 1
    return counts


def _passed_over(at_ms: int, change: PartitionChanged, leader: BrokerId) -> str:
    """Return why each other replica was not chosen."""
    if change.grounds is None:
        return ""
    counts = _counts_before(change)
    texts = []
    for broker_id in change.before.replicas:
        if broker_id == leader:
            continue
        why = standing(change.topic, change.before, change.grounds.eligibility, broker_id)
        since_ms = change.fenced_at_ms.get(broker_id)
        if why == FENCED and since_ms is not None:
            why += f" {at_ms - since_ms} ms ago"
        if broker_id not in change.after.replicas:
            why = "no replica any more"
        elif why == IN_SYNC and broker_id in counts:
            why += f", {_counted(counts[broker_id], 'leadership')}"
        texts.append(f"broker {broker_id} passed over: {why}")
    return "".join(f"; {text}" for text in texts)


IN_SYNC = "in sync"
ELIGIBLE_LEADER = "eligible leader"
FENCED = "fenced"


def standing(
    topic: TopicState, partition: PartitionState, eligibility: Eligibility, broker_id: BrokerId
) -> str:
    """Return what a replica's broker is for an election, or why it cannot be elected."""
    known, replica = eligibility.of(broker_id), (topic.topic_id, partition.partition)
    if known is None:
        return "not registered"
    if not known.is_live:
        return FENCED
    if known.is_stopping:
        return "draining"
    if replica in known.failed_replicas:
        return "its replica failed"
    entries = {m.broker_id: (m, IN_SYNC) for m in partition.in_sync_replicas}
    for member in partition.eligible_leaders:
        entries.setdefault(member.broker_id, (member, ELIGIBLE_LEADER))
    if broker_id not in entries:
        return "not in sync"
    member, role = entries[broker_id]
    if not eligibility.is_valid(member, replica, topic.flush):
        return "its log may lack committed records since its last start"
    return role if eligibility.can_write(broker_id) else f"{role}, but its disk takes no writes"


def _isr_texts(at_ms: int, change: PartitionChanged) -> list[str]:
    lost, won = _moved(change.before, change.after)
    if not lost and not won:
        return []
    texts = [f"ISR is {_names(change.after)}"]
    if change.grounds is not None and change.after.leader_epoch > change.before.leader_epoch:
        return texts  # why each broker left is said where it was passed over
    texts += [f"broker {b} removed: {_removal(at_ms, change, b)}" for b in lost]
    if won:
        names = ", ".join(map(str, won))
        texts.append(f"{'brokers' if len(won) > 1 else 'broker'} {names} caught up")
    return texts


def _removal(at_ms: int, change: PartitionChanged, broker_id: BrokerId) -> str:
    grounds = change.grounds
    if broker_id not in change.after.replicas:
        return "no replica any more"
    if grounds is not None and grounds.cause is Cause.PROPOSAL:
        limit = integer_of(REPLICA_LAG_TIME_MAX_MS, change.topic.config)
        return (
            f"leader {grounds.proposer} found it not caught up for"
            f" {REPLICA_LAG_TIME_MAX_MS.name} ({limit} ms)"
        )
    why = standing(change.topic, change.before, _eligibility(change), broker_id)
    since_ms = change.fenced_at_ms.get(broker_id)
    return f"{why} {at_ms - since_ms} ms ago" if why == FENCED and since_ms is not None else why


def _move_texts(before: PartitionState, after: PartitionState) -> list[str]:
    if is_moving(before) and not is_moving(after):
        return [f"reassignment to brokers {_listed(after.replicas)} completed"]
    if is_moving(after) and target_of(after) != target_of(before):
        return [
            f"reassignment from brokers {_listed(before.replicas)}"
            f" to {_listed(target_of(after))} started"
        ]
    return []


def _moved(before: PartitionState, after: PartitionState) -> tuple[list[BrokerId], list[BrokerId]]:
    """Return the brokers that left the ISR, and those that joined it."""
    lost, won = before.in_sync_ids - after.in_sync_ids, after.in_sync_ids - before.in_sync_ids
    return sorted(lost), sorted(won)


def _names(partition: PartitionState) -> str:
    return _listed(tuple(m.broker_id for m in partition.in_sync_replicas)) or "empty"


def _listed(broker_ids: tuple[BrokerId, ...]) -> str:
    return ", ".join(map(str, broker_ids))


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def document_of(event: Event) -> dict[str, object]:
    """Return the JSON of an event: what everyone has, and the operands that decided it."""
    return {
        "number": event.number,
        "atMs": event.at_ms,
        "kind": kind_of(event),
        "warning": is_warning(event),
        "topic": event.topic,
        "partition": event.partition,
        "brokerId": event.broker_id,
        "sentence": sentence_of(event),
        "details": _details(event),
    }


def _details(event: Event) -> dict[str, object]:
    match event.fact:
        case PartitionChanged():
            return _partition_details(event.at_ms, event.fact)
        case PartitionsCreated(_, partitions):
            return {"partitions": [each.partition for each in partitions]}
        case BrokerChanged(_, _, epoch, reason, silence_ms):
            return {"brokerEpoch": epoch, "reason": reason, "silenceMs": silence_ms}
        case ControllerTookOver(epoch, brokers, partitions):
            return {"controllerEpoch": epoch, "brokers": brokers, "partitions": partitions}
        case ActionRequested(action, _, requested_by):
            return {"action": action.value, "requestedBy": requested_by}
        case TopicRetired() | RollStep():
            return {}


def _partition_details(at_ms: int, change: PartitionChanged) -> dict[str, object]:
    grounds = change.grounds
    details: dict[str, object] = {
        "before": _state(change.before),
        "after": _state(change.after),
        "cause": (Cause.UNKNOWN if grounds is None else grounds.cause).value,
        "election": change.election,
    }
    if grounds is not None:
        details["proposer"] = grounds.proposer if grounds.proposer != NO_BROKER else None
        details["considered"] = _considered(at_ms, change)
    return details


def _considered(at_ms: int, change: PartitionChanged) -> list[dict[str, object]]:
    counts = _counts_before(change)
    return [
        {
            "brokerId": broker_id,
            "standing": standing(change.topic, change.before, _eligibility(change), broker_id),
            "leaderships": counts.get(broker_id),
            "fencedMs": at_ms - since if since is not None else None,
        }
        for broker_id in change.before.replicas
        for since in (change.fenced_at_ms.get(broker_id),)
    ]


def _state(partition: PartitionState) -> dict[str, object]:
    return {
        "leader": partition.leader,
        "leaderEpoch": partition.leader_epoch,
        "partitionEpoch": partition.partition_epoch,
        "replicas": partition.replicas,
        "isr": [member.broker_id for member in partition.in_sync_replicas],
        "eligibleLeaders": [member.broker_id for member in partition.eligible_leaders],
        "adding": partition.adding_replicas,
        "removing": partition.removing_replicas,
        "minIsr": partition.min_insync_replicas,
    }
