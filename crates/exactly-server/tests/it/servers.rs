//! The servers that `cargo xtask test` starts.

#![expect(
    clippy::disallowed_methods,
    reason = "only the environment says where the servers are"
)]

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, PgConnection};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::PATIENCE;
use crate::server::until;

/// The address of a database of its own.
pub(crate) async fn postgres_database() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let url = std::env::var("EXACTLY_TEST_POSTGRES_URL").expect("run `cargo xtask test`, which starts the servers");
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("exactly_server_{}_{count}", std::process::id());
    let mut server = connect(&url).await;
    for sql in [
        format!("drop database if exists {name}"),
        format!("create database {name}"),
    ] {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut server).await.unwrap();
    }
    let (server, _) = url.rsplit_once('/').unwrap();
    format!("{server}/{name}")
}

pub(crate) async fn run_sql(url: &str, sql: String) {
    let mut server = connect(url).await;
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut server).await.unwrap();
}

/// PostgreSQL's own client.
pub(crate) fn psql() -> PathBuf {
    let bin = std::env::var("EXACTLY_TEST_POSTGRES_BIN").expect("run `cargo xtask test`, which finds the servers");
    PathBuf::from(bin).join("psql")
}

pub(crate) fn redis() -> String {
    std::env::var("EXACTLY_TEST_REDIS_URL").expect("run `cargo xtask test`, which starts the servers")
}

async fn connect(url: &str) -> PgConnection {
    let options: PgConnectOptions = url.parse().unwrap();
    options.connect().await.unwrap()
}

/// A Redis of a test's own, to be killed.
pub(crate) struct OwnRedis {
    folder: TempDir,
    port: u16,
    child: Child,
}

impl OwnRedis {
    pub(crate) async fn start() -> Self {
        let folder = TempDir::with_prefix("exactly-redis-").unwrap();
        // Free a moment ago, which has to do: Redis does not say which port it found.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = spawn_redis(&folder, port);
        let redis = Self { folder, port, child };
        redis.wait_until_ready().await;
        redis
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts again on what the last run left on disk.
    pub(crate) async fn restart(&mut self) {
        self.kill();
        self.child = spawn_redis(&self.folder, self.port);
        self.wait_until_ready().await;
    }

    async fn wait_until_ready(&self) {
        let ready = until(async || tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.ok());
        timeout(PATIENCE, ready).await.unwrap();
    }
}

impl Drop for OwnRedis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn_redis(folder: &TempDir, port: u16) -> Child {
    let program = std::env::var("EXACTLY_TEST_REDIS_SERVER").expect("run `cargo xtask test`, which finds the program");
    Command::new(program)
        .args(["--save", "", "--appendonly", "yes", "--appendfsync", "always"])
        .args([
            "--maxmemory-policy",
            "noeviction",
            "--bind",
            "127.0.0.1",
            "--port",
            &port.to_string(),
            "--dir",
        ])
        .arg(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}
