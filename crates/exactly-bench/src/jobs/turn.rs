//! One turn of one contender: a fresh database, filled; then the clock runs until its tables say that all is done.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::contender::{Contender, Tables, reason};
use crate::Result;
use crate::database::Database;
use crate::machine::{self, Pid};
use crate::versus::Turn;

/// How long nothing may happen.
const STUCK_AFTER: Duration = Duration::from_mins(1);
/// How often the tables are looked at when all handlers have run.
const LOOK: Duration = Duration::from_millis(1);
/// How long a worker may take to go when it is told to.
const GONE_WITHIN: Duration = Duration::from_secs(5);

/// One of a contender's processes.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) pid: Pid,
    child: Child,
    word: ChildStdin,
    lines: Option<Lines<BufReader<ChildStdout>>>,
}

pub(crate) async fn turn(server: &Database, contender: &Contender, jobs: u64) -> Result<Turn> {
    let name = format!("bench_{}", contender.name.replace(['-', ' '], "_"));
    let database = server.fresh_database(&name).await?;
    let turn = on(&database, contender, contender.jobs(jobs)).await;
    drop(database);
    server.drop_database(&name).await?;
    turn
}

async fn on(database: &Database, contender: &Contender, jobs: u64) -> Result<Turn> {
    fill(database, contender, jobs).await?;
    let mut workers = Vec::new();
    for _ in 0..contender.processes {
        workers.push(Worker::start(contender, &database.url, jobs).await?);
    }
    let before = Meter::read(database, &workers)?;
    let started = burn_down(&mut workers, jobs).await?;
    let done_by = until_done(database, contender.tables, jobs).await?;
    let elapsed = done_by.duration_since(started);
    let spent = Meter::read(database, &workers)?.since(before);
    for worker in workers {
        worker.stop().await?;
    }
    check(database, contender.tables, jobs).await?;
    Ok(spent.turn(jobs, elapsed, std::thread::available_parallelism()?.get()))
}

/// Everybody begins with tables in the same state: filled, with statistics, nothing left to write out.
async fn fill(database: &Database, contender: &Contender, jobs: u64) -> Result<()> {
    let filled = contender
        .command("fill", &database.url, jobs)
        .stdin(Stdio::null())
        .output()
        .await?;
    if !filled.status.success() {
        return Err(format!("fill the tables: {}: {}", filled.status, reason(&filled.stderr)).into());
    }
    database.execute("vacuum (analyze)".to_owned()).await?;
    database.settle().await
}

/// Gives the word, and returns when all handlers have run. Says when the first worker began to claim.
async fn burn_down(workers: &mut [Worker], jobs: u64) -> Result<Instant> {
    let (told, mut heard) = mpsc::unbounded_channel();
    for (number, worker) in workers.iter_mut().enumerate() {
        let mut lines = worker.lines.take().ok_or("a worker is read already")?;
        let told = told.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                // Nobody hears it once all jobs are done.
                let _ = told.send((number, Some(line)));
            }
            let _ = told.send((number, None));
        });
    }
    drop(told);
    for worker in &mut *workers {
        worker.word.write_all(b"go\n").await?;
    }
    let mut started = None;
    let mut counts = vec![0_u64; workers.len()];
    while counts.iter().sum::<u64>() < jobs {
        let (number, line) = timeout(STUCK_AFTER, heard.recv())
            .await
            .map_err(|_| format!("no job was handled for {STUCK_AFTER:?}, after {counts:?}"))?
            .ok_or("every worker ended")?;
        let line = line.ok_or_else(|| format!("a worker ended, after {counts:?}"))?;
        started.get_or_insert_with(Instant::now);
        counts[number] = line.parse()?;
    }
    let handled: u64 = counts.iter().sum();
    if handled > jobs {
        return Err(format!("{handled} jobs were handled, of {jobs}").into());
    }
    started.ok_or_else(|| "there was nothing to do".into())
}

/// A handler that has run is not a job that is done: completions are written in batches, and after it. All are done when a look begins
/// that finds none left; how long it takes to look is nobody's work.
async fn until_done(database: &Database, tables: Tables, jobs: u64) -> Result<Instant> {
    let since = Instant::now();
    loop {
        let looked_at = Instant::now();
        let left = database.count(tables.left).await?;
        if left == 0 {
            return Ok(looked_at);
        }
        let failed = database.count(tables.failed).await?;
        if failed > 0 {
            return Err(format!("{failed} of {jobs} jobs failed").into());
        }
        if since.elapsed() > STUCK_AFTER {
            return Err(format!("{left} of {jobs} jobs were handled, but are not done").into());
        }
        sleep(LOOK).await;
    }
}

async fn check(database: &Database, tables: Tables, jobs: u64) -> Result<()> {
    let (left, failed) = (database.count(tables.left).await?, database.count(tables.failed).await?);
    if left + failed > 0 {
        return Err(format!("of {jobs} jobs {left} are left and {failed} failed").into());
    }
    if let Some(done) = tables.done {
        let done = database.count(done).await?;
        if done != jobs {
            return Err(format!("{done} jobs are done, of {jobs}").into());
        }
    }
    Ok(())
}

impl Worker {
    /// Starts a process, which connects and waits for the word.
    pub(crate) async fn start(contender: &Contender, url: &str, jobs: u64) -> Result<Self> {
        let mut child = contender
            .command("work", url, jobs)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let ended = "the worker ended at its start";
        let mut lines = BufReader::new(child.stdout.take().ok_or(ended)?).lines();
        let word = child.stdin.take().ok_or(ended)?;
        let pid = Pid(child.id().ok_or(ended)?);
        match timeout(STUCK_AFTER, lines.next_line()).await.map_err(|_| ended)?? {
            Some(line) if line == "ready" => {}
            Some(line) => return Err(format!("the worker said `{line}` before it was ready").into()),
            None => return Err(ended.into()),
        }
        Ok(Self {
            pid,
            child,
            word,
            lines: Some(lines),
        })
    }

    /// Gives it the word alone. What it says from then on.
    pub(crate) async fn begin(&mut self) -> Result<Lines<BufReader<ChildStdout>>> {
        self.word.write_all(b"go\n").await?;
        Ok(self.lines.take().ok_or("a worker is read already")?)
    }

    pub(crate) async fn stop(mut self) -> Result<()> {
        drop(self.word);
        if timeout(GONE_WITHIN, self.child.wait()).await.is_err() {
            self.child.kill().await?;
        }
        Ok(())
    }
}

/// CPU time read off at one moment.
#[derive(Clone, Copy)]
struct Meter {
    workers: Duration,
    database: Duration,
    bench: Duration,
    all: Duration,
}

impl Meter {
    fn read(database: &Database, workers: &[Worker]) -> Result<Self> {
        let mut spent = Duration::ZERO;
        for worker in workers {
            spent += worker.pid.cpu()?;
        }
        Ok(Self {
            workers: spent,
            database: database.postmaster.map_or(Ok(Duration::ZERO), Pid::cpu_with_children)?,
            bench: Pid::this().cpu()?,
            all: machine::busy()?,
        })
    }

    fn since(self, earlier: Self) -> Self {
        Self {
            workers: self.workers.saturating_sub(earlier.workers),
            database: self.database.saturating_sub(earlier.database),
            bench: self.bench.saturating_sub(earlier.bench),
            all: self.all.saturating_sub(earlier.all),
        }
    }

    fn turn(self, jobs: u64, elapsed: Duration, cores: usize) -> Turn {
        let per_job = |cpu: Duration| cpu.as_secs_f64() * 1e6 / jobs as f64;
        let foreign = self.all.saturating_sub(self.workers + self.database + self.bench);
        Turn {
            per_second: jobs as f64 / elapsed.as_secs_f64(),
            cpu_us: per_job(self.workers + self.database),
            database_cpu_us: per_job(self.database),
            client_cpu_us: per_job(self.bench),
            // A burn-down has no latency of a single job.
            p50_ms: f64::NAN,
            p99_ms: f64::NAN,
            foreign: foreign.as_secs_f64() / (elapsed.as_secs_f64() * cores as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::jobs::contender::Program;

    const NONE: &str = "select 0::int8";
    const ONE: &str = "select 1::int8";
    const TWO: &str = "select 2::int8";
    const ALL_DONE: Tables = Tables {
        left: NONE,
        failed: NONE,
        done: Some(TWO),
    };
    const HONEST: &str = "echo ready; read go; echo 0; echo 2; read end";

    #[expect(
        clippy::disallowed_methods,
        reason = "the servers of tests are named by the environment"
    )]
    async fn server() -> Database {
        let url = std::env::var("EXACTLY_TEST_POSTGRES_URL").expect("run `cargo xtask test`, which starts the servers");
        Database::connect(&url).await.unwrap()
    }

    /// What becomes of a turn of two jobs, with a worker that is a shell script.
    async fn outcome(name: &'static str, script: &str, tables: Tables) -> Result<Turn, String> {
        let script = format!("test \"$1\" = fill && exit; {script}");
        let contender = Contender {
            name,
            program: Program {
                path: "/bin/sh".into(),
                arguments: vec!["-c".into(), script.into(), "worker".into()],
                environment: &[],
            },
            settings: Value::Null,
            processes: 1,
            jobs_max: None,
            tables,
        };
        turn(&server().await, &contender, 2)
            .await
            .map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_worker_whose_tables_agree_is_measured() {
        let turn = outcome("test agreed", HONEST, ALL_DONE).await.unwrap();
        assert!(turn.per_second > 0.0);
    }

    #[tokio::test]
    async fn a_worker_that_says_more_than_its_tables_is_not_measured() {
        let fewer = Tables {
            done: Some(ONE),
            ..ALL_DONE
        };
        let said = outcome("test fewer", HONEST, fewer).await.unwrap_err();
        assert_eq!(said, "1 jobs are done, of 2");
    }

    #[tokio::test]
    async fn failed_jobs_are_not_measured() {
        let failed = Tables {
            left: ONE,
            failed: ONE,
            done: None,
        };
        let said = outcome("test failed", HONEST, failed).await.unwrap_err();
        assert_eq!(said, "1 of 2 jobs failed");
    }

    #[tokio::test]
    async fn a_job_that_runs_twice_is_not_measured() {
        let twice = "echo ready; read go; echo 0; echo 3; read end";
        let said = outcome("test twice", twice, ALL_DONE).await.unwrap_err();
        assert_eq!(said, "3 jobs were handled, of 2");
    }

    #[tokio::test]
    async fn a_worker_that_ends_early_is_not_measured() {
        let early = "echo ready; read go; echo 0; echo 1";
        let said = outcome("test early", early, ALL_DONE).await.unwrap_err();
        assert_eq!(said, "a worker ended, after [1]");
    }
}
