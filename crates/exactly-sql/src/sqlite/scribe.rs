//! The thread that writes what needs no look.
//!
//! As a rule the calls that are begun are new and the claims that are completed hold, so a batch of them is inserts and
//! updates of one row each that have to change one row each. sqlx hands every statement to a thread and its result back, so
//! with it such a batch has to be a few large statements, which cost SQLite more than many small ones that stay prepared. So
//! these batches have a connection of their own that is never lent, on a thread of the store's, with a driver that runs
//! statements in place. It decides nothing: where a row is not as expected, it takes back the batch, and the batch is done
//! with a look.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, Statement};
use tokio::sync::oneshot;

use exactly::clock::Timestamp;
use exactly::store::Wakeups;

use super::builder::PRAGMAS;
use super::decide::{Decided, Plan, Rows, decide};
use super::flush::{answer_committed, completed};
use super::table::{self, Completed, Saved, Value, timestamp};
use crate::batch::{Again, Step};
use crate::name::Name;

/// The way to the thread; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Scribe {
    orders: mpsc::Sender<Order>,
}

/// A batch to write, and what comes after it.
struct Order {
    batch: Batch,
    next: Box<dyn FnMut() -> Next + Send>,
    again: Again,
    reply: oneshot::Sender<Result<Vec<Step>, Unwritten>>,
}

/// What is to be written after a batch, if anything is and there is time for it: another one, or steps that need a look.
type Next = Option<Result<Batch, Vec<Step>>>;

/// Steps of which each is alone with its call.
#[derive(Debug)]
pub(super) struct Batch {
    /// They begin calls that nobody is expected to have begun before.
    pub(super) begins: Vec<Step>,
    /// They complete calls whose claims are expected to hold.
    pub(super) completions: Vec<Step>,
    pub(super) now: Timestamp,
}

impl Batch {
    pub(super) fn into_steps(mut self) -> Vec<Step> {
        self.begins.append(&mut self.completions);
        self.begins
    }
}

/// A batch that was not written, and whose steps have no answer.
#[derive(Debug)]
pub(super) struct Unwritten {
    /// The batch, unless it went with the thread.
    pub(super) batch: Option<Batch>,
    /// Whether the end of the log may hold what nobody was told of.
    pub(super) unsealed: bool,
}

/// Why nothing of a batch was written.
#[derive(Debug)]
enum Failure {
    /// A row was not as expected, or somebody else is writing.
    Refused,
    Broken(rusqlite::Error),
}

impl Scribe {
    /// Starts the thread, which opens the file when there is something to write.
    pub(super) fn start(file: PathBuf, table: &Name, wakeups: Wakeups) -> std::io::Result<Self> {
        let (orders, received) = mpsc::channel();
        let statements = Texts::new(table);
        thread::Builder::new()
            .name("exactly-sqlite".into())
            .spawn(move || serve(&file, &statements, &wakeups, &received))?;
        Ok(Self { orders })
    }

    /// Writes the batch and answers its steps, and so on with what is `next`. Returns the steps that need a look.
    pub(super) async fn write(
        &self,
        batch: Batch,
        next: impl FnMut() -> Next + Send + 'static,
        again: &Again,
    ) -> Result<Vec<Step>, Unwritten> {
        let (reply, written) = oneshot::channel();
        let order = Order {
            batch,
            next: Box::new(next),
            again: again.clone(),
            reply,
        };
        if let Err(mpsc::SendError(order)) = self.orders.send(order) {
            return Err(Unwritten {
                batch: Some(order.batch),
                unsealed: false,
            });
        }
        written.await.unwrap_or(Err(Unwritten {
            batch: None,
            unsealed: true,
        }))
    }
}

/// The text of every statement.
#[derive(Debug)]
struct Texts {
    add: String,
    complete: String,
}

impl Texts {
    fn new(name: &Name) -> Self {
        let table = name.quoted();
        Self {
            add: format!("insert into {table} ({}) values {}", table::COLUMNS, table::ROW),
            complete: format!(
                "update {table} set state = 1, lease_ms = null, lease_until = null, on_lost = null, completed_at = ?, \
                 expires_at = ?, outcome = ? where id = ? and token = ? and state = 0"
            ),
        }
    }
}

fn serve(file: &Path, texts: &Texts, wakeups: &Wakeups, orders: &mpsc::Receiver<Order>) {
    let mut next = orders.recv().ok();
    while let Some(order) = next {
        next = match open(file) {
            Ok(connection) => attend(&connection, texts, wakeups, order, orders),
            Err(error) => {
                tracing::debug!(%error, "open the connection for batches that need no look");
                order.leave(false);
                orders.recv().ok()
            }
        };
    }
}

/// Writes batches as long as the connection is good. Returns the next one for another.
fn attend(
    connection: &Connection,
    texts: &Texts,
    wakeups: &Wakeups,
    first: Order,
    orders: &mpsc::Receiver<Order>,
) -> Option<Order> {
    let mut pen = match Pen::new(connection, texts) {
        Ok(pen) => pen,
        Err(error) => {
            tracing::debug!(%error, "prepare the statements for batches that need no look");
            first.leave(false);
            return orders.recv().ok();
        }
    };
    let mut next = Some(first);
    while let Some(order) = next {
        let continued = match pen.write(&order.batch) {
            Ok(answers) => order.tell(answers, wakeups),
            Err(Failure::Refused) => {
                order.leave(false);
                None
            }
            Err(Failure::Broken(error)) => {
                tracing::warn!(%error, "write a batch; it is tried once more with a look");
                order.leave(true);
                return orders.recv().ok();
            }
        };
        next = continued.or_else(|| orders.recv().ok());
    }
    None
}

fn open(file: &Path) -> Result<Connection, rusqlite::Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags)?;
    for (name, value) in PRAGMAS {
        connection.pragma_update(None, name, value)?;
    }
    // Whoever waits for another process's lock has others wait behind it: that is left to those who look.
    connection.busy_timeout(Duration::ZERO)?;
    Ok(connection)
}

impl Order {
    /// Hands the batch back.
    fn leave(self, unsealed: bool) {
        let batch = Some(self.batch);
        drop(self.reply.send(Err(Unwritten { batch, unsealed })));
    }

    /// Answers every step. Returns what is to be written next.
    fn tell(mut self, mut answers: Vec<Decided>, wakeups: &Wakeups) -> Option<Self> {
        answers.extend(self.batch.completions.iter().map(|_| Decided::applied()));
        answer_committed(self.batch.into_steps(), answers, wakeups, &self.again);
        // Whoever waits for the end holds the turn. Without it nothing is written.
        let next = if self.reply.is_closed() { None } else { (self.next)() };
        let left = match next {
            Some(Ok(batch)) => return Some(Self { batch, ..self }),
            Some(Err(steps)) => steps,
            None => Vec::new(),
        };
        drop(self.reply.send(Ok(left)));
        None
    }
}

/// The statements on a connection.
struct Pen<'c> {
    connection: &'c Connection,
    begin: Statement<'c>,
    add: Statement<'c>,
    complete: Statement<'c>,
    commit: Statement<'c>,
}

impl<'c> Pen<'c> {
    fn new(connection: &'c Connection, texts: &Texts) -> Result<Self, rusqlite::Error> {
        Ok(Self {
            connection,
            begin: connection.prepare("begin immediate")?,
            add: connection.prepare(&texts.add)?,
            complete: connection.prepare(&texts.complete)?,
            commit: connection.prepare("commit")?,
        })
    }

    /// Writes the batch, or nothing of it. Returns the answers to those who begin.
    fn write(&mut self, batch: &Batch) -> Result<Vec<Decided>, Failure> {
        let mut plan = decide(&batch.begins, Rows::new(), batch.now);
        let answers = std::mem::take(&mut plan.answers);
        let written = self.try_write(&plan, batch);
        if written.is_err() && !self.connection.is_autocommit() {
            self.connection.execute_batch("rollback").map_err(Failure::Broken)?;
        }
        written.map(|()| answers)
    }

    fn try_write(&mut self, plan: &Plan, batch: &Batch) -> Result<(), Failure> {
        self.begin.raw_execute().map_err(failure)?;
        for saved in plan.saves(batch.now) {
            self.add(&saved).map_err(failure)?;
        }
        for step in &batch.completions {
            let Some(completed) = completed(step, batch.now) else {
                return Err(Failure::Refused);
            };
            if self.complete(&completed, batch.now).map_err(failure)? != 1 {
                return Err(Failure::Refused);
            }
        }
        self.commit.raw_execute().map(drop).map_err(failure)
    }

    fn add(&mut self, saved: &Saved<'_>) -> Result<usize, rusqlite::Error> {
        for (place, value) in saved.values().into_iter().enumerate() {
            self.add.raw_bind_parameter(place + 1, value)?;
        }
        self.add.raw_execute()
    }

    fn complete(&mut self, completed: &Completed<'_>, now: Timestamp) -> Result<usize, rusqlite::Error> {
        let statement = &mut self.complete;
        statement.raw_bind_parameter(1, timestamp(now))?;
        statement.raw_bind_parameter(2, completed.expires_at.map(timestamp))?;
        statement.raw_bind_parameter(3, &completed.outcome[..])?;
        statement.raw_bind_parameter(4, completed.claim.id.as_bytes().as_slice())?;
        statement.raw_bind_parameter(5, completed.claim.token.as_bytes().as_slice())?;
        statement.raw_execute()
    }
}

/// What an error says about the batch.
fn failure(error: rusqlite::Error) -> Failure {
    match error.sqlite_error_code() {
        Some(
            ErrorCode::ConstraintViolation | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::ReadOnly,
        ) => Failure::Refused,
        _ => Failure::Broken(error),
    }
}

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Integer(number) => ValueRef::Integer(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}
