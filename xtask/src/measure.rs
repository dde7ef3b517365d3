//! The programs that need servers but are no tests: benchmarks and the crash lab.

use std::ffi::OsString;

use crate::servers::Servers;
use crate::{Failure, Result, forwarded, process};

pub(crate) fn bench(arguments: &[OsString]) -> Result<(), Failure> {
    Ok(run_released("exactly-bench", arguments)?)
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
