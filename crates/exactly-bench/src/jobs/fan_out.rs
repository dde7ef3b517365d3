//! A schedule with a million subjects: fanned out, and run.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use exactly::clock::Timestamp;
use exactly::job::{self, Job, JobError};
use exactly::queue::{Book as _, InspectQueue as _, TaskState};
use exactly::schedule::{Pattern, TimeOfDay};
use exactly::scheduler::{AHEAD, Audience, Plan, Scheduler, Shard, Tick};
use exactly::store::Reply;
use exactly::worker::Worker;
use exactly::{StoreError, StoreErrorKind};
use exactly_sql::{PgQueue, PgTransaction};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, PgPool, Row as _};
use tokio::time::{Instant, sleep};

use crate::Result;
use crate::database::Database;
use crate::report::{Finding, Wanted};
use crate::versus::Ratio;

const DATABASE: &str = "bench_fan_out";

/// Subjects for each job of a turn: a million if a turn has 200 000.
const SUBJECTS_PER_JOB: u64 = 5;

/// Where they live, in equal parts. Each has the hour once in any 24.
const ZONES: [&str; 8] = [
    "America/Los_Angeles",
    "America/New_York",
    "America/Sao_Paulo",
    "Europe/London",
    "Europe/Berlin",
    "Asia/Kolkata",
    "Asia/Tokyo",
    "Australia/Lord_Howe",
];
const SHARDS: u32 = 4;

/// Short of a day by more than it takes to begin, so that no zone has the hour twice.
const NEARLY_A_DAY_MS: u64 = 24 * 60 * 60 * 1000 - 5000;

const CONNECTIONS: u32 = 12;
const SHARING: usize = 16;
const AT_ONCE: usize = 8;
const PREFETCH: usize = 1000;

const LOOK: Duration = Duration::from_millis(500);
const STUCK_AFTER: Duration = Duration::from_mins(2);

pub(super) async fn measure(server: &Database, jobs: u64) -> Result<Finding> {
    let database = server.fresh_database(DATABASE).await?;
    let finding = on(&database, jobs * SUBJECTS_PER_JOB).await;
    drop(database);
    server.drop_database(DATABASE).await?;
    finding
}

async fn on(database: &Database, subjects: u64) -> Result<Finding> {
    let pool = PgPoolOptions::new()
        .max_connections(CONNECTIONS)
        .connect(&database.url)
        .await?;
    fill(&pool, subjects).await?;
    let queue = Arc::new(PgQueue::builder(pool.clone()).start().await?);
    let daily = Pattern::Daily(TimeOfDay::new(9, 0)?);
    let plan = Plan::new("greetings", daily, People { pool: pool.clone() })?;
    // As if everybody had been away: up to where ticks are made ahead, every zone has one occurrence to make up for.
    let ahead = queue.calendar().await?.after(AHEAD).as_millis();
    let since = Timestamp::from_millis(ahead.saturating_sub(NEARLY_A_DAY_MS));
    queue
        .write_schedule(plan.name(), &plan.to_string().into(), None)
        .await?;
    queue.advance_schedule(plan.name(), since).await?;
    let scheduler = Scheduler::new(Arc::clone(&queue), Arc::new(vec![plan]));
    let greet = job::transactional(Arc::clone(&queue), |greeting: Greeting, tx: &mut PgTransaction, _| {
        Box::pin(async move {
            let insert = sqlx::query("insert into greetings (subject, date) values ($1, $2)");
            let inserted = insert
                .bind(greeting.subject)
                .bind(greeting.date)
                .execute(&mut **tx)
                .await;
            inserted.map(drop).map_err(JobError::transient)
        })
    });
    let worker = Worker::builder(Arc::<PgQueue>::clone(&queue))
        .schedule(&scheduler)
        .job(greet.sharing(SHARING, AT_ONCE))
        .concurrency(SHARING * AT_ONCE)
        .prefetch(PREFETCH);

    let started = Instant::now();
    let pass = scheduler.pass().await?;
    if pass.ticks != ZONES.len() {
        return Err(format!("{} ticks, not one per zone: begin again in a few seconds", pass.ticks).into());
    }
    let running = worker.start()?;
    let fanned_out = run_off(database, &queue, subjects, started).await?;
    let elapsed = started.elapsed();
    running.drain().await;
    let once = "select count(*) from (select subject from greetings group by subject having count(*) = 1) as once";
    let once = database.count(once).await?;
    let all = database.count("select count(*) from greetings").await?;
    if all != once {
        return Err(format!("{all} effects for {once} subjects that have exactly one").into());
    }
    Ok(Finding {
        notes: vec![format!(
            "{} ticks; all tasks were made after {:.0} s, and done after {:.0} s: {:.0} jobs/s with an effect each",
            pass.ticks,
            fanned_out.as_secs_f64(),
            elapsed.as_secs_f64(),
            subjects as f64 / elapsed.as_secs_f64()
        )],
        ..Finding::alone(
            "fan-out",
            "subjects of a schedule that have exactly one effect, when everything was done",
            "subjects",
            Ratio::once(once as f64),
            Wanted::AtLeast(subjects as f64),
        )
    })
}

/// Until nothing is left to do. Says when the last task had been made.
async fn run_off(database: &Database, queue: &PgQueue, subjects: u64, started: Instant) -> Result<Duration> {
    let (mut fanned_out, mut done, mut moved) = (None, 0, Instant::now());
    loop {
        sleep(LOOK).await;
        let depths = queue.depths().await?;
        let count = |is_fan_out: bool| -> u64 {
            let open = depths.iter().filter(|depth| depth.state != TaskState::Dead);
            let open = open.filter(|depth| depth.lane.as_str().starts_with("exactly.schedule.") == is_fan_out);
            open.map(|depth| depth.tasks).sum()
        };
        if count(true) == 0 {
            fanned_out.get_or_insert_with(|| started.elapsed());
        }
        let now = database.count("select count(*) from greetings").await?;
        if now != done {
            (done, moved) = (now, Instant::now());
            eprint!("\r  {done} of {subjects}");
        }
        if let Some(fanned_out) = fanned_out.filter(|_| count(false) == 0) {
            eprintln!();
            return Ok(fanned_out);
        }
        if moved.elapsed() > STUCK_AFTER {
            return Err(format!("nothing was done for {STUCK_AFTER:?}, after {done} of {subjects}").into());
        }
    }
}

async fn fill(pool: &PgPool, subjects: u64) -> Result<()> {
    let zones = ZONES.map(|zone| format!("'{zone}'")).join(", ");
    let tables = format!(
        "create table people (shard int not null, id text not null collate \"C\", zone text not null, primary key (shard, id));
         insert into people
             select number % {SHARDS}, 'subject-' || lpad(number::text, 9, '0'), (array[{zones}])[1 + number / {SHARDS} % {}]
             from generate_series(0, {subjects} - 1) as number;
         create table greetings (subject text not null, date text not null)",
        ZONES.len()
    );
    sqlx::raw_sql(AssertSqlSafe(tables)).execute(pool).await?;
    sqlx::raw_sql("vacuum (analyze) people").execute(pool).await?;
    Ok(())
}

/// A day's greeting for one subject.
#[derive(Serialize, Deserialize)]
struct Greeting {
    subject: String,
    date: String,
}

impl Job for Greeting {
    const KIND: &'static str = "greeting";
    type Outcome = ();

    fn key(&self) -> String {
        job::daily_key(&self.date, &self.subject)
    }
}

/// Subjects in a table, dealt out to shards there.
struct People {
    pool: PgPool,
}

impl fmt::Debug for People {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("People(…)")
    }
}

impl Audience for People {
    fn zones(&self) -> Reply<'_, Vec<String>> {
        Box::pin(async { Ok(ZONES.map(str::to_owned).to_vec()) })
    }

    fn shards(&self) -> u32 {
        SHARDS
    }

    fn page<'a>(
        &'a self,
        zones: &'a [String],
        shard: Shard,
        after: Option<&'a str>,
        limit: u32,
    ) -> Reply<'a, Vec<String>> {
        Box::pin(async move {
            let page = sqlx::query(
                "select id from people where shard = $1 and zone = any($2) and id > $3 order by id limit $4",
            );
            let shard = i32::try_from(shard.index).unwrap_or(i32::MAX);
            let page = page
                .bind(shard)
                .bind(zones)
                .bind(after.unwrap_or_default())
                .bind(i64::from(limit));
            let rows = page.fetch_all(&self.pool).await.map_err(unavailable)?;
            rows.iter().map(|row| row.try_get(0).map_err(unavailable)).collect()
        })
    }

    fn task(&self, tick: &Tick, subject: &str) -> Result<exactly::queue::Task, StoreError> {
        let greeting = Greeting {
            subject: subject.to_owned(),
            date: tick.local_date.to_string(),
        };
        job::task(&greeting)
            .map_err(|error| StoreError::new(StoreErrorKind::Refused, "make a greeting").with_source(error))
    }
}

fn unavailable(error: sqlx::Error) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, "read a page of subjects").with_source(error)
}
