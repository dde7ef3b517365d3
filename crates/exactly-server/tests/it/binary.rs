//! The binary as people run it, and a store for it to work on.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use exactly::store::Phase;
use exactly::{Call, Claim, Fenced, Fingerprint, Keep, Key, OnLost, Scope, Store as _, Verdict};
use exactly_sql::SqliteStore;
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const TOKEN: &str = "a-token-for-tests-only";

/// What a command left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// A folder with a SQLite file.
pub(crate) struct Shop {
    folder: TempDir,
}

/// A server, until it is dropped.
pub(crate) struct Serving {
    child: Child,
    pub(crate) admin: String,
}

/// Runs `exactly` with `arguments` and nothing of this process's settings.
pub(crate) fn exactly(arguments: &[&str]) -> Ran {
    let output = command().args(arguments).output().unwrap();
    Ran::of(output)
}

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_exactly"));
    for name in [
        "EXACTLY_STORE",
        "EXACTLY_ADMIN_TOKEN",
        "EXACTLY_ACTOR",
        "EXACTLY_LOG_FORMAT",
        "RUST_LOG",
    ] {
        command.env_remove(name);
    }
    command
}

impl Ran {
    fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        assert_eq!(self.err, "", "nothing was wrong");
        self.out
    }

    #[track_caller]
    pub(crate) fn json(self) -> Value {
        serde_json::from_str(&self.ok()).unwrap()
    }

    /// Ended with `code`, and said why.
    #[track_caller]
    pub(crate) fn refused(&self, code: i32, why: &str) {
        assert_eq!(self.code, code, "{self:?}");
        assert!(
            self.err.starts_with("exactly: ") || self.err.starts_with("error: "),
            "{self:?}"
        );
        assert!(self.err.contains(why), "{why:?} is not in {:?}", self.err);
    }
}

impl Shop {
    /// An empty store.
    pub(crate) async fn open() -> Self {
        let shop = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        shop.store().await;
        shop
    }

    pub(crate) async fn store(&self) -> SqliteStore {
        SqliteStore::open(self.path("exactly.db")).await.unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.path("exactly.db").display())
    }

    /// `exactly calls` straight on the store.
    pub(crate) fn calls(&self, arguments: &[&str]) -> Ran {
        let url = self.url();
        exactly(&[&["calls", "--store", &url], arguments].concat())
    }

    /// Makes a record of each phase for `operation`, with the phase as its key.
    pub(crate) async fn fill(&self, operation: &str) -> Vec<(Phase, String)> {
        let store = self.store().await;
        let mut made = Vec::new();
        for phase in [Phase::InFlight, Phase::InDoubt, Phase::Lost, Phase::Done] {
            let claim = begin(&store, operation, &format!("{phase:?}"), phase).await;
            made.push((phase, claim.id.to_string()));
        }
        made
    }

    /// Makes one record.
    pub(crate) async fn add(&self, operation: &str, key: &str, phase: Phase) -> String {
        begin(&self.store().await, operation, key, phase).await.id.to_string()
    }

    pub(crate) fn phase(&self, id: &str) -> String {
        let shown = self.calls(&["show", id, "--json"]).json();
        shown["call"]["phase"].as_str().unwrap().to_owned()
    }

    /// `exactly serve` on the same store.
    pub(crate) fn serve(&self) -> Serving {
        let url = self.url();
        let mut child = command()
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--admin",
                "127.0.0.1:0",
                "--upstream",
                "http://127.0.0.1:9",
            ])
            .args(["--store", &url])
            .env("EXACTLY_ADMIN_TOKEN", TOKEN)
            .current_dir(self.folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let admin = lines
            .map(|line| line.unwrap())
            .find_map(|line| {
                Some(
                    line.split_once("operators on ")?
                        .1
                        .split_whitespace()
                        .next()?
                        .to_owned(),
                )
            })
            .expect("the server says where operators come in");
        Serving { child, admin }
    }
}

impl Serving {
    /// `exactly calls` through the API.
    pub(crate) fn calls(&self, arguments: &[&str]) -> Ran {
        let output = command()
            .args(["calls", "--admin", &self.admin])
            .args(arguments)
            .env("EXACTLY_ADMIN_TOKEN", TOKEN)
            .output()
            .unwrap();
        Ran::of(output)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn begin(store: &SqliteStore, operation: &str, key: &str, phase: Phase) -> Claim {
    let on_lost = if phase == Phase::Lost {
        OnLost::Rerun
    } else {
        OnLost::Doubt
    };
    let call = Call::new(
        Scope::new("ada", operation),
        Key::new(key).unwrap(),
        Fingerprint::of(key),
    )
    .with_on_lost(on_lost)
    .with_lease(std::time::Duration::from_hours(1));
    let Verdict::Run(claim) = store.begin(&call).await.unwrap() else {
        panic!("{key} is fresh");
    };
    let fenced = match phase {
        Phase::InFlight => Fenced::Applied,
        Phase::InDoubt | Phase::Lost => store.lose(&claim).await.unwrap(),
        Phase::Done => store.complete(&claim, &"an answer".into(), Keep::DAY).await.unwrap(),
    };
    assert_eq!(fenced, Fenced::Applied);
    claim
}
