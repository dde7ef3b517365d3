//! What stands in front of the upstream.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;

use tokio::process::Command;

use super::Options;
use crate::Result;
use crate::child::Server;

pub(super) struct Front<'o> {
    pub(super) options: &'o Options,
    pub(super) scratch: &'o Path,
    pub(super) upstream: SocketAddr,
}

impl Front<'_> {
    /// The gateway on a SQLite file of its own.
    pub(super) async fn exactly(&self, name: &str) -> Result<Server> {
        let listen = free_address()?;
        Server::other(self.command(name, listen)?, listen).await
    }

    /// How the gateway is started.
    pub(super) fn command(&self, name: &str, listen: SocketAddr) -> Result<Command> {
        let mut command = Command::new(&self.options.server);
        command
            .current_dir(self.scratch)
            .args(["serve", "--upstream", &format!("http://{}", self.upstream)])
            .args(["--listen", &listen.to_string(), "--admin", &free_address()?.to_string()])
            .args(["--store", &format!("sqlite:{name}.db")])
            .env("EXACTLY_ADMIN_TOKEN", "a-token-for-measurements");
        Ok(command)
    }

    /// nginx as its manual recommends it in front of such an upstream: a worker for every core, connections kept alive on
    /// both sides, nothing written about requests.
    pub(super) async fn nginx(&self) -> Result<Server> {
        let listen = free_address()?;
        let (folder, upstream) = (self.scratch.display(), self.upstream);
        let config = self.scratch.join("nginx.conf");
        fs::write(
            &config,
            format!(
                "daemon off; worker_processes auto; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
                 events {{ worker_connections 4096; }}
                 http {{
                   access_log off; keepalive_requests 1000000000; client_body_temp_path {folder}; proxy_temp_path {folder};
                   fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};
                   upstream service {{ server {upstream}; keepalive 128; keepalive_requests 1000000000; }}
                   server {{
                     listen {listen};
                     location / {{ proxy_pass http://service; proxy_http_version 1.1; proxy_set_header Connection \"\"; }}
                   }}
                 }}\n"
            ),
        )?;
        let mut command = Command::new(&self.options.nginx);
        command.arg("-c").arg(&config);
        Server::other(command, listen).await
    }
}

/// An address that nobody listens on.
pub(super) fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}
