//! Every test of the workspace, on private servers, and those of the clients in other languages.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use crate::servers::Servers;
use crate::{Failure, Result, forwarded, process, tools, typescript, webhooks};

/// The tests that need libraries of others, which come over the network: the gate has a step for them that can be left out.
const INTEROP: &str = "package(exactly) and test(/^webhook::interop::/)";

pub(crate) fn command(arguments: &[OsString]) -> Result<(), Failure> {
    let arguments = forwarded(arguments);
    let servers = Servers::start()?;
    let mut tests = nextest()?;
    match webhooks::libraries() {
        Ok(libraries) => drop(tests.env(webhooks::LIBRARIES, libraries)),
        // The tests that need them fail; they may not be among those that were named.
        Err(error) => eprintln!("the webhook libraries of others are missing: {}", tools::reason(&error)),
    }
    process::run(servers.announce(&mut tests).args(arguments))?;
    // Whoever names tests waits for those; doctests take longer to build than most tests to run, and so does a browser.
    if arguments.is_empty() {
        doctests(&servers)?;
        typescript::test()?;
    }
    Ok(())
}

pub(crate) fn all_in_ci(servers: &Servers) -> Result {
    let rest = format!("not ({INTEROP})");
    let mut tests = nextest()?;
    tests.args(["--profile", "ci", "--filterset", &rest]);
    process::run(servers.announce(&mut tests))?;
    doctests(servers)
}

pub(crate) fn interop_in_ci(libraries: &Path) -> Result {
    let mut tests = nextest()?;
    tests.args(["--profile", "ci", "--filterset", INTEROP]);
    process::run(tests.env(webhooks::LIBRARIES, libraries))
}

/// The same artifacts for all of them, so that nothing is built twice.
fn nextest() -> Result<Command> {
    process::install_if_missing("nextest")?;
    let mut cargo = process::cargo();
    cargo.args(["nextest", "run", "--workspace", "--all-features"]);
    Ok(cargo)
}

fn doctests(servers: &Servers) -> Result {
    let mut cargo = process::cargo();
    cargo.args(["test", "--doc", "--workspace", "--all-features"]);
    process::run(servers.announce(&mut cargo))
}
