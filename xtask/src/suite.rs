//! Every test of the workspace, on private servers, and those of the clients in other languages.

use std::ffi::OsString;

use crate::servers::Servers;
use crate::{Failure, Result, forwarded, process, typescript};

pub(crate) fn command(arguments: &[OsString]) -> Result<(), Failure> {
    let arguments = forwarded(arguments);
    let servers = Servers::start()?;
    tests(&servers, arguments)?;
    // Whoever names tests waits for those; doctests take longer to build than most tests to run, and so does a browser.
    if arguments.is_empty() {
        doctests(&servers)?;
        typescript::test()?;
    }
    Ok(())
}

pub(crate) fn all_in_ci(servers: &Servers) -> Result {
    tests(servers, &["--profile".into(), "ci".into()])?;
    doctests(servers)
}

fn tests(servers: &Servers, arguments: &[OsString]) -> Result {
    process::install_if_missing("nextest")?;
    let mut cargo = process::cargo();
    cargo
        .args(["nextest", "run", "--workspace", "--all-features"])
        .args(arguments);
    process::run(servers.announce(&mut cargo))
}

fn doctests(servers: &Servers) -> Result {
    let mut cargo = process::cargo();
    cargo.args(["test", "--doc", "--workspace", "--all-features"]);
    process::run(servers.announce(&mut cargo))
}
