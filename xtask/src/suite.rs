//! Every test of the workspace, on private servers, and those of the clients in other languages.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use crate::process::Told;
use crate::servers::Servers;
use crate::tally::{self, Tally};
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
        process::run(servers.announce(&mut doctests()))?;
        typescript::test()?;
    }
    Ok(())
}

/// Counts in `tests` what nextest ran, with those that are left to the step of their own as skipped, and in `doctests` the rest.
pub(crate) fn all_in_ci(servers: &Servers, tests: &mut Tally, doctests: &mut Tally) -> Result {
    let rest = format!("not ({INTEROP})");
    counted(servers.announce(&mut nextest_in_ci(&rest)?), tests)?;
    let mut command = self::doctests();
    if Told::Out.is_seen() {
        command.env("CARGO_TERM_COLOR", "always").args(["--", "--color=always"]);
    }
    process::run_counting(servers.announce(&mut command), Told::Out, tally::of_doctests, doctests)
}

pub(crate) fn interop_in_ci(libraries: &Path, tests: &mut Tally) -> Result {
    counted(nextest_in_ci(INTEROP)?.env(webhooks::LIBRARIES, libraries), tests)
}

fn nextest_in_ci(filter: &str) -> Result<Command> {
    let mut tests = nextest()?;
    tests.args(["--profile", "ci", "--filterset", filter]);
    if Told::Err.is_seen() {
        tests.env("CARGO_TERM_COLOR", "always");
    }
    Ok(tests)
}

fn counted(nextest: &mut Command, tests: &mut Tally) -> Result {
    process::run_counting(nextest, Told::Err, tally::of_nextest, tests)
}

/// The same artifacts for all of them, so that nothing is built twice.
fn nextest() -> Result<Command> {
    process::install_if_missing("nextest")?;
    let mut cargo = process::cargo();
    cargo.args(["nextest", "run", "--workspace", "--all-features"]);
    Ok(cargo)
}

fn doctests() -> Command {
    let mut cargo = process::cargo();
    cargo.args(["test", "--doc", "--workspace", "--all-features"]);
    cargo
}
