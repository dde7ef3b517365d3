//! `exactly doctor`: what is wrong, and what to do about it.
//!
//! It looks and probes, and leaves everything as it was.

mod server;
mod store;
mod tasks;

use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;

use crate::calls::{Client, Refused, Secret, Table};
use crate::cli::Ended;
use crate::config::Config;
use crate::store::StoreArgs;

/// What to look at.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArgs,
    /// A running server's admin address: http://HOST:PORT
    #[arg(long, value_name = "URL")]
    admin: Option<String>,
    /// The server's token.
    #[arg(long, value_name = "TOKEN", env = "EXACTLY_ADMIN_TOKEN", hide_env_values = true)]
    token: Option<Secret>,
    /// A configuration. Its store is looked at unless --store names one.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// One thing that was looked at.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Check {
    name: &'static str,
    status: Status,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Ok,
    /// It works, and somebody should know.
    Warn,
    Fail,
}

#[derive(Debug, Serialize)]
struct Report {
    healthy: bool,
    checks: Vec<Check>,
}

impl Args {
    pub(crate) async fn run(self) -> Ended {
        let mut checks = Vec::new();
        let mut url = self.store.store.clone();
        let mut accept = self.store.accept.clone();
        let mut has_jobs = true;
        if let Some(path) = &self.config {
            let flags = |config: &mut Config| {
                if let Some(url) = &url {
                    config.store = url.clone();
                }
            };
            match Config::read_to_serve(path, flags) {
                Ok(config) => {
                    accept.extend(&config.store_options.accept);
                    has_jobs = config.jobs.enabled;
                    let found = format!("{}: good, {} routes", path.display(), config.routes.len());
                    checks.push(Check::ok("configuration", found));
                    url = url.or(Some(config.store));
                }
                Err(error) => {
                    let fix = "mend the lines that it names; `exactly check-config` says when it is good";
                    checks.push(Check::fail("configuration", error, fix));
                }
            }
        }
        if url.is_none() && self.admin.is_none() && checks.is_empty() {
            eprintln!("exactly: nothing to look at: give --store URL, --admin URL or --config FILE");
            return Ok(ExitCode::from(2));
        }
        if let Some(url) = url {
            let looked_at = store::check(&url, &accept).await;
            // One that could not be opened has been told.
            let is_open = looked_at.iter().any(|check| check.name == store::DOUBTS);
            checks.extend(looked_at);
            if is_open && has_jobs {
                checks.extend(tasks::check(&url).await);
            }
        }
        if let Some(admin) = &self.admin {
            match Client::new(admin, self.token.clone(), None) {
                Ok(client) => checks.extend(server::check(&client, self.token.is_some()).await),
                Err(Refused::Usage(why) | Refused::Failed(why)) => {
                    eprintln!("exactly: {why}");
                    return Ok(ExitCode::from(2));
                }
            }
        }
        Report::of(checks).told(self.json)
    }
}

impl Report {
    fn of(checks: Vec<Check>) -> Self {
        let healthy = checks.iter().all(|check| check.status != Status::Fail);
        Self { healthy, checks }
    }

    fn told(&self, json: bool) -> Ended {
        if json {
            println!("{}", serde_json::to_string_pretty(self)?);
        } else {
            let mut table = Table::new(["CHECK", "STATUS", "FOUND"]);
            for check in &self.checks {
                table.row([check.name, check.status.word(), &check.found]);
                if let Some(fix) = &check.fix {
                    table.row(["", "", &format!("fix: {fix}")]);
                }
            }
            print!("{table}");
        }
        Ok(if self.healthy {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

impl Check {
    fn ok(name: &'static str, found: impl std::fmt::Display) -> Self {
        Self {
            name,
            status: Status::Ok,
            found: found.to_string(),
            fix: None,
        }
    }

    fn warn(name: &'static str, found: impl std::fmt::Display, fix: &str) -> Self {
        Self {
            status: Status::Warn,
            fix: Some(fix.to_owned()),
            ..Self::ok(name, found)
        }
    }

    fn fail(name: &'static str, found: impl std::fmt::Display, fix: &str) -> Self {
        Self {
            status: Status::Fail,
            ..Self::warn(name, found, fix)
        }
    }
}

impl Status {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "WARN",
            Self::Fail => "FAIL",
        }
    }
}
