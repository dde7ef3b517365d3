//! The promises of queues.

/// One test per promise of a [`QueueHarness`](crate::QueueHarness), named by the promise.
#[macro_export]
macro_rules! queue_suite {
    ($harness:ty) => {
        $crate::__queue_promises! { __queue_promise_tests, $harness }
    };
}

/// One test per promise of a [`QueueHarness`](crate::QueueHarness) whose queue is a [`Book`](exactly::queue::Book) too.
#[macro_export]
macro_rules! book_suite {
    ($harness:ty) => {
        $crate::__book_promises! { __queue_promise_tests, $harness }
    };
}

/// One test per promise of a [`QueueHarness`](crate::QueueHarness) whose queue is a [`Registry`](exactly::queue::Registry)
/// too.
#[macro_export]
macro_rules! registry_suite {
    ($harness:ty) => {
        $crate::__registry_promises! { __queue_promise_tests, $harness }
    };
}

/// One test per promise of a [`TransactionalQueueHarness`](crate::TransactionalQueueHarness), named by the promise.
#[macro_export]
macro_rules! transactional_queue_suite {
    ($harness:ty) => {
        $crate::__transactional_queue_promises! { __queue_promise_tests, $harness }
    };
}

/// Makes a test of every promise. Several worker threads, so that what can race does.
#[doc(hidden)]
#[macro_export]
macro_rules! __queue_promise_tests {
    ($harness:ty, $suite:ident { $($group:ident { $($promise:ident)+ })+ }) => {
        $($(
            #[::tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                let harness = <$harness as $crate::QueueHarness>::fresh().await;
                $crate::$suite::$group::$promise(&harness).await;
            }
        )+)+
    };
}

/// The names of the promises, for a test that none was forgotten here.
#[doc(hidden)]
#[macro_export]
macro_rules! __promise_names {
    (names, $suite:ident { $($group:ident { $($promise:ident)+ })+ }) => {
        [$($(stringify!($promise),)+)+]
    };
}

/// Runs `$then!` with the names of all promises of a queue.
#[doc(hidden)]
#[macro_export]
macro_rules! __queue_promises {
    ($then:ident, $($argument:tt)+) => {
        $crate::$then! { $($argument)+, queue {
            arrivals {
                enqueuing_wakes_watchers
                reviving_wakes_watchers
                opening_a_lane_wakes_watchers
                giving_back_wakes_watchers
                rescuing_wakes_watchers
                an_arrival_before_the_wait_is_not_missed
                arrivals_wake_watchers_of_another_queue
            }
            attempts {
                a_failed_attempt_is_noted
                only_what_ended_without_an_outcome_is_noted
                a_history_spans_all_lives
                histories_are_kept_apart
            }
            caps {
                a_capped_lane_runs_no_more_at_once
                a_cap_holds_up_no_other_lane
                a_full_lane_takes_no_turn
                a_lane_with_a_cap_of_one_has_its_turn_beside_others
                a_worker_takes_no_more_of_a_capped_lane_than_its_share
                a_worker_takes_no_more_of_any_lane_than_its_share
                a_cap_can_be_changed
                a_rescue_makes_room
                a_cap_holds_under_concurrency
                a_cap_of_one_keeps_the_order
                a_cap_of_one_keeps_the_order_of_what_comes_back
            }
            enqueue {
                a_new_task_waits
                a_key_is_found_in_every_state
                a_stored_outcome_is_returned
                another_payload_is_told
                a_task_that_is_found_is_not_moved
                the_same_key_of_another_kind_is_another_task
                duplicates_in_one_bulk_are_found
                answers_come_in_order
                an_empty_bulk_is_answered
                a_bulk_of_five_thousand_is_added
                more_than_a_batch_is_refused
                concurrent_bulks_add_each_key_once
                a_delay_is_kept
                the_longest_delay_is_kept
                a_task_waits_in_the_lane_of_its_kind
            }
            fairness {
                a_long_lane_keeps_nobody_waiting
                lanes_take_turns
                chosen_lanes_take_turns
                a_lane_with_nothing_due_takes_no_turn
                lanes_share_evenly
                what_lanes_leave_over_goes_to_others
                every_lane_keeps_its_order
            }
            fence {
                a_rescued_lease_changes_nothing
                a_stale_lease_changes_nothing
                a_stale_lease_beside_a_fresh_one_is_told_apart
                a_settled_lease_changes_nothing_later
                a_fence_only_rises
                an_invented_lease_owns_nothing
                a_waiting_task_has_no_lease
                a_settlement_touches_its_own_task_only
            }
            lease {
                a_due_task_is_leased
                nothing_is_leased_before_it_is_due
                a_lane_is_leased_in_the_order_of_enqueuing
                a_bulk_overtakes_nothing
                the_longest_due_comes_first
                a_leased_task_is_not_leased_again
                no_more_than_asked_for_is_leased
                only_the_lanes_asked_for_are_served
                ten_leasers_share_each_task_once
                the_longest_lease_is_granted
            }
            listing {
                an_empty_place_shows_nothing
                pages_show_every_task_once
                a_page_is_never_longer_than_asked_for
                filters_combine
                a_walk_comes_by_every_task_once_and_looks_at_no_more_than_asked_for
                every_state_is_listed
                depths_count_by_lane_and_state
                looking_changes_nothing
                the_clock_is_the_one_that_dates_tasks
            }
            pause {
                a_paused_lane_keeps_its_tasks
                a_paused_lane_takes_tasks
                a_running_task_settles_in_a_paused_lane
                a_pause_keeps_the_order
                an_open_lane_can_be_resumed
                lanes_show_what_was_set_up
            }
            prune {
                only_what_ended_long_ago_is_pruned
                undone_work_is_never_pruned
                a_pruned_key_is_fresh
                a_pruned_keys_fence_rises_on
                a_prune_honours_its_limit
                hundreds_are_pruned_at_once
                a_revived_task_is_not_pruned
            }
            renew {
                a_renewal_counts_from_now
                a_renewal_revives_a_lease_that_ended
                leases_are_renewed_in_bulk
                a_settled_lease_is_not_renewed
            }
            rescue {
                a_task_is_rescued_after_its_lease
                a_task_is_dead_after_its_rescues
                what_is_promised_is_rescued_for_ever
                no_rescues_leave_it_dead_at_once
                rescues_are_not_failures
                a_lost_attempt_is_noted
                a_rescue_honours_its_limit
                what_was_rescued_often_can_be_left_out
                a_rescue_spares_everything_else
                two_rescuers_rescue_each_task_once
                settling_and_rescuing_exclude_each_other
            }
            conclude {
                held_and_dead_tasks_are_concluded
                what_was_revived_is_not_concluded
            }
            revive {
                dead_and_held_tasks_are_revived
                only_dead_and_held_tasks_are_revived
                reviving_twice_is_reviving_once
                a_revived_task_starts_anew_and_keeps_its_history
            }
            hasten {
                a_hastened_task_is_due_now_and_nothing_else_of_it_changes
                only_waiting_tasks_are_hastened
            }
            settle {
                done_stores_the_outcome
                a_retry_waits_its_time
                a_buried_task_is_dead
                a_held_task_stays
                a_release_uses_up_no_attempt
                a_deferral_waits_its_time_and_uses_up_no_attempt
                failures_are_counted
                only_its_own_failures_are_counted
                every_kind_of_failure_is_kept
                a_batch_of_every_end_is_answered_in_order
                thousands_are_settled_at_once
                settling_again_in_the_same_way_is_applied
                settling_again_in_another_way_is_superseded
                a_release_is_not_taken_for_a_retry
                of_two_ends_in_one_batch_one_applies
                of_ten_concurrent_settlements_one_applies
                a_late_settlement_is_applied_before_the_rescue
                done_comes_after_failures
            }
            text {
                difficult_texts_come_back_unchanged
                names_are_compared_byte_by_byte
                the_longest_texts_are_kept
                binary_payloads_come_back_unchanged
                a_payload_of_a_mebibyte_comes_back_exactly
                the_largest_version_is_kept
            }
        } }
    };
}

/// Runs `$then!` with the names of all promises of a queue that remembers schedules.
#[doc(hidden)]
#[macro_export]
macro_rules! __book_promises {
    ($then:ident, $($argument:tt)+) => {
        $crate::$then! { $($argument)+, queue {
            book {
                a_schedule_is_remembered
                a_position_never_goes_back
                a_schedule_that_is_written_again_goes_on
                a_pause_changes_nothing_else
                writing_and_pausing_at_once_lose_neither
                an_erased_schedule_is_forgotten
            }
        } }
    };
}

/// Runs `$then!` with the names of all promises of a queue that remembers values.
#[doc(hidden)]
#[macro_export]
macro_rules! __registry_promises {
    ($then:ident, $($argument:tt)+) => {
        $crate::$then! { $($argument)+, queue {
            registry {
                a_card_is_remembered
                a_stale_change_of_a_card_is_refused
                an_erased_card_is_forgotten
                changes_of_a_card_at_once_lose_none
            }
        } }
    };
}

/// Runs `$then!` with the names of all promises of a transactional queue.
#[doc(hidden)]
#[macro_export]
macro_rules! __transactional_queue_promises {
    ($then:ident, $($argument:tt)+) => {
        $crate::$then! { $($argument)+, transactional_queue {
            enqueue_in {
                effect_and_task_commit_together
                a_rollback_undoes_effect_and_task
                a_dropped_transaction_adds_nothing
                nothing_is_leased_before_the_commit
                a_transaction_finds_tasks
                a_second_transaction_waits_and_finds
                a_second_transaction_waits_and_adds
                enqueuing_waits_for_a_transaction
                of_ten_transactions_one_adds_the_task
                a_commit_wakes_watchers
                transactions_do_not_run_out
            }
            raise_in {
                only_a_higher_number_is_raised
                a_number_that_is_undone_was_never_raised
                a_second_transaction_is_judged_by_what_the_first_left
                what_nobody_raises_is_forgotten
                marks_are_forgotten_in_batches
            }
            record_in {
                effect_and_record_commit_together
                a_recorded_task_is_as_one_that_was_worked_off
                every_end_is_recorded
                a_failure_is_recorded_with_its_history
                a_recorded_retry_waits_its_time
                a_recorded_task_is_pruned
                a_key_is_found_in_every_state_and_left_alone
                another_payload_is_told_in_a_transaction
                a_rolled_back_record_was_never_there
                a_dropped_record_was_never_there
                a_second_record_waits_and_finds
                a_second_record_waits_and_adds
                enqueuing_waits_for_a_record
                a_record_waits_for_what_is_enqueued
                of_ten_transactions_one_records
                a_record_that_waits_wakes_watchers
            }
            settle_in {
                effect_and_outcome_commit_together
                a_rollback_leaves_the_task_running
                a_dropped_transaction_leaves_the_task_running
                every_end_commits
                a_superseded_worker_is_told_in_its_transaction
                a_task_is_settled_with_one_effect_only
                leases_are_told_apart_in_a_transaction
                a_task_and_its_successor_commit_together
                a_rescue_and_a_transaction_exclude_each_other
                a_lost_commit_is_learnt_by_releasing
            }
        } }
    };
}
