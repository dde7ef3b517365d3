//! Batches, from the queue to the database.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use exactly::CallId;
use exactly::store::Wakeups;
use sqlx::PgConnection;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::deliver::Done;
use super::failure::{is_lock_timeout, is_worth_repeating, may_be_one_steps_fault};
use super::held::{HELD_TIMEOUT, Held};
use super::session::{BATCH_TIMEOUT, Sessions, within};
use super::sql::Sql;
use super::work::Work;
use super::{group, settle};
use crate::batch::{Again, Flush, Step, Write};

/// The most outcome bytes in one statement; beyond that a batch is split. One larger outcome goes alone.
const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;

/// How often a batch is sent again on a fresh connection, and after which pause. Enough for a server that dropped its
/// connections; one that restarts takes longer, and callers are better off knowing.
pub(super) const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(150)];

/// How many keys are waited for at once that transactions elsewhere are making, each on a connection of its own.
const UNBORN_MAX: usize = 4;

/// How a batch is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Most of it in one statement, which waits a little for a record that someone else is about to change.
    Quick,
    /// Waits for no record; at the most for a key that someone else is about to make.
    Careful,
}

/// Carries out batches on PostgreSQL.
#[derive(Clone, Debug)]
pub(super) struct PgFlush {
    pub(super) sessions: Arc<Sessions>,
    pub(super) sql: Arc<Sql>,
    pub(super) wakeups: Wakeups,
    pub(super) channel: Arc<str>,
    pub(super) again: Again,
    pub(super) held: Arc<Mutex<Held>>,
    unborn: Arc<Semaphore>,
}

impl Flush for PgFlush {
    async fn flush(&self, mut steps: Vec<Step>) {
        steps.retain(|step| !step.is_pointless());
        while !steps.is_empty() {
            let rest = steps.split_off(fitting(&steps));
            self.flush_fitting(steps).await;
            steps = rest;
        }
    }
}

impl PgFlush {
    pub(super) fn new(
        sessions: Arc<Sessions>,
        sql: Arc<Sql>,
        wakeups: Wakeups,
        channel: Arc<str>,
        again: Again,
    ) -> Self {
        Self {
            sessions,
            sql,
            wakeups,
            channel,
            again,
            held: Arc::default(),
            unborn: Arc::new(Semaphore::new(UNBORN_MAX)),
        }
    }

    async fn flush_fitting(&self, steps: Vec<Step>) {
        let mut ended = self.carry_out(&steps, Way::Quick).await;
        if ended.as_ref().is_err_and(is_lock_timeout) {
            ended = self.carry_out(&steps, Way::Careful).await;
        }
        match ended {
            Ok(done) => self.deliver(steps, done).await,
            Err(error) if may_be_one_steps_fault(&error) => self.isolate(steps).await,
            Err(error) => self.fail(steps, error),
        }
    }

    /// Carries out the steps of each record for themselves, so that only those fail that are to blame.
    pub(super) async fn isolate(&self, steps: Vec<Step>) {
        let mut records: BTreeMap<CallId, Vec<Step>> = BTreeMap::new();
        for step in steps {
            records.entry(*step.id()).or_default().push(step);
        }
        for steps in records.into_values() {
            match self.carry_out(&steps, Way::Careful).await {
                Ok(done) => self.deliver(steps, done).await,
                Err(error) if is_lock_timeout(&error) => self.wait_aside(steps, error),
                Err(error) if may_be_one_steps_fault(&error) => self.isolate_each(steps).await,
                Err(error) => self.fail(steps, error),
            }
        }
    }

    async fn isolate_each(&self, steps: Vec<Step>) {
        for step in steps {
            match self.carry_out(std::slice::from_ref(&step), Way::Careful).await {
                Ok(done) => self.deliver(vec![step], done).await,
                Err(error) => self.fail(vec![step], error),
            }
        }
    }

    /// Waits beside the queue for a key that a transaction elsewhere is making, so that the next batch need not.
    fn wait_aside(&self, steps: Vec<Step>, error: sqlx::Error) {
        let Ok(place) = Arc::clone(&self.unborn).try_acquire_owned() else {
            return self.fail(steps, error);
        };
        let flush = self.clone();
        tokio::spawn(async move {
            flush.wait_for_unborn(steps).await;
            drop(place);
        });
    }

    async fn wait_for_unborn(&self, steps: Vec<Step>) {
        let deadline = Instant::now() + HELD_TIMEOUT;
        loop {
            match self.carry_out(&steps, Way::Careful).await {
                Ok(done) => return self.deliver(steps, done).await,
                Err(error) if is_lock_timeout(&error) && Instant::now() < deadline => {}
                Err(error) => return self.fail(steps, error),
            }
        }
    }

    /// Commits the steps, again and again while only the connection is to blame: every step can be repeated.
    pub(super) async fn carry_out(&self, steps: &[Step], way: Way) -> Result<Done, sqlx::Error> {
        for pause in PAUSES {
            match self.carry_out_once(steps, way).await {
                Err(error) if is_worth_repeating(&error) => {
                    tracing::debug!(%error, steps = steps.len(), "repeat a batch on a fresh connection");
                    tokio::time::sleep(pause).await;
                }
                ended => return ended,
            }
        }
        self.carry_out_once(steps, way).await
    }

    async fn carry_out_once(&self, steps: &[Step], way: Way) -> Result<Done, sqlx::Error> {
        let conn = self.sessions.take().await?;
        let done = self.carry_out_on(conn, steps, way).await;
        if let Err(error) = &done {
            self.sessions.failed(error);
        }
        done
    }

    async fn carry_out_on(&self, mut conn: PgConnection, steps: &[Step], way: Way) -> Result<Done, sqlx::Error> {
        let mut work = Work::new(steps);
        let missed = within(BATCH_TIMEOUT, async {
            match way {
                Way::Quick => group::run(&mut conn, &self.sql, &mut work).await?,
                Way::Careful => group::look(&mut conn, &self.sql, &mut work).await?,
            }
            settle::run(&mut conn, &self.sql, &mut work).await?;
            group::mark(&mut conn, &self.sql, &work).await
        })
        .await?;
        let mut settled = work.settled;
        // Settled between our look and our mark: nobody will notify us, so whoever waits here asks again at once.
        settled.extend(missed);
        Ok(Done {
            answers: work.answers,
            settled,
            waited: work.waited,
            conn,
        })
    }
}

/// How many of the steps go into one statement.
pub(super) fn fitting(steps: &[Step]) -> usize {
    let mut bytes = 0;
    let fits = |step: &&Step| {
        if let Step::Write {
            write: Write::Complete { outcome, .. },
            ..
        } = step
        {
            bytes += outcome.len();
        }
        bytes <= BATCH_BYTES_MAX
    };
    steps.iter().take_while(fits).count().max(1)
}
