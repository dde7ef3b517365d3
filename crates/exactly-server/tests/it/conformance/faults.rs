//! Every fault turns just those rules red that it breaks, and every rule can turn red.

use std::collections::BTreeSet;

use futures_util::{StreamExt as _, stream};

use super::fault::Fault;
use super::process::{Upstream, check, exactly};
use super::protector::{Setup, protect};

/// Each fault, and the rules that find it.
const FAULTS: &[(Fault, &[&str])] = &[
    (
        Fault::TakesAnyKey,
        &[
            "key-empty",
            "key-too-long",
            "key-control-character",
            "key-not-ascii",
            "key-comma",
            "key-broken-quotes",
            "refusals-are-problems",
        ],
    ),
    (Fault::RefusesLongKeys, &["key-longest"]),
    (Fault::TakesOneOfTwoKeys, &["key-sent-twice"]),
    (Fault::TellsQuotesApart, &["key-quoted-is-bare"]),
    (Fault::ProtectsReads, &["key-ignored-on-reads"]),
    (Fault::ProtectsPostOnly, &["key-on-every-write", "content-precondition"]),
    (Fault::RemembersWithoutKey, &["key-optional"]),
    (
        Fault::SetsNothing,
        &[
            "key-missing",
            "key-in-body",
            "key-alias",
            "key-uuid",
            "key-off",
            "content-left-out",
            "replay-secret",
            "in-flight-limit",
            "ending-rerunnable",
            "refusals-are-problems",
        ],
    ),
    (Fault::SharesKeys, &["scope-principal"]),
    (Fault::ForgetsMethod, &["scope-method"]),
    (Fault::ForgetsPath, &["scope-route"]),
    (Fault::ForgetsHost, &["scope-host"]),
    (Fault::ForgetsQuery, &["scope-query"]),
    (Fault::RefusesSameContent, &["scope-other-key"]),
    (Fault::ComparesSpelling, &["content-json-spelling"]),
    (Fault::ForgetsNumberKinds, &["content-told-apart"]),
    (Fault::ForgetsContentType, &["content-type"]),
    (Fault::ComparesText, &["content-bytes"]),
    (Fault::ComparesBoundaries, &["content-multipart-boundary"]),
    (Fault::ForgetsPreconditions, &["content-precondition"]),
    (Fault::PassesLargeBodies, &["content-too-large"]),
    (
        Fault::FreesOnRefusal,
        &[
            "scope-route",
            "scope-host",
            "scope-query",
            "replay-after-refusal",
            "in-flight-mismatch",
        ],
    ),
    (Fault::FreesClientErrors, &["replay-any-status"]),
    (Fault::FreesEmpty, &["replay-empty"]),
    (Fault::TurnsBodiesIntoText, &["replay-binary"]),
    (Fault::FreesStreams, &["replay-streamed"]),
    (Fault::FreesNoStore, &["replay-no-store"]),
    (Fault::FreesLarge, &["replay-too-large"]),
    (Fault::WithholdsLocation, &["replay-safe-headers"]),
    (Fault::ReplaysCookies, &["replay-no-cookie"]),
    (Fault::ReplaysCallerHeaders, &["replay-no-caller-headers"]),
    (
        Fault::NeverWaits,
        &["in-flight-one-effect", "in-flight-duplicate", "in-flight-crowd"],
    ),
    (Fault::AlwaysWaits, &["in-flight-duplicate"]),
    (Fault::ChecksFlightFirst, &["in-flight-mismatch"]),
    (Fault::WaiterCancelsOwner, &["in-flight-waiter-gone"]),
    (Fault::WaitersHoldConnections, &["in-flight-crowd"]),
    (Fault::CancelsOnHangUp, &["hang-up-cancels-nothing"]),
    (Fault::ClaimsBeforeBody, &["hang-up-in-body"]),
    (Fault::KeepsUnavailable, &["ending-nothing-happened", "ending-not-sent"]),
    (Fault::Frees500, &["ending-500-kept", "label-not-retryable"]),
    (
        Fault::Frees502,
        &["doubt-bad-gateway", "doubt-mismatch", "doubt-link", "label-unknown"],
    ),
    (
        Fault::ResendsWhatWasCut,
        &["doubt-cut-before-effect", "doubt-cut-after-effect"],
    ),
    (
        Fault::FreesWhatWasCut,
        &["doubt-cut-before-effect", "doubt-cut-after-effect"],
    ),
    (Fault::PassesHalfAnswers, &["ending-rerunnable", "doubt-cut-in-answer"]),
    (Fault::LinksNowhere, &["doubt-link"]),
    (
        Fault::TellsNothing,
        &[
            "label-stored",
            "label-replayed",
            "label-freed",
            "label-unknown",
            "label-not-retryable",
            "label-expires",
        ],
    ),
    (Fault::ExposesNothing, &["label-exposed"]),
    (Fault::SaysNotWhenToRetry, &["in-flight-limit"]),
    (Fault::RefusesInItsOwnWords, &["refusals-are-problems"]),
    (Fault::ForgetsNothing, &["retention-ends"]),
];

/// What only shows on a server without any protection, or under other options; see the tests beside this module.
const ELSEWHERE: &[&str] = &[
    "replay-byte-for-byte",
    "replay-at-once",
    "content-other",
    "ending-5xx-freed",
    "store-down",
];

/// Two callers, two hosts, and the routes that take no time.
const ARGUMENTS: &[&str] = &[
    "--header",
    "Authorization: Bearer ada",
    "--other-header",
    "Authorization: Bearer bob",
    "--other-host",
    "other.example",
    "--route",
    "required",
    "--route",
    "field",
    "--route",
    "alias",
    "--route",
    "uuid",
    "--route",
    "off",
    "--route",
    "leave-out",
    "--route",
    "secret",
    "--route",
    "rerunnable",
    "--route",
    "impatient",
];

/// How many servers are checked at the same time. They mostly wait.
const TOGETHER: usize = 6;

async fn finds(fault: Fault, expected: &[&str]) -> Option<String> {
    let upstream = Upstream::start();
    let target = protect(upstream.address, Setup::with(fault)).await;
    let run = check(target, &[ARGUMENTS, fault.arguments()].concat()).await;
    let is_found = run.ids("failed") == expected && run.code == 1;
    (!is_found).then(|| format!("{fault:?} is not found by {expected:?}, but by:\n{}", run.failures()))
}

/// Checks one part of the faults, so that the parts run side by side.
async fn finds_all(part: usize) {
    let size = FAULTS.len().div_ceil(4);
    let chosen = FAULTS.chunks(size).nth(part).unwrap();
    let missed: Vec<_> = stream::iter(chosen)
        .map(|(fault, expected)| finds(*fault, expected))
        .buffer_unordered(TOGETHER)
        .filter_map(|missed| async { missed })
        .collect()
        .await;
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[tokio::test]
async fn faults_with_keys_and_scopes_are_found() {
    finds_all(0).await;
}

#[tokio::test]
async fn faults_with_content_and_replays_are_found() {
    finds_all(1).await;
}

#[tokio::test]
async fn faults_with_duplicates_and_hang_ups_are_found() {
    finds_all(2).await;
}

#[tokio::test]
async fn faults_with_endings_and_labels_are_found() {
    finds_all(3).await;
}

#[tokio::test]
async fn a_promise_of_repeatability_that_is_not_kept_is_found() {
    let upstream = Upstream::start();
    let target = protect(upstream.address, Setup::of(exactly::layer::Policy::playbook())).await;
    for guarantee in ["rerunnable", "transactional"] {
        let run = check(target, &["--guarantee", guarantee, "--only", "ending-5xx-freed"]).await;
        assert_eq!(run.ids("failed"), ["ending-5xx-freed"]);
    }
}

#[tokio::test]
async fn every_rule_is_seen_to_fail() {
    let listed = exactly(&["conformance", "--list"]).await.stdout;
    let listed = String::from_utf8(listed).unwrap();
    let rules: BTreeSet<_> = listed.lines().filter(|line| !line.starts_with(' ')).collect();
    let found = FAULTS.iter().flat_map(|(_, found)| *found).chain(ELSEWHERE);
    let found: BTreeSet<_> = found.copied().collect();
    assert_eq!(rules, found);
}
