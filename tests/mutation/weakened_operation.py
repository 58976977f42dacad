"""Mutants of what operates a cluster: placement, deletions, idleness, answers, conditions."""

from dataclasses import replace
from typing import Any

from tidemark_protocol.controller_messages import TopicPush

from tests.mutation.edits import at, returns, test, value, wrap
from tests.mutation.mutant import Mutant

NO_CLAIMS = "reconcilers, claims and their collector are not simulated"


def _sees_one_rack(original: Any) -> Any:
    return lambda order, rack_of, partition, replication_factor: original(
        order, dict.fromkeys(rack_of, ""), partition, replication_factor
    )


def _deletes_what_is_retained(original: Any) -> Any:
    return lambda pool, topic_id, *, retain, topic="": original(
        pool, topic_id, retain=False, topic=topic
    )


def _takes_absence_for_deletion(original: Any) -> Any:
    def begin(self: Any, push: Any) -> Any:
        begun = original(self, push)
        if begun is None or not push.is_full:
            return begun
        named = {entry.topic.topic_id for entry in push.topics}
        gone = tuple(
            TopicPush(topic, (), is_deleted=True)
            for topic_id, topic in self.topics_by_id.items()
            if topic_id not in named
        )
        return replace(begun, deletions=(*begun.deletions, *gone))

    return begin


def _writes_what_is_there(original: Any) -> Any:
    def updating(pool: Any, topic: Any, deletion_policy: Any) -> Any:
        decide = original(pool, topic, deletion_policy)
        return lambda stored: replace(decide(stored))

    return updating


def _owned_by_its_pool(original: Any) -> Any:
    def claim_manifest(pool: Any, broker_id: Any) -> Any:
        claim = original(pool, broker_id)
        owner = {"kind": "BrokerPool", "name": pool.name}
        return claim | {"metadata": claim["metadata"] | {"ownerReferences": [owner]}}

    return claim_manifest


MUTANTS = (
    Mutant("claims are their pool's, for a collector to take", "S4",
           (at("claims-have-no-owner", wrap(_owned_by_its_pool)),),
           "tests/unit/operator/resources/test_persistent_volume_claim.py::"
           "test_a_claim_has_no_owner", why_no_seed=NO_CLAIMS),
    Mutant("a gone pool's claims go whatever they say of it themselves", "S4",
           (at("claim-has-its-own-policy", returns("'Delete'")),),
           "tests/unit/operator/broker_runtime/test_pods.py::"
           "test_a_gone_pools_claims_follow_their_own_policy", why_no_seed=NO_CLAIMS),
    Mutant("the local store's writes are not synced", "S26",
           (at("local-store-syncs-writes",
               returns("connection.execute('PRAGMA synchronous=NORMAL')")),),
           "tests/unit/operator/store/test_sqlite.py::"
           "test_writes_are_synced_in_full", why_no_seed="SQLite is not simulated"),
    Mutant("racks are not looked at", "I18",
           (at("replicas-spread-over-racks", wrap(_sees_one_rack)),),
           "tests/unit/operator/controller/core/test_placement.py::"
           "test_uneven_racks_are_no_obstacle", "replicas move"),
    Mutant("what is to be retained is deleted", "I20",
           (at("retained-topic-is-kept", wrap(_deletes_what_is_retained)),),
           "tests/unit/operator/controller/test_service.py::"
           "test_a_retained_topic_keeps_its_slices_and_is_adopted_with_its_epochs", "topics rest"),
    Mutant("retained data is led after its move", "I20",
           (at("retained-led-only-while-moving", test(True)),),
           "tests/unit/operator/controller/test_retained_moves.py::"
           "test_a_retained_partition_is_led_until_its_move_is_complete", "topics rest"),
    Mutant("retained data is led after its move is cancelled", "I20",
           (at("cancelled-move-ends-retained-leadership", value(False)),),
           "tests/unit/operator/controller/test_retained_moves.py::"
           "test_a_move_of_retained_data_that_is_cancelled_ends_its_leadership",
           why_no_seed="ordinary seeds 9200029 and 9200069 noticed it in the 8 s of "
           "test_fresh_seeds"),
    Mutant("retained data that moves gets an unclean election (a pair)", "I20", (
               at("retained-data-gets-no-unclean-election",
                  test("value.is_retained and not (state.adding_replicas"
                       " or state.removing_replicas)")),
               at("retained-data-waits-for-no-report", test(False))),
           "tests/unit/operator/controller/test_retained_moves.py::"
           "test_reports_elect_nobody_for_retained_data_that_moves",
           why_no_seed="all that have everything die while their retained data moves"),
    Mutant("clients see retained data that is led", "I20",
           (at("retained-data-is-not-served", value(False)),),
           "tests/regression/test_i20_retained_data_moves.py::"
           "test_no_client_reaches_retained_data_that_is_led_for_its_move",
           why_no_seed="simulated clients find leaders by the image, which has no retained topic"),
    Mutant("retained offsets have a coordinator while they move", "I20",
           (at("retained-offsets-have-no-coordinator", test(False)),),
           "tests/unit/broker/coordinator/test_group_coordinator_service.py::test_retained_offsets_"
           "that_are_led_for_a_move_have_no_coordinator_and_do_not_expire",
           why_no_seed="the offsets topic is not deleted in any run"),
    Mutant("absence is taken for deletion", "I20, S12",
           (at("absence-is-no-deletion", wrap(_takes_absence_for_deletion)),),
           "tests/regression/test_s12_absence.py::"
           "test_a_slice_deleted_by_hand_gets_no_fresh_one_and_costs_no_broker_its_log",
           "slices go"),
    Mutant("what is applied again is written again", "I21",
           (at("same-topic-is-not-written", wrap(_writes_what_is_there)),),
           "tests/unit/operator/controller/test_service.py::"
           "test_updating_a_topic_with_what_it_has_writes_nothing", "leaders die"),
    Mutant("no produce times out", "L2",
           (at("produce-times-out", returns(None)),),
           "tests/unit/broker/replication/test_idempotent_produce.py::"
           "test_a_duplicate_whose_time_runs_out_stays_unacknowledged", "late words"),
    Mutant("no condition says who is waited for", "L6",
           (at("condition-names-awaited-brokers", returns("()")),),
           "tests/regression/test_s14_last_resorts.py::"
           "test_with_one_replica_missing_only_a_human_decides_and_is_told_how",
           "the last one leaves"),
)  # fmt: skip
