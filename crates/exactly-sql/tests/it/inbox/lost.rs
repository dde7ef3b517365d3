//! Connections that are lost at the commit, and commits that the database refuses.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use exactly::queue::TaskState;
use exactly::webhook::{Inbox, Receipt, Verifier, VerifyWith};
use exactly::{JobError, StoreErrorKind};
use exactly_conformance::{QueueHarness as _, TransactionalQueueHarness as _};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::{Office, SECRET, SOURCE, signed};
use crate::postgres::queue::Yard;
use crate::postgres::url;

fn verifier() -> Verifier {
    Verifier::standard([SECRET.parse::<VerifyWith>().unwrap()])
}

const ROUNDS: u64 = 40;

/// The server ends the session around the commit, a little later each time. The sender tries again, and there is one effect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_lost_commit_the_retry_finds_out() {
    let yard = Arc::new(Yard::fresh().await);
    let (sessions, mut ending) = mpsc::unbounded_channel::<(i32, u64)>();
    let (ended, mut has_ended) = mpsc::unbounded_channel::<()>();
    let (effects, seen) = (Arc::clone(&yard), Arc::new(Mutex::new(HashSet::new())));
    let inbox = Inbox::builder(yard.open().await, SOURCE)
        .verifier(verifier())
        .handler(move |tx, event| {
            let (effects, seen, sessions) = (Arc::clone(&effects), Arc::clone(&seen), sessions.clone());
            Box::pin(async move {
                effects.effect(tx, event.id()).await;
                let wait = event.json::<u64>()?;
                if !seen.lock().unwrap().insert(wait) {
                    return Ok(());
                }
                let pid = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut **tx).await;
                sessions.send((pid.unwrap(), wait)).unwrap();
                // The first ones are ended before the commit.
                if wait < ROUNDS / 4 {
                    sleep(Duration::from_millis(50)).await;
                }
                Ok(())
            })
        })
        .build()
        .unwrap();
    let killer = tokio::spawn(async move {
        let mut server = PgConnection::connect(&url()).await.unwrap();
        while let Some((pid, wait)) = ending.recv().await {
            sleep(Duration::from_micros(40 * wait)).await;
            let end = sqlx::query("select pg_terminate_backend($1)").bind(pid);
            end.execute(&mut server).await.unwrap();
            ended.send(()).unwrap();
        }
    });
    let mut lost = 0;
    for n in 0..ROUNDS {
        let (id, body) = (format!("evt_{n}"), n.to_string());
        let receipt = loop {
            match inbox.receive(&signed(&id, &body), Bytes::from(body.clone())).await {
                Ok(receipt) => break receipt,
                Err(error) => {
                    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
                    lost += 1;
                    assert!(lost < 10 * ROUNDS, "the store never answers: {error}");
                }
            }
        };
        assert!(matches!(receipt, Receipt::Applied | Receipt::Duplicate), "{receipt:?}");
        // Not while the next event is at work on that session.
        has_ended.recv().await.unwrap();
        assert_eq!(yard.effects(&id).await, 1, "{receipt:?}");
    }
    assert!(lost > 0, "every session was ended too late");
    drop(inbox);
    killer.await.unwrap();
}

/// A constraint that is checked at the commit would refuse the event each time that the sender repeats it.
#[tokio::test]
async fn what_the_database_refuses_at_the_commit_is_deferred() {
    let yard = Yard::fresh().await;
    let table = format!("{}.strict", yard.0.schema);
    yard.0
        .run(&format!(
            "create table {table} (n int unique deferrable initially deferred)"
        ))
        .await;
    let insert = format!("insert into {table} values (1), (1)");
    let office = Office::at(Arc::new(yard)).await;
    let inbox = Inbox::builder(Arc::clone(&office.queue), SOURCE)
        .verifier(verifier())
        .handler(move |tx, _| {
            let insert = sqlx::query(AssertSqlSafe(insert.clone()));
            Box::pin(async move { insert.execute(&mut **tx).await.map(drop).map_err(JobError::transient) })
        })
        .build()
        .unwrap();
    for _ in 0..2 {
        let receipt = inbox.receive(&signed("evt_1", "paid"), Bytes::from("paid")).await;
        assert_eq!(receipt.unwrap(), Receipt::Deferred);
    }
    assert_eq!(office.state("evt_1").await, Some(TaskState::Waiting));
}
