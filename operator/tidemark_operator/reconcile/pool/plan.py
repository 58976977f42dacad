"""Plan what is due for a BrokerPool, from the complete observation, never from an event.

One pass creates all that is missing (storage, then Services, then the broker), so that an empty
namespace gets its brokers in one pass; it never deletes storage and never stops a running broker.
"""

from collections.abc import Iterator

from tidemark_protocol.ids import BrokerId

from tidemark_operator.api.broker_pool import BrokerPool
from tidemark_operator.broker_runtime.broker_runtime import (
    BrokerProcess,
    CreateBootstrapService,
    CreateBrokerService,
    CreateDisruptionBudget,
    CreateVolumeClaim,
    LabelVolumeClaim,
    ObservedBroker,
    ObservedPool,
    PoolAction,
    StartBroker,
    StopBroker,
)
from tidemark_operator.reconcile.conditions import Condition
from tidemark_operator.reconcile.pool.plan_listeners import plan_listeners


def plan_pool(pool: BrokerPool, observed: ObservedPool) -> tuple[PoolAction, ...]:
    """Return the due actions.

    Brokers with ids of `replicas` and above are neither created nor stopped here: they may hold
    data.
    """
    return tuple(_actions(pool, observed))


def _actions(pool: BrokerPool, observed: ObservedPool) -> Iterator[PoolAction]:
    by_id = {broker.broker_id: broker for broker in observed.brokers}
    # Of every broker that there is, whatever `replicas` says: what goes with the pool is read from
    # these marks when the pool itself is gone (I20).
    for each in observed.brokers:
        is_marked = each.storage_policy in ("", pool.spec.deletion_policy)
        if not (is_marked or each.storage_is_going):
            yield LabelVolumeClaim(each.broker_id)
    # Missing brokers first: they are what clients wait for.
    for number in range(pool.spec.replicas):
        broker_id = BrokerId(number)
        broker = by_id.get(broker_id)
        if broker is None:
            broker = ObservedBroker(
                broker_id, BrokerProcess.ABSENT, has_storage=False, has_endpoint=False
            )
        yield from _broker_actions(broker)
    if not observed.has_bootstrap:
        yield CreateBootstrapService()
    if not observed.has_disruption_budget:
        yield CreateDisruptionBudget()
    yield from plan_listeners(pool, observed)


def _broker_actions(broker: ObservedBroker) -> Iterator[PoolAction]:
    if broker.storage_is_going:
        return  # a claim of that name is being deleted: wait until it is gone
    if not broker.has_storage:
        yield CreateVolumeClaim(broker.broker_id)
    if broker.process is BrokerProcess.ABSENT:
        yield StartBroker(broker.broker_id)
    elif broker.process is BrokerProcess.EXITED:
        yield StopBroker(broker.broker_id, broker.instance)
    if not broker.has_endpoint:
        yield CreateBrokerService(broker.broker_id)


def pool_conditions(
    pool: BrokerPool, observed: ObservedPool, active_brokers: frozenset[BrokerId]
) -> tuple[Condition, ...]:
    """Return the conditions; `active_brokers` have a live session."""
    expected = [BrokerId(number) for number in range(pool.spec.replicas)]
    missing = [broker_id for broker_id in expected if broker_id not in active_brokers]
    going = [broker.broker_id for broker in observed.brokers if broker.storage_is_going]
    if going:
        names = ", ".join(map(str, going))
        ready = Condition("Ready", False, "StorageIsGoing", _going_text(names))
    elif missing:
        names = ", ".join(map(str, missing))
        ready = Condition(
            "Ready",
            False,
            "BrokersNotActive",
            f"{pool.spec.replicas - len(missing)} of {pool.spec.replicas} brokers are active; "
            f"not active: {names}",
        )
    else:
        ready = Condition(
            "Ready", True, "BrokersActive", f"all {pool.spec.replicas} brokers are active"
        )
    return (ready, *_storage_conditions(pool, observed), *_authority_conditions(pool, observed))


def _authority_conditions(pool: BrokerPool, observed: ObservedPool) -> tuple[Condition, ...]:
    """Return the condition of the user's own certificate authority, if the pool names one."""
    tls, found = pool.spec.security.tls, observed.certificates
    if not pool.has_tls or tls.authority is None or found is None:
        return ()
    if found.problem:
        stays = "" if found.issuer else "; brokers wait for their certificates"
        return (Condition("AuthorityUsable", False, "SecretNotUsable", f"{found.problem}{stays}"),)
    said = f"Secret {tls.authority.secret_name} has the certificate authority of the pool"
    return (Condition("AuthorityUsable", True, "SecretUsable", said),)


def _going_text(names: str) -> str:
    """Return a sentence about claims that are being deleted, which stay until their pods end."""
    return (
        f"the PersistentVolumeClaims of brokers {names} are being deleted, which cannot"
        " be undone: when a broker's pod stops, its claim and its records are deleted,"
        " and the broker starts with a new, empty claim and copies the records of other"
        " replicas. Before a pod stops, check that the Topics are FullyReplicated, or"
        " drain the broker (spec.drain); then delete the pod"
    )


def _storage_conditions(pool: BrokerPool, observed: ObservedPool) -> tuple[Condition, ...]:
    """Return conditions about storage.

    Claims outlive their pool: one of that name may have been created with another access mode.
    """
    wanted = pool.spec.storage.access_mode
    others = [each for each in observed.brokers if each.storage_access_mode not in ("", wanted)]
    if not others:
        return ()
    found = ", ".join(f"{each.broker_id}: {each.storage_access_mode}" for each in others[:20])
    said = (
        f"spec.storage.accessMode is {wanted}; {len(others)} claims have another mode,"
        " which cannot be changed. To replace a claim, one broker after the other: drain"
        " the broker (spec.drain, until condition Drained is True), delete its claim and"
        f" pod, remove it from spec.drain. Brokers: {found}"
    )
    return (Condition("StorageAsAsked", False, "OtherAccessMode", said),)
