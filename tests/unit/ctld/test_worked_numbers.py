"""Where each worked number of the scheduling specification is a test: section by section."""

from __future__ import annotations

from pathlib import Path

import pytest

SCHED = "unit/ctld/sched"
DECIDE = "unit/ctld/core/decide"
WORKED: dict[str, tuple[str, ...]] = {
    "1 jobs A, B, C stand in the order C, B, A": (
        f"{SCHED}/test_reserved::jobs_of_a_reservation_stand_before_higher_tiers",
    ),
    "2.1 the sum is cut once, at most 4294967295": (f"{SCHED}/test_priority::a_sum_is_cut_once_and_clamped",),
    "2.1 --nice is 100, and within 2147483645": ("unit/muster/test_options_convert::nice",),
    "2.2 age of 2.5 days of 7": (f"{SCHED}/test_priority::age_grows_to_its_maximum_and_begins_when_it_accrues",),
    "2.3 job sizes": (f"{SCHED}/test_priority::the_worked_sizes",),
    "2.6 the sum is 6826": (f"{SCHED}/test_priority::the_worked_sum",),
    "2.6 without weights from 4294901759 down": (
        f"{DECIDE}/test_submit::jobs_wait_in_order_of_submission_unless_they_are_nice",
        f"{SCHED}/test_priority::without_weights_the_order_is_that_of_submission",
    ),
    "3.1 billing values, and 4.5 shown as 4": (
        "unit/muster/test_usage::the_worked_billing_values",
        "unit/muster/test_usage::without_weights_cpus_are_billed_and_with_them_only_what_is_listed",
        "unit/muster/test_usage::a_gpu_centred_site",
        "unit/ctld/core/test_record::what_is_billed_is_shown_as_a_whole_number",
    ),
    "3.2 the decay of a period; 5997.937853270348": (
        "unit/muster/test_usage::the_worked_decay_of_a_period_holds_to_a_thousandth",
        "unit/muster/test_usage::the_closed_form_agrees_with_the_steps",
        "unit/ctld/core/test_usage::a_run_is_charged_to_its_association_and_all_above_it",
    ),
    "4.2 test A, and its properties": (
        f"{SCHED}/test_fairshare::three_accounts_of_three_users",
        f"{SCHED}/test_fairshare::scaling_all_usage_changes_nothing_and_somebody_is_first",
        f"{SCHED}/test_fairshare::all_below_the_better_account_rank_before_all_below_the_worse",
    ),
    "4.3 test B, merged as is documented": (f"{SCHED}/test_fairshare::accounts_that_are_tied_are_merged",),
    "4.4 test C": (f"{SCHED}/test_fairshare::a_user_tied_with_a_sibling_account_shares_its_rank",),
    "5 the classic tree": (f"{SCHED}/test_fairshare::the_worked_classic_tree",),
    "6.3 reasons as displayed": (
        f"{SCHED}/test_every_reason::every_reason_that_the_code_gives_is_told_in_words",
        f"{SCHED}/test_explained_reasons::each_reason_names_the_number_that_failed",
        "e2e/test_explain::what_the_job_itself_waits_for",
        "e2e/test_explain::what_no_node_that_comes_free_changes",
    ),
    "7.3 --time-min in whole minutes": (
        f"{SCHED}/test_backfill::time_min_lets_a_job_start_before_a_reservation_and_gives_it_what_is_left",
        "unit/ctld/core/test_times::a_shortened_limit_is_the_largest_in_whole_minutes_that_nothing_is_in_the_way_of",
    ),
    "7.6 the calendar, also with a window of 120 minutes": (
        f"{SCHED}/test_calendar::the_calendar_of_the_specification",
        f"{SCHED}/test_search::the_calendar_of_the_specification",
        f"{SCHED}/test_backfill::the_calendar_of_the_specification_as_far_as_one_promise_goes",
    ),
    "7.6 properties": (
        "property/test_calendar_property::every_job_starts_in_the_first_minute_that_those_before_it_leave",
        "property/test_plan_property::backfilled_starts_never_delay_the_first_blocked_job",
    ),
    "8.3 more memory by CPU than may be asked for is more CPUs": (
        f"{SCHED}/test_select::memory_per_cpu_above_the_maximum_raises_the_cpus",
    ),
    "8.5 runs of nodes": (
        f"{SCHED}/test_manner::the_run_that_suffices_with_the_fewest_cpus_is_taken",
        f"{SCHED}/test_select::several_nodes_come_from_the_run_of_consecutive_nodes_that_fits_best",
        f"{SCHED}/test_select::weights_cut_runs",
    ),
    "8.6 leaf switches; 300 seconds of patience": (
        f"{SCHED}/test_tree::the_best_switch_is_the_tightest_that_holds_the_job",
        f"{SCHED}/test_tree::few_switches_are_waited_for_and_then_not",
        f"{SCHED}/test_tries::patience_counts_from_when_a_job_became_eligible",
    ),
    "8.7 blocks and segments": (
        f"{SCHED}/test_blocks::the_least_fragmenting_block_is_taken",
        f"{SCHED}/test_blocks::segments_are_placed_one_by_one",
        f"{DECIDE}/test_submit::what_no_topology_can_give_is_refused",
    ),
    "8.9 ten tasks are 5 and 5, or packed 8 and 2": (f"{DECIDE}/test_steps::ten_tasks_on_two_nodes_of_eight_cpus",),
    "9.2 a victim is eligible after 120 seconds": (
        "unit/ctld/test_configure::a_requeued_job_waits_as_long_as_was_said",
    ),
    "9.3 of jobs on 2, 4 and 8 nodes that on 8 goes": (
        f"{SCHED}/test_preempt::after_reordering_only_the_job_that_suffices_alone_goes",
        f"{SCHED}/test_preempt::whom_the_first_order_takes_in_vain_the_backwards_pass_spares",
        "e2e/test_preemption::of_three_jobs_the_one_goes_that_suffices",
    ),
    "10.3 spelling": ("unit/ctld/core/limits/test_kinds::each_reason_is_spelled_as_slurm_spells_it",),
    "10.4 20 of the partition's QOS and 50 of the user": (
        f"{SCHED}/test_limits::the_partitions_qos_goes_before_the_association_limit_by_limit",
    ),
    "10.4 96 CPUs and 8 more of 100": (f"{SCHED}/test_limits::the_tightest_group_limit_of_all_levels_wins",),
    "10.4 32 of 24 CPUs is refused, 16 beside 16 waits": (
        f"{DECIDE}/test_policy::a_request_over_a_qos_limit_is_refused_only_where_the_qos_says_so",
        f"{SCHED}/test_limits::a_group_limit_of_a_qos_keeps_a_job_waiting_while_others_run",
    ),
    "10.4 a shared node counts once": (f"{SCHED}/test_limits::a_node_that_the_group_uses_already_counts_once",),
    "11.1 root_2": (
        f"{DECIDE}/test_reservations::one_without_a_name_is_named_after_its_first_user_or_account_and_counted_with_all",
    ),
    "11 maintenance at 16:00: 20 minutes start at 15:30, 40 at 18:00": (
        f"{SCHED}/test_reserved::a_job_that_ends_before_maintenance_starts_and_a_longer_one_waits_for_its_end",
    ),
    "11 the second on one node and time is refused": (
        f"{DECIDE}/test_reservations::two_at_one_time_on_one_node_need_overlap",
    ),
    "11 DAILY begins a day later": (f"{DECIDE}/test_reservations::a_daily_one_begins_again_a_day_later",),
}
"""Section and what is worked out there -> file::test, below tests/ and without `.py` and `test_`."""
TESTS = Path(__file__).parents[2]


@pytest.mark.parametrize("worked", WORKED)
def test_a_worked_number_is_a_test(worked: str) -> None:
    for place in WORKED[worked]:
        file, name = place.split("::")
        assert f"\ndef test_{name}(" in (TESTS / f"{file}.py").read_text(encoding="utf-8"), place
