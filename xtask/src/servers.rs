//! The Postgres and Redis servers that tests and measurements talk to.
//!
//! They are private and thrown away, with the durability a production server must have: the stores
//! refuse less, and a test on a server that may forget proves nothing.

mod keeper;
pub(crate) mod locate;

use std::env;
use std::ffi::OsString;
use std::process::Command;

use crate::Result;
pub(crate) use keeper::is_root;
use keeper::{Keeper, Kind};

pub(crate) const POSTGRES_URL: &str = "EXACTLY_TEST_POSTGRES_URL";
pub(crate) const REDIS_URL: &str = "EXACTLY_TEST_REDIS_URL";
/// For tests that start and kill a server of their own.
pub(crate) const POSTGRES_BIN: &str = "EXACTLY_TEST_POSTGRES_BIN";
pub(crate) const REDIS_SERVER: &str = "EXACTLY_TEST_REDIS_SERVER";

/// Servers to test against; those that we started stop when this is dropped.
pub(crate) struct Servers {
    environment: Vec<(&'static str, OsString)>,
    _kept: Vec<Keeper>,
}

impl Servers {
    /// Starts what the environment does not name, and installs what is not there to be started.
    pub(crate) fn start() -> Result<Self> {
        let own_postgres = !is_set(POSTGRES_URL);
        let own_redis = !is_set(REDIS_URL);
        let mut missing = Vec::new();
        if own_postgres && locate::postgres_bin().is_none() {
            missing.push("postgresql");
        }
        if own_redis && locate::redis_server().is_none() {
            missing.push("redis-server");
        }
        if !missing.is_empty() {
            locate::install(&missing)?;
        }

        let mut environment = Vec::new();
        let mut kept = Vec::new();
        let postgres_bin = locate::postgres_bin();
        let redis_server = locate::redis_server();
        if own_postgres {
            let bin = postgres_bin
                .as_deref()
                .ok_or("postgresql is installed, but its programs are not where Debian puts them")?;
            let version = locate::version(&bin.join("postgres"))?;
            let keeper = Keeper::start(Kind::Postgres, bin)?;
            let port = keeper.port;
            eprintln!("postgres {version} on port {port}");
            let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
            environment.push((POSTGRES_URL, url.into()));
            kept.push(keeper);
        }
        if own_redis {
            let program = redis_server
                .as_deref()
                .ok_or("redis-server is installed, but not in PATH")?;
            let version = locate::version(program)?;
            let keeper = Keeper::start(Kind::Redis, program)?;
            let port = keeper.port;
            eprintln!("redis {version} on port {port}");
            environment.push((REDIS_URL, format!("redis://127.0.0.1:{port}/").into()));
            kept.push(keeper);
        }
        environment.extend(postgres_bin.map(|bin| (POSTGRES_BIN, bin.into())));
        environment.extend(redis_server.map(|program| (REDIS_SERVER, program.into())));
        Ok(Self {
            environment,
            _kept: kept,
        })
    }

    /// Tells a command where the servers are.
    pub(crate) fn announce<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.envs(self.environment.iter().map(|(name, value)| (name, value)))
    }
}

fn is_set(name: &str) -> bool {
    env::var_os(name).is_some_and(|value| !value.is_empty())
}
