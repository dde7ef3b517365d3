//! A private server and the shell that takes it down however we end.

use std::fmt;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::Result;
use crate::process::{capture, on_path};

const SCRIPT: &str = include_str!("keeper.sh");

/// initdb included, on a machine that compiles at the same time.
const READY_WITHIN: Duration = Duration::from_mins(2);
const ASK_EVERY: Duration = Duration::from_millis(50);
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Between our finding a free port and the server's taking it, another process may.
const PORTS_TRIED: u32 = 3;
const LOG_LINES_SHOWN: usize = 20;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Postgres,
    Redis,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Postgres => "postgres",
            Self::Redis => "redis",
        })
    }
}

/// A running server. Dropping it stops the server and removes all it wrote.
pub(crate) struct Keeper {
    kind: Kind,
    shell: Child,
    directory: PathBuf,
    pub(crate) port: u16,
}

impl Keeper {
    /// Starts a server and waits until it answers. `program` is Postgres's folder of programs,
    /// or the one program of Redis.
    pub(crate) fn start(kind: Kind, program: &Path) -> Result<Self> {
        for _ in 1..PORTS_TRIED {
            match Self::start_once(kind, program) {
                Err(message) if message.contains("Address already in use") => {}
                ended => return ended,
            }
        }
        Self::start_once(kind, program)
    }

    fn start_once(kind: Kind, program: &Path) -> Result<Self> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|listener| listener.local_addr())
            .map_err(|error| format!("find a free port: {error}"))?
            .port();
        let stranger = (kind == Kind::Postgres && is_root()).then(Stranger::find);
        let stranger = stranger.transpose()?;
        // Our own temporary folder may be closed to the stranger.
        let temporary = match stranger {
            Some(_) => PathBuf::from("/tmp"),
            None => std::env::temp_dir(),
        };
        let directory = temporary.join(format!("exactly-{kind}-{}-{port}", std::process::id()));
        let mut command = stranger.map_or_else(|| Command::new("sh"), Stranger::shell);
        let shell = command
            .args(["-c", SCRIPT, "keeper.sh"])
            .arg(kind.to_string())
            .arg(program)
            .arg(&directory)
            .arg(port.to_string())
            // The stranger may not be allowed into the workspace, and the log is read for English.
            .current_dir("/")
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // Ctrl-C in the terminal is meant for us; the keeper learns of it through its pipe.
            .process_group(0)
            .spawn()
            .map_err(|error| format!("start {kind}: {error}"))?;
        let mut keeper = Self {
            kind,
            shell,
            directory,
            port,
        };
        keeper.wait_until_ready()?;
        Ok(keeper)
    }

    fn wait_until_ready(&mut self) -> Result {
        let deadline = Instant::now() + READY_WITHIN;
        while !self.answers().unwrap_or(false) {
            let gone = !matches!(self.shell.try_wait(), Ok(None));
            if gone || self.directory.join("ended").exists() {
                return Err(format!("{} ended at its start{}", self.kind, self.log_tail()));
            }
            if Instant::now() > deadline {
                let seconds = READY_WITHIN.as_secs();
                let tail = self.log_tail();
                return Err(format!("{} gave no answer in {seconds} s{tail}", self.kind));
            }
            thread::sleep(ASK_EVERY);
        }
        Ok(())
    }

    /// An open port is not enough: both servers listen while they still load, and then refuse.
    fn answers(&self) -> io::Result<bool> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let mut stream = TcpStream::connect_timeout(&address, ANSWER_WITHIN)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        let (question, answer): (&[u8], u8) = match self.kind {
            // A startup message of protocol 3.0, which is answered by an authentication message.
            Kind::Postgres => (b"\0\0\0\x29\0\x03\0\0user\0postgres\0database\0postgres\0\0", b'R'),
            Kind::Redis => (b"PING\r\n", b'+'),
        };
        stream.write_all(question)?;
        let mut first = [0];
        stream.read_exact(&mut first)?;
        Ok(first == [answer])
    }

    fn log_tail(&self) -> String {
        let path = self.directory.join("log");
        let Ok(log) = fs::read_to_string(&path) else {
            return String::new();
        };
        let lines: Vec<&str> = log.lines().collect();
        let shown = &lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..];
        format!("; its log ends with\n{}", shown.join("\n"))
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        // The keeper is bounded by itself: it follows up with SIGKILL.
        let _ = self.shell.wait();
    }
}

/// An account without rights, for Postgres, which refuses to run as root.
struct Stranger {
    name: &'static str,
    user: String,
    group: String,
}

impl Stranger {
    fn find() -> Result<Self> {
        for name in ["postgres", "nobody"] {
            if let (Ok(user), Ok(group)) = (id(&["-u", name]), id(&["-g", name])) {
                return Ok(Self { name, user, group });
            }
        }
        Err("PostgreSQL refuses to run as root, and there is no user `postgres` or `nobody`".into())
    }

    /// A shell of that user. The script follows as `-c SCRIPT ARGS`.
    fn shell(self) -> Command {
        if let Some(setpriv) = on_path("setpriv") {
            let mut command = Command::new(setpriv);
            command
                .args(["--reuid", &self.user, "--regid", &self.group])
                .args(["--clear-groups", "sh"]);
            command
        } else if let Some(runuser) = on_path("runuser") {
            let mut command = Command::new(runuser);
            command.args(["-u", self.name, "--", "sh"]);
            command
        } else {
            let mut command = Command::new("su");
            command
                .args(["-s", "/bin/sh", "-c", "exec sh \"$@\"", self.name])
                .args(["--", "sh"]);
            command
        }
    }
}

pub(crate) fn is_root() -> bool {
    id(&["-u"]).is_ok_and(|user| user == "0")
}

fn id(arguments: &[&str]) -> Result<String> {
    Ok(capture(Command::new("id").args(arguments))?.trim().to_owned())
}
