//! Which promise finds which flaw.

use crate::flaw::Flaw;

/// A flaw, with the promises that it breaks first of all. It may break others too.
pub(crate) type Found = (Flaw, &'static [&'static str]);

macro_rules! found {
    ($($flaw:ident: $($promise:ident),+;)+) => {
        &[$((Flaw::$flaw, &[$(stringify!($promise)),+])),+]
    };
}

/// Flaws of stores.
pub(crate) const STORE: &[Found] = found! {
    // Who a call is.
    IgnoresPrincipal: scopes_do_not_share_keys;
    IgnoresOperation: scopes_do_not_share_keys, filters_combine;
    GlobalIsEmpty: the_global_scope_is_not_the_empty_principal;
    FindsByContent: the_same_content_under_another_key_runs, cancelled_callers_do_not_disturb_others;
    ComparesNamesLoosely: names_are_compared_byte_by_byte, difficult_texts_come_back_unchanged;
    CutsKeys: the_longest_keys_are_kept_apart;
    CutsControlCharacters: control_characters_in_a_scope_come_back_unchanged;
    TokenPerQuestion:
        a_fresh_key_runs, a_lost_acknowledgement_is_found_again, concurrent_repetitions_of_one_call_share_its_claim,
        a_repeated_question_hides_a_single_fault;
    FailsOnNul: a_text_that_cannot_be_kept_harms_nobody_else;

    // Who may run.
    RunsEverybody:
        a_second_caller_is_told_that_it_is_in_flight, any_single_fault_leaves_one_effect,
        any_two_faults_leave_one_effect;
    ChecksThenInserts:
        of_ten_concurrent_callers_one_runs, of_two_contents_one_owns_the_key,
        of_ten_requests_one_runs_and_nine_get_its_answer, of_ten_callers_of_once_all_get_one_outcome,
        histories_of_one_key_are_explained_by_the_model;
    ChecksThenTakesOver:
        of_ten_concurrent_callers_one_takes_over, of_ten_concurrent_callers_one_reuses_a_forgotten_key,
        contended_histories_are_explained_by_the_model;
    IgnoresContent: every_fingerprint_is_a_content_of_its_own, another_content_mismatches_when_done;
    InFlightBeforeContent: another_content_mismatches_while_in_flight;
    DoubtBeforeContent: another_content_mismatches_while_in_doubt;
    LostBeforeContent: another_content_mismatches_while_lost;
    DoneBeforeContent: another_content_mismatches_when_done;
    MismatchPutsItsContent: a_mismatch_changes_nothing;
    MismatchHasNoEnd: another_content_mismatches_when_done;
    MismatchHasAnEnd: a_mismatch_with_a_permanent_outcome_never_ends;
    AttemptsDoNotCount: a_lost_rerunnable_runs_as_the_next_attempt;
    RerunsDoubt: an_attempt_in_doubt_is_never_rerun;
    AskerDecidesToRerun: the_lost_attempt_decides_whether_it_is_rerun;
    OwnClaimEndsWithItsLease: a_lost_acknowledgement_is_found_after_its_lease;
    PeekClaims: a_peek_never_claims, a_peek_takes_no_attempt;
    PeekHidesDoubt: a_peek_never_claims;
    KeepsClaimsOfTheCancelled: a_cancelled_begin_leaves_no_claim_behind, a_cancelled_begin_spares_the_next_claim;
    FreesKeysOfTheCancelled:
        a_cancelled_begin_spares_the_owner, histories_with_cancelled_steps_are_explained_by_the_model;
    GivesBackLate: a_cancelled_begin_spares_its_own_repetition;

    // How long a claim lasts.
    TellsTheWholeLease: in_flight_tells_the_remaining_lease;
    WaitingProlongs: waiting_does_not_prolong_a_lease;
    RenewalAdds: a_renewal_counts_from_now;
    RenewalIsIgnored: a_renewal_counts_from_now, renewing_and_taking_over_exclude_each_other;
    NoRevival: a_renewal_revives_a_lost_claim, durations_below_a_millisecond_are_as_good_as_none;
    LateOutcomeRefused: a_late_completion_settles_the_doubt, doubt_ends_by_completing_the_claim_it_carries;
    LosingIsIgnored: losing_a_claim_ends_its_lease_at_once;
    LosingIsAbandoning:
        losing_a_claim_ends_its_lease_at_once, once_survives_any_single_fault, once_survives_any_two_faults;
    StretchedByTheClock: a_clock_set_back_stretches_no_lease;
    ClockFreesTheKey: a_clock_set_back_leaves_the_claim_to_its_owner;
    LeaseWraps: the_longest_lease_is_granted;
    NoLeaseIsNoRecord: a_claim_without_a_lease_is_in_doubt;

    // Who may write.
    CompletesUnfenced: a_stale_claim_cannot_complete, contended_histories_are_explained_by_the_model;
    RenewsUnfenced: a_stale_claim_cannot_renew;
    AbandonsUnfenced: a_stale_claim_cannot_abandon;
    LosesUnfenced: a_stale_claim_cannot_lose, an_invented_claim_owns_nothing;
    FencesByAttempt: a_zombie_of_a_freed_key_cannot_write, a_zombie_of_a_forgotten_key_cannot_write;
    RepeatsOldOutcomes: a_stale_claim_cannot_complete;
    CompletesOnce: completing_again_with_the_same_outcome_is_applied, a_cancelled_complete_can_be_repeated;
    CompletesAgain:
        completing_again_with_another_outcome_is_superseded, of_ten_concurrent_outcomes_one_is_stored,
        a_settlement_that_comes_late_is_superseded, an_owner_that_returns_after_completion_is_superseded;
    CompletesInTwoSteps: completing_and_abandoning_exclude_each_other, completing_and_taking_over_exclude_each_other;
    AbandonsOnce:
        abandoning_what_is_gone_is_applied, a_cancelled_abandon_can_be_repeated,
        any_single_fault_leaves_a_rerunnable_with_one_outcome;
    AbandonsWhatIsDone: abandoning_what_is_done_is_superseded;
    AbandoningIsIgnored:
        abandoning_frees_the_key, a_retry_after_a_failure_runs, an_owner_that_returns_after_abandonment_is_superseded,
        doubt_ends_by_abandoning_the_claim_it_carries;
    AbandoningKeepsTheContent: an_abandoned_key_takes_another_content, abandoning_a_lost_claim_frees_the_key;
    WritesNextDoor: a_write_touches_its_own_record_only, concurrent_steps_do_not_mix_up_records;

    // What is kept, and how long.
    ForgetsOutcomes: a_duplicate_replays_the_outcome, a_duplicate_request_has_one_effect;
    EmptyIsNothing: an_empty_outcome_replays;
    TextOnly: a_binary_outcome_replays_exactly;
    CutsOutcomes: an_outcome_of_a_mebibyte_replays_exactly;
    KeepsFromTheStart: retention_starts_when_the_outcome_is_stored;
    KeepsForADay: every_outcome_has_its_own_retention, an_outcome_kept_for_no_time_is_forgotten_at_once;
    PermanentIsADay: a_permanent_outcome_is_never_forgotten;
    ExpiredReplays: an_expired_outcome_is_forgotten_before_the_sweep, a_forgotten_key_takes_another_content;
    ExpiredBlocks: an_expired_outcome_is_forgotten_before_the_sweep;
    RepeatingProlongs: completing_again_does_not_prolong_retention, a_cancelled_complete_is_all_or_nothing;
    ReplayingProlongs: replaying_does_not_prolong_retention;
    ReplayHasNoEnd: a_replay_tells_when_the_key_is_forgotten;
    KeptUntilTheLeaseEnds: an_outcome_outlives_the_lease_of_its_attempt;
    RetentionWraps: the_longest_retention_is_kept;

    // What is cleaned up.
    SweepsDoubt: an_attempt_in_doubt_is_never_swept;
    SweepsEverything: a_sweep_deletes_only_what_has_expired, a_sweep_spares_what_is_claimed_meanwhile;
    SweepsLostAtOnce: a_sweep_deletes_only_what_has_expired;
    SweepIgnoresItsLimit: a_sweep_honours_its_limit;
    NeverSweepsLost: a_lost_rerunnable_is_swept_after_a_while;
    SweepLosesTheRace: two_sweepers_count_every_record_once;

    // Who is woken.
    WakesNobody: completing_wakes_watchers, every_watcher_is_woken, a_change_between_watching_and_asking_is_not_missed;
    WakesOnlyForOutcomes: abandoning_wakes_watchers, losing_wakes_watchers;
    WakesNobodyElsewhere: a_change_wakes_watchers_of_another_store;

    // What people see.
    ShowsAnything: an_unknown_id_shows_nothing;
    ShowsStrangeClaims:
        a_call_in_flight_shows_its_lease, a_finished_call_shows_its_retention, doubt_ends_by_the_claim_of_its_view;
    ShowsTheLatestDate: a_rerun_shows_when_the_key_was_first_used;
    ShowsTheOldestDate: a_forgotten_key_is_created_anew;
    ShowsPhasesOfThePast: a_lost_attempt_shows_what_it_waits_for, a_phase_filter_follows_the_clock;
    ShowingRenews: looking_changes_nothing;
    PagesOverlap: pages_show_every_record_once;
    PagesNeverEnd: an_empty_place_lists_nothing;
    PagesRestart: paging_goes_on_when_the_last_record_is_gone;
    PagesHaveNoLimit: a_page_is_never_longer_than_the_limit;
    FiltersByPattern: a_filter_is_not_a_pattern;
    FiltersAfterPaging: a_filtered_listing_pages_too;
    FiltersWithoutDates: a_listing_can_end_at_a_date;

    // What operators do.
    ForgettingIsIgnored: forgetting_an_outcome_frees_its_key;
    ForgetsUnfenced: a_stale_claim_cannot_forget;
    ForgetsWhatIsNotDone: forgetting_what_is_not_done_changes_nothing;
    ForgetsOnce: forgetting_what_is_gone_is_applied;
    ForgetsQuietly: forgetting_wakes_watchers;
    ForgetsInTwoSteps: of_ten_callers_one_runs_what_was_forgotten;
    TrailRunsBackwards: a_trail_keeps_its_order;
    TrailHasNoLimit: a_trail_is_read_in_portions, a_trail_is_never_longer_than_the_limit;
    TrailOverlaps: a_trail_is_read_in_portions;
    TrailIsOfEverybody: a_trail_can_be_read_for_one_call;
    TrailEndsWithItsStore: a_trail_outlives_the_store_that_wrote_it;
    NotesOverwriteEachOther: concurrent_notes_are_all_kept;
    NumbersBeforeItWrites: whoever_follows_a_trail_misses_nothing;
    NotesEndAtNul: a_note_is_kept_whole_or_refused;
    NotesLoseControlCharacters: difficult_texts_in_notes_come_back_unchanged;
    TrailIsKeptForever: old_entries_go_and_numbers_rise;
    TrailIsKeptForADay: old_entries_go_and_numbers_rise;
    ClockStandsStill: the_clock_moves_on;
    ShowsAnotherClock: the_clock_is_the_one_that_dates_records;
};

/// Flaws of transactions, and some of stores that show in them as well.
pub(crate) const TRANSACTIONAL: &[Found] = found! {
    RecordsOutsideTransactions:
        a_rollback_undoes_effect_and_record, a_dropped_transaction_is_undone, nothing_shows_before_the_commit,
        a_rollback_restores_what_was_taken_over, the_claim_of_an_undone_transaction_owns_nothing,
        commits_lost_in_a_row_leave_one_effect, a_cancelled_wait_holds_nothing;
    EffectsOutsideTransactions:
        a_rollback_undoes_effect_and_record, several_calls_commit_together,
        of_ten_transactions_with_failures_one_has_the_effect, a_leased_claim_completes_in_a_transaction;
    CommitsEffectsOnly: effect_and_record_commit_together, a_claim_that_commits_unfinished_is_leased;
    CommitsRecordsOnly: effect_and_record_commit_together, a_forgotten_key_runs_in_a_transaction;
    CommitsInTwoSteps: a_cancelled_commit_is_all_or_nothing;
    CommitsQuietly: a_commit_wakes_watchers;
    DroppingCommits: a_dropped_transaction_is_undone, a_lost_commit_is_learnt_by_beginning_again;
    TransactionsDoNotWait:
        histories_with_transactions_are_explained_by_the_model,
        a_second_transaction_waits_and_replays, of_ten_transactions_one_has_the_effect,
        a_leased_caller_never_runs_beside_a_transaction;
    NeverWaits: a_second_transaction_waits_and_runs, transactions_that_wait_for_each_other_end;
    WaitsWithoutEnd: a_second_transaction_waits_no_longer_than_asked;
    TransactionsRunOut: transactions_do_not_run_out;
    VerdictsEndTransactions: a_transaction_goes_on_after_its_verdict;
    LeasesIgnoreTransactions: a_leased_caller_never_runs_beside_a_transaction;
    IgnoresContent: another_content_mismatches_in_a_transaction;
    TokenPerQuestion: a_repeated_begin_in_a_transaction_finds_its_claim;
    CompletesUnfenced: a_superseded_claim_cannot_complete_in_a_transaction;
    CompletesAgain: completing_again_in_a_transaction_changes_nothing;
    AttemptsDoNotCount: a_lost_rerunnable_is_taken_over_in_a_transaction;
    RerunsDoubt: a_doubt_is_settled_in_a_transaction;
    TellsTheWholeLease: a_leased_claim_is_in_flight_for_transactions;
    TextOnly: a_committed_outcome_replays_exactly;
    PermanentIsADay: a_committed_outcome_has_its_retention;
};
