//! Ways to break a promise. Most were seen in public libraries; the rest are easily made.

use std::cell::Cell;

/// What is wrong with a [`Flawed`](crate::flawed::Flawed) store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Nothing: the control.
    None,

    // Who a call is.
    IgnoresPrincipal,
    IgnoresOperation,
    GlobalIsEmpty,
    FindsByContent,
    ComparesNamesLoosely,
    CutsKeys,
    CutsControlCharacters,
    TokenPerQuestion,
    FailsOnNul,

    // Who may run.
    RunsEverybody,
    ChecksThenInserts,
    ChecksThenTakesOver,
    IgnoresContent,
    InFlightBeforeContent,
    DoubtBeforeContent,
    LostBeforeContent,
    DoneBeforeContent,
    MismatchPutsItsContent,
    MismatchHasNoEnd,
    MismatchHasAnEnd,
    AttemptsDoNotCount,
    RerunsDoubt,
    AskerDecidesToRerun,
    OwnClaimEndsWithItsLease,
    PeekClaims,
    PeekHidesDoubt,
    KeepsClaimsOfTheCancelled,
    FreesKeysOfTheCancelled,
    GivesBackLate,

    // How long a claim lasts.
    TellsTheWholeLease,
    WaitingProlongs,
    RenewalAdds,
    RenewalIsIgnored,
    NoRevival,
    LateOutcomeRefused,
    LosingIsIgnored,
    LosingIsAbandoning,
    StretchedByTheClock,
    ClockFreesTheKey,
    LeaseWraps,
    NoLeaseIsNoRecord,

    // Who may write.
    CompletesUnfenced,
    RenewsUnfenced,
    AbandonsUnfenced,
    LosesUnfenced,
    FencesByAttempt,
    RepeatsOldOutcomes,
    CompletesOnce,
    CompletesAgain,
    CompletesInTwoSteps,
    AbandonsOnce,
    AbandonsWhatIsDone,
    AbandoningIsIgnored,
    AbandoningKeepsTheContent,
    WritesNextDoor,

    // What is kept, and how long.
    ForgetsOutcomes,
    EmptyIsNothing,
    TextOnly,
    CutsOutcomes,
    KeepsFromTheStart,
    KeepsForADay,
    PermanentIsADay,
    ExpiredReplays,
    ExpiredBlocks,
    RepeatingProlongs,
    ReplayingProlongs,
    ReplayHasNoEnd,
    KeptUntilTheLeaseEnds,
    RetentionWraps,

    // What is cleaned up.
    SweepsDoubt,
    SweepsEverything,
    SweepsLostAtOnce,
    SweepIgnoresItsLimit,
    NeverSweepsLost,
    SweepLosesTheRace,

    // Who is woken.
    WakesNobody,
    WakesOnlyForOutcomes,
    WakesNobodyElsewhere,

    // What people see.
    ShowsAnything,
    ShowsStrangeClaims,
    ShowsTheLatestDate,
    ShowsTheOldestDate,
    ShowsPhasesOfThePast,
    ShowingRenews,
    PagesOverlap,
    PagesNeverEnd,
    PagesRestart,
    PagesHaveNoLimit,
    FiltersByPattern,
    FiltersAfterPaging,
    FiltersWithoutDates,

    // What operators do.
    ForgettingIsIgnored,
    ForgetsUnfenced,
    ForgetsWhatIsNotDone,
    ForgetsOnce,
    ForgetsQuietly,
    ForgetsInTwoSteps,
    TrailRunsBackwards,
    TrailHasNoLimit,
    TrailOverlaps,
    TrailIsOfEverybody,
    TrailEndsWithItsStore,
    NotesOverwriteEachOther,
    NumbersBeforeItWrites,
    NotesEndAtNul,
    NotesLoseControlCharacters,
    TrailIsKeptForever,
    TrailIsKeptForADay,
    ClockStandsStill,
    ShowsAnotherClock,

    // What a transaction holds.
    RecordsOutsideTransactions,
    EffectsOutsideTransactions,
    CommitsEffectsOnly,
    CommitsRecordsOnly,
    CommitsInTwoSteps,
    CommitsQuietly,
    DroppingCommits,
    TransactionsDoNotWait,
    WaitsWithoutEnd,
    NeverWaits,
    TransactionsRunOut,
    VerdictsEndTransactions,
    LeasesIgnoreTransactions,
}

thread_local! {
    /// The flaw of every store made in this thread, which runs one promise and ends.
    static PRESENT: Cell<Flaw> = const { Cell::new(Flaw::None) };
}

impl Flaw {
    pub(crate) fn present() -> Self {
        PRESENT.get()
    }

    pub(crate) fn make_present(self) {
        PRESENT.set(self);
    }
}
