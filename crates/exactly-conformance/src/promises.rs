//! The lists of promises, from which backends make their tests.

mod queue;

/// One test per promise of a [`StoreHarness`](crate::StoreHarness), named by the promise.
#[macro_export]
macro_rules! store_suite {
    ($harness:ty) => {
        $crate::__store_promises! { __promise_tests, $harness }
    };
}

/// One test per promise of a [`TransactionalHarness`](crate::TransactionalHarness), named by the promise.
#[macro_export]
macro_rules! transactional_suite {
    ($harness:ty) => {
        $crate::__transactional_promises! { __promise_tests, $harness }
    };
}

/// Makes a test of every promise. Several worker threads, so that what can race does.
#[doc(hidden)]
#[macro_export]
macro_rules! __promise_tests {
    ($harness:ty, $suite:ident { $($group:ident { $($promise:ident)+ })+ }) => {
        $($(
            #[::tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                let harness = <$harness as $crate::StoreHarness>::fresh().await;
                $crate::$suite::$group::$promise(&harness).await;
            }
        )+)+
    };
}

/// The promises as values, for tests of the suites themselves: names, and futures that panic where one is broken.
#[doc(hidden)]
#[macro_export]
macro_rules! __promise_table {
    ($harness:ty, $suite:ident { $($group:ident { $($promise:ident)+ })+ }) => {
        [$($(
            (stringify!($promise), (|| Box::pin(async {
                let harness = <$harness as $crate::StoreHarness>::fresh().await;
                $crate::$suite::$group::$promise(&harness).await;
            })) as fn() -> ::std::pin::Pin<Box<dyn Future<Output = ()>>>),
        )+)+]
    };
}

/// Runs `$then!` with the names of all promises of a store.
#[doc(hidden)]
#[macro_export]
macro_rules! __store_promises {
    ($then:ident, $($argument:tt)+) => {
        $crate::$then! { $($argument)+, store {
            begin {
                a_fresh_key_runs
                a_second_caller_is_told_that_it_is_in_flight
                a_duplicate_replays_the_outcome
                the_same_content_under_another_key_runs
                scopes_do_not_share_keys
                the_global_scope_is_not_the_empty_principal
                a_lost_acknowledgement_is_found_again
                a_lost_acknowledgement_is_found_after_its_lease
                a_peek_never_claims
                a_peek_takes_no_attempt
                every_fingerprint_is_a_content_of_its_own
            }
            cancel {
                a_cancelled_begin_leaves_no_claim_behind
                a_cancelled_begin_spares_the_next_claim
                a_cancelled_begin_spares_its_own_repetition
                a_cancelled_begin_spares_the_owner
                a_cancelled_complete_can_be_repeated
                a_cancelled_complete_is_all_or_nothing
                a_cancelled_abandon_can_be_repeated
                cancelled_callers_do_not_disturb_others
            }
            doubt {
                an_attempt_in_doubt_is_never_rerun
                an_attempt_in_doubt_is_never_swept
                a_late_completion_settles_the_doubt
                doubt_ends_by_completing_the_claim_it_carries
                doubt_ends_by_abandoning_the_claim_it_carries
                doubt_ends_by_the_claim_of_its_view
                an_owner_that_returns_after_completion_is_superseded
                an_owner_that_returns_after_abandonment_is_superseded
                a_settlement_that_comes_late_is_superseded
                a_claim_without_a_lease_is_in_doubt
            }
            durations {
                the_longest_lease_is_granted
                the_longest_retention_is_kept
                durations_below_a_millisecond_are_as_good_as_none
            }
            faults {
                any_single_fault_leaves_one_effect
                any_two_faults_leave_one_effect
                a_repeated_question_hides_a_single_fault
                any_single_fault_leaves_a_rerunnable_with_one_outcome
            }
            fence {
                a_stale_claim_cannot_complete
                a_stale_claim_cannot_renew
                a_stale_claim_cannot_abandon
                a_stale_claim_cannot_lose
                a_zombie_of_a_freed_key_cannot_write
                a_zombie_of_a_forgotten_key_cannot_write
                an_invented_claim_owns_nothing
                a_write_touches_its_own_record_only
            }
            forget {
                forgetting_an_outcome_frees_its_key
                a_stale_claim_cannot_forget
                forgetting_what_is_not_done_changes_nothing
                forgetting_what_is_gone_is_applied
                forgetting_wakes_watchers
                of_ten_callers_one_runs_what_was_forgotten
            }
            histories {
                contended_histories_are_explained_by_the_model
                histories_with_cancelled_steps_are_explained_by_the_model
                histories_of_one_key_are_explained_by_the_model
            }
            inspect {
                an_unknown_id_shows_nothing
                a_call_in_flight_shows_its_lease
                a_lost_attempt_shows_what_it_waits_for
                a_finished_call_shows_its_retention
                a_rerun_shows_when_the_key_was_first_used
                looking_changes_nothing
            }
            lease {
                in_flight_tells_the_remaining_lease
                waiting_does_not_prolong_a_lease
                a_renewal_counts_from_now
                a_renewal_revives_a_lost_claim
                a_lost_rerunnable_runs_as_the_next_attempt
                the_lost_attempt_decides_whether_it_is_rerun
                losing_a_claim_ends_its_lease_at_once
                a_clock_set_back_stretches_no_lease
                a_clock_set_back_leaves_the_claim_to_its_owner
            }
            listing {
                an_empty_place_lists_nothing
                pages_show_every_record_once
                paging_goes_on_when_the_last_record_is_gone
                a_page_is_never_longer_than_the_limit
                a_phase_filter_follows_the_clock
                filters_combine
                a_listing_can_end_at_a_date
                a_filtered_listing_pages_too
            }
            mismatch {
                another_content_mismatches_while_in_flight
                another_content_mismatches_while_in_doubt
                another_content_mismatches_while_lost
                another_content_mismatches_when_done
                a_mismatch_with_a_permanent_outcome_never_ends
                a_mismatch_changes_nothing
                a_forgotten_key_takes_another_content
            }
            now {
                the_clock_moves_on
                the_clock_is_the_one_that_dates_records
            }
            once {
                once_survives_any_single_fault
                once_survives_any_two_faults
                of_ten_callers_of_once_all_get_one_outcome
            }
            outcome {
                an_empty_outcome_replays
                a_binary_outcome_replays_exactly
                an_outcome_of_a_mebibyte_replays_exactly
                a_replay_tells_when_the_key_is_forgotten
                completing_again_with_the_same_outcome_is_applied
                completing_again_with_another_outcome_is_superseded
                abandoning_frees_the_key
                an_abandoned_key_takes_another_content
                abandoning_what_is_gone_is_applied
                abandoning_what_is_done_is_superseded
                abandoning_a_lost_claim_frees_the_key
            }
            races {
                of_ten_concurrent_callers_one_runs
                of_ten_concurrent_callers_one_takes_over
                of_ten_concurrent_callers_one_reuses_a_forgotten_key
                of_two_contents_one_owns_the_key
                concurrent_repetitions_of_one_call_share_its_claim
                of_ten_concurrent_outcomes_one_is_stored
                completing_and_abandoning_exclude_each_other
                completing_and_taking_over_exclude_each_other
                renewing_and_taking_over_exclude_each_other
                concurrent_steps_do_not_mix_up_records
            }
            retention {
                retention_starts_when_the_outcome_is_stored
                an_expired_outcome_is_forgotten_before_the_sweep
                completing_again_does_not_prolong_retention
                replaying_does_not_prolong_retention
                every_outcome_has_its_own_retention
                a_permanent_outcome_is_never_forgotten
                an_outcome_outlives_the_lease_of_its_attempt
                an_outcome_kept_for_no_time_is_forgotten_at_once
                a_forgotten_key_is_created_anew
            }
            sources {
                a_duplicate_request_has_one_effect
                a_retry_after_a_failure_runs
                of_ten_requests_one_runs_and_nine_get_its_answer
            }
            sweep {
                a_sweep_deletes_only_what_has_expired
                a_sweep_honours_its_limit
                a_lost_rerunnable_is_swept_after_a_while
                two_sweepers_count_every_record_once
                a_sweep_spares_what_is_claimed_meanwhile
            }
            text {
                difficult_texts_come_back_unchanged
                control_characters_in_a_scope_come_back_unchanged
                the_longest_keys_are_kept_apart
                names_are_compared_byte_by_byte
                a_filter_is_not_a_pattern
                a_text_that_cannot_be_kept_harms_nobody_else
            }
            trail {
                a_trail_keeps_its_order
                a_trail_is_read_in_portions
                a_trail_is_never_longer_than_the_limit
                a_trail_can_be_read_for_one_call
                a_trail_outlives_the_store_that_wrote_it
                concurrent_notes_are_all_kept
                whoever_follows_a_trail_misses_nothing
                difficult_texts_in_notes_come_back_unchanged
                a_note_is_kept_whole_or_refused
                old_entries_go_and_numbers_rise
            }
            wake {
                completing_wakes_watchers
                abandoning_wakes_watchers
                losing_wakes_watchers
                every_watcher_is_woken
                a_change_between_watching_and_asking_is_not_missed
                a_change_wakes_watchers_of_another_store
            }
        } }
    };
}

/// Runs `$then!` with the names of all promises of a transactional store.
#[doc(hidden)]
#[macro_export]
macro_rules! __transactional_promises {
    ($then:ident, $($argument:tt)+) => {
        $crate::$then! { $($argument)+, transactional {
            commit {
                effect_and_record_commit_together
                a_rollback_undoes_effect_and_record
                a_dropped_transaction_is_undone
                nothing_shows_before_the_commit
                several_calls_commit_together
                a_claim_that_commits_unfinished_is_leased
                a_committed_outcome_has_its_retention
                a_committed_outcome_replays_exactly
                a_commit_wakes_watchers
                transactions_do_not_run_out
            }
            histories {
                histories_with_transactions_are_explained_by_the_model
            }
            lost_commit {
                a_lost_commit_is_learnt_by_beginning_again
                a_cancelled_commit_is_all_or_nothing
                commits_lost_in_a_row_leave_one_effect
            }
            takeover {
                a_forgotten_key_runs_in_a_transaction
                a_lost_rerunnable_is_taken_over_in_a_transaction
                a_rollback_restores_what_was_taken_over
                a_leased_claim_completes_in_a_transaction
                a_superseded_claim_cannot_complete_in_a_transaction
                the_claim_of_an_undone_transaction_owns_nothing
            }
            verdicts {
                another_content_mismatches_in_a_transaction
                a_leased_claim_is_in_flight_for_transactions
                a_doubt_is_settled_in_a_transaction
                a_transaction_goes_on_after_its_verdict
                a_repeated_begin_in_a_transaction_finds_its_claim
                completing_again_in_a_transaction_changes_nothing
            }
            wait {
                a_second_transaction_waits_and_replays
                a_second_transaction_waits_and_runs
                a_second_transaction_waits_no_longer_than_asked
                of_ten_transactions_one_has_the_effect
                of_ten_transactions_with_failures_one_has_the_effect
                other_keys_do_not_wait_for_a_transaction
                a_leased_caller_never_runs_beside_a_transaction
                transactions_that_wait_for_each_other_end
                a_cancelled_wait_holds_nothing
            }
        } }
    };
}
