//! `exactly migrate`.

use std::process::ExitCode;

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
}

impl Args {
    pub(crate) async fn run(self) -> Ended {
        let Some(url) = self.store.store else {
            eprintln!("exactly: no store: say which with --store URL or EXACTLY_STORE");
            return Ok(ExitCode::from(2));
        };
        let Some(sql) = url.migrations_sql()? else {
            println!("{url}: redis has no schema, so there is nothing to migrate");
            return Ok(ExitCode::SUCCESS);
        };
        if self.print {
            print!("{sql}");
            return Ok(ExitCode::SUCCESS);
        }
        let options = StoreOptions {
            accept: self.store.accept,
            migrate: true,
        };
        url.open_with_tasks(&options).await?;
        println!("{url}: the schema is up to date");
        Ok(ExitCode::SUCCESS)
    }
}
