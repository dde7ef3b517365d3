//! The programs that need servers but are no tests: benchmarks and the crash lab.

use std::ffi::OsString;

use crate::servers::{Servers, locate};
use crate::{Failure, Result, forwarded, process};

pub(crate) fn bench(arguments: &[OsString]) -> Result<(), Failure> {
    let is_gateway = forwarded(arguments).first().is_some_and(|what| what == "gateway");
    if is_gateway {
        bench_gateway(arguments)?;
    } else {
        run_released("exactly-bench", arguments)?;
    }
    Ok(())
}

/// The gateway is measured as the program that people run, beside the nginx that they know.
fn bench_gateway(arguments: &[OsString]) -> Result {
    if process::on_path("nginx").is_none() {
        locate::install(&["nginx-light"])?;
    }
    process::run(process::cargo().args(["build", "--release", "--package", "exactly-server"]))?;
    let mut cargo = process::cargo();
    cargo
        .args(["run", "--release", "--package", "exactly-bench", "--"])
        .args(forwarded(arguments))
        .env("EXACTLY_BENCH_SERVER", process::target().join("release/exactly"));
    process::run(&mut cargo)
}

pub(crate) fn crash(arguments: &[OsString]) -> Result<(), Failure> {
    Ok(run_released("exactly-crash", arguments)?)
}

/// The crash lab in the dev profile: the gate has those artifacts already, and the lab looks for
/// lost effects, not for speed.
pub(crate) fn crash_in_ci(servers: &Servers) -> Result {
    let mut cargo = process::cargo();
    cargo.args(["run", "--package", "exactly-crash"]);
    process::run(servers.announce(&mut cargo))
}

fn run_released(package: &str, arguments: &[OsString]) -> Result {
    let servers = Servers::start()?;
    let mut cargo = process::cargo();
    cargo
        .args(["run", "--release", "--package", package, "--"])
        .args(forwarded(arguments));
    process::run(servers.announce(&mut cargo))
}
