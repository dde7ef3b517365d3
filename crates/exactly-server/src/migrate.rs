//! `exactly migrate`.

use std::process::ExitCode;

use serde::Serialize;

use crate::cli::Ended;
use crate::store::{StoreArgs, StoreOptions};

/// Which store, and whether to touch it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArgs,
    /// Print the SQL for an empty database instead, for those who migrate with a tool of their own.
    #[arg(long)]
    print: bool,
    /// Print JSON.
    #[arg(long, conflicts_with = "print")]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    store: String,
    /// Whether there is a schema, which is up to date then.
    migrated: bool,
}

impl Args {
    pub(crate) async fn run(self) -> Ended {
        let Some(url) = &self.store.store else {
            eprintln!("exactly: no store: say which with --store URL or EXACTLY_STORE");
            return Ok(ExitCode::from(2));
        };
        let Some(sql) = url.migrations_sql()? else {
            return self.told(url.to_string(), false);
        };
        if self.print {
            print!("{sql}");
            return Ok(ExitCode::SUCCESS);
        }
        let options = StoreOptions {
            accept: self.store.accept.clone(),
            migrate: true,
        };
        url.open_with_tasks(&options).await?;
        self.told(url.to_string(), true)
    }

    fn told(&self, store: String, migrated: bool) -> Ended {
        if self.json {
            let report = Report { store, migrated };
            println!("{}", serde_json::to_string_pretty(&report)?);
        } else if migrated {
            println!("{store}: the schema is up to date");
        } else {
            println!("{store}: redis has no schema, so there is nothing to migrate");
        }
        Ok(ExitCode::SUCCESS)
    }
}
