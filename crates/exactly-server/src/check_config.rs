//! `exactly check-config`.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::cli::Ended;
use crate::config::Config;

/// What to look at.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file to check.
    #[arg(default_value = "exactly.toml")]
    config: PathBuf,
}

impl Args {
    pub(crate) fn run(self) -> Ended {
        let config = Config::read(&self.config)?;
        config.check_store()?;
        println!("{}: good, {} routes", self.config.display(), config.routes.len());
        Ok(ExitCode::SUCCESS)
    }
}
