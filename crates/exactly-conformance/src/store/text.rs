//! Texts that someone chose to be difficult.

use exactly::store::Filter;
use exactly::{Inspect as _, Key, Scope, Store as _, StoreErrorKind};
use futures_util::future::join_all;

use crate::StoreHarness;
use crate::answers::{FencedExt as _, VerdictExt as _, answered};
use crate::request::{KEEP, Request, unique};

/// What ends a literal, matches anything, or starts a command in some language on the way to a record.
const DIFFICULT: [&str; 16] = [
    "'; drop table exactly_calls; --",
    "\"quoted\" 'twice'",
    "back\\slash \\' \\x00 \\u0000",
    "%",
    "_",
    "*?[a-z]",
    "$1 $$ $tag$ :name ?1 {0} {} %s",
    "]] redis.call('flushall') --[[",
    "{hash}tag{s}",
    "a:b:c|d/e;f,g=h&i",
    "null",
    "0",
    " leading and trailing ",
    "Ünïcödé – 日本語 – 🎟️",
    "e\u{301} is not é",
    "\u{202e}right to left\u{feff}",
];

/// Quotes, wildcards and escapes are text, in every field that holds text.
pub async fn difficult_texts_come_back_unchanged<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    for text in DIFFICULT {
        round_trip(
            &*store,
            &Request::scoped(Scope::new(text, "order.place"), &unique("key")),
        )
        .await;
        round_trip(&*store, &Request::scoped(Scope::new("ann", text), &unique("key"))).await;
        round_trip(&*store, &Request::with_key(&format!("{text}{}", unique("")))).await;
    }
}

/// Control characters too, where a key may not have them but a principal may.
pub async fn control_characters_in_a_scope_come_back_unchanged<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    for text in [
        "line\nend\r\n",
        "tab\tbell\u{7}",
        "\u{1b}[31mred",
        "\u{1}\u{1f}\u{7f}\u{80}",
    ] {
        round_trip(&*store, &Request::scoped(Scope::new(text, text), &unique("key"))).await;
    }
}

/// The longest key is kept whole: two of them that differ in the last byte are two.
pub async fn the_longest_keys_are_kept_apart<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let start = unique("");
    let longest = |last: &str| {
        let middle = "k".repeat(Key::BYTES_MAX - start.len() - last.len());
        Request::with_key(&format!("{start}{middle}{last}"))
    };
    for last in ["a", "b", "é", "\u{1f3ab}"] {
        let request = longest(last);
        assert_eq!(request.key.as_str().len(), Key::BYTES_MAX);
        round_trip(&*store, &request).await;
    }
}

/// Texts that some rules of comparison call equal are different names.
pub async fn names_are_compared_byte_by_byte<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let key = unique("key");
    for principal in ["ann", "Ann", "ann ", " ann", "änn", "a\u{308}nn", ""] {
        let request = Request::scoped(Scope::new(principal, "order.place"), &key);
        let claim = store.begin(&request.call()).await.must_run();
        store
            .complete(&claim, &principal.to_owned().into(), KEEP)
            .await
            .must_apply();
        let filter = Filter {
            principal: Some(principal.to_owned()),
            ..Filter::default()
        };
        let page = answered(store.list(&filter).await);
        assert_eq!(page.calls.len(), 1, "the filter {principal:?} finds one record");
    }
}

/// A wildcard in a filter is a name, not a pattern.
pub async fn a_filter_is_not_a_pattern<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let plain = Request::fresh();
    let _claim = store.begin(&plain.call()).await.must_run();
    for text in DIFFICULT {
        let request = Request::scoped(Scope::new(text, text), &unique("key"));
        let claim = store.begin(&request.call()).await.must_run();
        for filter in [
            Filter {
                principal: Some(text.to_owned()),
                ..Filter::default()
            },
            Filter {
                operation: Some(text.to_owned()),
                ..Filter::default()
            },
        ] {
            let page = answered(store.list(&filter).await);
            let found: Vec<_> = page.calls.into_iter().map(|view| view.claim).collect();
            assert_eq!(
                found,
                std::slice::from_ref(&claim),
                "the filter {text:?} finds its record only"
            );
        }
    }
}

/// A text that a store cannot keep, a NUL or far too long, is refused in words and harms nobody else.
pub async fn a_text_that_cannot_be_kept_harms_nobody_else<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let long = "long ".repeat(20_000);
    for text in ["nul \0 inside", long.as_str()] {
        let odd = Request::scoped(Scope::new(text, "order.place"), &unique("key"));
        let bystanders: Vec<_> = (0..10).map(|_| Request::fresh().call()).collect();
        let call = odd.call();
        let (before, after) = bystanders.split_at(5);
        let (before, verdict, after) = tokio::join!(
            join_all(before.iter().map(|call| store.begin(call))),
            store.begin(&call),
            join_all(after.iter().map(|call| store.begin(call))),
        );
        for verdict in before.into_iter().chain(after) {
            let claim = verdict.must_run();
            store.complete(&claim, &"done".into(), KEEP).await.must_apply();
        }
        match verdict {
            Ok(verdict) => {
                let claim = Ok(verdict).must_run();
                store.complete(&claim, &"done".into(), KEEP).await.must_apply();
                store.begin(&odd.call()).await.must_replay_exactly(b"done");
                let view = answered(store.get(&claim.id).await).expect("the record is there");
                assert_eq!(view.scope.principal(), Some(text));
            }
            Err(error) => {
                assert_ne!(
                    error.kind(),
                    StoreErrorKind::Unavailable,
                    "trying later does not help: {error}"
                );
                assert!(!error.to_string().is_empty());
            }
        }
        let _claim = store.begin(&Request::fresh().call()).await.must_run();
    }
}

async fn round_trip(store: &impl exactly::Inspect, request: &Request) {
    let claim = store.begin(&request.call()).await.must_run();
    store.begin(&request.tampered().call()).await.must_mismatch();
    store.complete(&claim, &"done".into(), KEEP).await.must_apply();
    store.begin(&request.call()).await.must_replay_exactly(b"done");
    let view = answered(store.get(&claim.id).await).expect("the record is there");
    assert_eq!(view.scope, request.scope);
    assert_eq!(view.key, request.key);
}
