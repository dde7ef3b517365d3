//! How to reach Redis, and what to accept of it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use exactly::store::Wakeups;
use exactly::{StoreError, StoreErrorKind};
use redis::io::tcp::TcpSettings;
use redis::{Client, IntoConnectionInfo as _};

use crate::RedisStore;
use crate::connection::Connections;
use crate::error::Fault;
use crate::listener::Listener;
use crate::records::Records;
use crate::settings::Tolerance;

/// A [`RedisStore`] to be.
#[derive(Clone)]
#[must_use = "nothing happens until it is started"]
pub struct RedisStoreBuilder {
    url: String,
    prefix: String,
    command_timeout: Duration,
    tolerance: Tolerance,
}

impl RedisStoreBuilder {
    /// What keys begin with, unless told otherwise.
    pub const PREFIX_DEFAULT: &str = "exactly";

    /// The longest prefix, in bytes.
    pub const PREFIX_BYTES_MAX: usize = 64;

    /// How long a step may take, unless told otherwise.
    pub const COMMAND_TIMEOUT_DEFAULT: Duration = Duration::from_secs(3);

    /// The least time for a step: timers count in milliseconds.
    pub const COMMAND_TIMEOUT_MIN: Duration = Duration::from_millis(1);

    pub(crate) fn new(url: String) -> Self {
        Self {
            url,
            prefix: Self::PREFIX_DEFAULT.to_owned(),
            command_timeout: Self::COMMAND_TIMEOUT_DEFAULT,
            tolerance: Tolerance::default(),
        }
    }

    /// What every key of this store begins with; [`PREFIX_DEFAULT`](Self::PREFIX_DEFAULT) unless told otherwise.
    /// Services that share a Redis share records exactly when they share the prefix.
    ///
    /// ASCII letters, digits, `-`, `_`, `.` and `:`. Braces would put all records into one slot of a cluster, and the
    /// other signs mean something to `SCAN`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long a step may take in all, with connecting and repeating. After that it fails as unavailable. At least
    /// [`COMMAND_TIMEOUT_MIN`](Self::COMMAND_TIMEOUT_MIN).
    pub fn command_timeout(mut self, timeout: Duration) -> Self {
        self.command_timeout = timeout;
        self
    }

    /// Accepts `appendfsync everysec`: after a crash of the server, the records of its last second or two are gone, and
    /// a retry of their calls runs the effect again.
    pub fn accept_everysec(mut self) -> Self {
        self.tolerance.everysec = true;
        self
    }

    /// Does not read the server's settings: you vouch that it neither evicts records nor loses them in a crash. For
    /// managed services, which forbid `CONFIG GET`, and for tests of effects that may be repeated.
    pub fn accept_unread_settings(mut self) -> Self {
        self.tolerance.unread_settings = true;
        self
    }

    /// Connects, and refuses an address that cannot be read and a server whose settings break the promise.
    ///
    /// Each refusal names the setting, its value, what it should be, and the method that accepts it anyway. A server
    /// that cannot be reached is an error too: what cannot be checked is not promised.
    pub async fn start(self) -> Result<RedisStore, StoreError> {
        self.check_prefix()?;
        self.check_command_timeout()?;
        let client = client(&self.url)?;
        let connections = Connections::new(client, self.tolerance, self.command_timeout);
        connections.get("connect to redis").await?;
        let records = Arc::new(Records::new(connections, self.prefix));
        let wakeups = Wakeups::default();
        let client = records.connections.client().clone();
        let listener = Listener::start(client, records.channel(), wakeups.clone(), self.command_timeout).await;
        Ok(RedisStore::new(records, wakeups, listener))
    }

    fn check_prefix(&self) -> Result<(), StoreError> {
        let prefix = &self.prefix;
        let known = |sign: char| sign.is_ascii_alphanumeric() || "-_.:".contains(sign);
        if !prefix.is_empty() && prefix.len() <= Self::PREFIX_BYTES_MAX && prefix.chars().all(known) {
            return Ok(());
        }
        let max = Self::PREFIX_BYTES_MAX;
        let message = format!("prefix is {prefix:?}; use 1 to {max} ASCII letters, digits, `-`, `_`, `.` or `:`");
        Err(Fault::refused(message).error)
    }

    fn check_command_timeout(&self) -> Result<(), StoreError> {
        let (timeout, min) = (self.command_timeout, Self::COMMAND_TIMEOUT_MIN);
        if timeout >= min {
            return Ok(());
        }
        let message = format!("command_timeout is {timeout:?}, so no step could end in time; give at least {min:?}");
        Err(Fault::refused(message).error)
    }
}

/// A client whose small requests go out at once: waiting to fill a packet would delay every step.
fn client(url: &str) -> Result<Client, StoreError> {
    // The errors of this library do not repeat the address, which may hold a password.
    let refused = |error| StoreError::new(StoreErrorKind::Refused, "read redis url").with_source(error);
    let info = url.into_connection_info().map_err(refused)?;
    let tcp = TcpSettings::default().set_nodelay(true);
    Client::open(info.set_tcp_settings(tcp)).map_err(refused)
}

impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the address, which may hold a password.
        f.debug_struct("RedisStoreBuilder")
            .field("prefix", &self.prefix)
            .field("command_timeout", &self.command_timeout)
            .field("tolerance", &self.tolerance)
            .finish_non_exhaustive()
    }
}
