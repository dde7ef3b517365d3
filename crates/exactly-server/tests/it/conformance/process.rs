//! The real binary: as the service that counts effects, and as the one that checks.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

const EXACTLY: &str = env!("CARGO_BIN_EXE_exactly");

/// `exactly conformance upstream`, running.
pub(crate) struct Upstream {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Upstream {
    pub(crate) fn start() -> Self {
        let mut child = Command::new(EXACTLY)
            .args(["conformance", "upstream", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://");
        let address = address.expect(&line).parse().unwrap();
        Self { child, address }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the binary says to these arguments.
pub(crate) async fn exactly(arguments: &[&str]) -> Output {
    let arguments: Vec<_> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    let ended = tokio::task::spawn_blocking(move || Command::new(EXACTLY).args(arguments).output());
    ended.await.unwrap().unwrap()
}

/// A run that ended.
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) report: Value,
    /// On standard error.
    said: String,
}

/// Checks the server at `target`, many rules at a time.
pub(crate) async fn check(target: SocketAddr, arguments: &[&str]) -> Run {
    check_at(&format!("http://{target}"), arguments).await
}

/// The same, by its URL.
pub(crate) async fn check_at(target: &str, arguments: &[&str]) -> Run {
    let mut all = vec!["conformance", "--target", target, "--json"];
    if !arguments.contains(&"--jobs") {
        all.extend(["--jobs", "16"]);
    }
    all.extend(arguments);
    let output = exactly(&all).await;
    let report = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    let said = String::from_utf8(output.stderr).unwrap();
    Run {
        code: output
            .status
            .code()
            .unwrap_or_else(|| panic!("{}: {said}", output.status)),
        report,
        said,
    }
}

impl Run {
    /// The rules with this verdict.
    pub(crate) fn ids(&self, verdict: &str) -> Vec<&str> {
        let rules = self.report["rules"].as_array().expect(&self.said);
        let of_verdict = rules.iter().filter(|rule| rule["verdict"] == verdict);
        of_verdict.map(|rule| rule["id"].as_str().unwrap()).collect()
    }

    pub(crate) fn rule(&self, id: &str) -> &Value {
        let rules = self.report["rules"].as_array().expect(&self.said);
        rules.iter().find(|rule| rule["id"] == id).expect(id)
    }

    pub(crate) fn reason(&self, id: &str) -> &str {
        self.rule(id)["reason"].as_str().unwrap_or_default()
    }

    /// What to show when a test fails.
    pub(crate) fn failures(&self) -> String {
        let mut text = String::new();
        for id in self.ids("failed") {
            let shown = self.rule(id)["shownBy"].as_str().unwrap_or_default();
            let _ = writeln!(text, "{id}: {}\n    {shown}", self.reason(id));
        }
        text
    }
}
