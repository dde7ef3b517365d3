//! The suites themselves: they find every flaw, and none of their promises holds whatever a store does.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::panic;
use std::path::Path;
use std::pin::Pin;
use std::sync::Once;
use std::thread;

use crate::flaw::Flaw;
use crate::flawed::FlawedPlace;
use crate::found_by::{self, Found};
use crate::ledger::LedgerPlace;

type Promise = fn() -> Pin<Box<dyn Future<Output = ()>>>;
type Promises = BTreeMap<&'static str, Promise>;

/// The name of threads in which promises are expected to break, so that their panics need no report.
const QUIET: &str = "flawed";

#[test]
fn stores_without_flaw_keep_every_promise() {
    for (name, promise) in store_promises().into_iter().chain(transactional_promises()) {
        assert!(holds(promise, Flaw::None), "{name} is broken by a sound store");
    }
}

#[test]
fn every_flaw_of_a_store_is_found() {
    all_found(&store_promises(), found_by::STORE);
}

#[test]
fn every_flaw_of_a_transaction_is_found() {
    all_found(&transactional_promises(), found_by::TRANSACTIONAL);
}

#[test]
fn every_promise_can_be_broken() {
    assert_eq!(unbreakable(&store_promises(), found_by::STORE), [""; 0]);
    // A store with one writer is excused from this one; the next test is about those that are not.
    let excused = ["other_keys_do_not_wait_for_a_transaction"];
    assert_eq!(unbreakable(&transactional_promises(), found_by::TRANSACTIONAL), excused);
}

#[test]
fn a_store_with_one_writer_cannot_pass_for_more() {
    let promises = exactly_conformance::__transactional_promises! { __promise_table, LedgerPlace<true> };
    let promises = Promises::from(promises);
    assert!(!holds(promises["other_keys_do_not_wait_for_a_transaction"], Flaw::None));
}

#[test]
fn every_promise_that_is_written_is_listed() {
    assert_eq!(written_in("src/store"), listed(&store_promises()));
    assert_eq!(written_in("src/transactional"), listed(&transactional_promises()));
}

fn store_promises() -> Promises {
    exactly_conformance::__store_promises! { __promise_table, FlawedPlace }.into()
}

fn transactional_promises() -> Promises {
    exactly_conformance::__transactional_promises! { __promise_table, LedgerPlace }.into()
}

fn all_found(promises: &Promises, found: &[Found]) {
    for (flaw, found_by) in found {
        for name in *found_by {
            let promise = promises.get(name).unwrap_or_else(|| panic!("{name} is no promise"));
            assert!(!holds(*promise, *flaw), "{name} does not notice {flaw:?}");
        }
    }
}

fn unbreakable(promises: &Promises, found: &[Found]) -> Vec<&'static str> {
    let broken: BTreeSet<_> = found.iter().flat_map(|(_, found_by)| *found_by).collect();
    promises.keys().filter(|name| !broken.contains(name)).copied().collect()
}

fn listed(promises: &Promises) -> BTreeSet<String> {
    promises.keys().copied().map(str::to_owned).collect()
}

pub(crate) fn written_in(folder: &str) -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|file| fs::read_to_string(file.unwrap().path()).unwrap());
    let names = files.flat_map(|source| {
        let names = source
            .lines()
            .filter_map(|line| line.strip_prefix("pub async fn ")?.split('<').next());
        names.map(str::to_owned).collect::<Vec<_>>()
    });
    names.collect()
}

/// Runs the promise in a thread of its own, where time passes as soon as everybody waits.
fn holds(promise: Promise, flaw: Flaw) -> bool {
    static HUSH: Once = Once::new();
    HUSH.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if thread::current().name() != Some(QUIET) {
                report(panic);
            }
        }));
    });
    let run = move || {
        flaw.make_present();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(promise());
    };
    thread::Builder::new()
        .name(QUIET.to_owned())
        .spawn(run)
        .unwrap()
        .join()
        .is_ok()
}
