//! The client's journal: what it keeps, and what comes of calls that are in it.

mod calls;
mod processes;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use exactly::client::Journal as _;
use exactly::client::journal::{Close, Entry, Opened};
use exactly::clock::{Clock as _, ManualClock, WallClock};
use exactly::retry::Ending;
use exactly::{Key, StoreErrorKind};
use exactly_sql::SqliteJournal;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use sqlx::{ConnectOptions as _, SqlitePool};
use tempfile::TempDir;

const DAY: Duration = Duration::from_hours(24);
const MINUTE: Duration = Duration::from_mins(1);

/// A file that no other test sees, and the clock of the machine that it is on.
pub(crate) struct Desk {
    folder: TempDir,
    clock: Arc<ManualClock>,
}

impl Desk {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            clock: Arc::new(ManualClock::at(WallClock.now())),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("calls.journal")
    }

    pub(crate) async fn open(&self) -> SqliteJournal {
        let journal = SqliteJournal::open(self.path()).await.unwrap();
        journal.clock(Arc::clone(&self.clock))
    }

    /// The journal of somebody who connects to it in another way.
    pub(crate) async fn open_with(
        &self,
        change: impl FnOnce(SqliteConnectOptions) -> SqliteConnectOptions,
    ) -> SqliteJournal {
        SqliteJournal::on(self.pool(change)).await.unwrap()
    }

    fn pool(&self, change: impl FnOnce(SqliteConnectOptions) -> SqliteConnectOptions) -> SqlitePool {
        let options = SqliteConnectOptions::new()
            .filename(self.path())
            .journal_mode(SqliteJournalMode::Wal);
        SqlitePoolOptions::new()
            .max_connections(1)
            .connect_lazy_with(change(options))
    }

    async fn run(&self, sql: &'static str) {
        let mut stranger = SqliteConnectOptions::new()
            .filename(self.path())
            .connect()
            .await
            .unwrap();
        sqlx::query(sql).execute(&mut stranger).await.unwrap();
    }
}

pub(crate) fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

/// Content is one byte here.
pub(crate) fn entry(operation: &str, key_text: &str, content: u8) -> Entry {
    Entry {
        operation: operation.to_owned(),
        key: key(key_text),
        method: "POST".to_owned(),
        place: "https://pay.example/refunds".to_owned(),
        digest: [content; 32],
        within: MINUTE,
        expires_in: DAY,
    }
}

fn close(operation: &str, key_text: &str, ending: Ending) -> Close {
    Close {
        operation: operation.to_owned(),
        key: key(key_text),
        in_doubt: false,
        ending,
        expires_in: None,
    }
}

fn resumed(key_text: &str, ending: Option<Ending>, expires_in: Duration) -> Opened {
    Opened::Resumed {
        key: key(key_text),
        ending,
        expires_in,
    }
}

async fn names(journal: &SqliteJournal) -> Vec<String> {
    let unsettled = journal.unsettled(100).await.unwrap();
    unsettled.into_iter().map(|call| call.operation).collect()
}

#[tokio::test]
async fn an_operation_keeps_its_first_key_over_a_restart() {
    let desk = Desk::new();
    let journal = desk.open().await;
    assert_eq!(journal.open(&entry("refund", "k1", 1)).await.unwrap(), Opened::New);
    drop(journal);
    desk.clock.advance(MINUTE);
    let journal = desk.open().await;
    let opened = journal.open(&entry("refund", "k2", 1)).await.unwrap();
    assert_eq!(opened, resumed("k1", None, DAY.saturating_sub(MINUTE)));
    let ending = journal.close(&close("refund", "k1", Ending::Applied)).await.unwrap();
    assert_eq!(ending, Ending::Applied);
    let opened = journal.open(&entry("refund", "k3", 1)).await.unwrap();
    assert_eq!(opened, resumed("k1", Some(Ending::Applied), DAY.saturating_sub(MINUTE)));
}

#[tokio::test]
async fn what_is_written_is_durable_at_once() {
    let desk = Desk::new();
    let journal = desk.open().await;
    let _ = journal.open(&entry("refund", "k1", 1)).await.unwrap();
    let kept = std::fs::read(desk.path().with_extension("journal-wal")).unwrap();
    assert!(
        kept.windows(6).any(|bytes| bytes == b"refund"),
        "it is in the log already"
    );
    let mode = SqliteJournal::on(desk.pool(|options| options.synchronous(sqlx::sqlite::SqliteSynchronous::Off))).await;
    assert_eq!(
        mode.unwrap_err().kind(),
        StoreErrorKind::Refused,
        "a journal that a power cut takes back"
    );
}

#[cfg(unix)]
#[tokio::test]
async fn keys_are_readable_by_their_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;

    let desk = Desk::new();
    let journal = desk.open().await;
    let _ = journal.open(&entry("refund", "k1", 1)).await.unwrap();
    for extension in ["journal", "journal-wal", "journal-shm"] {
        let file = desk.path().with_extension(extension);
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", file.display());
    }
}

#[tokio::test]
async fn another_request_may_not_use_an_operation_or_its_key() {
    let desk = Desk::new();
    let journal = desk.open().await;
    assert_eq!(journal.open(&entry("refund", "k1", 1)).await.unwrap(), Opened::New);
    for (what, other) in [
        ("other bytes", entry("refund", "k1", 2)),
        ("other bytes and key", entry("refund", "k2", 2)),
        ("another operation", entry("other", "k1", 2)),
        ("another operation with the same bytes", entry("other", "k1", 1)),
    ] {
        assert_eq!(journal.open(&other).await.unwrap(), Opened::OtherRequest, "{what}");
    }
    // Two services may be given one key.
    let elsewhere = Entry {
        place: "https://mail.example/letters".to_owned(),
        ..entry("letter", "k1", 2)
    };
    assert_eq!(journal.open(&elsewhere).await.unwrap(), Opened::New);
    assert_eq!(
        journal.open(&entry("refund", "k1", 1)).await.unwrap(),
        resumed("k1", None, DAY),
        "refusals change nothing"
    );
}

#[tokio::test]
async fn what_did_not_happen_may_be_opened_anew() {
    let desk = Desk::new();
    let journal = desk.open().await;
    let _ = journal.open(&entry("refund", "k1", 1)).await.unwrap();
    let ending = journal.close(&close("refund", "k1", Ending::NotApplied)).await.unwrap();
    assert_eq!(ending, Ending::NotApplied);
    assert_eq!(journal.open(&entry("refund", "k2", 2)).await.unwrap(), Opened::New);
    // Its key is free, too.
    assert_eq!(journal.open(&entry("other", "k1", 3)).await.unwrap(), Opened::New);
    // Whoever is late with the first call says nothing of the second.
    for ending in [Ending::Applied, Ending::NotApplied, Ending::Unknown] {
        let told = journal.close(&close("refund", "k1", ending)).await.unwrap();
        assert_eq!(told, ending);
    }
    let opened = journal.open(&entry("refund", "k3", 2)).await.unwrap();
    assert_eq!(opened, resumed("k2", None, DAY));
}

#[tokio::test]
async fn what_is_known_stays_known() {
    let desk = Desk::new();
    let journal = desk.open().await;
    for (first, then, known) in [
        (Ending::Applied, Ending::Unknown, Ending::Applied),
        (Ending::Applied, Ending::NotApplied, Ending::Applied),
        (Ending::NotApplied, Ending::Unknown, Ending::NotApplied),
        (Ending::Unknown, Ending::Applied, Ending::Applied),
        (Ending::Unknown, Ending::NotApplied, Ending::NotApplied),
    ] {
        let name = format!("{first:?} {then:?}");
        let _ = journal.open(&entry(&name, &name, 1)).await.unwrap();
        assert_eq!(journal.close(&close(&name, &name, first)).await.unwrap(), first);
        assert_eq!(
            journal.close(&close(&name, &name, then)).await.unwrap(),
            known,
            "{name}"
        );
    }
    assert!(names(&journal).await.is_empty());
}

#[tokio::test]
async fn nobody_says_for_another_that_nothing_happened() {
    let desk = Desk::new();
    let (one, other) = (desk.open().await, desk.open().await);
    assert_eq!(one.open(&entry("refund", "k1", 1)).await.unwrap(), Opened::New);
    let _ = other.open(&entry("refund", "k2", 1)).await.unwrap();
    // The other one may be sending it at this moment, so its key must not be given up.
    let told = one.close(&close("refund", "k1", Ending::NotApplied)).await.unwrap();
    assert_eq!(told, Ending::Unknown);
    let opened = one.open(&entry("refund", "k3", 1)).await.unwrap();
    assert_eq!(opened, resumed("k1", Some(Ending::Unknown), DAY));
    // Whoever resumed it took the doubt into account: this is the answer that the key has for good.
    let for_good = Close {
        in_doubt: true,
        ..close("refund", "k1", Ending::NotApplied)
    };
    assert_eq!(other.close(&for_good).await.unwrap(), Ending::NotApplied);
    assert_eq!(one.open(&entry("refund", "k4", 1)).await.unwrap(), Opened::New);
}

#[tokio::test]
async fn an_expired_key_is_reported_and_not_given_out() {
    let desk = Desk::new();
    let journal = desk.open().await;
    for (name, ending) in [
        ("crashed", None),
        ("lost", Some(Ending::Unknown)),
        ("done", Some(Ending::Applied)),
    ] {
        let _ = journal.open(&entry(name, name, 1)).await.unwrap();
        if let Some(ending) = ending {
            let _ = journal.close(&close(name, name, ending)).await.unwrap();
        }
        desk.clock.advance(DAY);
        let opened = journal.open(&entry(name, "another", 1)).await.unwrap();
        assert_eq!(opened, Opened::Expired { key: key(name), ending }, "{name}");
    }
}

#[tokio::test]
async fn the_server_says_when_a_key_expires() {
    let desk = Desk::new();
    let journal = desk.open().await;
    let _ = journal.open(&entry("refund", "k1", 1)).await.unwrap();
    let sooner = Close {
        expires_in: Some(MINUTE * 10),
        ..close("refund", "k1", Ending::Unknown)
    };
    let _ = journal.close(&sooner).await.unwrap();
    desk.clock.advance(MINUTE * 9);
    let opened = journal.open(&entry("refund", "k2", 1)).await.unwrap();
    assert_eq!(opened, resumed("k1", Some(Ending::Unknown), MINUTE));
    desk.clock.advance(MINUTE);
    let opened = journal.open(&entry("refund", "k2", 1)).await.unwrap();
    assert!(matches!(opened, Opened::Expired { .. }), "{opened:?}");
}

#[tokio::test]
async fn unsettled_calls_are_listed_oldest_first() {
    let desk = Desk::new();
    let journal = desk.open().await;
    for (name, ending) in [
        ("crashed", None),
        ("lost", Some(Ending::Unknown)),
        ("done", Some(Ending::Applied)),
        ("refused", Some(Ending::NotApplied)),
    ] {
        desk.clock.advance(Duration::from_secs(1));
        let _ = journal.open(&entry(name, name, 1)).await.unwrap();
        if let Some(ending) = ending {
            let _ = journal.close(&close(name, name, ending)).await.unwrap();
        }
    }
    assert_eq!(names(&journal).await, ["lost"], "the other one has time left");
    desk.clock.advance(MINUTE);
    assert_eq!(names(&journal).await, ["crashed", "lost"]);
    let first = journal.unsettled(1).await.unwrap().remove(0);
    assert_eq!((first.operation.as_str(), first.key.as_str()), ("crashed", "crashed"));
    assert_eq!(
        (first.method.as_str(), first.place.as_str()),
        ("POST", "https://pay.example/refunds")
    );
    assert_eq!(first.age, MINUTE + Duration::from_secs(3));
    assert_eq!(first.expires_in, DAY.saturating_sub(first.age));
    // Whoever resumes it has as much time as the first one.
    let _ = journal.open(&entry("crashed", "k", 1)).await.unwrap();
    assert_eq!(names(&journal).await, ["lost"]);
}

#[tokio::test]
async fn only_what_is_settled_and_expired_is_pruned() {
    let desk = Desk::new();
    let journal = desk.open().await;
    for (name, ending) in [
        ("crashed", None),
        ("lost", Some(Ending::Unknown)),
        ("done", Some(Ending::Applied)),
        ("refused", Some(Ending::NotApplied)),
    ] {
        let _ = journal.open(&entry(name, name, 1)).await.unwrap();
        if let Some(ending) = ending {
            let _ = journal.close(&close(name, name, ending)).await.unwrap();
        }
    }
    assert_eq!(journal.prune(10).await.unwrap(), 0);
    desk.clock.advance(DAY);
    assert_eq!(journal.prune(1).await.unwrap(), 1);
    assert_eq!(journal.prune(10).await.unwrap(), 1);
    assert_eq!(names(&journal).await, ["crashed", "lost"]);
    assert_eq!(
        journal.open(&entry("done", "k2", 1)).await.unwrap(),
        Opened::New,
        "it is forgotten"
    );
}

#[tokio::test]
async fn a_file_that_is_no_journal_is_refused() {
    let desk = Desk::new();
    std::fs::write(desk.path(), [b'?'; 8192]).unwrap();
    let error = SqliteJournal::open(desk.path()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("not a database"), "{error}");
    let nowhere = desk.folder.path().join("no/such/folder/calls.journal");
    let error = SqliteJournal::open(&nowhere).await.unwrap_err();
    assert!(error.to_string().contains("no/such/folder"), "{error}");

    std::fs::remove_file(desk.path()).unwrap();
    drop(desk.open().await);
    desk.run("update exactly_versions set version = 2").await;
    let error = SqliteJournal::open(desk.path()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused);
    assert!(error.to_string().contains("version 2"), "{error}");
}

#[tokio::test]
async fn a_row_that_makes_no_sense_is_no_fresh_start() {
    let desk = Desk::new();
    let journal = desk.open().await;
    let _ = journal.open(&entry("refund", "k1", 1)).await.unwrap();
    desk.run("update exactly_journal set key = ''").await;
    let error = journal.open(&entry("refund", "k2", 1)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{error}");
}
