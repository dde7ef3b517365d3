//! The servers that are measured. All of them have the same handler, on the same axum.

mod handler;
mod handwritten;
mod layered;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::str::FromStr as _;

use axum::Router;
use exactly::once::Limits;
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

use self::handler::Desk;
pub(crate) use self::layered::PRINCIPAL;
use crate::Result;

/// Connections for handlers and hand-written middleware.
const POOL_MAX: u32 = 8;

/// What a server is made of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum App {
    /// The handler alone.
    Bare,
    /// The handler behind the layer, under a lease.
    Leased { records: Records, terms: Terms },
    /// The handler behind the layer, in its own transaction.
    Transactional(Place),
    /// Takes whatever is posted to it.
    Sink,
    /// What one would write without us.
    Handwritten { place: Place, style: Style },
}

/// Where the layer's records are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Records {
    Memory,
    Sqlite { path: PathBuf, group_commit: bool },
    Postgres(Place),
}

/// How long duplicates wait and answers are kept, in seconds, and how many may wait.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Terms {
    pub(crate) wait_s: u64,
    pub(crate) keep_s: u64,
    pub(crate) waiters_max: usize,
}

/// A schema of a PostgreSQL database.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) url: String,
    pub(crate) schema: String,
}

/// How middleware without us would go about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Style {
    /// Claim and completion as one statement each, which commits by itself.
    TwoStatements,
    /// The same, each between an explicit begin and commit.
    TwoTransactions,
    /// Looks for the answer before it claims.
    SelectFirst,
    /// Claim, effect and completion in one transaction.
    OneTransaction,
}

impl Default for Terms {
    /// The defaults of the layer.
    fn default() -> Self {
        Self {
            wait_s: 10,
            keep_s: 24 * 60 * 60,
            waiters_max: Limits::default().waiters_max,
        }
    }
}

impl Place {
    /// The pool that handlers and hand-written middleware share. It does not ask whether a connection is alive before
    /// each use: that is a trip to the server, and the faster choice for both sides is without.
    async fn pool(&self) -> Result<PgPool> {
        let options = PgConnectOptions::from_str(&self.url)?.options([("search_path", &self.schema)]);
        let pool = PgPoolOptions::new()
            .max_connections(POOL_MAX)
            .test_before_acquire(false);
        Ok(pool.connect_with(options).await?)
    }
}

/// Serves until standard input ends. The first line of output is the address.
pub(crate) async fn run(app: &str) -> Result<()> {
    let router = router(&serde_json::from_str(app)?).await?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    println!("{}", listener.local_addr()?);
    let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
        // Failing to set it would only make this side slower.
        let _ = stream.set_nodelay(true);
    });
    let mut stdin = tokio::io::stdin();
    let mut nothing = [0];
    tokio::select! {
        ended = axum::serve(listener, router) => Ok(ended?),
        _ = stdin.read(&mut nothing) => Ok(()),
    }
}

async fn router(app: &App) -> Result<Router> {
    let desk = Desk::default();
    Ok(match app {
        App::Bare => handler::router(desk),
        App::Sink => handler::sink(desk),
        App::Leased { records, terms } => layered::leased(desk, records, *terms).await?,
        App::Transactional(place) => layered::transactional(desk, place).await?,
        App::Handwritten { place, style } => handwritten::router(desk, place.pool().await?, *style).await?,
    })
}
