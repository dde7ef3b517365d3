//! graphile-worker, and the Node that it needs.

use std::fs;
use std::path::Path;

use serde_json::json;
use tokio::process::Command;

use super::install as run;
use crate::Result;
use crate::jobs::contender::Program;

const GRAPHILE_WORKER: &str = "0.18.0";
const NODE: &str = "22.23.3";

const RUNNER: &str = include_str!("graphile-worker.mjs");

pub(super) async fn install(folder: &Path) -> Result<Program> {
    fs::create_dir_all(folder)?;
    let package = json!({
        "private": true,
        "dependencies": { "graphile-worker": GRAPHILE_WORKER, "node": NODE },
    })
    .to_string();
    let installed = folder.join("node_modules/.installed");
    let node = folder.join("node_modules/node/bin/node");
    if !fs::read_to_string(&installed).is_ok_and(|listed| listed == package) {
        eprintln!("installing graphile-worker {GRAPHILE_WORKER} and node {NODE} with npm");
        fs::write(folder.join("package.json"), &package)?;
        run(Command::new("npm")
            .args(["install", "--no-audit", "--no-fund"])
            .current_dir(folder))
        .await?;
        run(Command::new(&node).arg("--version")).await?;
        // Last, because it says that all the rest is there.
        fs::write(&installed, &package)?;
    }
    let runner = folder.join("graphile-worker.mjs");
    fs::write(&runner, RUNNER)?;
    Ok(Program {
        path: node,
        arguments: vec![runner.into()],
        // Otherwise it makes a line of text for each job, which nobody reads.
        environment: &[("NO_LOG_SUCCESS", "1"), ("NODE_ENV", "production")],
    })
}
