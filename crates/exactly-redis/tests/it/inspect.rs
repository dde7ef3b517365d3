//! Pages over a store that has no order.

use std::collections::BTreeSet;

use exactly::store::{CallView, Filter, Inspect as _, Phase};
use exactly::{Call, CallId, Fingerprint, Keep, Key, Scope, Store};
use exactly_redis::RedisStore;
use tokio::task::JoinSet;

use crate::{ask, call, claimed, operator, prefix, shared_url, store, store_with};

/// More than one `SCAN` looks at.
const RECORDS: usize = 2500;

async fn pages(store: &RedisStore, mut filter: Filter) -> Vec<CallView> {
    let mut views = Vec::new();
    loop {
        let page = store.list(&filter).await.unwrap();
        assert!(page.calls.len() <= filter.limit as usize);
        assert!(
            page.next.is_none() || page.calls.len() == filter.limit as usize,
            "a short page is the last one"
        );
        views.extend(page.calls);
        match page.next {
            Some(next) => filter.after = Some(next),
            None => return views,
        }
    }
}

fn ids(views: &[CallView]) -> Vec<CallId> {
    views.iter().map(|view| view.claim.id).collect()
}

#[tokio::test]
async fn pages_show_every_record_once_and_in_order() {
    let prefix = prefix();
    let store = std::sync::Arc::new(store_with(&prefix).await);
    let mut begins = JoinSet::new();
    for number in 0..RECORDS {
        let store = std::sync::Arc::clone(&store);
        begins.spawn(async move {
            let call = call(&number.to_string());
            let claim = claimed(&store, &call).await;
            if number % 100 == 0 {
                let _ = store.lose(&claim).await.unwrap();
            }
            *call.id()
        });
    }
    let begun: BTreeSet<CallId> = begins.join_all().await.into_iter().collect();
    // Neighbours that are not ours: another store's record, and a key that is no record.
    let neighbour = store_with(&format!("{prefix}:other")).await;
    let _ = claimed(&neighbour, &call("0")).await;
    let mut operator = operator(&shared_url()).await;
    ask::<()>(&mut operator, &format!("HSET {prefix}:settings a b")).await;

    let begun: Vec<CallId> = begun.into_iter().collect();
    let all = pages(
        &store,
        Filter {
            limit: 700,
            ..Filter::default()
        },
    )
    .await;
    assert_eq!(ids(&all), begun);
    let exact = u32::try_from(RECORDS / 5).unwrap();
    let all = pages(
        &store,
        Filter {
            limit: exact,
            ..Filter::default()
        },
    )
    .await;
    assert_eq!(ids(&all), begun, "the last page is full");
    let doubtful = pages(
        &store,
        Filter {
            phase: Some(Phase::InDoubt),
            limit: 7,
            ..Filter::default()
        },
    )
    .await;
    assert_eq!(doubtful.len(), RECORDS / 100);
    assert!(doubtful.iter().all(|view| view.phase == Phase::InDoubt));
}

#[tokio::test]
async fn a_view_shows_what_was_begun() {
    let store = store().await;
    let key = || Key::new("schlüssel ✓").unwrap();
    let fingerprint = Fingerprint::of("12 EUR");
    let owned = Call::new(Scope::new("", "POST /refunds"), key(), fingerprint);
    let global = Call::new(Scope::global("league.join"), key(), fingerprint);
    let claim = claimed(&store, &owned).await;
    let _ = claimed(&store, &global).await;

    let view = store.get(owned.id()).await.unwrap().unwrap();
    assert_eq!(
        (view.scope, view.key, view.fingerprint),
        (owned.scope().clone(), key(), fingerprint)
    );
    assert_eq!((view.phase, view.outcome_len), (Phase::InFlight, None));
    assert_eq!(view.until, Some(view.created_at.after(owned.lease())));
    assert_eq!(view.claim, claim);

    let _ = store
        .complete(&claim, &"twelve bytes".into(), Keep::Forever)
        .await
        .unwrap();
    let view = store.get(owned.id()).await.unwrap().unwrap();
    assert_eq!(
        (view.phase, view.outcome_len, view.until),
        (Phase::Done, Some(12), None)
    );
    assert_eq!(
        store.get(global.id()).await.unwrap().unwrap().scope,
        Scope::global("league.join")
    );
    assert!(store.get(call("none").id()).await.unwrap().is_none());

    let of_nobody = Filter {
        principal: Some(String::new()),
        ..Filter::default()
    };
    assert_eq!(ids(&store.list(&of_nobody).await.unwrap().calls), [*owned.id()]);
    let joins = Filter {
        operation: Some("league.join".into()),
        ..Filter::default()
    };
    assert_eq!(ids(&store.list(&joins).await.unwrap().calls), [*global.id()]);
}
