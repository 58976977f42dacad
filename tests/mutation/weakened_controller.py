"""Mutants of the controller: durable writes, elections, registrations, sessions, the Lease."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tidemark_operator.api.unclean_election import UncleanCause
from tidemark_operator.controller.core.sessions import Expiry
from tidemark_operator.store.object_store import OutcomeUnknown
from tidemark_protocol.partition_state import Member

from tests.mutation.edits import at, returns, test, value, wrap
from tests.mutation.mutant import Mutant


def _without_compare(original: Any) -> Any:
    """The last writer wins."""

    async def replaced(self: Any, current: Any, wanted: Any) -> Any:
        from tidemark_operator.api.kinds import PARTITION_SLICE
        from tidemark_operator.api.partition_slice import split_pool

        namespace, _ = split_pool(current.pool)
        item = await self._store.get(PARTITION_SLICE, namespace, current.name)
        if item is not None:
            version = item["metadata"]["resourceVersion"]
            wanted = replace(wanted, resource_version=version)
        return await original(self, current, wanted)

    return replaced


def _takes_unknown_for_done(original: Any) -> Any:
    async def replaced(self: Any, current: Any, wanted: Any) -> Any:
        try:
            return await original(self, current, wanted)
        except OutcomeUnknown:
            self._outcome_unknown.discard(current.name)
            return self._durable(wanted)

    return replaced


def _grants_no_session(original: Any) -> Any:
    """What the controller before heard of last is long ago."""

    def grant_all(
        self: Any, broker_ids: Any, now_ms: int, *, is_second_opinion: bool = False
    ) -> None:
        original(
            self,
            broker_ids,
            now_ms - self._settings.session_timeout_ms,
            is_second_opinion=is_second_opinion,
        )

    return grant_all


def _next_epoch_of_lease_alone(original: Any) -> Any:
    async def next_epoch(self: Any, stored: Any) -> int:
        return 1 + (0 if stored is None else int(stored["spec"].get("leaseTransitions") or 0))

    return next_epoch


def _expires_one_by_one(original: Any) -> Any:
    def expire(self: Any, now_ms: int, *, pool_size: int) -> Expiry:
        before = dict(self._last_contact_ms)
        found: Expiry = original(self, now_ms, pool_size=pool_size)
        for broker_id in found.expired[1:]:
            self._last_contact_ms[broker_id] = before[broker_id]
        return replace(found, expired=found.expired[:1])

    return expire


def _gives_before_it_is_stored(original: Any) -> Any:
    """Known as used in this process only."""

    def use_up(pool: Any, broker_id: Any, producer_id_round: int) -> Iterator[Any]:
        brokers = pool.brokers
        brokers[broker_id] = replace(brokers[broker_id], producer_id_round=producer_id_round)
        yield from ()

    return use_up


def _claims_version_of_its_end(original: Any) -> Any:
    async def registration(self: Any) -> Any:
        request = await original(self)
        metadata = self._partitions.metadata
        return replace(
            request,
            applied_controller_epoch=metadata.controller_epoch,
            applied_image_version=metadata.image_version,
        )

    return registration


def _although_fenced(original: Any) -> Any:
    def is_active(self: Any, broker_id: Any, replica: Any) -> bool:
        broker_eligibility = self.of(broker_id)
        return broker_eligibility is not None and replica not in broker_eligibility.failed_replicas

    return is_active


def _whoever_is_active(original: Any) -> Any:
    def remaining(topic: Any, partition: Any, eligibility: Any) -> Any:
        replica = (topic.topic_id, partition.partition)
        members = original(topic, partition, eligibility)
        return tuple(m for m in members if eligibility.is_active(m.broker_id, replica))

    return remaining


def _takes_the_shortest(original: Any) -> Any:
    """Once all have reported."""

    def unclean_recovery(
        topic: Any, partition: Any, eligibility: Any, reports: Any, choice: Any
    ) -> Any:
        found = original(topic, partition, eligibility, reports, choice)
        if found is None or found.cause is not UncleanCause.ALL_UNCLEAN:
            return found
        replica = (topic.topic_id, partition.partition)
        active = [b for b in partition.replicas if eligibility.is_active(b, replica)]
        ends = {broker_id: reports.log_end(broker_id, replica) for broker_id in active}
        shortest = min(active, key=ends.__getitem__)
        leader = Member(shortest, eligibility.of(shortest).broker_epoch)
        return replace(found, leader=leader, start_offset=ends[shortest][1])

    return unclean_recovery


MUTANTS = (
    Mutant("a fenced broker leads", "I12",
           (at("fenced-broker-leads-nothing", wrap(_although_fenced)),),
           "tests/unit/operator/controller/core/test_elections.py::"
           "test_a_dead_leader_is_replaced_and_leaves_the_isr_in_the_same_write", "leaders die"),
    Mutant("nobody is suspected", "L1",
           (at("suspect-is-probed", returns(None)),),
           "tests/unit/operator/controller/test_service.py::"
           "test_a_killed_leader_is_replaced_without_any_time_passing", "leaders die"),
    Mutant("the last member leaves an ISR that commits alone", "I13",
           (at("last-member-stays", wrap(_whoever_is_active)),),
           "tests/unit/operator/controller/core/test_elections.py::"
           "test_with_commit_rule_isr_the_last_member_stays_without_a_leader",
           "the last one leaves"),
    Mutant("the last writer wins", "compare-and-set on the slice", (
               at("slice-written-by-compare-and-set", wrap(_without_compare)),
               at("store-compares-versions", returns(None))),
           "tests/regression/test_i16_lease_lost_in_a_write.py::"
           "test_it_is_one_legal_step_or_none[before]",
           search="a write that asks not what is stored"),
    Mutant("an unknown outcome is taken for done",
           "S3, unknown write outcome settled by a quorum read",
           (at("slice-written-by-compare-and-set", wrap(_takes_unknown_for_done)),),
           "tests/regression/test_s3_refused_expand.py::"
           "test_while_the_outcome_is_unknown_the_watermark_waits_for_the_"
           "proposed_member", "bad store"),
    Mutant("a deposed controller's read is not noticed", "I16",
           (at("read-tells-later-controller", returns(None)),),
           "tests/unit/operator/controller/test_safety.py::"
           "test_s3_a_frozen_controllers_queued_expand_cannot_land_after_its_"
           "successors_refusal",
           pair="neither Lease nor write tells a deposed controller (a pair)"),
    Mutant("neither Lease nor write tells a deposed controller (a pair)",
           "I16", (
               at("read-tells-later-controller", returns(None)),
               at("lease-is-held", returns(True))),
           "tests/unit/operator/controller/test_safety.py::"
           "test_s3_a_frozen_controllers_queued_expand_cannot_land_after_its_"
           "successors_refusal", "controllers part"),
    Mutant("every start counts as clean", "unclean restart voids its entries",
           (at("clean-start", returns(True)),),
           "tests/unit/operator/controller/test_safety.py::"
           "test_s2_a_registration_whose_answer_was_lost_gets_the_same_epoch_again", "joiners die"),
    Mutant("a failed disk is forgotten at the next start", "S8",
           (at("failed-storage-starts-unclean", test(True)),
            at("failed-storage-voids-disk", test(True))),
           "tests/regression/test_s8_lost_write_back.py::"
           "test_the_process_ends_once_the_controller_recorded_the_failure",
           why_no_seed="what is recorded with it voids the entries at once"),
    Mutant("any volume will do", "empty disk never rejoins as ISR",
           (at("same-volume", returns(True)),),
           "tests/unit/operator/controller/test_safety.py::"
           "test_without_its_full_proof_a_start_is_unclean[another volume]",
           why_no_seed="a proof names the stored life, and only that life's volume has it"),
    Mutant("any stop proof counts", "S7: the stop proof carries the stored broker epoch",
           (at("stop-proof-of-stored-life", returns(True)),),
           "tests/unit/operator/controller/test_safety.py::"
           "test_s2_a_registration_whose_answer_was_lost_gets_the_same_epoch_again", "joiners die"),
    Mutant("every disk is the one that was there", "S14: a lost disk voids an entry",
           (at("same-disk", returns(True)),),
           "tests/regression/test_s14_kept_disks.py::"
           "test_another_disk_proves_nothing[another claim]", "disks change",
           search="every disk counts as the one that was there"),
    Mutant("any stamp on a disk counts", "S14, S7: the stamp names claim and life",
           (at("disk-stamp-of-stored-life", returns(True)),),
           "tests/regression/test_s14_kept_disks.py::"
           "test_another_disk_proves_nothing[restored from an earlier life]",
           "disks change"),
    Mutant("damage is taken for an unsynced tail", "S14, S8",
           (at("damage-voids-proofs", returns(None)),),
           "tests/regression/test_s14_kept_disks.py::"
           "test_damage_that_is_more_than_a_torn_tail_voids_the_disk[killed]",
           "synced tails flip"),
    Mutant("any boot stamp counts", "S1, S7: the stamp names boot, pod, claim and epoch",
           (at("boot-stamp-of-stored-life", returns(True)),),
           "tests/unit/operator/controller/test_safety.py::"
           "test_s2_a_registration_whose_answer_was_lost_gets_the_same_epoch_again", "joiners die"),
    Mutant("lost replicas keep their entries", "S9, empty disk never rejoins as ISR",
           (at("lost-replica", returns(False)),),
           "tests/regression/test_s9_lost_partition.py::"
           "test_a_partition_whose_directory_is_gone_is_led_by_nobody_who_lost_it",
           "files go"),
    Mutant("a slice that comes later counts on logs that its brokers came back without", "S9, S12",
           (at("later-entry-without-log-is-void", returns(None)),),
           "tests/regression/test_s12_deleted_topics.py::"
           "test_a_restored_slice_counts_on_nobody_who_came_back_without_its_log",
           why_no_seed="a broker that comes back without a log while its slice is away"),
    Mutant("a slice that comes later counts on lives above the present one", "S2, S9",
           (at("entry-of-another-life", returns("member.broker_epoch < self.lost_below")),),
           "tests/regression/test_s12_deleted_topics.py::"
           "test_a_restored_slice_counts_on_no_life_above_the_one_that_came_back_without_its_log",
           why_no_seed="a broker whose object, volume and slices are all lost"),
    Mutant("a slice put back counts on lives that another controller registered", "S9, S12",
           (at("restored-entry-of-another-life-is-void", returns(None)),),
           "tests/regression/test_s12_deleted_topics.py::"
           "test_a_restored_slice_counts_on_no_former_life_that_another_controller_registered",
           why_no_seed="a broker that comes back without a log while its slice is away"),
    Mutant("an empty log takes the place of one that a former life is counted on for", "S9",
           (at("no-empty-log-for-earlier-life", returns(False)),),
           "tests/regression/test_s9_lost_partition.py::"
           "test_no_empty_log_takes_the_place_of_one_that_a_former_life_is_counted_on_for[False]",
           why_no_seed="a broker that comes back without a log while its slice is away"),
    Mutant("a log that was found short is counted on", "S9, S12",
           (at("short-log-is-not-whole", returns("log.exists")),),
           "tests/regression/test_s9_lost_partition.py::"
           "test_a_slice_that_is_put_back_while_nobody_controls_counts_on_no_log_that_is_gone"
           "[lose_records]",
           why_no_seed="a broker that comes back with a short log while its slice is away"),
    Mutant("an empty log takes the place of one that made room", "S9, S12",
           (at("displaced-log-is-not-empty", returns(False)),),
           "tests/regression/test_s9_lost_partition.py::test_a_log_that_made_room_for_another_topics"
           "_is_not_counted_on_when_its_slice_is_put_back",
           why_no_seed="a slice put back after its name was another topic's for a while"),
    Mutant("a broker has spoken of what it was not told of", "S3, S9",
           (at("unannounced-partitions", returns("frozenset()")),),
           "tests/regression/test_s9_lost_partition.py::"
           "test_no_entry_is_renewed_in_a_slice_that_its_broker_was_not_told_of",
           why_no_seed="a broker that comes back without a log while its slice is away"),
    Mutant("entries are renewed of brokers that have not spoken", "S9, S12",
           (at("renew-entries-of-reporters-only", returns("broker_eligibility.is_live")),),
           "tests/regression/test_s9_lost_partition.py::"
           "test_a_slice_that_is_put_back_while_nobody_controls_counts_on_no_log_that_is_gone",
           why_no_seed="a broker that comes back without a log while its slice is away"),
    Mutant("a broker joins that has not spoken to this controller", "S9",
           (at("joiner-has-reported", returns(True)),),
           "tests/unit/operator/controller/test_failed_replicas.py::"
           "test_nobody_joins_who_has_not_spoken_to_this_controller",
           why_no_seed="a controller dies between a failure's strike-out and its leader's next"
           " proposal"),
    Mutant("a failure is settled before it is stored", "S9",
           (at("failure-settled-once-stored", returns(True)),),
           "tests/unit/operator/controller/test_failed_replicas.py::"
           "test_an_answer_of_before_the_decision_does_not_say_that_nobody_counts_on_it",
           why_no_seed="a controller dies while a strike-out cannot be stored"),
    Mutant("void entries are valid", "S2",
           (at("void-entry", returns(True)),),
           "tests/unit/operator/controller/core/test_elections.py::"
           "test_a_failed_replica_hands_over_and_is_void", "joiners die"),
    Mutant("safe leaders are dropped", "S15, I13",
           (at("eligible-leaders-are-kept", returns("()")),),
           "tests/traces/test_transcripts.py::"
           "test_a_transcript_is_what_the_cores_do[a-shrink-of-an-older-state]", "leaders die"),
    Mutant("a replica leaves within the leader epoch", "S30",
           (at("leaving-raises-leader-epoch", returns(False)),),
           "tests/regression/test_s30_left_and_came_back.py::"
           "test_a_fetch_from_before_it_left_counts_for_nothing_when_it_comes_after_its_return",
           pair="who leaves within the leader epoch erases its log (a pair)"),
    Mutant("who leaves within the leader epoch erases its log (a pair)", "S30, S17",
           (at("leaving-raises-leader-epoch", returns(False)),
            at("erase-by-newer-state-only", returns(False))),
           "tests/regression/test_s30_left_and_came_back.py::"
           "test_a_fetch_from_before_it_left_counts_for_nothing_when_it_comes_after_its_return",
           "moves are taken back"),
    Mutant("min ISR changes without its eligible leaders", "S6",
           (at("min-isr-changes-with-eligible-leaders", value("lowered")),),
           "tests/regression/test_s6_min_isr.py::"
           "test_lowering_it_drops_the_eligible_leaders_in_the_write_that_lets_"
           "one_commit_alone", "settings"),
    Mutant("producer ids are given before they are stored as used", "S5",
           (at("producer-ids-stored-before-given", wrap(_gives_before_it_is_stored)),),
           "tests/regression/test_s5_producer_ids.py::"
           "test_a_successor_gives_nothing_that_its_predecessor_gave",
           "producers pass by"),
    Mutant("producer ids that a deposed controller gave are given again", "S5",
           (at("producer-ids-of-another-controller", returns(False)),),
           "tests/regression/test_s5_producer_ids.py::"
           "test_what_a_deposed_controller_still_gave_is_not_given_again_by_its_successor",
           "controllers part and give ids"),
    Mutant("a successor goes by what it read before a late registration", "S2",
           (at("broker-confirmed-before-void", returns(None)),),
           "tests/regression/test_s2_void_entries.py::"
           "test_a_successor_strikes_nothing_out_by_what_it_read_before_a_late_registration",
           "controllers part and register"),
    Mutant("a later life of a broker is written over", "I14",
           (at("later-life-is-not-overwritten", returns(None)),),
           "tests/regression/test_s2_void_entries.py::"
           "test_a_life_that_its_controller_stands_by_for_is_not_written_over_meanwhile",
           why_no_seed="a registration's write of unknown outcome, and a fence that waits behind "
           "it: once in some 20,000 ordinary seeds (28002182)"),
    Mutant("a process takes another life's epoch on", "I14, S2",
           (at("registration-of-this-life", returns(True)),),
           "tests/unit/broker/server/test_lifecycle_manager.py::"
           "test_registered_again_as_another_life_it_ends_and_takes_nothing_on",
           why_no_seed="a registration of a killed process that comes after its successor's: once "
           "in some 3,000 ordinary seeds (37002807)"),
    Mutant("a report claims the version that was applied when it was complete", "S14",
           (at("report-claims-no-later-version", wrap(_claims_version_of_its_end)),),
           "tests/unit/broker/server/test_lifecycle_manager.py::"
           "test_a_report_claims_the_version_of_before_its_first_log",
           why_no_seed="a report of one part, as the simulated brokers' few logs make it, is of "
           "one version"),
    Mutant("a process that was replaced begins a new life", "S2",
           (at("replaced-process-gets-no-life", returns(False)),),
           "tests/unit/operator/controller/test_safety.py::"
           "test_s2_a_registration_that_comes_after_its_successors_ends_no_life",
           why_no_seed="it costs the living process its life and breaks no promise"),
    Mutant("a process that died before its successor's registration begins a new life", "S2",
           (at("earlier-process-gets-no-life", returns(False)),),
           "tests/unit/operator/controller/test_safety.py::"
           "test_s2_a_registration_that_comes_after_its_successors_ends_no_life",
           why_no_seed="it costs the living process its life and breaks no promise"),
    Mutant("producer ids found on a disk are neither known nor stored (a pair)", "S5", (
               at("producer-ids-found-on-disk", returns("NO_ROUND")),),
           "tests/regression/test_s5_producer_ids.py::"
           "test_registration_raises_the_counter_above_every_id_found_on_a_disk",
           "broker objects go"),
    Mutant("nobody's own stall extends sessions",
           "session extended by the controller's own stall",
           (at("own-stall-extends-sessions", returns(None)),),
           "tests/unit/operator/controller/core/test_sessions.py::"
           "test_the_controllers_own_stall_is_nobodys_silence",
           "silences add up"),
    Mutant("a take-over grants no session", "new controller grants one full session",
           (at("takeover-grants-sessions", wrap(_grants_no_session)),),
           "tests/unit/operator/controller/core/test_sessions.py::"
           "test_silence_fences_at_the_session_timeout_and_not_before",
           pair="neither grant nor mass expiry keeps a new controller from fencing (a pair)"),
    Mutant("neither grant nor mass expiry keeps a new controller from fencing (a pair)",
           "new controller grants one full session, S18", (
               at("takeover-grants-sessions", wrap(_grants_no_session)),
               at("mass-expiry", returns(False))),
           "tests/unit/operator/controller/core/test_sessions.py::"
           "test_silence_fences_at_the_session_timeout_and_not_before", "controllers die"),
    Mutant("brokers that expire together are fenced one by one", "both die in one event",
           (at("expired-together-are-one-event", wrap(_expires_one_by_one)),),
           "tests/unit/operator/controller/core/test_sessions.py::"
           "test_brokers_that_expired_together_are_one_event",
           "two die with their controller"),
    Mutant("half a pool silent at once is believed", "S18",
           (at("mass-expiry", returns(False)),),
           "tests/regression/test_s18_deaf_controller.py::"
           "test_a_deaf_controller_gives_way_and_nobody_is_fenced", "controllers go deaf"),
    Mutant("who gave way takes the Lease back at once", "S18",
           (at("stepped-down-controller-waits", returns(False)),),
           "tests/regression/test_s18_deaf_controller.py::"
           "test_a_controller_alone_judges_twice", "one controller stays deaf"),
    Mutant("the controller epoch is the Lease's alone", "S16",
           (at("controller-epoch-above-all-stored", wrap(_next_epoch_of_lease_alone)),),
           "tests/regression/test_s16_controller_epochs.py::"
           "test_a_term_that_wrote_nothing_shares_no_epoch_with_the_one_after_a_deleted_lease",
           "leases go"),
    Mutant("a Lease from a backup takes an epoch again", "S16",
           (at("stored-epoch-is-not-taken-again", returns(None)),),
           "tests/regression/test_s16_controller_epochs.py::"
           "test_a_lease_from_a_backup_takes_no_epoch_that_objects_have",
           why_no_seed="a Lease is deleted there, and never put back"),
    Mutant("who leaves an ISR is told when all slices are written", "L1",
           (at("leaving-broker-is-not-proposed", returns(None)),),
           "tests/unit/operator/controller/test_leaving_brokers.py",
           why_no_seed="what is proposed meanwhile is refused, which costs time alone"),
    Mutant("refused is dead", "S19",
           (at("refused-broker-still-polls", returns(True)),),
           "tests/regression/test_s19_refused_is_not_dead.py::"
           "test_a_broker_behind_a_rejecting_network_policy_is_not_fenced_while_it_polls",
           "probes are refused"),
    Mutant("leadership moves as often as it can", "S20",
           (at("one-move-in-lag-window", returns(False)),),
           "tests/regression/test_s20_gray_failure.py::"
           "test_one_move_in_a_lag_window_although_the_next_leaders_disk_hangs_too",
           "disks hang"),
    Mutant("the longest of the logs that happen to be there leads", "S14",
           (at("every-replica-reported", returns(True)),),
           "tests/traces/test_transcripts.py::"
           "test_a_transcript_is_what_the_cores_do[clean-stop-of-the-last-but-one]", "powers fail"),
    Mutant("the shortest log of all leads", "S14",
           (at("longest-log-leads", wrap(_takes_the_shortest)),),
           "tests/unit/operator/controller/core/test_elections.py::"
           "test_once_every_replica_reported_the_longest_log_leads", "powers fail"),
    Mutant("a valid entry is not waited for", "S14",
           (at("valid-entry-is-waited-for", returns(False)),),
           "tests/regression/test_s2_void_entries.py::"
           "test_stripping_cut_short_after_the_first_of_nine_slices_lets_nobody_"
           "lead_the_rest",
           "the last one hesitates"),
    Mutant("an unclean election without being asked", "B4: by choice only",
           (at("unclean-election-is-allowed", returns(True)),),
           "tests/unit/operator/controller/core/test_elections.py::"
           "test_with_one_replica_missing_only_a_human_decides", "the last one leaves"),
    Mutant("a human's choice comes true twice", "B4",
           (at("choice-counts-in-its-epoch", test(True)),),
           "tests/regression/test_s14_last_resorts.py::"
           "test_a_humans_choice_counts_in_one_leader_epoch_only",
           pair="a human's choice comes true twice, whenever it is looked at (a pair)"),
    Mutant("a human's choice comes true twice, whenever it is looked at (a pair)", "B4",
           (at("choice-counts-once", returns(True)),),
           "tests/regression/test_s14_last_resorts.py::"
           "test_a_humans_choice_counts_in_one_leader_epoch_only",
           "people choose"),
    Mutant("leaders by a slice that nobody confirmed", "S17",
           (at("slice-is-confirmed", returns(True)),
            at("slice-is-not-behind", returns(True))),
           "tests/regression/test_s17_old_backups.py::"
           "test_a_slice_restored_under_running_brokers_is_rebuilt_above_them_from_the_longest_log",
           "slices change"),
    Mutant("a leader of an earlier broker epoch is elected", "I12",
           (at("elected-as-seen", returns(True)),),
           "tests/unit/operator/controller/core/test_pool_state.py::"
           "test_a_broker_that_speaks_during_an_evaluation_is_elected_by_the_next_one",
           why_no_seed="a take-over, a fence and a lost write within some milliseconds are one in"
           " some thousand runs of all faults: seed 98000295 met it"),
    Mutant("a slice below what is held decides", "S17",
           (at("slice-below-held-epochs", returns(False)),),
           "tests/regression/test_s17_old_backups.py::"
           "test_a_slice_restored_under_running_brokers_is_rebuilt_above_them_from_the_longest_log",
           "slices change"),
    Mutant("a tombstone covers whatever has its topic id", "S12",
           (at("tombstone-covers-its-slices-only", returns(True)),),
           "tests/regression/test_s12_deleted_topics.py::"
           "test_a_slice_put_back_after_its_deletion_is_not_served_and_not_deleted_again",
           "deleted slices come back"),
    Mutant("a move begins whatever stands in its way", "B11, I19",
           (at("move-waits-for-obstacle", returns("''")),),
           "tests/unit/operator/controller/core/test_reassignment.py::"
           "test_a_move_that_would_leave_nobody_in_sync_is_refused",
           "newcomers are left alone"),
    Mutant("a move begins under a leader that was fenced", "S30, I12",
           (at("move-begins-under-live-leader", returns(True)),),
           "tests/unit/operator/controller/core/test_reassignment.py::"
           "test_no_move_begins_under_a_leader_that_was_fenced_and_has_no_successor_yet",
           "moves lose their leader"),
    Mutant("a move is over before its target has it all", "B11, I19",
           (at("move-completes-with-target-in-sync", returns("is_moving(partition)")),),
           "tests/unit/operator/controller/core/test_reassignment.py::"
           "test_nobody_leaves_before_the_whole_target_is_in_sync", "replicas move"),
)  # fmt: skip
