//! Requests that were answered before.

use super::Bench;
use crate::Result;
use crate::load::Keys;
use crate::report::{Finding, Wanted};
use crate::serve::{App, Records, Style, Terms};
use crate::versus::{Expected, Side, alternate};

pub(super) const MEMORY: &str = "memory-replay";
pub(super) const POSTGRES: &str = "postgres-replay";

const CLIENTS: usize = 64;
const SERIES: u32 = 1;
const KEYS: u64 = 10_000;

const REPLAYED: Keys = Keys::Known {
    series: SERIES,
    count: KEYS,
};

/// What the layer itself costs, against the same handler without it.
pub(super) async fn memory(bench: &Bench) -> Result<Vec<Finding>> {
    let layer = App::Leased {
        records: Records::Memory,
        terms: Terms::default(),
    };
    let mut sides = [
        Side::start(
            "axum handler alone",
            &App::Bare,
            CLIENTS,
            REPLAYED,
            Expected::Executions,
            None,
        )
        .await?,
        Side::start("layer, replayed", &layer, CLIENTS, REPLAYED, Expected::Replays, None).await?,
    ];
    for side in &mut sides {
        side.clients.fill(SERIES, KEYS).await?;
    }
    let courses = alternate(bench.pace, &mut sides).await?;
    let what = "a replayed request through the layer, memory store";
    Ok(vec![Finding::throughput(MEMORY, what, Wanted::AtLeast(0.80), courses)])
}

/// The same from PostgreSQL, against the one statement that a replay cannot do without.
pub(super) async fn postgres(bench: &Bench) -> Result<Vec<Finding>> {
    let database = bench.postgres()?;
    let (theirs, ours) = (
        database.fresh("replay_select").await?,
        database.fresh("replay_layer").await?,
    );
    let select = App::Handwritten {
        place: theirs.clone(),
        style: Style::SelectFirst,
    };
    let layer = App::Leased {
        records: Records::Postgres(ours.clone()),
        terms: Terms::default(),
    };
    let postmaster = database.postmaster;
    let mut sides = [
        Side::start(
            "select by primary key",
            &select,
            CLIENTS,
            REPLAYED,
            Expected::Replays,
            postmaster,
        )
        .await?,
        Side::start(
            "layer, replayed",
            &layer,
            CLIENTS,
            REPLAYED,
            Expected::Replays,
            postmaster,
        )
        .await?,
    ];
    for side in &mut sides {
        side.clients.fill(SERIES, KEYS).await?;
    }
    database.settle().await?;
    let courses = alternate(bench.pace, &mut sides).await?;
    drop(sides);
    for place in [&theirs, &ours] {
        database.drop(place).await?;
    }
    let what = format!("a replay from PostgreSQL, {CLIENTS} clients, pool of 8");
    Ok(vec![Finding::throughput(
        POSTGRES,
        &what,
        Wanted::AtLeast(1.0),
        courses,
    )])
}
