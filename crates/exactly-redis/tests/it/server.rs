//! A Redis server of a test's own, to be set up badly, stopped and killed.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::until;

/// Ends with the test that started it.
pub(crate) struct Server {
    directory: TempDir,
    arguments: Vec<String>,
    child: Child,
}

impl Server {
    /// A server fit for records, except where `settings` say otherwise. It listens on a socket in its own folder, so no
    /// two servers can want the same port.
    pub(crate) async fn start(settings: &[(&str, &str)]) -> Self {
        let fit = [
            ("port", "0"),
            ("save", ""),
            ("appendonly", "yes"),
            ("appendfsync", "always"),
            ("maxmemory-policy", "noeviction"),
        ];
        let directory = TempDir::with_prefix("exactly-redis-").expect("a folder for the server");
        let arguments = fit.iter().chain(settings).flat_map(argument).collect();
        let child = spawn(&directory, &arguments);
        let server = Self {
            directory,
            arguments,
            child,
        };
        server.wait_until_ready().await;
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// Takes the power away.
    pub(crate) fn kill(&mut self) {
        // SIGKILL, after which nothing of the server runs.
        self.child.kill().expect("the server is ours");
        self.child.wait().expect("the server ends");
    }

    /// Starts again on what the last run left on disk.
    pub(crate) async fn restart(&mut self, settings: &[(&str, &str)]) {
        self.kill();
        self.arguments.extend(settings.iter().flat_map(argument));
        self.child = spawn(&self.directory, &self.arguments);
        self.wait_until_ready().await;
    }

    /// The process stands still and its connections stay open: what a hung host looks like.
    pub(crate) fn freeze(&self) {
        self.signal("-STOP");
    }

    pub(crate) fn thaw(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill")
            .args([signal, &pid])
            .status()
            .expect("there is a kill");
        assert!(sent.success(), "kill {signal} failed");
    }

    async fn wait_until_ready(&self) {
        let client = redis::Client::open(self.url()).expect("the url is good");
        until("the start of a server", async || {
            let Ok(mut connection) = client.get_multiplexed_async_connection().await else {
                return false;
            };
            match redis::cmd("PING").exec_async(&mut connection).await {
                Ok(()) => true,
                Err(error) => error.code() == Some("NOAUTH"),
            }
        })
        .await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `--save 60 1`: Redis takes the parts of a value one by one.
fn argument((name, value): &(&str, &str)) -> Vec<String> {
    let mut words = vec![format!("--{name}")];
    words.extend(value.split(' ').map(str::to_owned));
    words
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test is told by its environment where the program is"
)]
fn spawn(directory: &TempDir, arguments: &Vec<String>) -> Child {
    let program = std::env::var("EXACTLY_TEST_REDIS_SERVER").expect("run `cargo xtask test`, which finds the program");
    let socket = directory.path().join("socket");
    Command::new(program)
        .args(arguments)
        .arg("--dir")
        .arg(directory.path())
        .arg("--unixsocket")
        .arg(socket)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("the server starts")
}
