//! The operators' API, held to its own description: requests are made up from `/openapi.json`, good ones and bad ones, and
//! every answer must be one that the description allows.

use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};

use crate::process::{Background, capture, cargo, is_program, run};
use crate::{Result, tools};

/// Every package with its version: what is made up today is made up tomorrow.
const REQUIREMENTS: &str = include_str!("openapi/requirements.txt");

/// What cannot be said in the description.
const SETTINGS: &str = include_str!("openapi/schemathesis.toml");

/// The same requests in every run. Whoever looks for more takes another one.
const SEED: &str = "20260131";
/// Per operation and way of making things up. All of them together take about a minute.
const EXAMPLES_MAX: &str = "40";
const ANSWER_WITHIN_SECONDS: &str = "10";
/// A server that answers nothing any more is not waited for a thousand times.
const FAILURES_MAX: &str = "10";

const TOKEN: &str = "token-of-the-openapi-check";
/// Nobody listens there: the gateway is only here because the API comes with it.
const DEAD_UPSTREAM: &str = "http://127.0.0.1:9";

/// Builds a server, starts it on a store of its own, and sends it all that its description allows and forbids.
pub(crate) fn check(schemathesis: &Path) -> Result {
    build()?;
    let folder = Folder::make()?;
    let server = Server::start(&folder.0)?;
    let settings = folder.0.join("schemathesis.toml");
    fs::write(&settings, SETTINGS).map_err(|error| format!("write {}: {error}", settings.display()))?;
    let mut command = Command::new(schemathesis);
    command
        .arg("--config-file")
        .arg(&settings)
        .args(["run", &format!("{}/openapi.json", server.url)])
        .args(["--header", &format!("Authorization: Bearer {TOKEN}")])
        // All checks; naming them here would take back what the settings say.
        .args(["--seed", SEED, "--max-examples", EXAMPLES_MAX])
        .args(["--request-timeout", ANSWER_WITHIN_SECONDS, "--max-failures", FAILURES_MAX])
        .args(["--generation-database", "none"])
        // It leaves files behind where it runs.
        .current_dir(&folder.0)
        .env("NO_PROXY", "127.0.0.1");
    println!("schemathesis: making up requests, which takes about a minute");
    let said = capture(&mut command)?;
    // Not all of it: its last line is as pytest's would be if it had run no test.
    let cases = cases(&said).ok_or_else(|| format!("schemathesis did not say how many requests there were\n{said}"))?;
    println!("schemathesis: {cases}");
    Ok(())
}

/// How many requests there were: `5809 generated, 5809 passed, 84 skipped`, indented below its heading.
fn cases(said: &str) -> Option<&str> {
    let mut lines = said.lines();
    lines.find(|line| *line == "Test cases:")?;
    lines.next().map(str::trim)
}

/// The same artifacts that the tests have, so that the gate builds nothing twice.
pub(crate) fn build() -> Result {
    let mut cargo = cargo();
    cargo.args([
        "build",
        "--workspace",
        "--all-features",
        "--bin",
        "exactly",
        "--test",
        "it",
    ]);
    run(&mut cargo)
}

/// `exactly serve`, until it is dropped.
struct Server {
    url: String,
    _process: Background,
    /// A server that cannot say what it wants to say would end.
    _said: BufReader<ChildStdout>,
}

impl Server {
    fn start(folder: &Path) -> Result<Self> {
        let mut command = Command::new(tools::target()?.join("debug/exactly"));
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
            .args(["--upstream", DEAD_UPSTREAM, "--store", "sqlite:exactly.db"])
            .current_dir(folder)
            .env("EXACTLY_ADMIN_TOKEN", TOKEN)
            .stdout(Stdio::piped());
        let mut process = Background::start(&mut command)?;
        let stdout = process
            .stdout()
            .ok_or("start exactly serve: it has no standard output")?;
        let mut said = BufReader::new(stdout);
        loop {
            let mut line = String::new();
            let read = said.read_line(&mut line);
            if read.map_err(|error| format!("read what exactly serve says: {error}"))? == 0 {
                return Err("exactly serve ended at its start".into());
            }
            if let Some((_, url)) = line.trim_end().split_once("operators on ") {
                return Ok(Self {
                    url: url.to_owned(),
                    _process: process,
                    _said: said,
                });
            }
        }
    }
}

/// A folder that goes when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn make() -> Result<Self> {
        let path = env::temp_dir().join(format!("exactly-openapi-{}", std::process::id()));
        fs::create_dir(&path).map_err(|error| format!("make {}: {error}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The program, installed if need be.
pub(crate) fn schemathesis() -> Result<PathBuf> {
    let folder = tools::folder("schemathesis")?;
    let (program, installed) = (folder.join("bin/schemathesis"), folder.join("installed.txt"));
    if is_program(&program) && fs::read_to_string(&installed).is_ok_and(|list| list == REQUIREMENTS) {
        return Ok(program);
    }
    eprintln!("schemathesis is missing: installing it with pip");
    let _ = fs::remove_dir_all(&folder);
    capture(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    let wanted = folder.join("wanted.txt");
    fs::write(&wanted, REQUIREMENTS).map_err(|error| format!("write {}: {error}", wanted.display()))?;
    let mut pip = Command::new(folder.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    capture(pip.arg("--requirement").arg(&wanted))?;
    // Last, because it says that all the rest is there.
    fs::rename(&wanted, &installed).map_err(|error| format!("write {}: {error}", installed.display()))?;
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_requests_is_told() {
        let said =
            "Warnings:\n  1\n\nTest cases:\n  5809 generated, 5809 passed, 84 skipped\n\nSeed: 7\n\n== 2 warnings ==\n";
        assert_eq!(cases(said), Some("5809 generated, 5809 passed, 84 skipped"));
        assert_eq!(cases("Seed: 7\n"), None);
    }
}
