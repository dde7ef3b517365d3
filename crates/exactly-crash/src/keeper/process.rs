//! A victim as a process of the operating system.

use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::Keeper;
use crate::failure::{Failure, Result, failed};
use crate::plan::Life;

/// How long a victim may take to notice that it is not needed any more.
const LEAVE_MAX: Duration = Duration::from_secs(5);

const SIGKILL: i32 = 9;
const LOG_LINES_SHOWN: usize = 20;

/// A running victim. Dropping it kills it, and closing its input ends it even if nobody is left to drop it.
#[derive(Debug)]
pub(super) struct Victim {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
    log: PathBuf,
}

impl Victim {
    pub(super) fn start(keeper: &Keeper, life: Life) -> Result<Self> {
        let Keeper { cell, place, port, .. } = keeper;
        let log = place.folder.join(format!("victim-{port}.log"));
        let errors = OpenOptions::new().append(true).create(true).open(&log);
        // Not by its path, where another build may have put another program by now.
        let mut command = Command::new("/proc/self/exe");
        command
            .args([
                "victim",
                "--store",
                cell.store.name(),
                "--guarantee",
                cell.guarantee.name(),
            ])
            .args([
                "--sabotage",
                &value_name(&cell.sabotage),
                "--url",
                &place.url,
                "--name",
                &place.name,
            ])
            .args(["--port", &port.to_string(), "--folder"])
            .arg(&place.folder);
        if let Some((point, blow, nth)) = life.fuse() {
            command.args([
                "--at",
                &value_name(&point),
                "--blow",
                &value_name(&blow),
                "--nth",
                &nth.to_string(),
            ]);
        }
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

    /// Until it says `word`.
    pub(super) async fn hear(&mut self, word: &str, within: Duration) -> Result<()> {
        let heard = async {
            while let Some(line) = self.output.next_line().await.map_err(failed("listen to victim"))? {
                if line == word {
                    return Ok(());
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
    pub(super) async fn died(&mut self) -> Result<()> {
        let status = self.child.wait().await.map_err(failed("wait for victim"))?;
        if status.signal() == Some(SIGKILL) {
            return Ok(());
        }
        Err(self.with_log(&Failure::new(format!("a victim ended by itself: {status}"))))
    }

    pub(super) async fn kill(&mut self) -> Result<()> {
        self.child.start_kill().map_err(failed("kill victim"))?;
        self.died().await
    }

    pub(super) fn wake(&self) -> Result<()> {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok());
        let id = id.and_then(Pid::from_raw);
        let id = id.ok_or_else(|| Failure::new("wake victim: it is gone"))?;
        kill_process(id, Signal::CONT).map_err(failed("wake victim"))
    }

    pub(super) async fn dismiss(&mut self) -> Result<()> {
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
fn value_name(value: &impl clap::ValueEnum) -> String {
    let possible = value.to_possible_value().expect("no value is skipped");
    possible.get_name().to_owned()
}
