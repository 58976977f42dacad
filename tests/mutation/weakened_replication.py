"""Mutants of the replication cores: leader, follower, idempotent producers, follower reads."""

from typing import Any

from tidemark_broker.replication.core.effects import RejectFetch
from tidemark_operator.controller.core.eligibility import Eligibility
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import NO_EPOCH
from tidemark_protocol.partition_state import Member

from tests.mutation.edits import at, returns, value, wrap
from tests.mutation.mutant import Mutant


def _fetches_without_divergence(original: Any) -> Any:
    def next_fetch(self: Any, log: Any, now_ms: int) -> Any:
        fetch = original(self, log, now_ms)
        return None if fetch is None else fetch._replace(last_fetched_epoch=NO_EPOCH)

    return next_fetch


def _watermark_from_divergence(original: Any) -> Any:
    def on_response(self: Any, fetch: Any, answer: Any, log: Any, now_ms: int) -> Any:
        effects = original(self, fetch, answer, log, now_ms)
        if answer.diverging_epoch is not None and effects:
            return (*self.on_appended(answer.high_watermark, log.log_end_offset), *effects)
        return effects

    return on_response


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


def _admits_any_epoch(original: Any) -> Any:
    def admitted(
        topic: Any, member: Member, partition: Any, eligibility: Eligibility
    ) -> Member | None:
        replica = (topic.topic_id, partition.partition)
        broker_eligibility = eligibility.of(member.broker_id)
        if broker_eligibility is None or not eligibility.is_active(member.broker_id, replica):
            return None
        return Member(member.broker_id, broker_eligibility.broker_epoch)

    return admitted


def _forgets_members_on_rejection(original: Any) -> Any:
    """A proposed member is dropped when the controller says no, not when the epoch rises."""

    def on_response(self: Any, proposal: Any, error: ErrorCode, now_ms: int) -> Any:
        if error is not ErrorCode.NONE and self._pending is not None:
            self._pending = None
            return self._advance_high_watermark(now_ms)
        return original(self, proposal, error, now_ms)

    return on_response


def _applies_whatever_comes(original: Any) -> Any:
    def apply_partition(self: Any, topic_id: Any, state: Any) -> bool:
        self.partitions[topic_id, state.partition] = state
        return True

    return apply_partition


MUTANTS = (
    Mutant("a fetch of another leader epoch is served",
           "fetch carries and checks leader epoch",
           (at("fetch-in-same-leader-epoch", returns("ErrorCode.NONE")),),
           "tests/traces/test_transcripts.py::"
           "test_a_transcript_is_what_the_cores_do[kip320-a-fetch-of-an-older-"
           "epoch]",
           search="no leader epoch is looked at when a fetch comes"),
    Mutant("a fetch of a former life is served",
           "fetch carries and checks broker epoch",
           (at("fetch-not-of-earlier-life", returns(False)),),
           "tests/traces/test_transcripts.py::"
           "test_a_transcript_is_what_the_cores_do[s02-fetch-of-a-former-life]",
           pair="nobody compares broker epochs (leader's and controller's halves)"),
    Mutant("a fetch of another life counts for the entry", "S2",
           (at("fetch-counts-for-its-own-life", returns(True)),),
           "tests/unit/broker/replication/core/test_leader_watermark.py::"
           "test_a_fetch_counts_for_an_entry_only_in_the_same_life",
           pair="nobody compares broker epochs (leader's and controller's halves)"),
    Mutant("proposals admit whatever life lives now (controller's half)",
           "ISR proposal carries broker epochs",
           (at("join-names-present-life", wrap(_admits_any_epoch)),),
           "tests/unit/operator/controller/core/test_isr.py::"
           "test_an_ineligible_member_is_refused_and_the_refusal_raises_the_"
           "partition_epoch[older life]",
           pair="nobody compares broker epochs (leader's and controller's halves)"),
    Mutant("nobody compares broker epochs (leader's and controller's halves)",
           "fetch and ISR proposal carry broker epochs", (
               at("fetch-not-of-earlier-life", returns(False)),
               at("fetch-counts-for-its-own-life", returns(True)),
               at("proposal-of-present-life", returns(True)),
               at("join-names-present-life", wrap(_admits_any_epoch))),
           "tests/traces/test_transcripts.py::"
           "test_a_transcript_is_what_the_cores_do[an-unflushed-tail-is-copied-"
           "again]", "joiners die"),
    Mutant("the watermark waits for the applied ISR only",
           "high watermark waits for maximal ISR",
           (at("watermark-waits-for-maximal-isr", returns("self.state.in_sync_replicas")),),
           "tests/unit/broker/replication/core/test_leader_watermark.py::"
           "test_a_proposed_member_is_waited_for_even_when_fenced_or_late_"
           "meanwhile",
           pair="the watermark waits for the applied ISR only, and for no joiner (a pair)"),
    Mutant("the watermark waits for the applied ISR only, and for no joiner (a pair)",
           "high watermark waits for maximal ISR", (
               at("watermark-waits-for-maximal-isr", returns("self.state.in_sync_replicas")),
               at("watermark-waits-for-joiners", returns("slowest_member"))),
           "tests/traces/test_transcripts.py::"
           "test_a_transcript_is_what_the_cores_do[commit-waits-for-the-maximal-"
           "isr]", "joiners die"),
    Mutant("the watermark moves below min ISR",
           "high watermark waits for min.insync.replicas",
           (at("watermark-waits-for-min-isr", returns(True)),),
           "tests/traces/test_transcripts.py::"
           "test_a_transcript_is_what_the_cores_do[a-shrink-of-an-older-state]", "leaders die"),
    Mutant("what the ISR alone commits below min ISR is acknowledged",
           "acks=all refused below min ISR before the append",
           (at("acknowledge-with-min-isr", returns(True)),),
           "tests/unit/broker/replication/test_isr_shrinks_after_append.py::"
           "test_what_the_isr_alone_commits_below_min_isr_is_told_to_be_in_the_log",
           "leaders die"),
    Mutant("acks=1 is answered from memory with flush: Always", "S11",
           (at("leader-acknowledges-once-synced", returns(False)),),
           "tests/unit/broker/replication/test_flush_always.py::"
           "test_with_flush_always_the_leader_alone_acknowledges_once_its_own_disk_has_it",
           "slow syncs"),
    Mutant("a state from before a move erases who joined by it", "S17",
           (at("erase-by-newer-state-only", returns(False)),),
           "tests/regression/test_s17_logs_unknown_to_a_slice.py::"
           "test_a_state_that_is_not_above_the_log_erases_nothing",
           why_no_seed="nothing moves in the fault profile that puts old slices back"),
    Mutant("truncation to the high watermark",
           "truncation asks for the divergence by epoch, not by high watermark",
           (at("truncate-by-leader-epoch",
               returns("TruncateLog(min(self.high_watermark, log.log_end_offset))")),),
           "tests/traces/test_transcripts.py::"
           "test_a_transcript_is_what_the_cores_do[kip279-an-epoch-of-neither]", "leaders die"),
    Mutant("no truncation before the first fetch",
           "a follower truncates before it fetches in a new epoch",
           (at("fetch-names-last-epoch", wrap(_fetches_without_divergence)),),
           "tests/traces/test_transcripts.py::"
           "test_a_transcript_is_what_the_cores_do[a-diverging-answer-touches-no-"
           "watermark]", "leaders die"),
    Mutant("an epoch that the leader lost is out of range", "S22",
           (at("lost-epoch-is-diverging", wrap(_says_out_of_range_of_lost_epochs)),),
           "tests/traces/test_transcripts.py::"
           "test_a_transcript_is_what_the_cores_do[s22-a-lost-empty-epoch]",
           why_no_seed="whoever leads has its epoch in its log before it answers anybody (I5), and"
           " nobody follows it in a later one"),
    Mutant("joins below the watermark", "ISR entry only at or past the leader's high watermark",
           (at("join-at-watermark", returns(True)),),
           "tests/traces/test_transcripts.py::"
           "test_a_transcript_is_what_the_cores_do[a-diverging-answer-touches-no-"
           "watermark]", "leaders die"),
    Mutant("joins below the epoch's start", "ISR entry only past the start of its epoch",
           (at("join-past-epoch-start", returns(True)),),
           "tests/traces/test_transcripts.py::"
           "test_a_transcript_is_what_the_cores_do[joins-only-from-the-epochs-"
           "start]", "leaders die",
           search="expand without the check of the epoch's start"),
    Mutant("the watermark follows a diverging answer",
           "watermark only from a non-diverging answer",
           (at("diverging-answer-moves-no-watermark", wrap(_watermark_from_divergence)),),
           "tests/unit/broker/replication/core/test_follower.py::"
           "test_a_diverging_answer_touches_no_watermark",
           why_no_seed="the cut comes in the same step and takes it down again, before anybody"
           " could be shown it"),
    Mutant("acks=all admitted and acknowledged below min ISR",
           "acks=all refused below min ISR before the append",
           (at("enough-in-sync-replicas", returns(True)),),
           "tests/unit/broker/replication/test_idempotent_produce.py::"
           "test_below_min_insync_a_duplicate_is_refused_like_any_produce", "leaders die"),
    Mutant("acks=all appended below min ISR",
           "acks=all refused below min ISR before the append",
           (at("append-with-min-isr", returns(None)),),
           "tests/unit/broker/replication/test_idempotent_produce.py::"
           "test_below_min_insync_a_duplicate_is_refused_like_any_produce", "leaders die"),
    Mutant("progress kept over a missed epoch", "S27",
           (at("progress-kept-in-next-epoch-only", returns(True)),),
           "tests/regression/test_s27_skipped_epoch.py::"
           "test_progress_from_before_an_epoch_that_the_leader_missed_"
           "acknowledges_nothing",
           search="progress kept over an epoch that was missed (S27)"),
    Mutant("an epoch that retention took is agreed to", "S32",
           (at("no-agreement-on-forgotten-epoch", returns(False)),),
           "tests/regression/test_s32_forgotten_epochs.py::"
           "test_a_follower_keeps_nothing_of_an_epoch_that_its_leader_has_forgotten[tail1]",
           why_no_seed="a deposed leader that stays away until retention has passed where it parted"
           ", and ends just there"),
    Mutant("a cut to the leader's log start keeps what lies below", "S32",
           (at("restart-below-leader-log-start", returns(False)),),
           "tests/regression/test_s32_forgotten_epochs.py::"
           "test_a_follower_keeps_nothing_of_an_epoch_that_its_leader_has_forgotten[tail2]",
           why_no_seed="a deposed leader that stays away until retention has passed where it"
           " parted: once in 1,000 seeds"),
    Mutant("who is counted on by all it has heard begins anew all the same", "S32",
           (at("restart-once-out-of-isr", returns(False)),),
           "tests/unit/broker/replication/core/test_follower.py::"
           "test_a_replica_that_is_counted_on_waits_until_it_hears_that_it_is_not",
           why_no_seed="retention up to a leader's log end while a member leaves the ISR: once in"
           " 3,600 seeds"),
    Mutant("no epoch is known of what retention took", "S32",
           (at("retention-keeps-last-epoch", wrap(_as_kafka_truncates)),),
           "tests/regression/test_s32_forgotten_epochs.py::"
           "test_who_ends_where_its_leaders_log_starts_still_knows_its_producers[0]",
           why_no_seed="retention of all that a producer wrote while its acknowledgement is lost"
           ": once in more than 10,000 seeds"),
    Mutant("a damaged log is cut before its leader has said what it has", "B9",
           (at("damage-cut-once-shared-end-known", returns(True)),),
           "tests/unit/broker/replication/test_corruption_repair.py::"
           "test_what_its_leader_never_had_is_not_waited_for",
           why_no_seed="an unclean election just then, by a leader that never had as much"),
    Mutant("a damaged replica is taken back with what was committed", "I6, B9",
           (at("damage-repaired-up-to-log-end", returns("self.high_watermark")),),
           "tests/unit/broker/replication/test_corruption_repair.py::"
           "test_what_it_had_told_its_leader_is_waited_for_too",
           why_no_seed="a proposal that is sent again after the cut, and a leader that dies with"
           " it"),
    Mutant("who is refused is proposed for ever", "B1",
           (at("refused-replica-waits-its-turn", returns("replicas")),),
           "tests/unit/broker/replication/core/test_leader.py::"
           "test_who_is_not_let_in_keeps_nobody_else_out",
           why_no_seed="a failed replica stays behind its leader no longer than its refetch takes"),
    Mutant("progress kept of a replica that may have left and come back", "S30",
           (at("progress-of-members-only", returns(True)),),
           "tests/regression/test_s30_left_and_came_back.py::"
           "test_a_leader_that_hears_of_its_return_only_does_not_count_what_it_had",
           "moves are taken back"),
    Mutant("older states are applied (leader's half)", "I14",
           (at("leader-applies-newer-state", returns(True)),),
           "tests/traces/test_transcripts.py::"
           "test_a_transcript_is_what_the_cores_do[commit-waits-for-who-just-"
           "caught-up]",
           pair="older states are applied (metadata's, replica's and leader's guard)"),
    Mutant("whatever state comes is known (metadata's half)", "I14, S17",
           (at("metadata-keeps-newer-state", wrap(_applies_whatever_comes)),),
           "tests/unit/broker/metadata/test_metadata_cache.py::"
           "test_the_same_push_again_changes_nothing",
           pair="older states are applied (metadata's, replica's and leader's guard)"),
    Mutant("older states are applied (metadata's, replica's and leader's guard)", "I14, S17", (
               at("metadata-keeps-newer-state", wrap(_applies_whatever_comes)),
               at("replica-applies-newer-state", returns(False)),
               at("leader-applies-newer-state", returns(True))),
           "tests/unit/broker/metadata/test_metadata_cache.py::"
           "test_the_same_push_again_changes_nothing", "slices change"),
    Mutant("a member below the watermark stays", "S7",
           (at("member-below-watermark-is-expelled", returns(False)),),
           "tests/regression/test_s7_another_mount.py::"
           "test_a_member_that_fetches_below_the_high_watermark_is_expelled_at_"
           "once",
           why_no_seed="only behind a proof that lied: a restored volume has another claim"),
    Mutant("an answer to another question counts", "I7, KAFKA-13266",
           (at("answer-to-present-fetch", returns(True)),),
           "tests/traces/test_transcripts.py::"
           "test_a_transcript_is_what_the_cores_do[an-answer-of-an-older-epoch]",
           search="an answer to a question of before counts"),
    Mutant("a refusal raises no epoch, and is taken for the end (a pair)",
           "S3, refused expand raises the partition epoch", (
               at("refused-join-raises-partition-epoch",
                  value("Verdict(ErrorCode.INELIGIBLE_REPLICA, partition)")),
               at("refusal-keeps-proposal-pending", wrap(_forgets_members_on_rejection))),
           "tests/regression/test_s3_refused_expand.py::"
           "test_what_was_acknowledged_after_a_refusal_is_in_the_log_of_whoever_"
           "can_still_lead",
           search="a refused expand that raises no partition epoch, and is dropped (a pair)"),
    Mutant("who cuts committed records says nothing", "S28",
           (at("committed-truncation-is-reported", returns(None)),),
           "tests/regression/test_s28_losses_of_a_frozen_leader.py::"
           "test_a_leader_that_thaws_reports_what_it_cuts", "unclean elections"),
    Mutant("a leader's own stall makes followers late", "S21",
           (at("leader-stall-makes-none-late", returns(None)),),
           "tests/unit/broker/replication/core/test_leader.py::"
           "test_a_stall_of_the_leader_makes_nobody_late",
           "brokers stall"),
    Mutant("a duplicate is not found", "duplicate sequence answered with the first offset",
           (at("duplicate-is-found", returns(None)),),
           "tests/unit/broker/replication/core/test_idempotence.py::"
           "test_any_of_the_last_five_batches_is_a_duplicate_at_its_own_offset[0]", "leaders die"),
    Mutant("any sequence is the next one", "B8: gaps and repetitions are refused",
           (at("sequence-is-next", returns(True)),),
           "tests/unit/broker/replication/core/test_idempotence.py::"
           "test_neither_gap_nor_overlap_is_taken[9]", "leaders die"),
    Mutant("an older producer epoch writes on", "B8: epoch bumps fence",
           (at("older-producer-epoch-is-fenced", returns(False)),),
           "tests/unit/broker/replication/core/test_idempotence.py::"
           "test_a_lower_epoch_is_fenced",
           "old batches come late"),
    Mutant("an unknown producer begins anywhere", "B8",
           (at("unknown-producer-begins-at-zero", returns(True)),),
           "tests/unit/broker/replication/core/test_idempotence.py::"
           "test_an_unknown_producer_may_not_begin_elsewhere",
           profile="leaders die"),
    Mutant("any follower serves readers", "B10: in sync, and confirmed within the lag window",
           (at("follower-serves-in-sync-only", returns(True)),),
           "tests/unit/broker/replication/test_follower_reads.py::"
           "test_a_follower_that_knows_itself_out_of_sync_sends_its_readers_away",
           "followers are cut off"),
    Mutant("any follower is preferred", "B10",
           (at("preferred-follower-has-offset", returns(True)),),
           "tests/unit/broker/replication/core/test_read_replicas.py::"
           "test_one_that_is_not_known_to_have_the_offset_is_not_preferred",
           why_no_seed="simulated consumers choose by themselves"),
    Mutant("a fetch by a former topic's id reads the later one's log", "B12",
           (at("topic-id-is-present-one", value(False)),),
           "tests/regression/test_s17_logs_unknown_to_a_slice.py::"
           "test_a_fetch_by_a_former_topics_id_is_not_answered_with_the_later_ones_records",
           why_no_seed="a broker that knows a former topic's id beside the later one's is rare"),
    Mutant("a question of another leader epoch is told this one's watermark", "I2",
           (at("watermark-told-in-asked-epoch", returns(True)),),
           "tests/unit/broker/replication/test_follower_fetch.py::"
           "test_a_question_of_a_former_leader_epoch_is_told_no_watermark_of_this_one",
           why_no_seed="an answer that is full, to a follower that missed two elections"),
)  # fmt: skip
