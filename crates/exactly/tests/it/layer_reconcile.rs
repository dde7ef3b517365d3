//! Attempts in doubt of which somebody can be asked.

use std::sync::{Arc, Mutex};

use axum::Router;
use bytes::Bytes;
use exactly::layer::{Doubt, Guarantee, IdempotencyLayer, OutcomeUnknown, Policy, Reconciled, Settlement};
use exactly::{Fenced, MemoryStore};
use http::{Method, Response};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::app::{Answer, Runs, SECOND, answer, app, ask, builder, layer, memory, settle_down};

/// What the one who is asked knows.
#[derive(Clone, Copy, Debug)]
enum Knows {
    Happened,
    DidNotHappen,
    Nothing,
}

/// A service whose first run ends without a word, and someone to ask about it.
struct Lossy {
    app: Router,
    layer: IdempotencyLayer,
    store: Arc<MemoryStore>,
    runs: Runs,
    asked: Arc<Mutex<Vec<Doubt>>>,
    knows: Arc<Mutex<Knows>>,
}

fn lossy(knows: Knows) -> Lossy {
    let (store, runs) = (memory(), Runs::default());
    let asked = Arc::new(Mutex::new(Vec::new()));
    let knows = Arc::new(Mutex::new(knows));
    let (questions, knowledge) = (Arc::clone(&asked), Arc::clone(&knows));
    let policy = Policy::playbook().reconcile(move |doubt| {
        questions.lock().unwrap().push(doubt);
        let knows = *knowledge.lock().unwrap();
        Box::pin(async move {
            match knows {
                Knows::Happened => {
                    let found = Response::builder().status(200).header("etag", "\"7\"");
                    Some(Settlement::Happened(found.body(Bytes::from("found")).unwrap()))
                }
                Knows::DidNotHappen => Some(Settlement::DidNotHappen),
                Knows::Nothing => None,
            }
        })
    });
    let layer = builder(Arc::clone(&store) as _)
        .route(Method::POST, "/refunds", policy)
        .build()
        .unwrap();
    let app = unknown_at_first(&layer, &runs);
    Lossy {
        app,
        layer,
        store,
        runs,
        asked,
        knows,
    }
}

fn unknown_at_first(layer: &IdempotencyLayer, runs: &Runs) -> Router {
    let runs = runs.clone();
    app(layer, move |_| {
        let run = runs.count();
        async move {
            let mut response = answer(200, format!("run {run}"));
            if run == 1 {
                response.extensions_mut().insert(OutcomeUnknown);
            }
            response
        }
    })
}

impl Lossy {
    async fn send(&self) -> Answer {
        ask("1").send(&self.app).await
    }
}

#[tokio::test]
async fn a_handler_that_does_not_know_leaves_a_doubt_and_is_not_run_again() {
    let runs = Runs::default();
    let app = unknown_at_first(&layer(memory(), Policy::playbook()), &runs);
    for _ in 0..3 {
        let refused = ask("1").send(&app).await;
        refused.assert_problem(409, "OUTCOME.unknown");
        assert!(!refused.text().contains("run 1"), "half an answer was shown");
    }
    assert_eq!(runs.get(), 1);
}

#[tokio::test]
async fn a_rerunnable_handler_that_does_not_know_is_run_again() {
    let runs = Runs::default();
    let app = unknown_at_first(
        &layer(memory(), Policy::playbook().guarantee(Guarantee::Rerunnable)),
        &runs,
    );
    ask("1")
        .send(&app)
        .await
        .assert_problem(500, "TRANSIENT.handler_failed");
    assert_eq!(ask("1").send(&app).await.text(), "run 2");
}

#[tokio::test]
async fn the_next_request_learns_that_it_happened() {
    let lossy = lossy(Knows::Happened);
    lossy.send().await.assert_problem(409, "OUTCOME.unknown");
    assert!(
        lossy.asked.lock().unwrap().is_empty(),
        "asked before anyone wanted to know"
    );
    for _ in 0..2 {
        let found = lossy.send().await;
        assert_eq!(found.text(), "found");
        assert_eq!(found.key_status(), Some("replayed"));
        assert_eq!(found.header("etag"), Some("\"7\""));
    }
    assert_eq!(lossy.runs.get(), 1);
    let asked = lossy.asked.lock().unwrap();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(asked[0].key.as_str(), "1");
}

#[tokio::test]
async fn the_next_request_runs_what_did_not_happen() {
    let lossy = lossy(Knows::DidNotHappen);
    lossy.send().await.assert_problem(409, "OUTCOME.unknown");
    let second = lossy.send().await;
    assert_eq!(second.text(), "run 2");
    assert_eq!(second.key_status(), Some("stored"));
    assert_eq!(lossy.send().await.text(), "run 2");
}

#[tokio::test]
async fn what_stays_unknown_is_never_guessed() {
    let lossy = lossy(Knows::Nothing);
    for _ in 0..3 {
        lossy.send().await.assert_problem(409, "OUTCOME.unknown");
    }
    assert_eq!(lossy.runs.get(), 1);
    assert_eq!(lossy.asked.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn duplicates_ask_once() {
    let (runs, asked, leave) = (Runs::default(), Runs::default(), Arc::new(Notify::new()));
    let (counted, wait) = (asked.clone(), Arc::clone(&leave));
    let policy = Policy::playbook().reconcile(move |_| {
        counted.count();
        let wait = Arc::clone(&wait);
        Box::pin(async move {
            wait.notified().await;
            Some(Settlement::DidNotHappen)
        })
    });
    let app = unknown_at_first(&layer(memory(), policy), &runs);
    ask("1").send(&app).await.assert_problem(409, "OUTCOME.unknown");
    let sent: Vec<_> = (0..10)
        .map(|_| {
            let app = app.clone();
            tokio::spawn(async move { ask("1").send(&app).await })
        })
        .collect();
    settle_down().await;
    leave.notify_one();
    for answer in sent {
        assert_eq!(answer.await.unwrap().text(), "run 2");
    }
    assert_eq!(asked.get(), 1);
    assert_eq!(runs.get(), 2);
}

#[tokio::test]
async fn every_doubt_is_asked_about_without_a_request() {
    let lossy = lossy(Knows::Nothing);
    lossy.send().await.assert_problem(409, "OUTCOME.unknown");
    let counts = |happened, did_not_happen, unknown| Reconciled {
        happened,
        did_not_happen,
        unknown,
    };
    let reconcile = async || lossy.layer.reconcile_all(&*lossy.store).await.unwrap();
    assert_eq!(reconcile().await, counts(0, 0, 1));
    *lossy.knows.lock().unwrap() = Knows::Happened;
    assert_eq!(reconcile().await, counts(1, 0, 0));
    assert_eq!(reconcile().await, counts(0, 0, 0));
    assert_eq!(lossy.send().await.text(), "found");
    assert_eq!(lossy.runs.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_slow_answer_about_one_doubt_holds_up_no_other() {
    const DOUBTS: u32 = 20;
    let (asked, last) = (Runs::default(), Arc::new(Notify::new()));
    let policy = Policy::playbook().reconcile(move |_| {
        let (number, last) = (asked.count(), Arc::clone(&last));
        Box::pin(async move {
            match number {
                // Answers only after all others were asked about.
                1 => last.notified().await,
                DOUBTS => last.notify_one(),
                _ => {}
            }
            Some(Settlement::DidNotHappen)
        })
    });
    let store = memory();
    let layer = layer(Arc::clone(&store) as _, policy);
    let app = app(&layer, |_| async {
        let mut response = answer(200, "");
        response.extensions_mut().insert(OutcomeUnknown);
        response
    });
    for key in 0..DOUBTS {
        let refused = ask(&key.to_string()).send(&app).await;
        refused.assert_problem(409, "OUTCOME.unknown");
    }
    let reconciled = layer.reconcile_all(&*store);
    let reconciled = tokio::time::timeout(SECOND, reconciled).await.unwrap().unwrap();
    assert_eq!(reconciled.did_not_happen, u64::from(DOUBTS));
}

#[tokio::test(start_paused = true)]
async fn whoever_asks_about_a_doubt_waits_no_longer_than_its_route_says() {
    for (wait, held) in [(10 * SECOND, 10 * SECOND), (std::time::Duration::ZERO, SECOND)] {
        let (runs, asked) = (Runs::default(), Runs::default());
        let counted = asked.clone();
        let policy = Policy::playbook().wait(wait).reconcile(move |_| {
            counted.count();
            Box::pin(async {
                tokio::time::sleep(60 * SECOND).await;
                Some(Settlement::DidNotHappen)
            })
        });
        let layer = layer(memory(), policy);
        let app = unknown_at_first(&layer, &runs);
        ask("1").send(&app).await.assert_problem(409, "OUTCOME.unknown");
        let begun = Instant::now();
        ask("1").send(&app).await.assert_problem(409, "OUTCOME.unknown");
        assert_eq!(begun.elapsed(), held);
        // What is found after that is there for the next one.
        layer.drain().await;
        assert_eq!(begun.elapsed(), 60 * SECOND);
        assert_eq!(ask("1").send(&app).await.text(), "run 2");
        assert_eq!(asked.get(), 1);
    }
}

#[tokio::test]
async fn only_what_ended_a_doubt_is_told() {
    for is_settled_before in [false, true] {
        let told = Arc::new(Mutex::new(Vec::new()));
        let (heard, store, runs) = (Arc::clone(&told), memory(), Runs::default());
        let operator = layer(Arc::clone(&store) as _, Policy::playbook());
        let policy = Policy::playbook().reconcile(move |doubt| {
            let operator = operator.clone();
            Box::pin(async move {
                if is_settled_before {
                    let found = Response::new(Bytes::from("by hand"));
                    let settled = operator.settle(&doubt.claim, Settlement::Happened(found)).await;
                    assert_eq!(settled.unwrap(), Fenced::Applied);
                }
                Some(Settlement::Happened(Response::new(Bytes::from("found"))))
            })
        });
        let policy = policy.on_reconciled(move |doubt, settlement| {
            let heard = Arc::clone(&heard);
            let told = format!(
                "{} {}",
                doubt.key.as_str(),
                matches!(settlement, Settlement::Happened(_))
            );
            Box::pin(async move { heard.lock().unwrap().push(told) })
        });
        let layer = layer(store, policy);
        let app = unknown_at_first(&layer, &runs);
        ask("1").send(&app).await.assert_problem(409, "OUTCOME.unknown");
        let answer = ask("1").send(&app).await;
        let expected: (&str, &[&str]) = if is_settled_before {
            ("by hand", &[])
        } else {
            ("found", &["1 true"])
        };
        assert_eq!((answer.text(), answer.key_status()), (expected.0, Some("replayed")));
        assert_eq!(*told.lock().unwrap(), expected.1);
    }
}
