//! `exactly conformance`: whether a server keeps the contract, seen from outside.
//!
//! Everything goes through sockets, so it does not matter what the server is made of. Some rules can only be seen with a
//! service behind it that counts its effects and can be told to misbehave: that is `exactly conformance upstream`.

mod answer;
mod arguments;
mod counter;
mod exchange;
mod place;
mod preset;
mod report;
mod request;
mod rule;
mod rules;
mod setting;
mod socket;
mod subject;
mod trial;
mod upstream;

use std::error::Error;
use std::fs;
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use clap::Subcommand;
use futures_util::{StreamExt as _, stream};
use tokio::time::Instant;

use self::arguments::{Check, Output};
use self::report::{Finding, Redact, Report, Verdict};
use self::rule::{Rule, Stop, name};
use self::subject::Subject;
use self::trial::Trial;
use crate::cli::Ended;

/// Some rule does not hold.
const FAILED: u8 = 1;
/// Nothing could be checked.
const UNUSABLE: u8 = 2;

/// What to check, or the service to check with.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(override_usage = "exactly conformance --target <URL> [OPTIONS]\n       \
                            exactly conformance --list [--markdown] [--only <RULE>]\n       \
                            exactly conformance upstream [--listen <ADDR>]")]
#[command(
    after_help = "Exit code: 0 if every rule that could be seen holds, 1 if one does not, 2 if nothing could be checked."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    check: Check,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the service that counts its effects, to stand behind the server that is checked.
    Upstream(upstream::Args),
}

type Fault = Box<dyn Error + Send + Sync>;

impl Args {
    pub(crate) async fn run(self) -> Ended {
        if let Some(Command::Upstream(upstream)) = self.command {
            return upstream.run().await;
        }
        match self.check.run().await {
            Ok(code) => Ok(code),
            Err(fault) => {
                eprintln!("exactly: {fault}");
                Ok(ExitCode::from(UNUSABLE))
            }
        }
    }
}

impl Check {
    async fn run(self) -> Result<ExitCode, Fault> {
        let rules = chosen(&self.only)?;
        let Some(target) = self.target()?.filter(|_| !self.output.list) else {
            let listed = if self.output.markdown {
                report::markdown(&rules)
            } else {
                report::listed(&rules)
            };
            say(&listed);
            return Ok(ExitCode::SUCCESS);
        };
        let secrets = target.caller.iter().chain(target.other_caller.iter().flatten());
        let redact = Redact::new(secrets);
        let subject = Subject::explore(target).await?;
        let report = Report {
            target: subject.target.place.to_string(),
            preset: name(&subject.target.preset),
            guarantee: name(&subject.target.guarantee),
            findings: try_all(&subject, &rules, usize::from(self.jobs)).await,
            redact,
        };
        self.output.publish(&report)?;
        if report.count(Verdict::Failed) > 0 {
            return Ok(ExitCode::from(FAILED));
        }
        if report.count(Verdict::Passed) == 0 {
            return Err("none of these rules can be seen on this target".into());
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Output {
    fn publish(&self, report: &Report) -> Result<(), Fault> {
        match &self.json {
            Some(None) => say(&report::json(report)),
            Some(Some(path)) => write(path, &report::json(report))?,
            None => {}
        }
        if let Some(path) = &self.junit {
            write(path, &report::junit(report))?;
        }
        if self.json != Some(None) {
            say(&report::table(report, self.verbose));
        }
        Ok(())
    }
}

fn say(text: &str) {
    // A reader that has seen enough closes the pipe.
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn write(path: &Path, text: &str) -> Result<(), Fault> {
    fs::write(path, text).map_err(|error| format!("write {}: {error}", path.display()).into())
}

/// The rules with these names; all without any.
fn chosen(only: &[String]) -> Result<Vec<&'static Rule>, Fault> {
    let mut chosen: Vec<_> = rules::all().collect();
    for id in only {
        if !chosen.iter().any(|rule| rule.id == id) {
            return Err(format!("no rule is called {id:?}; `exactly conformance --list` names them all").into());
        }
    }
    chosen.retain(|rule| only.is_empty() || only.iter().any(|id| id == rule.id));
    Ok(chosen)
}

/// Tries every rule: several at the same time, those that close the upstream's port at the end and by themselves.
async fn try_all(subject: &Subject, rules: &[&'static Rule], jobs: usize) -> Vec<Finding> {
    let progress = Progress::new(rules.len());
    let (alone, together): (Vec<_>, Vec<_>) = rules.iter().copied().partition(|rule| rule.runs_alone());
    let mut findings = Vec::new();
    for (rules, jobs) in [(together, jobs), (alone, 1)] {
        let mut tried = stream::iter(rules).map(|rule| try_one(subject, rule)).buffered(jobs);
        while let Some(finding) = tried.next().await {
            findings.push(finding);
            progress.show(findings.len());
        }
    }
    progress.clear();
    let place = |finding: &Finding| rules.iter().position(|rule| rule.id == finding.rule.id);
    findings.sort_by_key(place);
    findings
}

async fn try_one(subject: &Subject, rule: &'static Rule) -> Finding {
    let trial = Trial::new(subject);
    let begun = Instant::now();
    let checked = match rule.missing(subject) {
        Some(missing) => Err(Stop::NotApplicable(missing)),
        None => (rule.check)(&trial).await,
    };
    let (verdict, reason) = match checked {
        Ok(()) => (Verdict::Passed, None),
        Err(Stop::Failed(why)) => (Verdict::Failed, Some(why)),
        Err(Stop::NotApplicable(why)) => (Verdict::NotApplicable, Some(why)),
    };
    Finding {
        rule,
        verdict,
        reason,
        took: begun.elapsed(),
        seen: trial.into_seen(),
    }
}

/// How far it is, for whoever waits at a terminal.
struct Progress {
    total: usize,
    is_shown: bool,
}

impl Progress {
    fn new(total: usize) -> Self {
        let is_shown = std::io::stderr().is_terminal();
        Self { total, is_shown }
    }

    fn show(&self, done: usize) {
        if self.is_shown {
            eprint!("\r{done} of {} rules", self.total);
            let _ = std::io::stderr().flush();
        }
    }

    fn clear(&self) {
        if self.is_shown {
            eprint!("\r\u{1b}[K");
        }
    }
}
