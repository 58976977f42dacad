"""Mutants of what operates a cluster: placement, deletions, idleness, answers, conditions."""

from dataclasses import replace
from typing import Any

from tests.simulator.mutant import CONTROLLER, Mutant, always, patch


def _does_nothing(original: Any) -> Any:
    return lambda *arguments, **named: None


def _sees_one_rack(original: Any) -> Any:
    return lambda order, rack_of, partition, replication_factor: original(
        order, dict.fromkeys(rack_of, ""), partition, replication_factor
    )


def _deletes_what_is_retained(original: Any) -> Any:
    return lambda pool, topic_id, *, retain: original(pool, topic_id, retain=False)


def _writes_what_is_there(original: Any) -> Any:
    def updating(pool: Any, topic: Any, deletion_policy: Any) -> Any:
        decide = original(pool, topic, deletion_policy)
        return lambda stored: replace(decide(stored))

    return updating


MUTANTS = (
    Mutant("racks are not looked at", "I18",
           (patch(CONTROLLER + "placement:_replicas", _sees_one_rack),),
           "tests/unit/controller/test_control_placement.py::"
           "test_uneven_racks_are_no_obstacle", "replicas move"),
    Mutant("what is to be retained is deleted", "I20",
           (patch(CONTROLLER + "topics:delete", _deletes_what_is_retained),),
           "tests/unit/controller/test_control_service.py::"
           "test_a_retained_topic_keeps_its_slices_and_is_adopted_with_its_epochs", "topics rest"),
    Mutant("what is applied again is written again", "I21",
           (patch(CONTROLLER + "topics:_updating", _writes_what_is_there),),
           "tests/unit/controller/test_control_service.py::"
           "test_updating_a_topic_with_what_it_has_writes_nothing", "leaders die"),
    Mutant("no produce times out", "L2",
           (patch("runtime.produce_purgatory:ProducePurgatory.expire", _does_nothing),),
           "tests/unit/runtime/test_idempotent_produce.py::"
           "test_a_duplicate_whose_time_runs_out_stays_unacknowledged", "late words"),
    Mutant("no condition says who is waited for", "L6",
           (patch(CONTROLLER + "pool_state:PoolState._notices", always(())),),
           "tests/scenarios/test_s14_last_resorts.py::"
           "test_with_one_replica_missing_only_a_human_decides_and_is_told_how", "powers fail"),
)  # fmt: skip
