"""What is due for the brokers of a pool, and whether the pool is ready."""

from tidemark_operator.broker_runtime.broker_runtime import (
    BrokerProcess,
    CreateBootstrapService,
    CreateBrokerService,
    CreateDisruptionBudget,
    CreateVolumeClaim,
    LabelVolumeClaim,
    ObservedBroker,
    ObservedPool,
    StartBroker,
    StopBroker,
)
from tidemark_operator.reconcile.pool.plan import plan_pool, pool_conditions
from tidemark_protocol.ids import BrokerId

from tests.support.api_objects import broker_pool

POOL = broker_pool(replicas=1, image="image", imagePullPolicy="Never", storage={"size": "1Gi"})
ZERO = BrokerId(0)


def test_an_empty_namespace_gets_all_in_one_pass_storage_first() -> None:
    actions = plan_pool(POOL, ObservedPool((), False, False))
    assert actions == (
        CreateVolumeClaim(ZERO),
        StartBroker(ZERO),
        CreateBrokerService(ZERO),
        CreateBootstrapService(),
        CreateDisruptionBudget(),
    )


def test_a_deleted_pod_comes_back_with_its_claim_and_id() -> None:
    left = ObservedBroker(ZERO, BrokerProcess.ABSENT, storage_policy="Retain")
    assert plan_pool(POOL, ObservedPool((left,))) == (StartBroker(ZERO),)


def test_a_pod_on_its_way_out_is_waited_for() -> None:
    stopping = ObservedBroker(ZERO, BrokerProcess.STOPPING, "a", storage_policy="Retain")
    assert plan_pool(POOL, ObservedPool((stopping,))) == ()


def test_the_remains_of_an_ended_pod_are_cleared_away() -> None:
    ended = ObservedBroker(ZERO, BrokerProcess.EXITED, "a", storage_policy="Retain")
    assert plan_pool(POOL, ObservedPool((ended,))) == (StopBroker(ZERO, "a"),)


def test_nothing_starts_on_storage_that_is_being_deleted() -> None:
    going = ObservedBroker(
        ZERO, BrokerProcess.ABSENT, storage_is_going=True, storage_policy="Delete"
    )
    assert plan_pool(POOL, ObservedPool((going,))) == ()


def test_storage_that_is_being_deleted_is_told_with_what_follows() -> None:
    going = ObservedBroker(ZERO, BrokerProcess.RUNNING, "a", storage_is_going=True)
    ready = pool_conditions(POOL, ObservedPool((going,)), frozenset({ZERO}))[0]
    assert (ready.is_true, ready.reason) == (False, "StorageIsGoing")
    assert (
        "its claim and its records are deleted, and the broker starts with a new" in ready.message
    )


def test_storage_gets_the_pools_deletion_policy() -> None:
    other = ObservedBroker(ZERO, BrokerProcess.RUNNING, "a", storage_policy="Delete")
    assert plan_pool(POOL, ObservedPool((other,))) == (LabelVolumeClaim(ZERO),)


def test_storage_of_a_broker_beyond_replicas_gets_it_too() -> None:
    """It goes with the pool by that mark alone."""
    running = ObservedBroker(ZERO, BrokerProcess.RUNNING, "a", storage_policy="Retain")
    for process in BrokerProcess:
        beyond = ObservedBroker(BrokerId(7), process, storage_policy="Delete")
        assert plan_pool(POOL, ObservedPool((running, beyond))) == (LabelVolumeClaim(BrokerId(7)),)


def test_brokers_beyond_replicas_are_left_alone() -> None:
    running = ObservedBroker(ZERO, BrokerProcess.RUNNING, "a", storage_policy="Retain")
    beyond = ObservedBroker(BrokerId(7), BrokerProcess.ABSENT, storage_policy="Retain")
    assert plan_pool(POOL, ObservedPool((running, beyond))) == ()


def test_a_pool_is_ready_once_each_of_its_brokers_is_active() -> None:
    pool = broker_pool(replicas=2)
    (ready,) = pool_conditions(pool, ObservedPool(()), frozenset({ZERO, BrokerId(7)}))
    assert (ready.is_true, ready.reason) == (False, "BrokersNotActive")
    assert ready.message == "1 of 2 brokers are active; not active: 1"
    (ready,) = pool_conditions(pool, ObservedPool(()), frozenset({ZERO, BrokerId(1)}))
    assert (ready.is_true, ready.reason) == (True, "BrokersActive")


def test_claims_of_another_access_mode_are_named() -> None:
    modes = ("", "ReadWriteOnce", "ReadWriteMany")
    brokers = tuple(
        ObservedBroker(BrokerId(number), BrokerProcess.RUNNING, storage_access_mode=mode)
        for number, mode in enumerate(modes)
    )
    _, storage = pool_conditions(POOL, ObservedPool(brokers), frozenset({ZERO}))
    assert (storage.type, storage.is_true) == ("StorageAsAsked", False)
    assert storage.message.endswith("Brokers: 2: ReadWriteMany")
    assert len(pool_conditions(POOL, ObservedPool(brokers[:2]), frozenset({ZERO}))) == 1
