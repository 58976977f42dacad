"""Mutants of the replication cores: leader, follower, idempotent producers, follower reads."""

from typing import Any

from tidemark_broker.replication.effects import RejectFetch, TruncateLog
from tidemark_operator.controller.standing import Standings
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import NO_EPOCH
from tidemark_protocol.partition_state import Member

from tests.simulator.mutant import CONTROLLER, Mutant, always, always_property, patch

LEADER = "replication.leader:PartitionLeader."
FOLLOWER = "replication.follower:PartitionFollower."
PRODUCERS = "replication.producer_state:"


def _fetches_without_divergence(original: Any) -> Any:
    def next_fetch(self: Any, log: Any, now_ms: int) -> Any:
        fetch = original(self, log, now_ms)
        return None if fetch is None else fetch._replace(last_fetched_epoch=NO_EPOCH)

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


def _up_to_watermark(original: Any) -> Any:
    return lambda self, log_end_offset: self.high_watermark


def _in_one_order(original: Any) -> Any:
    return lambda replicas, refused: replicas


def _says_out_of_range_of_lost_epochs(original: Any) -> Any:
    """As Kafka does."""

    def check_position(self: Any, fetch: Any, log: Any) -> Any:
        last_epoch = fetch.last_fetched_epoch
        if last_epoch != NO_EPOCH and log.end_offset_for(last_epoch) is None:
            return RejectFetch(ErrorCode.OFFSET_OUT_OF_RANGE)
        return original(self, fetch, log)

    return check_position


def _as_kafka_truncates(original: Any) -> Any:
    """It knows the epoch of the first record that stays, and none before."""

    def truncate_from_start(self: Any, start_offset: int) -> Any:
        return original(self, start_offset + 1)

    return truncate_from_start


def _unchanged(partition: Any) -> Any:
    return partition


def _admits_any_life(original: Any) -> Any:
    def admitted(topic: Any, member: Member, partition: Any, standings: Standings) -> Member | None:
        replica = (topic.topic_id, partition.partition)
        standing = standings.of(member.broker_id)
        if standing is None or not standings.is_active(member.broker_id, replica):
            return None
        return Member(member.broker_id, standing.broker_epoch)

    return admitted


def _forgets_members_on_refusal(original: Any) -> Any:
    """A proposed member is dropped when the controller says no, not when the epoch rises."""

    def on_answer(self: Any, proposal: Any, error: ErrorCode, now_ms: int) -> Any:
        if error is not ErrorCode.NONE and self._pending is not None:
            self._pending = None
            return self._advance_high_watermark(now_ms)
        return original(self, proposal, error, now_ms)

    return on_answer


def _applied_only(original: Any) -> Any:
    return lambda self: self.state.in_sync_replicas


def _waits_for_members_only(original: Any) -> Any:
    return lambda self, slowest_member, now_ms: slowest_member


def _applies_whatever_comes(original: Any) -> Any:
    def apply_partition(self: Any, topic_id: Any, state: Any) -> bool:
        self.partitions[topic_id, state.partition] = state
        return True

    return apply_partition


def _restarts_lag_clock_never(original: Any) -> Any:
    return lambda self, stall_ms, now_ms: None


MUTANTS = (
    Mutant("a fetch of another leader epoch is served",
           "fetch carries and checks leader epoch",
           (patch(LEADER + "_leader_epoch_error", always(ErrorCode.NONE)),),
           "tests/transcripts/test_transcripts.py::"
           "test_a_transcript_is_what_the_cores_do[kip320-a-fetch-of-an-older-"
           "epoch]",
           search="no leader epoch is looked at when a fetch comes"),
    Mutant("a fetch of a former life is served",
           "fetch carries and checks broker epoch",
           (patch(LEADER + "_is_former_life", always(False)),),
           "tests/transcripts/test_transcripts.py::"
           "test_a_transcript_is_what_the_cores_do[s02-fetch-of-a-former-life]",
           pair="nobody compares broker epochs (leader's and controller's halves)"),
    Mutant("a fetch of another life counts for the entry", "S2",
           (patch(LEADER + "_counts_for", always(True)),),
           "tests/unit/replication/test_leader_watermark.py::"
           "test_a_fetch_counts_for_an_entry_only_in_the_same_life",
           pair="nobody compares broker epochs (leader's and controller's halves)"),
    Mutant("proposals admit whatever life lives now (controller's half)",
           "ISR proposal carries broker epochs",
           (patch(CONTROLLER + "in_sync_replicas:_admitted", _admits_any_life),),
           "tests/unit/controller/test_control_in_sync_replicas.py::"
           "test_an_ineligible_member_is_refused_and_the_refusal_raises_the_"
           "partition_epoch[older life]",
           pair="nobody compares broker epochs (leader's and controller's halves)"),
    Mutant("nobody compares broker epochs (leader's and controller's halves)",
           "fetch and ISR proposal carry broker epochs", (
               patch(LEADER + "_is_former_life", always(False)),
               patch(LEADER + "_counts_for", always(True)),
               patch(LEADER + "_is_present_life", always(True)),
               patch(CONTROLLER + "in_sync_replicas:_admitted", _admits_any_life)),
           "tests/transcripts/test_transcripts.py::"
           "test_a_transcript_is_what_the_cores_do[an-unflushed-tail-is-copied-"
           "again]", "joiners die"),
    Mutant("the watermark waits for the applied ISR only",
           "high watermark waits for maximal ISR",
           (patch(LEADER + "_waited_for", _applied_only),),
           "tests/unit/replication/test_leader_watermark.py::"
           "test_a_proposed_member_is_waited_for_even_when_fenced_or_late_"
           "meanwhile",
           pair="the watermark waits for the applied ISR only, and for no joiner (a pair)"),
    Mutant("the watermark waits for the applied ISR only, and for no joiner (a pair)",
           "high watermark waits for maximal ISR", (
               patch(LEADER + "_waited_for", _applied_only),
               patch(LEADER + "_slowest_joiner", _waits_for_members_only)),
           "tests/transcripts/test_transcripts.py::"
           "test_a_transcript_is_what_the_cores_do[commit-waits-for-the-maximal-"
           "isr]", "joiners die"),
    Mutant("the watermark moves below min ISR",
           "high watermark waits for min.insync.replicas",
           (patch(LEADER + "_may_commit", always(True)),),
           "tests/transcripts/test_transcripts.py::"
           "test_a_transcript_is_what_the_cores_do[a-shrink-of-an-older-state]", "leaders die"),
    Mutant("what the ISR alone commits below min ISR is acknowledged",
           "acks=all refused below min ISR before the append",
           (patch("runtime.produce_purgatory:_is_held", always(True)),),
           "tests/unit/runtime/test_produce_below_min_isr.py::"
           "test_what_the_isr_alone_commits_below_min_isr_is_told_to_be_in_the_log",
           "leaders die"),
    Mutant("acks=1 is answered from memory with flush: Always", "S11",
           (patch("runtime.produce_path:_waits_for_disk", always(False)),),
           "tests/unit/runtime/test_flush_always.py::"
           "test_with_flush_always_the_leader_alone_acknowledges_once_its_own_disk_has_it",
           "slow syncs"),
    Mutant("a state from before a move erases who joined by it", "S17",
           (patch("runtime.hosted_replicas:HostedReplicas.is_older_than_log", always(False)),),
           "tests/scenarios/test_s17_logs_unknown_to_a_slice.py::"
           "test_a_state_that_is_not_above_the_log_erases_nothing",
           why_no_seed="nothing moves in the weather that puts old slices back"),
    Mutant("truncation to the high watermark",
           "truncation asks for the divergence by epoch, not by high watermark",
           (patch(FOLLOWER + "_truncation", _truncates_to_watermark),),
           "tests/transcripts/test_transcripts.py::"
           "test_a_transcript_is_what_the_cores_do[kip279-an-epoch-of-neither]", "leaders die"),
    Mutant("no truncation before the first fetch",
           "a follower truncates before it fetches in a new epoch",
           (patch(FOLLOWER + "next_fetch", _fetches_without_divergence),),
           "tests/transcripts/test_transcripts.py::"
           "test_a_transcript_is_what_the_cores_do[a-diverging-answer-touches-no-"
           "watermark]", "leaders die"),
    Mutant("an epoch that the leader lost is out of range", "S22",
           (patch(LEADER + "_check_position", _says_out_of_range_of_lost_epochs),),
           "tests/transcripts/test_transcripts.py::"
           "test_a_transcript_is_what_the_cores_do[s22-a-lost-empty-epoch]",
           why_no_seed="whoever leads has its epoch in its log before it answers anybody (I5), and"
           " nobody follows it in a later one"),
    Mutant("joins below the watermark", "ISR entry only at or past the leader's high watermark",
           (patch(LEADER + "_has_reached_watermark", always(True)),),
           "tests/transcripts/test_transcripts.py::"
           "test_a_transcript_is_what_the_cores_do[a-diverging-answer-touches-no-"
           "watermark]", "leaders die"),
    Mutant("joins below the epoch's start", "ISR entry only past the start of its epoch",
           (patch(LEADER + "_has_reached_epoch_start", always(True)),),
           "tests/transcripts/test_transcripts.py::"
           "test_a_transcript_is_what_the_cores_do[joins-only-from-the-epochs-"
           "start]", "leaders die",
           search="expand without the check of the epoch's start"),
    Mutant("the watermark follows a diverging answer",
           "watermark only from a non-diverging answer",
           (patch(FOLLOWER + "on_answer", _watermark_from_divergence),),
           "tests/unit/replication/test_follower.py::"
           "test_a_diverging_answer_touches_no_watermark",
           why_no_seed="the cut comes in the same step and takes it down again, before anybody"
           " could be shown it"),
    Mutant("acks=all admitted and acknowledged below min ISR",
           "acks=all refused below min ISR before the append",
           (patch(LEADER + "has_enough_in_sync_replicas", always_property(True)),),
           "tests/unit/runtime/test_idempotent_produce.py::"
           "test_below_min_insync_a_duplicate_is_refused_like_any_produce", "leaders die"),
    Mutant("acks=all appended below min ISR",
           "acks=all refused below min ISR before the append",
           (patch("runtime.produce_path:_refusal", always(None)),),
           "tests/unit/runtime/test_idempotent_produce.py::"
           "test_below_min_insync_a_duplicate_is_refused_like_any_produce", "leaders die"),
    Mutant("progress kept over a missed epoch", "S27",
           (patch(LEADER + "_is_next_epoch_of", always(True)),),
           "tests/scenarios/test_s27_skipped_epoch.py::"
           "test_progress_from_before_an_epoch_that_the_leader_missed_"
           "acknowledges_nothing",
           search="progress kept over an epoch that was missed (S27)"),
    Mutant("an epoch that retention took is agreed to", "S32",
           (patch("replication.forgotten_epochs:is_forgotten", always(False)),),
           "tests/scenarios/test_s32_forgotten_epochs.py::"
           "test_a_follower_keeps_nothing_of_an_epoch_that_its_leader_has_forgotten[tail1]",
           why_no_seed="a deposed leader that stays away until retention has passed where it parted"
           ", and ends just there"),
    Mutant("a cut to the leader's log start keeps what lies below", "S32",
           (patch("replication.follower:_keeps_nothing", always(False)),),
           "tests/scenarios/test_s32_forgotten_epochs.py::"
           "test_a_follower_keeps_nothing_of_an_epoch_that_its_leader_has_forgotten[tail2]",
           why_no_seed="a deposed leader that stays away until retention has passed where it"
           " parted: once in 1,000 seeds"),
    Mutant("who is counted on by all it has heard begins anew all the same", "S32",
           (patch("replication.follower:PartitionFollower._is_word_awaited", always(False)),),
           "tests/unit/replication/test_follower.py::"
           "test_a_replica_that_is_counted_on_waits_until_it_hears_that_it_is_not",
           why_no_seed="retention up to a leader's log end while a member leaves the ISR: once in"
           " 3,600 seeds"),
    Mutant("no epoch is known of what retention took", "S32",
           (patch("storage.leader_epochs:LeaderEpochs.truncate_from_start", _as_kafka_truncates),),
           "tests/scenarios/test_s32_forgotten_epochs.py::"
           "test_who_ends_where_its_leaders_log_starts_still_knows_its_producers[0]",
           why_no_seed="retention of all that a producer wrote while its acknowledgement is lost"
           ": once in more than 10,000 seeds"),
    Mutant("a damaged log is cut before its leader has said what it has", "B9",
           (patch(FOLLOWER + "knows_what_is_shared", always_property(True)),),
           "tests/unit/runtime/test_replica_damage.py::"
           "test_what_its_leader_never_had_is_not_waited_for",
           why_no_seed="an unclean election just then, by a leader that never had as much"),
    Mutant("a damaged replica is taken back with what was committed", "I6, B9",
           (patch(FOLLOWER + "shared_end", _up_to_watermark),),
           "tests/unit/runtime/test_replica_damage.py::"
           "test_what_it_had_told_its_leader_is_waited_for_too",
           why_no_seed="a proposal that is sent again after the cut, and a leader that dies with"
           " it"),
    Mutant("who is refused is proposed for ever", "B1",
           (patch("replication.leader:in_turn", _in_one_order),),
           "tests/unit/replication/test_leader_in_sync.py::"
           "test_who_is_not_let_in_keeps_nobody_else_out",
           why_no_seed="a failed replica stays behind its leader no longer than its refetch takes"),
    Mutant("progress kept of a replica that may have left and come back", "S30",
           (patch(LEADER + "_has_stayed", always(True)),),
           "tests/scenarios/test_s30_left_and_came_back.py::"
           "test_a_leader_that_hears_of_its_return_only_does_not_count_what_it_had",
           "moves are taken back"),
    Mutant("older states are applied (leader's half)", "I14",
           (patch(LEADER + "_is_newer", always(True)),),
           "tests/transcripts/test_transcripts.py::"
           "test_a_transcript_is_what_the_cores_do[commit-waits-for-who-just-"
           "caught-up]",
           pair="older states are applied (metadata's, replica's and leader's guard)"),
    Mutant("whatever state comes is known (metadata's half)", "I14, S17",
           (patch("runtime.metadata:MetadataCache.apply_partition", _applies_whatever_comes),),
           "tests/unit/runtime/test_metadata_cache.py::"
           "test_the_same_push_again_changes_nothing",
           pair="older states are applied (metadata's, replica's and leader's guard)"),
    Mutant("older states are applied (metadata's, replica's and leader's guard)", "I14, S17", (
               patch("runtime.metadata:MetadataCache.apply_partition", _applies_whatever_comes),
               patch("runtime.hosted_replica:HostedReplica._is_older", always(False)),
               patch(LEADER + "_is_newer", always(True))),
           "tests/unit/runtime/test_metadata_cache.py::"
           "test_the_same_push_again_changes_nothing", "slices change"),
    Mutant("a member below the watermark stays", "S7",
           (patch(LEADER + "_is_below_watermark", always(False)),),
           "tests/scenarios/test_s7_another_mount.py::"
           "test_a_member_that_fetches_below_the_high_watermark_is_expelled_at_"
           "once",
           why_no_seed="only behind a proof that lied: a restored volume has another claim"),
    Mutant("an answer to another question counts", "I7, KAFKA-13266",
           (patch(FOLLOWER + "_is_for_this_moment", always(True)),),
           "tests/transcripts/test_transcripts.py::"
           "test_a_transcript_is_what_the_cores_do[an-answer-of-an-older-epoch]",
           search="an answer to a question of before counts"),
    Mutant("a refusal raises no epoch, and is taken for the end (a pair)",
           "S3, refused expand raises the partition epoch", (
               patch(CONTROLLER + "in_sync_replicas:raised", lambda original: _unchanged),
               patch(LEADER + "on_answer", _forgets_members_on_refusal)),
           "tests/scenarios/test_s3_refused_expand.py::"
           "test_what_was_acknowledged_after_a_refusal_is_in_the_log_of_whoever_"
           "can_still_lead",
           search="a refused expand that raises no partition epoch, and is dropped (a pair)"),
    Mutant("who cuts committed records says nothing", "S28",
           (patch("runtime.committed_cuts:CommittedCuts.note", always(None)),),
           "tests/scenarios/test_s28_losses_of_a_frozen_leader.py::"
           "test_a_leader_that_thaws_reports_what_it_cuts", "unclean elections"),
    Mutant("a leader's own stall makes followers late", "S21",
           (patch(LEADER + "on_stall", _restarts_lag_clock_never),),
           "tests/unit/replication/test_leader_in_sync.py::"
           "test_a_stall_of_the_leader_makes_nobody_late",
           "brokers stall"),
    Mutant("a duplicate is not found", "duplicate sequence answered with the first offset",
           (patch(PRODUCERS + "_find_duplicate", always(None)),),
           "tests/unit/replication/test_producer_state.py::"
           "test_any_of_the_last_five_batches_is_a_duplicate_at_its_own_offset[0]", "leaders die"),
    Mutant("any sequence is the next one", "B8: gaps and repetitions are refused",
           (patch(PRODUCERS + "_is_next", always(True)),),
           "tests/unit/replication/test_producer_state.py::"
           "test_neither_gap_nor_overlap_is_taken[9]", "leaders die"),
    Mutant("an older producer epoch writes on", "B8: epoch bumps fence",
           (patch(PRODUCERS + "_is_fenced", always(False)),),
           "tests/unit/replication/test_producer_state.py::"
           "test_a_lower_epoch_is_fenced",
           "old batches come late"),
    Mutant("an unknown producer begins anywhere", "B8",
           (patch(PRODUCERS + "_may_begin", always(True)),),
           "tests/unit/replication/test_producer_state.py::"
           "test_an_unknown_producer_may_not_begin_elsewhere",
           weather="leaders die"),
    Mutant("any follower serves readers", "B10: in sync, and confirmed within the lag window",
           (patch("runtime.consumer_reads:may_serve_as_follower", always(True)),),
           "tests/unit/runtime/test_follower_reads.py::"
           "test_a_follower_that_knows_itself_out_of_sync_sends_its_readers_away",
           "followers are cut off"),
    Mutant("any follower is preferred", "B10",
           (patch("replication.read_replicas:may_be_preferred", always(True)),),
           "tests/unit/replication/test_read_replicas.py::"
           "test_one_that_is_not_known_to_have_the_offset_is_not_preferred",
           why_no_seed="simulated consumers choose by themselves"),
    Mutant("a fetch by a former topic's id reads the later one's log", "B12",
           (patch("runtime.kafka.consumer_fetch:ConsumerFetch._topic", lambda original: (
               lambda self, key: key[0] or self._partitions.metadata.topics_by_id[key[1]].topic)),),
           "tests/scenarios/test_s17_logs_unknown_to_a_slice.py::"
           "test_a_fetch_by_a_former_topics_id_is_not_answered_with_the_later_ones_records",
           why_no_seed="a broker that knows a former topic's id beside the later one's is rare"),
    Mutant("a question of another leader epoch is told this one's watermark", "I2",
           (patch("runtime.replica_fetches:ReplicaFetches._is_asked_in_its_epoch", always(True)),),
           "tests/unit/runtime/test_replica_sessions.py::"
           "test_a_question_of_a_former_leader_epoch_is_told_no_watermark_of_this_one",
           why_no_seed="an answer that is full, to a follower that missed two elections"),
)  # fmt: skip
