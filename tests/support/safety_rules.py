"""The rules of safety, and those that no replication core can show: the test that shows each."""

import re
from pathlib import Path

SAFETY = Path(__file__).parents[2] / "docs/design/safety.md"

ELSEWHERE = {
    "1": (
        "tests/regression/test_s1_unclean_start_forgotten.py",
        "test_a_start_that_the_controller_never_heard_of_proves_nothing",
    ),
    "4": (
        "tests/unit/operator/broker_runtime/test_pods.py",
        "test_a_gone_pools_claims_follow_their_own_policy",
    ),
    "5": (
        "tests/regression/test_s5_producer_ids.py",
        "test_blocks_of_a_thousand_are_disjoint_over_brokers_and_restarts",
    ),
    "8": (
        "tests/regression/test_s8_lost_write_back.py",
        "test_the_process_ends_once_the_controller_recorded_the_failure",
    ),
    "10": (
        "tests/unit/broker/log/test_disk_faults.py",
        "test_an_append_that_does_not_fit_leaves_no_trace",
    ),
    "12": (
        "tests/regression/test_s12_absence.py",
        "test_a_slice_deleted_by_hand_gets_no_fresh_one_and_costs_no_broker_its_log",
    ),
    "13": (
        "tests/unit/broker/log/test_log_manager.py",
        "test_network_filesystems_are_refused_unless_allowed",
    ),
    "16": (
        "tests/regression/test_s16_controller_epochs.py",
        "test_epochs_on_brokers_disks_count_even_when_every_object_is_gone",
    ),
    "17": (
        "tests/regression/test_s17_old_backups.py",
        "test_a_slice_restored_under_running_brokers_is_rebuilt_above_them_from_the_longest_log",
    ),
    "18": (
        "tests/regression/test_s18_deaf_controller.py",
        "test_a_deaf_controller_gives_way_and_nobody_is_fenced",
    ),
    "19": (
        "tests/regression/test_s19_refused_is_not_dead.py",
        "test_a_broker_behind_a_rejecting_network_policy_is_not_fenced_while_it_polls",
    ),
    "20": (
        "tests/regression/test_s20_gray_failure.py",
        "test_one_move_in_a_lag_window_although_the_next_leaders_disk_hangs_too",
    ),
    "21": (
        "tests/regression/test_s21_frozen.py",
        "test_a_leader_that_wakes_serves_what_waited_before_it_judges_anybody",
    ),
    "23": (
        "tests/unit/broker/log/test_log_manager.py",
        "test_a_recreated_topic_starts_without_the_old_ones_checkpoints",
    ),
    "24": (
        "tests/unit/broker/log/test_producer_state_manager.py",
        "test_a_restart_knows_five_batches_of_each",
    ),
    "25": (
        "tests/regression/test_s25_stale_pushes.py",
        "test_a_stale_push_does_not_make_a_former_life_count_for_the_watermark",
    ),
    "26": ("tests/unit/operator/store/test_sqlite.py", "test_writes_are_synced_in_full"),
    "28": (
        "tests/regression/test_s28_losses_of_a_frozen_leader.py",
        "test_a_leader_that_thaws_reports_what_it_cuts",
    ),
    "29": (
        "tests/regression/test_s29_cut_given_back.py",
        "test_what_was_cut_is_never_below_the_watermark_again",
    ),
    "30": (
        "tests/regression/test_s30_left_and_came_back.py",
        "test_a_leader_that_hears_of_its_return_only_does_not_count_what_it_had",
    ),
    "31": (
        "tests/regression/test_s31_checkpoints_of_a_former_history.py",
        "test_what_is_appended_where_a_power_loss_took_records_is_not_committed",
    ),
    "32": (
        "tests/regression/test_s32_forgotten_epochs.py",
        "test_a_follower_keeps_nothing_of_an_epoch_that_its_leader_has_forgotten",
    ),
    "33": (
        "tests/unit/operator/security/test_broker_identity.py",
        "test_a_message_as_another_broker_or_of_another_pool_is_rejected",
    ),
    "34": (
        "tests/unit/broker/security/test_authorizer.py",
        "test_a_revoked_access_is_denied_after_thirty_seconds",
    ),
}


def rules_of_safety() -> set[str]:
    """By number, as docs/design/safety.md has them."""
    return set(re.findall(r"^- \*\*S(\d+)\b", SAFETY.read_text(), re.MULTILINE))
