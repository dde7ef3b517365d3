//! Transactions with and without an event: publishing one, and taking one in.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use exactly::clock::{Clock as _, WallClock};
use exactly::job::JobError;
use exactly::queue::TransactionalQueue as _;
use exactly::webhook::{Inbox, Outbox, Receipt, Secret, Signer, Verifier, VerifyWith, sign};
use exactly_sql::{PgQueue, PgTransaction};
use futures_util::future::try_join_all;
use http::HeaderMap;
use sha2::{Digest as _, Sha256};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::time::Instant;

use super::deliveries::{Invoice, SOURCE, event, sent};
use crate::Result;
use crate::database::Database;
use crate::machine::{self, Pid};
use crate::report::{Finding, Wanted};
use crate::versus::{Course, Pace, Turn};

const DATABASE: &str = "bench_exchange";
const CLIENTS: u32 = 8;
/// More than are in use at once, as most pools have.
const CONNECTIONS: u32 = 2 * CLIENTS;

const TABLES: &str = "
    create table invoices (id bigint generated always as identity primary key, number bigint not null, cents bigint not null);
    create table bookings (id bigint generated always as identity primary key, event text not null, cents bigint not null);
    create table seen (
        source text not null, event_id text not null, payload_hash bytea not null,
        received_at timestamptz not null default now(), primary key (source, event_id))";

/// What one client does again and again.
#[derive(Clone, Copy, Debug)]
enum Side {
    /// A change alone.
    Change,
    /// The same change and its event.
    Publish,
    /// An event that is noted and applied by hand.
    ByHand,
    /// The same by our inbox.
    Receive,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Self::Change => "without the event",
            Self::Publish => "with the event",
            Self::ByHand => "hand-written",
            Self::Receive => "inbox",
        }
    }
}

/// What the clients share.
struct Desk {
    pool: PgPool,
    queue: Arc<PgQueue>,
    outbox: Outbox<PgQueue>,
    inbox: Inbox<PgQueue>,
    signer: Signer,
    next: AtomicU64,
}

pub(super) async fn measure(server: &Database, pace: Pace) -> Result<Vec<Finding>> {
    let database = server.fresh_database(DATABASE).await?;
    let findings = on(&database, pace).await;
    drop(database);
    server.drop_database(DATABASE).await?;
    findings
}

async fn on(database: &Database, pace: Pace) -> Result<Vec<Finding>> {
    let pool = PgPoolOptions::new()
        .max_connections(CONNECTIONS)
        .test_before_acquire(false);
    let pool = pool.connect(&database.url).await?;
    database.execute(TABLES.to_owned()).await?;
    let queue = Arc::new(PgQueue::builder(pool.clone()).start().await?);
    let secret = Secret::random();
    let inbox = Inbox::builder(Arc::clone(&queue), SOURCE)
        .verifier(Verifier::standard([VerifyWith::Secret(secret.clone())]))
        .handler(|tx: &mut PgTransaction, event| {
            Box::pin(async move {
                let booking = sqlx::query("insert into bookings (event, cents) values ($1, $2)");
                let booked = booking
                    .bind(event.id().to_owned())
                    .bind(100_i64)
                    .execute(&mut **tx)
                    .await;
                booked.map(drop).map_err(JobError::transient)
            })
        })
        .build()?;
    let desk = Desk {
        outbox: Outbox::new(Arc::clone(&queue), SOURCE)?,
        pool,
        queue,
        inbox,
        signer: Signer::V1(secret),
        next: AtomicU64::new(0),
    };
    let sides = [Side::Change, Side::Publish, Side::ByHand, Side::Receive];
    let mut courses = sides.map(|side| Course {
        name: side.name().to_owned(),
        turns: Vec::new(),
    });
    for side in sides {
        desk.turn(side, database, pace.warm_up).await?;
    }
    for round in 1..=pace.rounds {
        machine::calm(pace.patience).await?;
        for (side, course) in sides.into_iter().zip(&mut courses) {
            let turn = desk.turn(side, database, pace.round).await?;
            turn.print(round, side.name());
            course.turns.push(turn);
        }
    }
    let [change, publish, by_hand, receive] = courses;
    Ok(vec![
        Finding::throughput(
            "publish",
            "a transaction that inserts a row and publishes an event, against the same without the event",
            Wanted::AtLeast(0.7),
            vec![change, publish],
        ),
        Finding::throughput(
            "inbox",
            "an event received with an effect of one row, against insert-on-conflict and effect by hand, unverified",
            Wanted::AtLeast(0.85),
            vec![by_hand, receive],
        ),
    ])
}

impl Desk {
    async fn turn(&self, side: Side, database: &Database, duration: Duration) -> Result<Turn> {
        let read = || -> Result<[Duration; 3]> {
            let database = database.postmaster.map_or(Ok(Duration::ZERO), Pid::cpu_with_children)?;
            Ok([Pid::this().cpu()?, database, machine::busy()?])
        };
        let (before, began) = (read()?, Instant::now());
        let until = began + duration;
        let done: Vec<u64> = try_join_all((0..CLIENTS).map(async |_| {
            let mut done = 0;
            while Instant::now() < until {
                self.once(side).await?;
                done += 1;
            }
            Ok::<_, crate::Error>(done)
        }))
        .await?;
        let (elapsed, after) = (began.elapsed().as_secs_f64(), read()?);
        let spent = |at: usize| after[at].saturating_sub(before[at]).as_secs_f64();
        let done = done.into_iter().sum::<u64>().max(1) as f64;
        let cores = std::thread::available_parallelism()?.get() as f64;
        Ok(Turn {
            per_second: done / elapsed,
            cpu_us: (spent(0) + spent(1)) * 1e6 / done,
            database_cpu_us: spent(1) * 1e6 / done,
            client_cpu_us: 0.0,
            p50_ms: f64::NAN,
            p99_ms: f64::NAN,
            foreign: (spent(2) - spent(0) - spent(1)).max(0.0) / (elapsed * cores),
        })
    }

    async fn once(&self, side: Side) -> Result<()> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let invoice = Invoice::numbered(number);
        let (key, cents) = (i64::try_from(invoice.number)?, i64::try_from(invoice.amount_cents)?);
        let change = || {
            sqlx::query("insert into invoices (number, cents) values ($1, $2)")
                .bind(key)
                .bind(cents)
        };
        match side {
            Side::Change => {
                let mut tx = self.pool.begin().await?;
                change().execute(&mut *tx).await?;
                tx.commit().await?;
            }
            Side::Publish => {
                let mut tx = self.queue.open().await?;
                change().execute(&mut *tx).await?;
                let _ = self.outbox.publish_in(&mut tx, &event("invoice", number)?).await?;
                self.queue.commit(tx).await?;
            }
            Side::ByHand => self.by_hand(number).await?,
            Side::Receive => {
                let (now, (id, body)) = (WallClock.now(), sent("invoice", number)?);
                let signature = sign(std::slice::from_ref(&self.signer), &id, now, &body);
                let mut headers = HeaderMap::new();
                headers.insert("webhook-id", id.as_str().parse()?);
                headers.insert("webhook-timestamp", (now.as_millis() / 1000).into());
                headers.insert("webhook-signature", signature.parse()?);
                let receipt = self.inbox.receive(&headers, body).await?;
                if !matches!(receipt, Receipt::Applied) {
                    return Err(format!("an event was {}", receipt.as_str()).into());
                }
            }
        }
        Ok(())
    }

    /// Three statements, as one would write them.
    async fn by_hand(&self, number: u64) -> Result<()> {
        let (id, body) = sent("invoice", number)?;
        let mut tx = self.pool.begin().await?;
        let noted = sqlx::query(
            "insert into seen (source, event_id, payload_hash) values ($1, $2, $3) on conflict (source, event_id) do nothing",
        );
        let noted = noted
            .bind(SOURCE)
            .bind(id.as_str())
            .bind(Sha256::digest(&body).as_slice());
        if noted.execute(&mut *tx).await?.rows_affected() == 1 {
            let booking = sqlx::query("insert into bookings (event, cents) values ($1, $2)");
            booking.bind(id.as_str()).bind(100_i64).execute(&mut *tx).await?;
        }
        tx.commit().await?;
        Ok(())
    }
}
