//! The job queues of others, each with the settings that were the fastest here.
//!
//! They were tried out on two cores that other programs were using too, so small differences between settings say little.
//!
//! They are installed and built by the benchmark itself, into the target folder. One that cannot be had is not measured, and
//! the report says why.

mod cargo;
mod npm;

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::json;
use tokio::process::Command;

use super::Candidate;
use super::contender::{Contender, Program, Tables, reason};
use crate::Result;
use crate::calls::bench_folder;

/// Both ports of graphile-worker delete what is done and keep what failed.
const GRAPHILE: Tables = Tables {
    left: "select count(*) from graphile_worker._private_jobs",
    failed: "select count(*) from graphile_worker._private_jobs where last_error is not null",
    done: None,
};
const APALIS: Tables = Tables {
    left: "select count(*) from apalis.jobs where status <> 'Done'",
    failed: "select count(*) from apalis.jobs where status in ('Failed', 'Killed')",
    done: Some("select count(*) from apalis.jobs where status = 'Done'"),
};
const UNDERWAY: Tables = Tables {
    left: "select count(*) from underway.task where state <> 'succeeded'",
    failed: "select count(*) from underway.task where state in ('failed', 'cancelled')",
    done: Some("select count(*) from underway.task where state = 'succeeded'"),
};

/// Where peers are installed.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn find() -> Result<Self> {
        let bench = bench_folder()?;
        let target = bench.parent().ok_or("the target folder has no name")?;
        Ok(Self(target.join("peers")))
    }
}

/// Makes a contender of a program in the folder.
type Made = fn(&Path) -> Contender;

/// All peers, or why they are not there.
pub(super) async fn all(folder: &Folder) -> Vec<Candidate> {
    let node = npm::install(&folder.0.join("node")).await;
    let mut peers: Vec<Candidate> = Vec::new();
    for (name, processes) in [("graphile-worker", 1), ("graphile-worker x2", 2)] {
        peers.push(match &node {
            Ok(program) => (name, Ok(graphile_worker_node(name, program.clone(), processes))),
            Err(reason) => (name, Err(reason.to_string().into())),
        });
    }
    let built = cargo::build(&folder.0.join("rust")).await;
    let in_rust: [(_, Made); 4] = [
        ("graphile_worker", graphile_worker),
        ("graphile_worker x2", two_graphile_workers),
        ("apalis-postgres", apalis),
        ("underway", underway),
    ];
    peers.extend(in_rust.map(|(name, peer)| match &built {
        Ok(programs) => (name, Ok(peer(programs))),
        Err(reason) => (name, Err(reason.to_string().into())),
    }));
    peers
}

/// Batching as its own performance test has it, with a longer local queue. Tried once or twice each, with 40 000 and
/// 100 000 jobs: local queues of 500 (what the test has), 2000, 5000 and 10 000, of which 2000 took the least CPU time per
/// job; 10, 24, 100 and 400 jobs at the same time, of which 400 took more; a delay before completing of 0, 10 and 50 ms,
/// which made no difference beyond the noise.
///
/// One process takes less CPU time per job, and two were often faster where others had the cores too. So both are measured,
/// and the faster one counts.
fn graphile_worker_node(name: &'static str, program: Program, processes: usize) -> Contender {
    Contender {
        name,
        program,
        settings: json!({
            "connections": 10,
            "concurrentJobs": 24,
            "localQueue": { "size": 2000 },
            "completeJobBatchDelay": 0,
            "failJobBatchDelay": 0,
        }),
        processes,
        jobs_max: None,
        tables: GRAPHILE,
    }
}

/// Tried once or twice each, with 20 000 to 100 000 jobs: both drivers, of which sqlx was slower in three of four pairs; 24,
/// 100 and 500 jobs at the same time; local queues of 500, 1000, 2000 and 5000; one, two and four of them; a delay before
/// completing of 0, 1 and 5 ms, of which 0 was the slowest. Its own performance test has 500 jobs, one queue of 5000 and
/// 5 ms.
fn graphile_worker(programs: &Path) -> Contender {
    Contender {
        name: "graphile_worker",
        program: built(programs, "graphile_worker"),
        settings: json!({
            "driver": "tokio_postgres",
            "connections": 10,
            "concurrency": 100,
            "local_queue": 1000,
            "local_queues": 4,
            "complete_delay_ms": 1,
        }),
        processes: 1,
        jobs_max: None,
        tables: GRAPHILE,
    }
}

fn two_graphile_workers(programs: &Path) -> Contender {
    Contender {
        name: "graphile_worker x2",
        processes: 2,
        ..graphile_worker(programs)
    }
}

/// Tried once each, with 20 000 jobs: one, two and four workers; batches of 100, 200, 500, 1000 and 2000, of which the two
/// smallest were several times slower. With 200 000 jobs it takes twice the CPU time per job, and nothing else was tried
/// there. Tasks are not marked as running, as in its own example: who fetched them is recorded anyway.
fn apalis(programs: &Path) -> Contender {
    Contender {
        name: "apalis-postgres",
        program: built(programs, "apalis"),
        settings: json!({ "connections": 10, "workers": 4, "batch": 1000, "lock_tasks": false }),
        processes: 1,
        jobs_max: None,
        tables: APALIS,
    }
}

/// It looks through everything that waits for each task that it takes, so 200 000 of them would take it hours. Fewer jobs
/// are in its favour. Tried once each: three and eight tasks at the same time, of which eight were faster.
fn underway(programs: &Path) -> Contender {
    Contender {
        name: "underway",
        program: built(programs, "underway"),
        settings: json!({ "connections": 12, "concurrency": 8 }),
        processes: 1,
        jobs_max: Some(2000),
        tables: UNDERWAY,
    }
}

fn built(programs: &Path, name: &str) -> Program {
    Program {
        path: programs.join(name),
        arguments: Vec::new(),
        environment: &[],
    }
}

/// Runs a tool that installs something, and says why if it fails.
async fn install(command: &mut Command) -> Result<()> {
    let ran = command.stdin(Stdio::null()).output().await;
    let ran = ran.map_err(|error| format!("{}: {error}", name_of(command)))?;
    if ran.status.success() {
        return Ok(());
    }
    Err(format!("{}: {}: {}", name_of(command), ran.status, reason(&ran.stderr)).into())
}

fn name_of(command: &Command) -> String {
    let command = command.as_std();
    let first = command.get_args().next().unwrap_or_default();
    format!("{} {}", command.get_program().display(), first.display())
}
