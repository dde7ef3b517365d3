//! A server that a test may misconfigure, freeze and kill.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection as _, PgConnection, PgPool};

/// A private server. Dropping it stops it and removes all it wrote.
pub(crate) struct Server {
    bin: PathBuf,
    dir: tempfile::TempDir,
    port: u16,
}

impl Server {
    /// A server with these settings on top of safe ones.
    #[expect(
        clippy::disallowed_methods,
        reason = "the servers of tests are named by the environment"
    )]
    pub(crate) fn start(settings: &[&str]) -> Self {
        let bin = std::env::var("EXACTLY_TEST_POSTGRES_BIN").expect("run `cargo xtask test`, which finds the servers");
        let dir = tempfile::Builder::new()
            .prefix("exactly-pg-")
            .tempdir_in("/tmp")
            .unwrap();
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let server = Self {
            bin: bin.into(),
            dir,
            port,
        };
        if is_root() {
            run(Command::new("chown").arg("postgres").arg(server.dir.path()));
        }
        run(server
            .program("initdb")
            .args(["-A", "trust", "-U", "postgres", "-N", "-D"])
            .arg(server.data()));
        server.launch(settings);
        server
    }

    /// Stops the server and starts it again, as a standby if told so.
    pub(crate) fn restart(&self, settings: &[&str], standby: bool) {
        run(self
            .program("pg_ctl")
            .args(["stop", "-m", "fast", "-D"])
            .arg(self.data()));
        if standby {
            std::fs::write(self.data().join("standby.signal"), "").unwrap();
        }
        self.launch(settings);
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    pub(crate) fn pool(&self) -> PgPool {
        let options = PgPoolOptions::new()
            .max_connections(4)
            .acquire_timeout(Duration::from_secs(5));
        options.connect_lazy(&self.url()).unwrap()
    }

    pub(crate) async fn connection(&self) -> PgConnection {
        PgConnection::connect(&self.url()).await.unwrap()
    }

    /// Stops every process of the server in its tracks: its port stays open, and nothing answers.
    pub(crate) fn freeze(&self) {
        self.signal("STOP");
    }

    pub(crate) fn thaw(&self) {
        self.signal("CONT");
    }

    fn signal(&self, signal: &str) {
        let pid = self.pid();
        // The postmaster first when stopping, so that it starts no child in between.
        let script = format!("kill -{signal} {pid}; pkill -{signal} -P {pid}");
        run(Command::new("sh").args(["-c", &script]));
    }

    fn pid(&self) -> String {
        let file = std::fs::read_to_string(self.data().join("postmaster.pid")).unwrap();
        file.lines().next().unwrap().to_owned()
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn launch(&self, settings: &[&str]) {
        let port = self.port;
        let mut options = format!("-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories=");
        for setting in settings {
            options.push_str(" -c ");
            options.push_str(setting);
        }
        let log = self.dir.path().join("log");
        run(self
            .program("pg_ctl")
            .args(["start", "-w", "-o", &options, "-D"])
            .arg(self.data())
            .arg("-l")
            .arg(log));
    }

    /// One of PostgreSQL's programs, which refuse to run as root.
    fn program(&self, name: &str) -> Command {
        let program = self.bin.join(name);
        let mut command = if is_root() {
            let mut command = Command::new("runuser");
            command.args(["-u", "postgres", "--"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        command.current_dir("/");
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.thaw();
        let _ = self
            .program("pg_ctl")
            .args(["stop", "-m", "immediate", "-D"])
            .arg(self.data())
            .output();
    }
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(Path::new("/proc/self")).is_ok_and(|process| process.uid() == 0)
}

#[track_caller]
fn run(command: &mut Command) {
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    assert!(status.success(), "{command:?} ended with {status}");
}
