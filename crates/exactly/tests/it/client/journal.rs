//! What a client makes of what its journal says, and of a journal that says nothing.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use exactly::client::journal::{Close, Entry, Journal, Opened, Unsettled};
use exactly::client::{Client, ErrorKind, Outcome};
use exactly::retry::Ending;
use exactly::store::Reply;
use exactly::{Key, StoreError, StoreErrorKind};

use super::scripted::{Act, Scripted, answer};

/// A journal that says what it is told to, and fails when it is told nothing more.
#[derive(Debug, Default)]
struct Told {
    openings: Mutex<VecDeque<Opened>>,
    closings: Mutex<VecDeque<Ending>>,
    closed: Mutex<Vec<Close>>,
}

impl Told {
    fn says(openings: impl Into<VecDeque<Opened>>, closings: impl Into<VecDeque<Ending>>) -> Arc<Self> {
        Arc::new(Self {
            openings: Mutex::new(openings.into()),
            closings: Mutex::new(closings.into()),
            closed: Mutex::default(),
        })
    }
}

fn broken() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, "the disk is gone")
}

impl Journal for Told {
    fn open<'a>(&'a self, _: &'a Entry) -> Reply<'a, Opened> {
        let said = self.openings.lock().unwrap().pop_front();
        Box::pin(async move { said.ok_or_else(broken) })
    }

    fn close<'a>(&'a self, close: &'a Close) -> Reply<'a, Ending> {
        self.closed.lock().unwrap().push(close.clone());
        let said = self.closings.lock().unwrap().pop_front();
        Box::pin(async move { said.ok_or_else(broken) })
    }

    fn unsettled(&self, _: u32) -> Reply<'_, Vec<Unsettled>> {
        Box::pin(async { Err(broken()) })
    }

    fn prune(&self, _: u32) -> Reply<'_, u32> {
        Box::pin(async { Err(broken()) })
    }
}

fn resumed(key: &str) -> Opened {
    Opened::Resumed {
        key: Key::new(key).unwrap(),
        ending: None,
        expires_in: Duration::from_hours(1),
    }
}

fn client(journal: &Arc<Told>) -> Client {
    let journal = Arc::clone(journal);
    Client::builder().random(|| 0).journal(journal).build().unwrap()
}

fn refusal() -> Act {
    Act::Answer(answer("422 Unprocessable Content", "", ""))
}

#[tokio::test]
async fn what_is_resolved_after_its_journal_failed_has_the_key_that_the_journal_knows() {
    let journal = Told::says([], []);
    let server = Scripted::start([Act::Answer(answer("201 Created", "", "rf_1"))]).await;
    let call = client(&journal)
        .post(server.url("/"))
        .operation("refund-17")
        .json("ten");
    let Outcome::Unknown(unknown) = call.send().await else {
        panic!("somebody may have sent it before");
    };
    assert_eq!(unknown.error().unwrap().kind(), ErrorKind::Journal);
    assert_eq!(unknown.key(), None, "the key that was made for it was sent by nobody");
    // Still broken, and then repaired.
    let Outcome::Unknown(unknown) = unknown.resolve().await else {
        panic!("nothing is sent that the journal does not know");
    };
    assert!(server.arrived().is_empty());
    journal.openings.lock().unwrap().push_back(resumed("first-key"));
    journal.closings.lock().unwrap().push_back(Ending::Applied);
    assert!(matches!(unknown.resolve().await, Outcome::Applied(_)));
    assert_eq!(server.arrived()[0].header("idempotency-key"), Some("first-key"));
}

#[tokio::test]
async fn a_refusal_is_the_last_word_only_if_the_journal_knows_of_nobody_else() {
    for (said, ending) in [
        (vec![Ending::NotApplied], "not_applied"),
        (vec![Ending::Unknown], "unknown"),
        (vec![Ending::Applied], "unknown"),
        // It cannot say.
        (vec![], "unknown"),
    ] {
        let journal = Told::says([Opened::New], said.clone());
        let server = Scripted::start([refusal()]).await;
        let call = client(&journal)
            .post(server.url("/"))
            .operation("refund-17")
            .json("ten");
        assert_eq!(call.send().await.as_str(), ending, "{said:?}");
    }
}

#[tokio::test]
async fn an_answer_that_the_key_keeps_needs_no_journal_to_be_the_last_word() {
    let kept = answer("422 Unprocessable Content", "idempotency-status: stored\r\n", "");
    let journal = Told::says([Opened::New], []);
    let server = Scripted::start([Act::Answer(kept)]).await;
    let call = client(&journal)
        .post(server.url("/"))
        .operation("refund-17")
        .json("ten");
    assert_eq!(call.send().await.as_str(), "not_applied");
}

#[tokio::test]
async fn what_others_wrote_counts_for_whoever_asks_too() {
    let journal = Told::says([Opened::New], [Ending::Unknown, Ending::Applied]);
    let server = Scripted::start([Act::CutAnswer(String::new(), 0)]).await;
    let call = client(&journal)
        .post(server.url("/"))
        .operation("refund-17")
        .json("ten");
    let Outcome::Unknown(unknown) = call.retries(0).send().await else {
        panic!("the answer was lost");
    };
    for _ in 0..2 {
        server.then(Act::Answer(answer("404 Not Found", "", "")));
    }
    assert_eq!(unknown.ask(&server.url("/by-key")).await.as_str(), "unknown");
}

#[tokio::test]
async fn the_journal_is_told_how_long_the_server_keeps_the_key() {
    for (word, hours) in [("Tue, 17 Nov 2026 10:00:00 GMT", 25), ("never", 24 * 365)] {
        let dates = format!("date: Mon, 16 Nov 2026 08:00:00 GMT\r\nidempotency-expires: {word}\r\n");
        let journal = Told::says([Opened::New], [Ending::Applied]);
        let server = Scripted::start([Act::Answer(answer("200 OK", &dates, ""))]).await;
        let call = client(&journal)
            .post(server.url("/"))
            .operation("refund-17")
            .json("ten");
        assert!(call.send().await.applied().is_ok());
        let closed = journal.closed.lock().unwrap();
        assert!(
            closed[0].expires_in.unwrap() > Duration::from_hours(hours),
            "{closed:?}"
        );
    }
}

#[tokio::test]
async fn an_operation_that_was_begun_with_another_key_is_not_sent() {
    let journal = Told::says([resumed("first-key")], []);
    let server = Scripted::start([]).await;
    let call = client(&journal)
        .post(server.url("/"))
        .operation("refund-17")
        .key("second-key");
    let outcome = call.json("ten").send().await;
    let Outcome::Unknown(unknown) = &outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(unknown.error().unwrap().kind(), ErrorKind::KeyReused);
    assert!(outcome.account().attempts().is_empty());
}
