//! The servers that `cargo xtask test` starts.

#![expect(
    clippy::disallowed_methods,
    reason = "only the environment says where the servers are"
)]

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, PgConnection};

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
