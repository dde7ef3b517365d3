//! Requests that run the handler: a claim before it and an outcome after it, both durable.

use super::Bench;
use crate::Result;
use crate::load::Keys;
use crate::report::{Finding, Wanted};
use crate::serve::{App, Records, Style, Terms};
use crate::versus::{Expected, Side, alternate};

pub(super) const SQLITE: &str = "sqlite-first";
pub(super) const POSTGRES: &str = "postgres-first";
pub(super) const TRANSACTIONAL: &str = "postgres-transactional";

const CLIENTS: usize = 64;
const CLIENTS_TRANSACTIONAL: usize = 32;

/// Steps that share commits, against one commit per step.
pub(super) async fn sqlite(bench: &Bench) -> Result<Vec<Finding>> {
    let folder = tempfile::tempdir_in(&bench.folder)?;
    let mut sides = Vec::new();
    for (name, group_commit) in [("a commit per step", false), ("shared commits", true)] {
        let records = Records::Sqlite {
            path: folder.path().join(format!("{group_commit}.db")),
            group_commit,
        };
        let app = App::Leased {
            records,
            terms: Terms::default(),
        };
        sides.push(Side::start(name, &app, CLIENTS, Keys::Fresh, Expected::Executions, None).await?);
    }
    let courses = alternate(bench.pace, &mut sides).await?;
    let what = format!("first execution, SQLite with synchronous = FULL, {CLIENTS} clients");
    Ok(vec![Finding::throughput(SQLITE, &what, Wanted::AtLeast(5.0), courses)])
}

/// At most once, against hand-written middleware that claims and completes in two transactions: with explicit begin
/// and commit, and with statements that commit by themselves. The faster one counts.
pub(super) async fn postgres(bench: &Bench) -> Result<Vec<Finding>> {
    let hand = |place, style| App::Handwritten { place, style };
    let layer = |place| App::Leased {
        records: Records::Postgres(place),
        terms: Terms::default(),
    };
    let database = bench.postgres()?;
    let places = [
        database.fresh("first_explicit").await?,
        database.fresh("first_autocommit").await?,
        database.fresh("first_layer").await?,
    ];
    let [explicit, autocommit, ours] = places.clone();
    let sides = [
        ("hand-written, begin and commit", hand(explicit, Style::TwoTransactions)),
        ("hand-written, autocommit", hand(autocommit, Style::TwoStatements)),
        ("layer, at most once", layer(ours)),
    ];
    let what = format!("first execution, PostgreSQL, at most once, {CLIENTS} clients, pool of 8");
    let finding = compare(bench, &sides, CLIENTS, |courses| {
        Finding::throughput(POSTGRES, &what, Wanted::AtLeast(3.0), courses)
    });
    let finding = finding.await?;
    for place in &places {
        database.drop(place).await?;
    }
    Ok(vec![finding])
}

/// Record and effect commit together, on both sides.
pub(super) async fn transactional(bench: &Bench) -> Result<Vec<Finding>> {
    let database = bench.postgres()?;
    let (theirs, ours) = (database.fresh("one_hand").await?, database.fresh("one_layer").await?);
    let hand = App::Handwritten {
        place: theirs.clone(),
        style: Style::OneTransaction,
    };
    let sides = [
        ("hand-written, one transaction", hand),
        ("layer, transactional", App::Transactional(ours.clone())),
    ];
    let what = format!("first execution, PostgreSQL, transactional, {CLIENTS_TRANSACTIONAL} clients, pool of 8");
    let finding = compare(bench, &sides, CLIENTS_TRANSACTIONAL, |courses| {
        Finding::throughput(TRANSACTIONAL, &what, Wanted::AtLeast(0.9), courses)
    });
    let finding = finding.await?;
    for place in [&theirs, &ours] {
        database.drop(place).await?;
    }
    Ok(vec![finding])
}

/// Starts the servers, sends them fresh keys in turn, and ends them.
async fn compare(
    bench: &Bench,
    apps: &[(&str, App)],
    clients: usize,
    finding: impl Fn(Vec<crate::versus::Course>) -> Finding,
) -> Result<Finding> {
    let database = bench.postgres()?;
    let mut sides = Vec::new();
    for (name, app) in apps {
        let side = Side::start(
            name,
            app,
            clients,
            Keys::Fresh,
            Expected::Executions,
            database.postmaster,
        );
        sides.push(side.await?);
    }
    database.settle().await?;
    Ok(finding(alternate(bench.pace, &mut sides).await?))
}
