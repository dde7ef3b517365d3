//! One connection that everyone shares, made again when it breaks.
//!
//! The client library has a manager of its own, but it keeps a connection whose commands time out. A server that went
//! away without a word (a failover that moved its address, a firewall that forgot the flow) would then be asked until
//! the kernel gives up, a quarter of an hour later. Here a timeout counts as a broken connection.
//!
//! Every connection is checked when it is made, since the server behind an address may be another one after a failover,
//! or the same one restarted with other settings.

use std::fmt;
use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use exactly::{StoreError, StoreErrorKind};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, Pipeline, RedisResult, ScriptInvocation};
use tokio::time;

use crate::error::{Fault, Remedy};
use crate::script;
use crate::settings::{self, Tolerance};

/// How long to wait before a step is tried again. They bridge a killed connection and a quick restart; a server that is
/// down for longer is reported at once, so that callers do not pile up.
const PAUSES: [Duration; 3] = [
    Duration::from_millis(20),
    Duration::from_millis(100),
    Duration::from_millis(300),
];

/// Gives out the current connection.
pub(crate) struct Connections {
    client: Client,
    tolerance: Tolerance,
    timeout: Duration,
    // A std mutex, since it is never held across an await.
    current: Mutex<Current>,
    // Tokio's, since it is held while connecting: one connection is made, however many ask for it.
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Current {
    made: u64,
    connection: Option<Connection>,
}

/// A connection whose server was checked.
#[derive(Clone)]
pub(crate) struct Connection {
    number: u64,
    link: MultiplexedConnection,
}

/// Something to send, which may be sent again.
pub(crate) trait Request: Sync {
    fn send<T: FromRedisValue + Send>(
        &self,
        link: &mut MultiplexedConnection,
    ) -> impl Future<Output = RedisResult<T>> + Send;
}

impl Connections {
    pub(crate) fn new(client: Client, tolerance: Tolerance, timeout: Duration) -> Self {
        Self {
            client,
            tolerance,
            timeout,
            current: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
        }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The current connection, or a new one.
    pub(crate) async fn get(&self, what: &str) -> Result<Connection, StoreError> {
        let connection = time::timeout(self.timeout, self.current(what)).await;
        connection
            .map_err(|_| self.no_answer(what))?
            .map_err(|fault| fault.error)
    }

    /// Sends on `connection` and nowhere else, within the time that a step may take.
    pub(crate) async fn send<T: FromRedisValue + Send>(
        &self,
        connection: &Connection,
        what: &str,
        request: &impl Request,
    ) -> Result<T, StoreError> {
        let fault = match time::timeout(self.timeout, connection.send(request)).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => Fault::of(what, error),
            Err(_) => Fault {
                error: self.no_answer(what),
                remedy: Remedy::Reconnect,
            },
        };
        if fault.remedy == Remedy::Reconnect {
            self.discard(connection);
        }
        Err(fault.error)
    }

    /// Sends until there is an answer, within the time that a step may take.
    pub(crate) async fn run<T: FromRedisValue + Send>(
        &self,
        what: &str,
        request: &impl Request,
    ) -> Result<T, StoreError> {
        self.run_and_tell(what, request, &mut None).await
    }

    /// Like [`run`](Self::run), and leaves in `used` the connection that the request went out on last.
    pub(crate) async fn run_and_tell<T: FromRedisValue + Send>(
        &self,
        what: &str,
        request: &impl Request,
        used: &mut Option<Connection>,
    ) -> Result<T, StoreError> {
        if let Ok(answer) = time::timeout(self.timeout, self.repeat(what, request, used)).await {
            return answer;
        }
        if let Some(connection) = used {
            self.discard(connection);
        }
        Err(self.no_answer(what))
    }

    async fn repeat<T: FromRedisValue + Send>(
        &self,
        what: &str,
        request: &impl Request,
        used: &mut Option<Connection>,
    ) -> Result<T, StoreError> {
        let mut pauses = PAUSES.into_iter();
        loop {
            let fault = match self.attempt(what, request, used).await {
                Ok(answer) => return Ok(answer),
                Err(fault) => fault,
            };
            if let (Remedy::Reconnect, Some(connection)) = (fault.remedy, &*used) {
                self.discard(connection);
            }
            match (fault.remedy, pauses.next()) {
                (Remedy::None, _) | (_, None) => return Err(fault.error),
                (Remedy::Repeat | Remedy::Reconnect, Some(pause)) => time::sleep(pause).await,
            }
        }
    }

    async fn attempt<T: FromRedisValue + Send>(
        &self,
        what: &str,
        request: &impl Request,
        used: &mut Option<Connection>,
    ) -> Result<T, Fault> {
        let connection = used.insert(self.current(what).await?);
        connection.send(request).await.map_err(|error| Fault::of(what, error))
    }

    async fn current(&self, what: &str) -> Result<Connection, Fault> {
        if let Some(connection) = self.made() {
            return Ok(connection);
        }
        let _connecting = self.connecting.lock().await;
        if let Some(connection) = self.made() {
            return Ok(connection);
        }
        // Whoever asks has a deadline, and it covers connecting too.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        let connected = self.client.get_multiplexed_async_connection_with_config(&config).await;
        let mut link = connected.map_err(|error| Fault::of(what, error))?;
        settings::check(&mut link, self.tolerance).await?;
        let loaded = script::load().exec_async(&mut link).await;
        loaded.map_err(|error| Fault::of("load scripts", error))?;
        let mut current = self.lock();
        current.made += 1;
        let connection = Connection {
            number: current.made,
            link,
        };
        current.connection = Some(connection.clone());
        Ok(connection)
    }

    fn made(&self) -> Option<Connection> {
        self.lock().connection.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next step connects anew, unless someone has done so since.
    fn discard(&self, connection: &Connection) {
        let mut current = self.lock();
        if current.made == connection.number {
            current.connection = None;
        }
    }

    fn no_answer(&self, what: &str) -> StoreError {
        StoreError::new(
            StoreErrorKind::Unavailable,
            format!("{what}: no answer within {:?}", self.timeout),
        )
    }
}

impl Connection {
    /// Sends on this connection, and waits for as long as it takes.
    pub(crate) async fn send<T: FromRedisValue + Send>(&self, request: &impl Request) -> RedisResult<T> {
        request.send(&mut self.link.clone()).await
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Of the client only the address, since it knows the password.
        let address = self.client.get_connection_info().addr().to_string();
        f.debug_struct("Connections")
            .field("address", &address)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl Request for ScriptInvocation<'_> {
    async fn send<T: FromRedisValue + Send>(&self, link: &mut MultiplexedConnection) -> RedisResult<T> {
        self.invoke_async(link).await
    }
}

impl Request for Cmd {
    async fn send<T: FromRedisValue + Send>(&self, link: &mut MultiplexedConnection) -> RedisResult<T> {
        self.query_async(link).await
    }
}

impl Request for Pipeline {
    async fn send<T: FromRedisValue + Send>(&self, link: &mut MultiplexedConnection) -> RedisResult<T> {
        self.query_async(link).await
    }
}
