//! The job queues of others, each with the settings that were the fastest here.
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
use super::contender::{Contender, Program, Tables};
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

/// All peers, or why they are not there.
pub(super) async fn all(folder: &Folder) -> Vec<Candidate> {
    let node = npm::install(&folder.0.join("node")).await.map(graphile_worker_node);
    let mut peers = vec![("graphile-worker", node)];
    let built = cargo::build(&folder.0.join("rust")).await;
    let in_rust: [(_, fn(&Path) -> Contender); 3] = [
        ("graphile_worker", graphile_worker),
        ("apalis-postgres", apalis),
        ("underway", underway),
    ];
    peers.extend(in_rust.map(|(name, peer)| match &built {
        Ok(programs) => (name, Ok(peer(programs))),
        Err(reason) => (name, Err(reason.to_string().into())),
    }));
    peers
}

fn graphile_worker_node(program: Program) -> Contender {
    Contender {
        name: "graphile-worker",
        program,
        settings: json!({
            "connections": 10,
            "concurrentJobs": 24,
            "localQueue": { "size": 500 },
            "completeJobBatchDelay": 0,
            "failJobBatchDelay": 0,
        }),
        processes: 1,
        jobs_max: None,
        tables: GRAPHILE,
    }
}

fn graphile_worker(programs: &Path) -> Contender {
    Contender {
        name: "graphile_worker",
        program: built(programs, "graphile_worker"),
        settings: json!({
            "driver": "tokio_postgres",
            "connections": 10,
            "concurrency": 500,
            "local_queue": 5000,
            "local_queues": 1,
            "complete_delay_ms": 5,
        }),
        processes: 1,
        jobs_max: None,
        tables: GRAPHILE,
    }
}

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

/// It looks through everything that waits for each task that it takes: 200 000 of them would take it hours.
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

/// Runs a tool that installs something, and keeps the end of what it said for the case that it fails.
async fn install(command: &mut Command) -> Result<()> {
    let ran = command.stdin(Stdio::null()).output().await;
    let ran = ran.map_err(|error| format!("{}: {error}", name_of(command)))?;
    if ran.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ran.stderr);
    let last = said.lines().map(str::trim).rfind(|line| !line.is_empty());
    Err(format!("{}: {}: {}", name_of(command), ran.status, last.unwrap_or_default()).into())
}

fn name_of(command: &Command) -> String {
    let command = command.as_std();
    let first = command.get_args().next().unwrap_or_default();
    format!("{} {}", command.get_program().display(), first.display())
}
