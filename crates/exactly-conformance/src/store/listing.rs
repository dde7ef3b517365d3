//! Pages of records.

use std::collections::BTreeSet;

use exactly::clock::Timestamp;
use exactly::store::{CallView, Filter, Phase};
use exactly::{CallId, Claim, Inspect, Operate as _, Scope, Store as _};
use futures_util::future::join_all;

use crate::StoreHarness;
use crate::answers::{FencedExt as _, VerdictExt as _, answered};
use crate::request::{KEEP, LEASE_AND_A_BIT, Request, unique};

/// More pages than any listing here has.
const PAGES_MAX: usize = 100;

/// An empty place has one page, and nothing on it.
pub async fn an_empty_place_lists_nothing<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let page = answered(store.list(&Filter::default()).await);
    assert!(page.calls.is_empty() && page.next.is_none());
}

/// Following the pages shows every record once, and the last page says that it is the last.
pub async fn pages_show_every_record_once<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let begun = begin_many(&*store, 25).await;
    // One page size that divides the number of records, and one that does not.
    for limit in [5, 7, 25, 100] {
        assert_eq!(
            all_pages(
                &*store,
                Filter {
                    limit,
                    ..Filter::default()
                }
            )
            .await,
            begun,
            "with pages of {limit}"
        );
    }
}

/// Records that come and go between two pages neither hide others nor show them twice.
pub async fn paging_goes_on_when_the_last_record_is_gone<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let begun = begin_many(&*store, 10).await;
    let first = answered(
        store
            .list(&Filter {
                limit: 4,
                ..Filter::default()
            })
            .await,
    );
    let last = &first.calls.last().expect("the page is full").claim;
    store.abandon(last).await.must_apply();
    let rest = answered(
        store
            .list(&Filter {
                after: first.next,
                ..Filter::default()
            })
            .await,
    );
    let mut seen: BTreeSet<_> = ids(&first.calls).collect();
    for id in ids(&rest.calls) {
        assert!(seen.insert(id), "a record is on two pages");
    }
    assert_eq!(seen, begun);
    assert!(rest.next.is_none());
}

/// One page never holds more than the limit of all limits.
pub async fn a_page_is_never_longer_than_the_limit<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let most = usize::try_from(Filter::LIMIT_MAX).expect("small");
    let begun = begin_many(&*store, most + 1).await;
    let first = answered(
        store
            .list(&Filter {
                limit: u32::MAX,
                ..Filter::default()
            })
            .await,
    );
    assert_eq!(first.calls.len(), most);
    let rest = answered(
        store
            .list(&Filter {
                after: first.next,
                limit: u32::MAX,
                ..Filter::default()
            })
            .await,
    );
    assert_eq!(rest.calls.len(), 1);
    assert!(rest.next.is_none());
    let seen: BTreeSet<_> = ids(&first.calls).chain(ids(&rest.calls)).collect();
    assert_eq!(seen, begun);
}

/// A phase is judged at the moment of the question, by the store's clock.
pub async fn a_phase_filter_follows_the_clock<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let doubtful = store.begin(&Request::fresh().call()).await.must_run();
    let repeatable = store.begin(&Request::fresh().rerunnable()).await.must_run();
    harness.elapse(LEASE_AND_A_BIT).await;
    let in_flight = store.begin(&Request::fresh().call()).await.must_run();
    let done = store.begin(&Request::fresh().call()).await.must_run();
    store.complete(&done, &"done".into(), KEEP).await.must_apply();
    for (phase, claim) in [
        (Phase::InDoubt, doubtful),
        (Phase::Lost, repeatable),
        (Phase::InFlight, in_flight),
        (Phase::Done, done),
    ] {
        let page = answered(
            store
                .list(&Filter {
                    phase: Some(phase),
                    ..Filter::default()
                })
                .await,
        );
        let found: Vec<_> = page.calls.iter().map(|view| (view.phase, view.claim.clone())).collect();
        assert_eq!(found, [(phase, claim)]);
    }
}

/// Filters narrow each other down.
pub async fn filters_combine<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let scopes = [
        Scope::new("ann", "order.place"),
        Scope::new("ann", "order.cancel"),
        Scope::new("bob", "order.place"),
        Scope::global("order.place"),
        Scope::new("", "order.place"),
    ];
    let mut claims: Vec<Claim> = Vec::new();
    for scope in scopes {
        claims.push(
            store
                .begin(&Request::scoped(scope, &unique("key")).call())
                .await
                .must_run(),
        );
    }
    store.complete(&claims[0], &"done".into(), KEEP).await.must_apply();

    let found = async |phase, operation: Option<&str>, principal: Option<&str>| {
        let (operation, principal) = (operation.map(str::to_owned), principal.map(str::to_owned));
        let filter = Filter {
            phase,
            operation,
            principal,
            ..Filter::default()
        };
        let page = answered(store.list(&filter).await);
        assert!(page.calls.iter().all(|view| filter.matches(view)));
        let places = page
            .calls
            .iter()
            .map(|view| claims.iter().position(|claim| *claim == view.claim));
        places
            .collect::<Option<BTreeSet<_>>>()
            .expect("only records of this test")
    };
    assert_eq!(found(None, Some("order.place"), None).await, [0, 2, 3, 4].into());
    assert_eq!(found(None, None, Some("ann")).await, [0, 1].into());
    assert_eq!(found(None, Some("order.place"), Some("ann")).await, [0].into());
    assert_eq!(found(Some(Phase::InFlight), None, Some("ann")).await, [1].into());
    assert_eq!(found(Some(Phase::Done), Some("order.cancel"), None).await, [].into());
    // The global scope has no principal, and an empty one is not it.
    assert_eq!(found(None, None, Some("")).await, [4].into());
}

/// A date leaves out what was first used then or later, and narrows other filters down like any other.
pub async fn a_listing_can_end_at_a_date<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let old = store.begin(&Request::fresh().call()).await.must_run();
    let older = store.begin(&Request::fresh().call()).await.must_run();
    store.complete(&older, &"done".into(), KEEP).await.must_apply();
    harness.elapse(LEASE_AND_A_BIT).await;
    let date = answered(store.now().await);
    let new = store.begin(&Request::fresh().call()).await.must_run();

    let found = async |phase, created_before| {
        let filter = Filter {
            phase,
            created_before: Some(created_before),
            ..Filter::default()
        };
        all_pages(&*store, filter).await
    };
    assert_eq!(found(None, date).await, [old.id, older.id].into());
    assert_eq!(found(Some(Phase::Done), date).await, [older.id].into());
    assert_eq!(found(Some(Phase::InDoubt), date).await, [old.id].into());
    assert_eq!(found(Some(Phase::InFlight), date).await, [].into());
    assert_eq!(found(None, Timestamp::from_millis(0)).await, [].into());
    for never in [u64::MAX, 1 << 53, 1 << 60] {
        let all = found(None, Timestamp::from_millis(never)).await;
        assert_eq!(all, [old.id, older.id, new.id].into());
    }
    let view = answered(store.get(&old.id).await).expect("the record is there");
    assert!(!found(Some(Phase::InDoubt), view.created_at).await.contains(&old.id));
}

/// A filter holds on every page, however far apart the records that it finds.
pub async fn a_filtered_listing_pages_too<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    begin_many(&*store, 40).await;
    let scope = Scope::new("bob", "order.place");
    let mut begun = BTreeSet::new();
    for _ in 0..5 {
        let request = Request::scoped(scope.clone(), &unique("key"));
        begun.insert(store.begin(&request.call()).await.must_run().id);
    }
    let filter = Filter {
        principal: Some("bob".to_owned()),
        limit: 2,
        ..Filter::default()
    };
    assert_eq!(all_pages(&*store, filter).await, begun);
}

/// Follows the pages to their end.
async fn all_pages(store: &impl Inspect, mut filter: Filter) -> BTreeSet<CallId> {
    let mut seen = BTreeSet::new();
    for _ in 0..PAGES_MAX {
        let page = answered(store.list(&filter).await);
        assert!(
            page.calls.len() <= usize::try_from(filter.limit).expect("small"),
            "a page is longer than asked for"
        );
        for id in ids(&page.calls) {
            assert!(seen.insert(id), "a record is on two pages");
        }
        filter.after = page.next;
        if filter.after.is_none() {
            return seen;
        }
    }
    panic!("paging does not end")
}

async fn begin_many(store: &impl Inspect, count: usize) -> BTreeSet<CallId> {
    let calls: Vec<_> = (0..count).map(|_| Request::fresh().call()).collect();
    let verdicts = join_all(calls.iter().map(|call| store.begin(call))).await;
    verdicts.into_iter().map(|verdict| verdict.must_run().id).collect()
}

fn ids(calls: &[CallView]) -> impl Iterator<Item = CallId> {
    calls.iter().map(|view| view.claim.id)
}
