//! The program, started as its users start it.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use crate::PATIENCE;

/// What operators of these servers show.
pub(crate) const TOKEN: &str = "a-token-that-only-operators-know";
/// How often to look whether something has come to pass that nobody tells.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Ends with the test that started it.
pub(crate) struct Server {
    /// Where clients come in.
    pub(crate) listen: SocketAddr,
    pub(crate) admin: SocketAddr,
    /// Where events of others come in, if its settings say so.
    pub(crate) door: Option<SocketAddr>,
    child: Child,
    command: Vec<String>,
    folder: TempDir,
}

impl Server {
    /// A server without a configuration.
    pub(crate) fn start(upstream: SocketAddr) -> Self {
        Self::with(upstream, "")
    }

    /// A server that reads `settings`. Its records are in a folder of its own, unless they say otherwise.
    pub(crate) fn with(upstream: SocketAddr, settings: &str) -> Self {
        Self::prepare(upstream, settings, Stdio::inherit())
    }

    /// A server that writes its log elsewhere.
    pub(crate) fn logging_to(upstream: SocketAddr, log: Stdio) -> Self {
        Self::prepare(upstream, "", log)
    }

    fn prepare(upstream: SocketAddr, settings: &str, log: Stdio) -> Self {
        let folder = TempDir::with_prefix("exactly-server-").expect("a folder for the server");
        let config = folder.path().join("exactly.toml");
        let store = folder.path().join("exactly.db");
        let store = if settings.contains("store = ") {
            String::new()
        } else {
            format!("store = \"sqlite:{}\"\n", store.display())
        };
        fs::write(&config, store + settings).expect("the folder is ours");
        let command = [
            "serve",
            "--config",
            &config.display().to_string(),
            "--listen",
            "127.0.0.1:0",
            "--admin",
            "127.0.0.1:0",
            "--upstream",
            &format!("http://{upstream}"),
        ];
        let command: Vec<_> = command.into_iter().map(str::to_owned).collect();
        let (child, listen, admin, door) = spawn(&command, log, settings.contains("[inbox"));
        Self {
            listen,
            admin,
            door,
            child,
            command,
            folder,
        }
    }

    /// Nobody reads its log any more.
    pub(crate) fn stop_listening(&mut self) {
        self.child.stderr = None;
    }

    /// Takes the power away.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("the server is ours");
        self.child.wait().expect("the server ends");
    }

    /// Starts again on what the last run left on disk, at another address.
    pub(crate) fn restart(&mut self) {
        self.kill();
        (self.child, self.listen, self.admin, self.door) = spawn(&self.command, Stdio::inherit(), self.door.is_some());
    }

    /// Asks it to stop.
    pub(crate) fn terminate(&self) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(sent.expect("there is a kill").success());
    }

    /// Waits until it has stopped.
    pub(crate) async fn stopped(&mut self) -> ExitStatus {
        let stopped = until(async || self.child.try_wait().expect("the server is ours"));
        timeout(PATIENCE, stopped).await.expect("it stops")
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("the server is ours").is_none()
    }

    /// The most memory that it ever had, in bytes.
    pub(crate) fn memory_max(&self) -> usize {
        self.status("VmHWM:") * 1024
    }

    /// A file beside its records.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn status(&self, name: &str) -> usize {
        let path = format!("/proc/{}/status", self.child.id());
        let text = fs::read_to_string(path).expect("the server runs");
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.split_whitespace().next());
        number.and_then(|number| number.parse().ok()).expect("a number")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program with these arguments, to be run to its end.
pub(crate) fn exactly(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_exactly"));
    command.args(arguments).env("EXACTLY_ADMIN_TOKEN", TOKEN);
    command
}

/// Waits until `look` finds something.
pub(crate) async fn until<T>(mut look: impl AsyncFnMut() -> Option<T>) -> T {
    loop {
        if let Some(found) = look().await {
            return found;
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Starts it, and reads from it where it listens.
fn spawn(command: &[String], log: Stdio, has_door: bool) -> (Child, SocketAddr, SocketAddr, Option<SocketAddr>) {
    let arguments: Vec<_> = command.iter().map(String::as_str).collect();
    let mut child = exactly(&arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .expect("the program starts");
    let output = child.stdout.take().expect("it is piped");
    let mut lines = BufReader::new(output).lines();
    let mut address = || {
        let line = lines.next().expect("it says where it listens").expect("it writes text");
        let (_, address) = line.rsplit_once("http://").expect("an address");
        address.parse().expect("an address")
    };
    let (listen, admin) = (address(), address());
    (child, listen, admin, has_door.then(address))
}
