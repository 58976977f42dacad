"""Mutants of the storage and of what a broker does at its start and when a disk fails."""

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from tidemark_broker.log.checkpoint_formats import LOCK
from tidemark_broker.log.clean_shutdown import SPENT_BOOT_RECORD, STORED_BOOT_RECORD
from tidemark_broker.log.producer_state_entry import ProducerEntry, ProducerStateEntries

from tests.mutation.edits import at, drop, returns, test, wrap
from tests.mutation.mutant import Mutant
from tests.simulation.faults.optional_faults import COMPACTED, COMPACTED_FLIPS, OLD_RECORDS, RESTING


def _locks_a_file_of_its_own(original: Any) -> Any:
    numbers = count()

    def lock(disk: Any, path: Path) -> Any:
        return disk.lock(path / f"{LOCK}.{next(numbers)}")

    return lock


def _allows_networks(original: Any) -> Any:
    def opened(*arguments: Any, settings: Any, **named: Any) -> Any:
        allowed = replace(settings, allow_network_filesystem=True)
        return original(*arguments, settings=allowed, **named)

    return opened


def _keeps_one_batch(original: Any) -> Any:
    """As Kafka's snapshot does."""

    def encode(states: ProducerStateEntries, epoch_before: Any) -> Any:
        kept = ProducerStateEntries()
        for producer_id, entry in states:
            kept.restore(producer_id, ProducerEntry(entry.batches[-1:], has_removed_epochs=True))
        return original(kept, epoch_before)

    return encode


def _forgets_at_the_next_look(original: Any) -> Any:
    def expire(states: ProducerStateEntries, now_ms: int, *, expiration_ms: int) -> Any:
        return original(states, now_ms, expiration_ms=0)

    return expire


def _reads_and_leaves(original: Any) -> Any:
    def take(self: Any) -> None:
        self._clean_stop_epoch = self._read_clean_stop()
        stamp = self._read_boot_record(STORED_BOOT_RECORD)
        self._boot_record = None if self.has_clean_stop else stamp
        self._disk_boot_record = stamp or self._read_boot_record(SPENT_BOOT_RECORD)

    return take


def _keeps(claim: str) -> Any:
    """Whatever recovery cut off."""

    def mutate(original: Any) -> Any:
        def weigh(self: Any, only_a_torn_tail: bool) -> None:
            kept = getattr(self, claim)
            original(self, only_a_torn_tail)
            setattr(self, claim, kept)

        return weigh

    return mutate


MUTANTS = (
    Mutant("two processes on one volume", "directory lock",
           (at("directory-lock", wrap(_locks_a_file_of_its_own)),),
           "tests/unit/broker/log/test_log_manager.py::"
           "test_a_second_process_is_told_who_holds_the_directory", "forced deletions"),
    Mutant("a lock of a network filesystem is believed", "S13",
           (at("no-network-filesystem", wrap(_allows_networks)),),
           "tests/unit/broker/log/test_log_manager.py::"
           "test_network_filesystems_are_refused_unless_allowed",
           why_no_seed="simulated volumes are of one machine"),
    Mutant("proofs stay on the volume while logs are read", "stamp removed before logs are read",
           (at("proofs-removed-before-logs-are-read", wrap(_reads_and_leaves)),),
           "tests/regression/test_s1_unclean_start_forgotten.py::"
           "test_a_store_that_does_not_answer_gives_no_stamp",
           pair="proofs stay on the volume while logs are read, and are not weighed (a pair)"),
    Mutant("proofs stay on the volume while logs are read, and are not weighed (a pair)",
           "stamp removed before logs are read", (
               at("proofs-removed-before-logs-are-read", wrap(_reads_and_leaves)),
               at("damage-voids-proofs", returns(None))),
           "tests/regression/test_s1_unclean_start_forgotten.py::"
           "test_a_store_that_does_not_answer_gives_no_stamp", "starts are cut short"),
    Mutant("a boot stamp counts whatever recovery cut off", "S8",
           (at("damage-voids-proofs", wrap(_keeps("_boot_stamp"))),),
           "tests/regression/test_s8_lost_write_back.py::"
           "test_damage_is_not_what_a_kill_leaves[last batch]", "tails flip"),
    Mutant("a damaged length is taken for a torn tail", "S8, I10",
           (at("damaged-length-is-no-torn-tail", returns(False)),),
           "tests/unit/broker/log/test_recovery.py::"
           "test_a_flipped_bit_in_a_length_is_damage_although_it_looks_like_a_torn_tail[1-24]",
           "tails flip"),
    Mutant("a stop proof counts whatever recovery cut off", "S8",
           (at("damage-voids-proofs", wrap(_keeps("_clean_stop_epoch"))),),
           "tests/regression/test_s8_lost_write_back.py::"
           "test_a_clean_stop_leaves_nothing_to_cut",
           pair="a stop proof counts, also of a log below its own watermark (a pair)"),
    Mutant("a stop proof counts, also of a log below its own watermark (a pair)", "S8, S9", (
               at("damage-voids-proofs", wrap(_keeps("_clean_stop_epoch"))),
               at("lost-replica", returns(False))),
           "tests/regression/test_s8_lost_write_back.py::"
           "test_a_clean_stop_leaves_nothing_to_cut", "tails flip"),
    Mutant("logs are not synced before the proof is claimed", "S8",
           (at("logs-synced-before-proof", returns(None)),),
           "tests/regression/test_s8_lost_write_back.py::"
           "test_a_restart_secures_what_the_killed_process_left_before_it_claims_"
           "its_proof", "pages go"),
    Mutant("what a failed sync lost is not written again", "S8",
           (at("unsynced-log-is-rewritten", returns(None)),),
           "tests/regression/test_s8_lost_write_back.py::"
           "test_what_a_failed_sync_may_have_lost_is_written_once_more[0-False]",
           "syncs lie before a stop"),
    Mutant("the stamp stays after a lost write", "S8",
           (at("lost-write-removes-stamp", returns(None)),),
           "tests/regression/test_s8_lost_write_back.py::"
           "test_without_a_controller_it_ends_once_the_stamp_is_off_the_volume",
           pair="the stamp stays, and a log below its own watermark is whole (a pair)"),
    Mutant("the stamp stays, and a log below its own watermark is whole (a pair)",
           "S8, S9", (
               at("lost-write-removes-stamp", returns(None)),
               at("lost-replica", returns(False))),
           "tests/regression/test_s8_lost_write_back.py::"
           "test_without_a_controller_it_ends_once_the_stamp_is_off_the_volume",
           "syncs lie unheard"),
    Mutant("a failed append is left behind", "S10, failed append rolled back",
           (at("failed-append-is-rolled-back", returns(None)),),
           "tests/regression/test_s10_failed_append.py::"
           "test_a_retry_after_a_full_disk_is_written_and_readable",
           "bad disks"),
    Mutant("an empty epoch is forgotten", "I5, KAFKA-7415",
           (at("empty-epoch-is-stored", returns(None)),),
           "tests/unit/broker/log/test_producer_state_manager.py::"
           "test_leader_and_follower_know_the_same", "leaders die"),
    Mutant("a recreated log keeps its checkpoints", "S23",
           (at("recreated-log-drops-checkpoints", returns(None)),),
           "tests/regression/test_s23_recreated_topics.py::"
           "test_a_kill_at_any_step_of_the_recreation_exposes_nothing_uncommitted", "topics churn"),
    Mutant("a sync counts although the log was cut meanwhile", "S11", (
               at("sync-before-truncation-is-stale", returns(None)),
               at("sync-during-truncation-is-stale", returns(None))),
           "tests/unit/broker/log/test_partition_log.py::"
           "test_truncation_into_an_older_segment_drops_the_later_ones",
           why_no_seed="the profile *cuts are trusted* noticed it at seed 36 until brokers kept a "
           "reserve, and at none of 200 since"),
    Mutant("a truncation is owed no sync", "S29",
           (at("truncation-owes-sync", returns(False)),),
           "tests/regression/test_s29_cut_given_back.py::"
           "test_what_was_cut_is_never_below_the_watermark_again[one segment-0]",
           "cuts come back"),
    Mutant("watermarks past the end of their log stay written down", "S31",
           (at("watermarks-lowered-to-log-ends", returns(None)),),
           "tests/regression/test_s31_checkpoints_of_a_former_history.py::"
           "test_what_is_appended_where_a_power_loss_took_records_is_not_committed[1]",
           why_no_seed="a power loss, an election without proof and a kill of the same broker"
           " within 5 s: once in 1,000 seeds"),
    Mutant("watermarks stay written down over a cut", "S31",
           (at("truncation-lowers-checkpoints",
               returns("self._recovery_points.lower({at: offset})")),),
           "tests/regression/test_s31_checkpoints_of_a_former_history.py::"
           "test_what_follows_a_cut_below_the_watermark_is_not_committed[0-killed]",
           why_no_seed="a cut below the watermark and a kill of the same broker within 5 s"),
    Mutant("watermarks from before a cut are written after it", "S31",
           (at("truncation-voids-read-watermarks", returns(None)),),
           "tests/regression/test_s31_checkpoints_of_a_former_history.py::"
           "test_watermarks_that_were_looked_at_before_a_cut_are_not_written_after_it",
           why_no_seed="a cut while the file is being written, once in 5 s"),
    Mutant("a synced part of a lost kernel is believed", "S29",
           (at("synced-prefix-of-this-mount", returns(True)),),
           "tests/unit/broker/log/test_synced_prefix.py::"
           "test_only_the_kernel_and_mount_that_it_was_written_on_believe_it[mount1-False-0]",
           why_no_seed="its end is checked too, and the entries of its kernel's broker are void"),
    Mutant("a worker brings a synced part back after a cut", "S29",
           (at("truncation-voids-synced-prefix", returns(None)),),
           "tests/unit/broker/log/test_synced_prefix.py::"
           "test_a_cut_takes_it_away_and_a_worker_does_not_bring_it_back[cut]",
           why_no_seed="a cut during a pass, and a kill before the one that follows at once"),
    Mutant("a quiet producer is forgotten at the next look", "S24, I8",
           (at("idle-producer-expires-late", wrap(_forgets_at_the_next_look)),),
           "tests/unit/broker/replication/core/test_idempotence.py::"
           "test_an_entry_expires_so_long_after_the_first_look_at_the_clock", RESTING),
    Mutant("retention takes what alone tells of producers", "S24, I8",
           (at("retention-keeps-producer-batches", returns(True)),),
           "tests/unit/broker/log/test_producer_state_manager.py::"
           "test_an_emptied_log_whose_snapshot_found_no_room_keeps_its_batches",
           why_no_seed="retention of all that a producer wrote on a full disk, a kill, and a retry"
           " of its first batch after that"),
    Mutant("retention counts on a snapshot of producers that nobody synced", "S24, I8",
           (at("producer-snapshot-is-synced", returns("self._reported.offset")),),
           "tests/unit/broker/log/test_producer_state_manager.py::"
           "test_a_snapshot_that_counts_again_after_a_truncation_is_synced_first",
           why_no_seed="retention of all that a producer wrote, a power loss before the next flush,"
           " and a retry of its first batch after that"),
    Mutant("one batch of each producer outlives a stop", "S24",
           (at("snapshot-has-five-batches", wrap(_keeps_one_batch)),),
           "tests/regression/test_s24_five_batches.py::"
           "test_five_batches_in_flight_come_back_after_a_clean_stop_and_all_are_known",
           "brokers stop"),
    Mutant("new files' names are not synced", "S11",
           (at("new-file-names-are-synced", returns(None)),),
           "tests/unit/broker/log/test_disk_faults.py::"
           "test_the_name_of_a_new_segment_is_synced_before_its_records_count",
           "segments roll"),
    Mutant("the log starts past the high watermark", "I1, B9 retention",
           (at("retention-below-watermark", returns(True)),),
           "tests/unit/broker/log/test_retention.py::"
           "test_nothing_past_the_high_watermark_goes[0-0]", OLD_RECORDS),
    Mutant("records go before their time", "B9 retention",
           (at("retention-by-age", returns(True)),),
           "tests/unit/broker/log/test_retention.py::"
           "test_segments_older_than_the_limit_go_by_their_newest_record", OLD_RECORDS),
    Mutant("compaction past the high watermark", "B9 compaction",
           (at("compaction-below-watermark", returns(True)),),
           "tests/unit/broker/log/test_cleaner.py::"
           "test_nothing_at_or_past_the_high_watermark_is_touched", COMPACTED),
    Mutant("the last record of a key goes", "B9 compaction",
           (at("last-record-of-key-stays", returns(True)),),
           "tests/unit/broker/log/test_cleaner.py::"
           "test_the_last_record_of_each_key_stays_at_its_offset", COMPACTED),
    Mutant("a tombstone goes at once", "B9 compaction",
           (at("tombstone-stays-for-its-time", returns(True)),),
           "tests/unit/broker/log/test_cleaner.py::"
           "test_tombstones_stay_for_their_time_and_then_go", COMPACTED),
    Mutant("the last batch of a producer goes", "I8, B9 compaction",
           (at("last-batch-of-producer-stays", returns(False)),),
           "tests/unit/broker/log/test_cleaner.py::"
           "test_the_last_batch_of_a_producer_stays_without_its_records", COMPACTED),
    Mutant("damaged batches are compacted as if they were sound", "I10, B9 compaction",
           (at("compacted-batches-are-checked", drop()),),
           "tests/unit/broker/log/test_compaction_of_damage.py::"
           "test_no_bit_that_flips_takes_a_record_along", COMPACTED_FLIPS),
    Mutant("a cut takes the word of a header for where the log ends then", "I4, I10",
           (at("truncation-point-is-checked", returns(None)),),
           "tests/unit/broker/log/test_cuts_of_damage.py::"
           "test_a_cut_changes_nothing_or_leaves_what_was",
           why_no_seed="of a log with a flipped bit the judges say nothing past that bit"),
    Mutant("producers are made anew from unchecked headers of what a cut leaves", "I8, I10",
           (at("producers-rebuilt-from-checked-headers", returns("end")),),
           "tests/unit/broker/log/test_cuts_of_damage.py::"
           "test_a_cut_changes_nothing_or_leaves_what_was",
           why_no_seed="a flipped number, a cut deeper than the window, and a retry after that"),
    Mutant("the leader epochs of a log that begins anew stay in their file", "I5, S28",
           (at("restarted-log-drops-epoch-file",
               returns("self.epochs.truncate_from_end(Offset(0))")),),
           "tests/unit/broker/log/test_partition_log.py::"
           "test_a_log_that_begins_anew_on_a_full_disk_keeps_no_epoch_of_what_it_was",
           why_no_seed="a kill between dropping a log and its first append after that: once in"
           " 4,000 ordinary seeds"),
    Mutant("a segment ends where its last header says", "I6, I10",
           (at("segment-end-is-checked", returns(None)),),
           "tests/unit/broker/log/test_recovery.py::"
           "test_a_flipped_count_of_offsets_neither_drops_segments_nor_moves_the_end",
           why_no_seed="of a log with a flipped bit the judges say nothing past that bit"),
    Mutant("a swap that counts is not completed by the start", "I6, B9 compaction",
           (at("start-finishes-swaps", returns(None)),),
           "tests/unit/broker/log/test_cleaner.py::"
           "test_a_kill_at_any_step_leaves_the_log_as_before_or_after", COMPACTED),
    Mutant("a swap counts before it is on the disk", "B9 compaction",
           (at("swap-synced-before-named", returns(None)),),
           "tests/unit/broker/log/test_cleaner.py::"
           "test_a_rewritten_segment_is_on_the_disk_before_its_name_counts",
           why_no_seed="the start after a power loss finds what was torn, and proves nothing"),
    Mutant("a swap counts although the log was cut meanwhile", "B9 compaction", (
               at("truncation-voids-swap", returns(None)),
               at("swap-is-valid", returns(True))),
           "tests/unit/broker/log/test_cleaner.py::"
           "test_a_log_that_is_cut_meanwhile_does_not_take_the_swap",
           why_no_seed="passes stay below the high watermark, and cuts above it"),
    Mutant("what a disk gives back is served unlooked at", "I10",
           (at("unserved-batch-is-checked", drop()), at("served-batches-are-checked", drop()),),
           "tests/unit/broker/replication/test_corruption_repair.py::"
           "test_a_leader_does_not_serve_it_and_reports_itself", "bits flip"),
    Mutant("damage is over at once", "I10, B9",
           (at("damage-lasts-until-refetched", returns(True)),),
           "tests/unit/broker/replication/test_corruption_repair.py::"
           "test_a_leader_does_not_serve_it_and_reports_itself",
           "damage is met"),
    Mutant("a replica is rebuilt by a state of before its damage was heard of", "I6, B9",
           (at("damage-cut-once-reported", test(True)),),
           "tests/unit/broker/replication/test_corruption_repair.py::"
           "test_by_a_state_of_before_the_report_nothing_is_cut",
           why_no_seed="a follower that stands still while it is elected, and meets its damage as"
           " it thaws: once in 5,000 seeds"),
    Mutant("a restart forgets a corrupt batch", "S9, I10",
           (at("damage-is-marked-on-disk", returns(None)),),
           "tests/regression/test_s9_lost_partition.py::"
           "test_a_corrupt_batch_that_a_leader_met_is_not_forgotten_by_its_restart[killed]",
           "damage is met"),
    Mutant("a sector that cannot be read ends the process", "S9, I10",
           (at("unreadable-sector-is-damage", drop()),),
           "tests/unit/broker/log/test_known_damage.py::"
           "test_a_sector_that_cannot_be_read_is_damage_that_a_restart_knows_of[consumer]",
           why_no_seed="the next start reads all that lies past the recovery point and does not"
           " begin: in the seconds of a run that is where the sector is"),
    Mutant("what could not be read once stays damaged", "S14, L1",
           (at("readable-again-is-valid", returns(None)),),
           "tests/unit/broker/log/test_known_damage.py::"
           "test_a_sector_that_a_later_start_can_read_was_no_damage", "reads fail once"),
    Mutant("what could not be read once is taken for sound", "S9, I10",
           (at("unmarked-log-is-read", returns(True)),),
           "tests/unit/broker/log/test_known_damage.py::"
           "test_where_a_bit_flipped_too_it_stays_damaged[unreadable]",
           why_no_seed="a second, flipped batch in the same log, behind its recovery point"),
    Mutant("a replica that others count on is rebuilt, heard of or not (a pair)", "I6, B9",
           (
               at("damage-cut-once-out-of-isr", test(True)),
               at("damage-cut-once-reported", test(True)),
           ),
           "tests/unit/broker/replication/test_corruption_repair.py::"
           "test_a_follower_that_is_still_in_sync_keeps_what_it_has",
           "damage is met"),
    Mutant("older pushes are applied", "S25",
           (at("older-push-is-dropped", returns(False)),),
           "tests/regression/test_s25_stale_pushes.py::"
           "test_a_stale_push_does_not_make_a_former_life_count_for_the_watermark",
           why_no_seed="a broker waits for one answer at a time and hangs up on the one before"),
)  # fmt: skip
