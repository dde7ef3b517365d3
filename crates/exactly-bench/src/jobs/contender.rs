//! A queue, or what one writes instead of one, as a program that works jobs off.

use std::ffi::OsString;
use std::path::PathBuf;

use serde_json::Value;
use tokio::process::Command;

/// One side of a comparison.
#[derive(Clone, Debug)]
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    pub(crate) program: Program,
    /// What the program is told beside the database and the number of jobs.
    pub(crate) settings: Value,
    /// How many of the program work at the same time.
    pub(crate) processes: usize,
    /// The most jobs that it is given. Only for one that takes longer per job the more of them wait.
    pub(crate) jobs_max: Option<u64>,
    pub(crate) tables: Tables,
}

/// What to start.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) environment: &'static [(&'static str, &'static str)],
}

/// Statements that count in the contender's own tables. What a program says of itself is no proof.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tables {
    /// Jobs that are not done, failed ones among them; some of them, where counting all would take long.
    pub(crate) left: &'static str,
    pub(crate) failed: &'static str,
    /// Jobs that are done, where they are kept.
    pub(crate) done: Option<&'static str>,
}

impl Contender {
    pub(crate) fn jobs(&self, wanted: u64) -> u64 {
        self.jobs_max.map_or(wanted, |max| wanted.min(max))
    }

    /// The program, told to do one of its steps.
    pub(crate) fn command(&self, step: &str, url: &str, jobs: u64) -> Command {
        let order = serde_json::json!({ "url": url, "jobs": jobs, "settings": self.settings });
        let mut command = Command::new(&self.program.path);
        command
            .args(&self.program.arguments)
            .arg(step)
            .arg(order.to_string())
            .envs(self.program.environment.iter().copied())
            .kill_on_drop(true);
        command
    }
}

impl Program {
    /// This program again, as one of the workers that are written here.
    pub(crate) fn own(worker: &str) -> Self {
        Self {
            // Not by its path, where another build may have put another program by now.
            path: "/proc/self/exe".into(),
            arguments: vec!["work".into(), worker.into()],
            environment: &[],
        }
    }
}

/// Why a program failed, in one line of what it said: the one that calls itself an error, or else the last.
pub(crate) fn reason(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let lines = || said.lines().map(str::trim).filter(|line| !line.is_empty());
    let is_error = |line: &&str| line.get(..5).is_some_and(|word| word.eq_ignore_ascii_case("error"));
    let line = lines().find(is_error).or_else(|| lines().next_back());
    line.unwrap_or("it said nothing").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_the_line_that_says_error_or_the_last() {
        let node = b"pool.js:45\n    throw\n\nError: no such host\n    at f (a.js)\n\nNode.js v22\n";
        assert_eq!(reason(node), "Error: no such host");
        assert_eq!(reason(b"looking\nnot found\n\n"), "not found");
        assert_eq!(reason(b""), "it said nothing");
    }
}
