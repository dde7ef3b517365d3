//! Whether a table that has grown for years is as fast as a young one.

use super::{Bench, records};
use crate::Result;
use crate::load::Keys;
use crate::report::{Finding, Wanted};
use crate::serve::{App, Records, Terms};
use crate::versus::{Expected, Side, alternate};

pub(super) const NAME: &str = "rows";

const CLIENTS: usize = 64;
const SERIES: u32 = 2;
const COST_MAX: f64 = 1.5;

pub(super) async fn run(bench: &Bench) -> Result<Vec<Finding>> {
    let (few, many) = if bench.quick {
        (10_000, 100_000)
    } else {
        (100_000, 10_000_000)
    };
    let database = bench.postgres()?;
    let mut places = Vec::new();
    let mut sides = Vec::new();
    for (name, count) in [("few", few), ("many", many)] {
        let place = database.fresh(&format!("rows_{name}")).await?;
        let app = App::Leased {
            records: Records::Postgres(place.clone()),
            terms: Terms::default(),
        };
        let keys = Keys::Known { series: SERIES, count };
        let name = format!("{count} records");
        let mut side = Side::start(&name, &app, CLIENTS, keys, Expected::Replays, database.postmaster).await?;
        side.clients.fill(SERIES, 1).await?;
        records::multiply(database, &place, SERIES, count, None).await?;
        sides.push(side);
        places.push(place);
    }
    database.settle().await?;
    let wanted = Wanted::AtLeast(1.0 / COST_MAX);
    let replays = alternate(bench.pace, &mut sides).await?;
    let replays = Finding::throughput(NAME, "replays of random records, by size of the table", wanted, replays);
    for side in &mut sides {
        side.keys = Keys::Fresh;
        side.expected = Expected::Executions;
    }
    database.settle().await?;
    let firsts = alternate(bench.pace, &mut sides).await?;
    let firsts = Finding::throughput(NAME, "first executions, by size of the table", wanted, firsts);
    drop(sides);
    for place in &places {
        database.drop(place).await?;
    }
    Ok(vec![replays, firsts])
}
