//! The gate: steps in order, cheap ones first, until one fails.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use crate::servers::Servers;
use crate::tally::Tally;
use crate::typescript::Unready;
use crate::{Failure, Result, alerts, measure, openapi, process, suite, tidy, tools, typescript, webhooks};

struct Step {
    name: &'static str,
    run: fn(&mut Gate) -> Result<Ending>,
}

const STEPS: &[Step] = &[
    Step { name: "fmt", run: fmt },
    Step {
        name: "tidy",
        run: shape,
    },
    Step {
        name: "alerts",
        run: alerts,
    },
    Step {
        name: "clippy",
        run: clippy,
    },
    Step {
        name: "test",
        run: test,
    },
    Step {
        name: "interop",
        run: interop,
    },
    Step {
        name: "typescript",
        run: typescript,
    },
    Step { name: "doc", run: doc },
    Step {
        name: "deny",
        run: deny,
    },
    Step {
        name: "openapi",
        run: openapi,
    },
    Step {
        name: "crash",
        run: crash,
    },
];

enum Ending {
    Passed,
    LeftOut(String),
}

/// What the steps of one run share.
#[derive(Default)]
struct Gate {
    servers: Option<Servers>,
    counts: Counts,
}

/// The tests that each step ran.
#[derive(Default)]
struct Counts {
    tests: Tally,
    doctests: Tally,
    interop: Tally,
    typescript: Tally,
}

impl Counts {
    fn sum(&self) -> Tally {
        let mut sum = self.tests;
        sum += self.doctests;
        sum += self.typescript;
        // Each of the two steps skips what the other is for: only what neither ran was skipped.
        sum.skipped -= self.interop.ran().min(self.tests.skipped);
        sum.passed += self.interop.passed;
        sum.failed += self.interop.failed;
        sum
    }
}

impl Gate {
    /// Started by the first step that needs them, stopped when the gate closes.
    fn servers(&mut self) -> Result<&Servers> {
        if self.servers.is_none() {
            self.servers = Some(Servers::start()?);
        }
        Ok(self.servers.as_ref().expect("started above"))
    }
}

pub(crate) fn command(arguments: &[OsString]) -> Result<(), Failure> {
    let chosen = chosen(arguments).map_err(Failure::Usage)?;
    let mut gate = Gate::default();
    let mut report = Vec::new();
    let mut failure = None;
    for step in &chosen {
        eprintln!("ci: {}", step.name);
        let started = Instant::now();
        let ended = (step.run)(&mut gate);
        let took = started.elapsed();
        let line = match &ended {
            Ok(Ending::Passed) => format!("passed in {}", seconds(took)),
            Ok(Ending::LeftOut(reason)) => format!("left out: {reason}"),
            Err(_) => format!("failed after {}", seconds(took)),
        };
        eprintln!("ci: {} {line}", step.name);
        report.push((step.name, line));
        if let Err(message) = ended {
            failure = Some(format!(
                "{} failed: {message}\nto run it alone: cargo xtask ci {}",
                step.name, step.name
            ));
            break;
        }
    }
    let tests = gate.counts.sum();
    drop(gate);
    for step in &chosen[report.len()..] {
        report.push((step.name, "not run".to_owned()));
    }
    eprintln!();
    for (name, line) in report {
        eprintln!("{name:<10} {line}");
    }
    if let Some(message) = &failure {
        eprintln!("xtask ci: {message}");
    }
    // The last word, for programs too.
    println!("tests: {tests}");
    failure.map_or(Ok(()), |_| Err(Failure::Told))
}

/// The named steps in the order of the gate, or all of them.
fn chosen(arguments: &[OsString]) -> Result<Vec<&'static Step>> {
    for argument in arguments {
        if !STEPS.iter().any(|step| *argument == *step.name) {
            let known: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
            return Err(format!(
                "unknown step `{}`: expected {}",
                argument.to_string_lossy(),
                known.join(", ")
            ));
        }
    }
    let wanted = |step: &&Step| arguments.is_empty() || arguments.iter().any(|argument| *argument == *step.name);
    Ok(STEPS.iter().filter(wanted).collect())
}

fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}

fn fmt(_: &mut Gate) -> Result<Ending> {
    process::run(process::cargo().args(["fmt", "--all", "--check"]))?;
    Ok(Ending::Passed)
}

fn shape(_: &mut Gate) -> Result<Ending> {
    tidy::check()?;
    Ok(Ending::Passed)
}

fn alerts(_: &mut Gate) -> Result<Ending> {
    let promtool = match alerts::promtool() {
        Ok(promtool) => promtool,
        Err(error) => return Ok(Ending::LeftOut(tools::reason(&error))),
    };
    alerts::check(&promtool)?;
    Ok(Ending::Passed)
}

fn clippy(_: &mut Gate) -> Result<Ending> {
    let mut cargo = process::cargo();
    cargo.args(["clippy", "--workspace", "--all-targets", "--all-features"]);
    process::run(cargo.args(["--", "-D", "warnings"]))?;
    Ok(Ending::Passed)
}

fn test(gate: &mut Gate) -> Result<Ending> {
    gate.servers()?;
    let servers = gate.servers.as_ref().expect("started above");
    suite::all_in_ci(servers, &mut gate.counts.tests, &mut gate.counts.doctests)?;
    Ok(Ending::Passed)
}

fn interop(gate: &mut Gate) -> Result<Ending> {
    let libraries = match webhooks::libraries() {
        Ok(libraries) => libraries,
        Err(error) => return Ok(Ending::LeftOut(tools::reason(&error))),
    };
    suite::interop_in_ci(&libraries, &mut gate.counts.interop)?;
    Ok(Ending::Passed)
}

fn typescript(gate: &mut Gate) -> Result<Ending> {
    let kit = match typescript::kit() {
        Ok(kit) => kit,
        Err(Unready::Missing(error)) => return Ok(Ending::LeftOut(tools::reason(&error))),
        Err(Unready::Broken(error)) => return Err(error),
    };
    typescript::check(&kit, &mut gate.counts.typescript)?;
    Ok(Ending::Passed)
}

/// The server's program has the library's name, and both are documented in a folder of that name: one after the other, since rustdoc
/// fails if another one clears its folder meanwhile. The library is last, so that its pages are those that stay.
fn doc(_: &mut Gate) -> Result<Ending> {
    for targets in ["--bins", "--lib"] {
        let mut cargo = process::cargo();
        cargo.args(["doc", "--workspace", "--no-deps", "--all-features", targets]);
        process::run(cargo.env("RUSTDOCFLAGS", "-D warnings"))?;
    }
    Ok(Ending::Passed)
}

fn deny(_: &mut Gate) -> Result<Ending> {
    // Neither this nor the advisories, whose database comes over the network, turn the gate red because a host is away.
    if let Err(error) = process::install_if_missing("deny") {
        return Ok(Ending::LeftOut(error));
    }
    process::run(process::cargo().args(["deny", "check", "bans", "licenses", "sources"]))?;
    Ok(Ending::Passed)
}

fn openapi(_: &mut Gate) -> Result<Ending> {
    let schemathesis = match openapi::schemathesis() {
        Ok(schemathesis) => schemathesis,
        Err(error) => return Ok(Ending::LeftOut(tools::reason(&error))),
    };
    openapi::check(&schemathesis)?;
    Ok(Ending::Passed)
}

fn crash(gate: &mut Gate) -> Result<Ending> {
    measure::crash_in_ci(gate.servers()?)?;
    Ok(Ending::Passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_step_leaves_to_another_is_skipped_only_if_neither_runs_it() {
        let of = |passed, failed, skipped| Tally {
            passed,
            failed,
            skipped,
        };
        let mut counts = Counts {
            tests: of(100, 1, 9),
            doctests: of(20, 0, 2),
            ..Counts::default()
        };
        assert_eq!(counts.sum(), of(120, 1, 11));
        counts.interop = of(6, 1, 101);
        counts.typescript = of(30, 0, 0);
        assert_eq!(counts.sum(), of(156, 2, 4));
        // Alone, it skips nothing that it was asked for.
        let alone = Counts {
            interop: of(7, 0, 101),
            ..Counts::default()
        };
        assert_eq!(alone.sum(), of(7, 0, 0));
        assert_eq!(Counts::default().sum(), Tally::default());
    }
}
