//! PostgreSQL. The server is started by `cargo xtask test`; every test has a schema of its own.

mod batch;
mod failure;
mod held;
mod joined;
mod lent;
pub(crate) mod queue;
mod scheduler;
mod server;
mod sessions;
mod start;
mod suite;
mod trail;
mod transaction;
mod upstream;
mod wake;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use exactly::{Call, Claim, Fingerprint, Key, Scope, Store, Verdict};
use exactly_sql::{PgStore, PgStoreBuilder};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, PgPool};

/// A schema that no other test sees, and a few connections to it.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) schema: String,
    pub(crate) pool: PgPool,
}

impl Place {
    pub(crate) fn fresh() -> Self {
        // The process's id keeps apart tests that run in processes of their own, as nextest runs them.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let noise = u32::from_be_bytes(exactly::Token::random().as_bytes()[..4].try_into().unwrap());
        let schema = format!("test_{}_{number}_{noise:08x}", std::process::id());
        let pool = PgPoolOptions::new().max_connections(4).connect_lazy(&url()).unwrap();
        Self { schema, pool }
    }

    pub(crate) fn builder(&self) -> PgStoreBuilder {
        PgStore::builder(self.pool.clone()).schema(&self.schema)
    }

    pub(crate) async fn open(&self) -> Arc<PgStore> {
        Arc::new(self.builder().start().await.unwrap())
    }

    /// Runs SQL in which `{table}` is the table of calls.
    pub(crate) async fn run(&self, sql: &str) -> u64 {
        let sql = sql.replace("{table}", &format!("{}.calls", self.schema));
        sqlx::query(AssertSqlSafe(sql))
            .execute(&self.pool)
            .await
            .unwrap()
            .rows_affected()
    }

    /// Moves every record's times, instead of waiting.
    pub(crate) async fn shift(&self, sign: char, by: Duration) {
        let by = format!("{} * interval '1 microsecond'", by.as_micros());
        let columns = ["lease_until", "created_at", "completed_at", "expires_at"];
        let moves = columns
            .map(|column| format!("{column} = {column} {sign} {by}"))
            .join(", ");
        let table = format!("{}.calls", self.schema);
        let trail = format!("{}.exactly_trail set noted_at = noted_at {sign} {by}", self.schema);
        // For all records at one moment, and without waiting for rows in an order that others do not follow.
        let sql =
            format!("begin; lock table {table} in exclusive mode; update {table} set {moves}; update {trail}; commit");
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&self.pool).await.unwrap();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the servers of tests are named by the environment"
)]
pub(crate) fn url() -> String {
    std::env::var("EXACTLY_TEST_POSTGRES_URL").expect("run `cargo xtask test`, which starts the servers")
}

pub(crate) fn call(key: &str) -> Call {
    Call::new(
        Scope::new("ann", "POST /refunds"),
        Key::new(key).unwrap(),
        Fingerprint::of("ten euros"),
    )
}

pub(crate) async fn run(store: &PgStore, call: &Call) -> Claim {
    match store.begin(call).await.unwrap() {
        Verdict::Run(claim) => claim,
        other => panic!("expected to run, was told {other:?}"),
    }
}
