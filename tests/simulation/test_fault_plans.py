"""Plans of faults: a function of the seed, applied, undone and healed from."""

from random import Random

import pytest

from tests.simulation.clients.desired_topics import RETAINED_MOVES
from tests.simulation.engine.run import run_seed
from tests.simulation.engine.shape import UNCLEAN, Shape, faults_of
from tests.simulation.engine.simulated_cluster import Cluster, ClusterOptions
from tests.simulation.faults.fault_plan import KINDS, OPERATOR_ERRORS, Draw, PlanShape, draw_plan
from tests.simulation.faults.fault_profiles import (
    ALL_KINDS,
    ALL_PROFILES,
    PROFILES,
    plan_of,
    profile_of,
)
from tests.simulation.faults.faults import ACTS, Fault, heal, schedule
from tests.simulation.faults.optional_faults import (
    COMPACTED,
    CONTROLLERS_CUT_OFF,
    OLD_RECORDS,
    RESTING,
    UNCLEAN_ELECTIONS,
)
from tests.simulation.test_simulated_cluster import ends, produce, started

SHAPE = PlanShape(brokers=3, controllers=2)


def test_a_plan_is_a_function_of_its_seed() -> None:
    assert draw_plan(7, SHAPE) == draw_plan(7, SHAPE)
    assert draw_plan(7, SHAPE) != draw_plan(8, SHAPE)


def test_every_fault_has_arguments_drawn_for_it_and_the_other_way_round() -> None:
    assert sorted(ALL_KINDS) == sorted(ACTS)


def test_unclean_elections_that_are_asked_for_are_allowed() -> None:
    shapes = [Shape.of(seed, UNCLEAN_ELECTIONS) for seed in range(20)]
    assert {shape.config for shape in shapes} == {(UNCLEAN,)}
    assert max(shape.min_insync for shape in shapes) == 2


def test_a_fifth_of_all_seeds_is_compacted_and_a_storm_of_it_when_asked() -> None:
    drawn = [Shape.of(seed) for seed in range(400)]
    compacted = [shape for shape in drawn if shape.is_compacted]
    assert 55 < len(compacted) < 105
    requested = [Shape.of(seed, COMPACTED) for seed in range(20)]
    assert all(shape.is_compacted for shape in requested)
    policies = {dict(shape.config)["cleanup.policy"] for shape in compacted}
    assert policies == {"compact", "compact,delete"}
    assert not any("cleanup.policy" in dict(s.config) for s in drawn if not s.is_compacted)


def test_of_some_seeds_records_grow_old() -> None:
    drawn = [dict(Shape.of(seed).config) for seed in range(400)]
    old = [config for config in drawn if "retention.ms" in config]
    assert 40 < len(old) < 80
    assert {config.get("cleanup.policy") for config in old} == {None, "compact,delete"}
    assert all("retention.ms" in dict(Shape.of(seed, OLD_RECORDS).config) for seed in range(20))


def test_in_some_seeds_a_producer_rests_longer_than_it_is_remembered() -> None:
    drawn = [Shape.of(seed) for seed in range(400)]
    resting = [shape for shape in drawn if "producer.id.expiration.ms" in dict(shape.config)]
    assert 25 < len(resting) < 60
    requested = [Shape.of(seed, RESTING) for seed in range(20)]
    assert {shape.rest_seconds for shape in resting + requested} == {2.0, 6.0}
    assert all(shape.idempotent[0] for shape in resting + requested)


def test_of_a_fifth_of_all_seeds_controllers_are_cut_off() -> None:
    drawn = [CONTROLLERS_CUT_OFF in Shape.of(seed).additions for seed in range(400)]
    assert 55 < sum(drawn) < 105
    seed = drawn.index(True)
    kinds = {fault.kind for fault in faults_of(seed, 20)}
    assert {"part_leading_from_store", "lose_node"} <= kinds


def test_all_kinds_occur_within_some_seeds() -> None:
    seen = {fault.kind for seed in range(100) for fault in draw_plan(seed, SHAPE)}
    assert seen == set(KINDS)


def test_a_quarter_of_all_seeds_has_one_of_all_weathers_and_a_storm_only_when_asked() -> None:
    drawn = [profile_of(seed) for seed in range(400)]
    assert set(drawn) == {"", *PROFILES}
    assert 60 < sum(profile != "" for profile in drawn) < 140
    calm = drawn.index("")
    assert plan_of(calm, SHAPE) == draw_plan(calm, SHAPE)
    for profile, kinds in ALL_PROFILES.items():
        assert {fault.kind for fault in plan_of(calm, SHAPE, profile)} == set(kinds)


@pytest.mark.parametrize("kind", sorted(ALL_KINDS.keys() - OPERATOR_ERRORS.keys()))
def test_the_world_comes_back_from_each_kind_of_fault(kind: str) -> None:
    draw, arguments = Draw(Random(kind), SHAPE), ALL_KINDS[kind]
    with Cluster(5) as cluster:
        started(cluster)
        produce(cluster, "a")
        cluster.run_for(100)
        plan = [Fault(cluster.now_us + n * 700_000, kind, arguments(draw)) for n in range(3)]
        schedule(cluster, plan)
        cluster.run_for(4_000)
        heal(cluster)
        cluster.run_for(15_000)
        results = produce(cluster, "b")
        cluster.run_for(500)
        assert [result.error for result in results] == [0]
        assert len(set(ends(cluster).values())) == 1
        assert cluster.crashes == []
        assert cluster.coverage[f"fault {kind}"] == 3


@pytest.mark.parametrize("seed", range(3))
def test_a_run_with_every_mistake_ends_with_brokers_that_serve(seed: int) -> None:
    """Not with every record: that is for judges that know what was done."""
    shape = PlanShape(3, 2, kinds_wanted=0, operator_errors=tuple(OPERATOR_ERRORS), most_per_run=2)
    with Cluster(seed) as cluster:
        started(cluster)
        produce(cluster, "a")
        schedule(cluster, draw_plan(seed, shape))
        cluster.run_until(shape.last_us)
        heal(cluster)
        cluster.run_for(15_000)
        assert all(broker.partitions is not None for broker in cluster.brokers.values())
        assert cluster.crashes == []


def test_a_partition_moves_to_other_brokers_and_its_records_with_it() -> None:
    with Cluster(3, ClusterOptions(brokers=4)) as cluster:
        cluster.start()
        cluster.create_topic("orders", partitions=1, replication_factor=2)
        cluster.run_for(2_000)
        produce(cluster, "a")
        cluster.run_for(100)
        before = ends(cluster)
        first = next(number for number in range(4) if not {number, (number + 1) % 4} & set(before))
        schedule(cluster, (Fault(cluster.now_us, "move_partition", ("orders", 0, first)),))
        cluster.run_for(5_000)
        assert ends(cluster) == {first: (1, 1), (first + 1) % 4: (1, 1)}
        assert cluster.topics[0].moves == {}


def test_a_profile_of_retained_topics_moves_their_data() -> None:
    moved = (run_seed(seed, 8.0, "topics rest").coverage[RETAINED_MOVES] for seed in range(2, 6))
    assert any(moved)
