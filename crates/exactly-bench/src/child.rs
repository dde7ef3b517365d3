//! A measured server: this program again, as a process of its own.

use std::net::SocketAddr;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};

use crate::Result;
use crate::machine::Pid;
use crate::serve::App;

/// A running server. Dropping it ends the process, and so does the end of this one: it holds the other end of the
/// child's standard input.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) pid: Pid,
    _child: Child,
    _stdin: Option<ChildStdin>,
}

impl Server {
    pub(crate) async fn start(app: &App) -> Result<Self> {
        // Not by its path, where another build may have put another program by now.
        let mut child = Command::new("/proc/self/exe")
            .arg("serve")
            .arg(serde_json::to_string(app)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdout = child.stdout.take().ok_or("the server's output is not piped")?;
        let mut lines = BufReader::new(stdout).lines();
        let Some(address) = lines.next_line().await? else {
            return Err(format!("the server ended at its start: {app:?}").into());
        };
        Ok(Self {
            address: address.parse()?,
            pid: Pid(child.id().ok_or("the server ended at its start")?),
            _stdin: child.stdin.take(),
            _child: child,
        })
    }
}
