//! A victim as a process of the operating system.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::failure::{Failure, Result, failed};

/// How long a victim may take to notice that it is not needed any more.
const LEAVE_MAX: Duration = Duration::from_secs(5);

const SIGKILL: i32 = 9;
const LOG_LINES_SHOWN: usize = 20;

/// A running victim. Dropping it kills it, and closing its input ends it even if nobody is left to drop it.
#[derive(Debug)]
pub(crate) struct Victim {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
    log: PathBuf,
}

impl Victim {
    /// Starts this program once more, with these arguments. What it complains about goes to `log`.
    pub(crate) fn start(arguments: &[OsString], log: PathBuf) -> Result<Self> {
        let errors = OpenOptions::new().append(true).create(true).open(&log);
        // Not by its path, where another build may have put another program by now.
        let mut command = Command::new("/proc/self/exe");
        command.args(arguments);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors.map_err(failed("open log"))?)
            .kill_on_drop(true)
            // A group of its own: if the lab is killed while this one is frozen, the kernel wakes up and hangs up what
            // stands still in a group without a parent. And Ctrl-C in the terminal is meant for the lab.
            .process_group(0)
            .spawn()
            .map_err(failed("start victim"))?;
        let output = child.stdout.take().expect("it was asked for");
        Ok(Self {
            input: child.stdin.take(),
            output: BufReader::new(output).lines(),
            child,
            log,
        })
    }

    /// Until it says `word`, and what else it says with it.
    pub(crate) async fn hear(&mut self, word: &str, within: Duration) -> Result<String> {
        let heard = async {
            while let Some(line) = self.output.next_line().await.map_err(failed("listen to victim"))? {
                if let Some(rest) = line.strip_prefix(word) {
                    return Ok(rest.trim_start().to_owned());
                }
            }
            Err(Failure::new(format!("a victim ended before it was {word}")))
        };
        let heard = timeout(within, heard).await;
        heard
            .unwrap_or_else(|_| Err(Failure::new(format!("a victim was not {word} within {within:?}"))))
            .map_err(|failure| self.with_log(&failure))
    }

    /// Until it is dead by SIGKILL, whoever sent it.
    pub(crate) async fn died(&mut self) -> Result<()> {
        let status = self.child.wait().await.map_err(failed("wait for victim"))?;
        if status.signal() == Some(SIGKILL) {
            return Ok(());
        }
        Err(self.with_log(&Failure::new(format!("a victim ended by itself: {status}"))))
    }

    pub(crate) async fn kill(&mut self) -> Result<()> {
        self.child.start_kill().map_err(failed("kill victim"))?;
        self.died().await
    }

    pub(crate) fn freeze(&self) -> Result<()> {
        self.signal(Signal::STOP, "freeze victim")
    }

    pub(crate) fn wake(&self) -> Result<()> {
        self.signal(Signal::CONT, "wake victim")
    }

    fn signal(&self, signal: Signal, context: &str) -> Result<()> {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok());
        let id = id.and_then(Pid::from_raw);
        let id = id.ok_or_else(|| Failure::new(format!("{context}: it is gone")))?;
        kill_process(id, signal).map_err(failed(context))
    }

    pub(crate) async fn dismiss(&mut self) -> Result<()> {
        self.input = None;
        match timeout(LEAVE_MAX, self.child.wait()).await {
            Ok(_) => Ok(()),
            Err(_) => self.kill().await,
        }
    }

    fn with_log(&self, failure: &Failure) -> Failure {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let shown = &lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..];
        match shown {
            [] => Failure::new(failure.to_string()),
            _ => Failure::new(format!("{failure}; its log ends with\n{}", shown.join("\n"))),
        }
    }
}

/// A value as the command line spells it.
pub(crate) fn value_name(value: &impl clap::ValueEnum) -> String {
    let possible = value.to_possible_value().expect("no value is skipped");
    possible.get_name().to_owned()
}
