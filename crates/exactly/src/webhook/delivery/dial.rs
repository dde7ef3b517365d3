//! Connections to addresses that may be dialled, each made in time.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower_service::Service;

use super::names::Names;

type Connector = HttpsConnector<HttpConnector<Names>>;
type Connection = MaybeHttpsStream<TokioIo<TcpStream>>;
/// Why there is no connection.
pub(super) type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Dials, with one limit over looking up the name, connecting and the handshake of TLS.
#[derive(Clone, Debug)]
pub(super) struct Dial {
    connector: Connector,
    limit: Duration,
}

impl Dial {
    pub(super) fn new(names: Names, tls: rustls::ClientConfig, limit: Duration) -> Self {
        let mut plain = HttpConnector::new_with_resolver(names);
        plain.enforce_http(false);
        plain.set_nodelay(true);
        // Shared by the addresses of a name, so that one that does not answer leaves time for the next.
        plain.set_connect_timeout(Some(limit));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(plain);
        Self { connector, limit }
    }
}

impl Service<Uri> for Dial {
    type Response = Connection;
    type Error = Failed;
    type Future = Pin<Box<dyn Future<Output = Result<Connection, Failed>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        self.connector.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (connecting, limit) = (self.connector.call(uri), self.limit);
        Box::pin(async move {
            timeout(limit, connecting).await.unwrap_or_else(|_| {
                let message = format!("no connection within {limit:?}");
                Err(io::Error::new(io::ErrorKind::TimedOut, message).into())
            })
        })
    }
}
