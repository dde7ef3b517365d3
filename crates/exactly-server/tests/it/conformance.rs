//! `exactly conformance`, against servers that keep the contract and servers that do not.

mod docs;
mod fault;
mod faults;
mod gateway;
mod outside;
mod own_service;
mod process;
mod protector;
mod report;
mod tls;

use exactly::layer::{Guarantee, Policy};
use fault::Fault;
use process::{Upstream, check};
use protector::{Setup, protect};

/// Two callers, two hosts, and every route that is set otherwise.
const EVERYTHING: &[&str] = &[
    "--header",
    "Authorization: Bearer ada-s3cr3t",
    "--other-header",
    "Authorization: Bearer bob-s3cr3t",
    "--other-host",
    "other.example",
    "--route",
    "all",
];

/// A server that is what it says passes everything that can be seen on it.
async fn passes(setup: Setup, arguments: &[&str], not_applicable: &[&str]) {
    let upstream = Upstream::start();
    let target = protect(upstream.address, setup).await;
    let run = check(target, &[EVERYTHING, arguments].concat()).await;
    assert_eq!(run.ids("failed"), [""; 0], "{}", run.failures());
    assert_eq!(run.ids("not-applicable"), not_applicable);
    assert_eq!(run.code, 0);
}

#[tokio::test]
async fn the_layer_keeps_the_contract_as_playbook() {
    let beyond = ["ending-5xx-freed", "store-down"];
    passes(Setup::of(Policy::playbook()), &[], &beyond).await;
}

#[tokio::test]
async fn the_layer_keeps_the_contract_as_ietf() {
    let beyond = ["in-flight-limit", "ending-5xx-freed", "store-down"];
    passes(Setup::of(Policy::ietf()), &["--preset", "ietf"], &beyond).await;
}

#[tokio::test]
async fn the_layer_keeps_the_contract_as_stripe() {
    let beyond = ["in-flight-limit", "ending-5xx-freed", "store-down"];
    passes(Setup::of(Policy::stripe()), &["--preset", "stripe"], &beyond).await;
}

#[tokio::test]
async fn the_layer_keeps_the_contract_of_a_rerunnable_route() {
    let setup = Setup::of(Policy::playbook().guarantee(Guarantee::Rerunnable));
    let beyond = [
        "ending-500-kept",
        "doubt-bad-gateway",
        "doubt-cut-before-effect",
        "doubt-cut-after-effect",
        "doubt-cut-in-answer",
        "doubt-mismatch",
        "doubt-link",
        "label-unknown",
        "label-not-retryable",
        "store-down",
    ];
    passes(setup, &["--guarantee", "rerunnable"], &beyond).await;
}

#[tokio::test]
async fn a_store_that_is_down_is_seen_to_fail_closed() {
    let upstream = Upstream::start();
    let down = Setup {
        is_store_down: true,
        ..Setup::of(Policy::playbook())
    };
    let target = protect(upstream.address, down).await;
    let run = check(target, &["--store-down"]).await;
    assert_eq!(run.ids("passed"), ["store-down"], "{}", run.failures());
    assert_eq!(run.code, 0);
    // A store that answers is not one that is down.
    let target = protect(upstream.address, Setup::of(Policy::playbook())).await;
    let run = check(target, &["--store-down"]).await;
    assert_eq!(run.ids("failed"), ["store-down"]);
    assert_eq!(run.code, 1);
}

#[tokio::test]
async fn without_settings_and_a_second_caller_their_rules_are_not_applicable() {
    let upstream = Upstream::start();
    let target = protect(upstream.address, Setup::of(Policy::playbook())).await;
    let run = check(target, &[]).await;
    let beyond = [
        "key-missing",
        "key-in-body",
        "key-alias",
        "key-uuid",
        "key-off",
        "scope-principal",
        "scope-host",
        "content-left-out",
        "replay-secret",
        "in-flight-limit",
        "ending-5xx-freed",
        "ending-rerunnable",
        "retention-ends",
        "store-down",
    ];
    assert_eq!(run.ids("not-applicable"), beyond);
    assert_eq!(run.reason("scope-principal"), "needs a second caller: --other-header");
    assert!(run.reason("key-missing").ends_with("--route required"));
    assert_eq!(run.code, 0, "{}", run.failures());
}

#[tokio::test]
async fn a_service_without_protection_fails() {
    let upstream = Upstream::start();
    let run = check(upstream.address, EVERYTHING).await;
    // What an unprotected service does right: it never confuses two operations, and frees a key that it never took.
    let passed = [
        "key-optional",
        "key-ignored-on-reads",
        "key-off",
        "scope-other-key",
        "hang-up-in-body",
        "ending-nothing-happened",
        "ending-rerunnable",
        "ending-not-sent",
    ];
    assert_eq!(run.ids("passed"), passed, "{}", run.failures());
    assert_eq!(run.ids("not-applicable"), ["ending-5xx-freed", "store-down"]);
    assert_eq!(run.code, 1);
}

#[tokio::test]
async fn presets_are_told_apart() {
    let upstream = Upstream::start();
    let target = protect(upstream.address, Setup::of(Policy::playbook())).await;
    let run = check(target, &[EVERYTHING, &["--preset", "ietf"]].concat()).await;
    let expected = [
        "key-empty",
        "key-too-long",
        "key-control-character",
        "key-not-ascii",
        "key-comma",
        "key-broken-quotes",
        "key-sent-twice",
        "key-missing",
        "key-in-body",
        "key-alias",
        "key-uuid",
        "scope-route",
        "scope-host",
        "scope-query",
        "content-other",
        "content-told-apart",
        "content-type",
        "content-bytes",
        "content-multipart-boundary",
        "content-precondition",
        "content-left-out",
        "in-flight-duplicate",
        "in-flight-mismatch",
        "doubt-mismatch",
        "refusals-are-problems",
    ];
    assert_eq!(run.ids("failed"), expected, "{}", run.failures());
    let stripe = Setup::of(Policy::stripe());
    let target = protect(upstream.address, stripe).await;
    let run = check(target, &["--only", "content-other", "--preset", "ietf"]).await;
    assert_eq!(run.ids("failed"), ["content-other"]);
    let run = check(target, &["--only", "content-other", "--preset", "stripe"]).await;
    assert_eq!(run.ids("passed"), ["content-other"]);
}

#[tokio::test]
async fn counts_can_come_from_the_upstream_itself() {
    let upstream = Upstream::start();
    let target = protect(upstream.address, Setup::with(Fault::HidesCounts)).await;
    let only = ["--only", "in-flight-duplicate", "--only", "ending-not-sent"];
    let run = check(target, &only).await;
    assert_eq!(run.code, 2, "nothing is applicable where nobody counts");
    let effects = format!("http://{}/effects", upstream.address);
    let run = check(target, &[&only[..], &["--effects-url", &effects]].concat()).await;
    assert_eq!(
        run.ids("passed"),
        ["in-flight-duplicate", "ending-not-sent"],
        "{}",
        run.failures()
    );
}
