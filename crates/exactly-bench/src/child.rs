//! A measured server: this program again, as a process of its own.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use rustix::process;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::{Instant, sleep};

use crate::Result;
use crate::machine::Pid;
use crate::serve::App;

/// How long another program may take to start, and how often it is looked at.
const READY_WITHIN: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(2);

/// A running server. Dropping it ends the process, and so does the end of this one: it holds the other end of the
/// child's standard input.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) pid: Pid,
    child: Child,
    _stdin: Option<ChildStdin>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = self
            .child
            .id()
            .and_then(|pid| process::Pid::from_raw(pid.cast_signed()));
        if let Some(pid) = pid {
            // One with processes of its own ends them if it is asked to, and cannot if it is killed. One that has ended need
            // not be asked.
            let _ = process::kill_process(pid, process::Signal::TERM);
        }
    }
}

impl Server {
    /// Another program, which listens on `address` once it runs.
    pub(crate) async fn other(mut command: Command, address: SocketAddr) -> Result<Self> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        let mut server = Self {
            address,
            pid: Pid(child.id().ok_or("the server ended at its start")?),
            _stdin: None,
            child,
        };
        let started = Instant::now();
        while TcpStream::connect(address).await.is_err() {
            if let Some(status) = server.child.try_wait()? {
                return Err(format!("{command:?} ended at its start: {status}").into());
            }
            if started.elapsed() > READY_WITHIN {
                return Err(format!("{command:?} does not listen on {address}").into());
            }
            sleep(POLL).await;
        }
        Ok(server)
    }

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
            child,
        })
    }
}
