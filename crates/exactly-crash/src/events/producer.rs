//! Publishes events with rows of its own.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use exactly::queue::TransactionalQueue as _;
use exactly::webhook::{Event, EventId, EventType, Outbox};
use exactly_sql::{PgQueue, PgTransaction};
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use sqlx::AssertSqlSafe;
use tokio::time::sleep;

use super::EventSabotage;
use super::plan::SOURCE;
use crate::failure::{Result, failed};
use crate::place::Place;
use crate::victim::READY;

/// Transactions that are open at once, so that they commit in another order than they begin.
const HANDS: usize = 4;

const EVENT_TYPE: &str = "order.paid";

/// The most events of a transaction.
const TOGETHER_MAX: usize = 3;

/// The longest pauses: of most transactions before they end, of some, and between two.
const PAUSE_MS: u64 = 20;
const LONG_PAUSE_MS: u64 = 800;
const REST_MS: u64 = 300;

/// One in so many, each.
const LONG: u32 = 15;
const ROLLED_BACK: u32 = 5;
const BY_FUNCTION: u32 = 3;
const REPEATED: u32 = 8;

/// What an event tells.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Told {
    pub(super) nonce: String,
}

/// Works through transactions of its own.
struct Hand {
    queue: Arc<PgQueue>,
    outbox: Outbox<PgQueue>,
    sabotage: EventSabotage,
    /// Notes what is about to be told, beside every transaction.
    intend: String,
    /// Writes what is told of.
    write: String,
    /// Publishes as a program in another language does.
    function: String,
}

/// Publishes until it is killed.
pub(super) async fn produce(queue: PgQueue, place: &Place, sabotage: EventSabotage) -> Result<()> {
    let queue = Arc::new(queue);
    let (letters, effects, schema) = (place.letters_table(), place.effects_table(), &place.name);
    let hand = Hand {
        outbox: Outbox::new(Arc::clone(&queue), SOURCE).map_err(failed("open outbox"))?,
        queue,
        sabotage,
        intend: format!("insert into {letters} (key, nonce, fence) values ($1, $2, 0)"),
        write: format!("insert into {effects} (key, nonce, amount) values ($1, $2, 1)"),
        function: format!(
            "select {schema}.tasks_publish(event_id => $1, event_type => $2, source => $3, data => $4::json)"
        ),
    };
    println!("{READY}");
    join_all((0..HANDS).map(|_| hand.work())).await;
    Ok(())
}

impl Hand {
    async fn work(&self) {
        loop {
            // Whatever came of it, the rows say so, and the next events have ids of their own.
            if let Err(error) = self.transact().await {
                eprintln!("publish: {error}");
            }
            pause(REST_MS).await;
        }
    }

    async fn transact(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        let together = fastrand::usize(1..=TOGETHER_MAX);
        let told: Vec<(Event, Told)> = (0..together).map(|_| new_event()).collect::<Result<_, _>>()?;
        for (event, told) in &told {
            let intent = sqlx::query(AssertSqlSafe(self.intend.clone()));
            let intent = intent.bind(event.id().as_str()).bind(&told.nonce);
            intent.execute(self.queue.pool()).await?;
        }
        let mut tx = self.queue.open().await?;
        for (event, told) in &told {
            let row = sqlx::query(AssertSqlSafe(self.write.clone()));
            let row = row.bind(event.id().as_str()).bind(&told.nonce);
            row.execute(&mut *tx).await?;
            self.publish(&mut tx, event, told).await?;
        }
        pause(if one_in(LONG) { LONG_PAUSE_MS } else { PAUSE_MS }).await;
        if one_in(ROLLED_BACK) {
            self.queue.rollback(tx).await?;
            return Ok(());
        }
        self.queue.commit(tx).await?;
        if one_in(REPEATED) {
            // By somebody who does not know that it was: it is the same event.
            let mut tx = self.queue.open().await?;
            for (event, _) in &told {
                let _ = self.outbox.publish_in(&mut tx, event).await?;
            }
            self.queue.commit(tx).await?;
        }
        Ok(())
    }

    async fn publish(
        &self,
        tx: &mut PgTransaction,
        event: &Event,
        told: &Told,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        if self.sabotage == EventSabotage::LooseEvent {
            let _ = self.outbox.publish(event).await?;
        } else if one_in(BY_FUNCTION) {
            let publish = sqlx::query(AssertSqlSafe(self.function.clone()));
            let publish = publish.bind(event.id().as_str()).bind(EVENT_TYPE).bind(SOURCE);
            publish.bind(serde_json::to_string(told)?).execute(&mut **tx).await?;
        } else {
            let _ = self.outbox.publish_in(tx, event).await?;
        }
        Ok(())
    }
}

fn new_event() -> Result<(Event, Told), Box<dyn Error + Send + Sync>> {
    let told = Told {
        nonce: format!("{:016x}", fastrand::u64(..)),
    };
    let id = EventId::new(format!("evt_{:032x}", fastrand::u128(..)))?;
    Ok((Event::with_id(id, EventType::new(EVENT_TYPE)?, &told)?, told))
}

fn one_in(many: u32) -> bool {
    fastrand::u32(..many) == 0
}

async fn pause(most_ms: u64) {
    sleep(Duration::from_millis(fastrand::u64(..most_ms))).await;
}
