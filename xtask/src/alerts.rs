//! The alert rules: whether Prometheus can read them, and whether each fires when it should and only then.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::debian::{apt_get, obstacle};
use crate::process::{capture, is_program, on_path, run};
use crate::{Result, tools};

const RULES: &str = "docs/alerts/exactly.rules.yml";
const TESTS: &str = "docs/alerts/exactly.tests.yml";

/// What a person who is woken wants to know.
const ANNOTATIONS: &[&str] = &["summary", "description", "action"];

pub(crate) fn check(promtool: &Path) -> Result {
    let (rules, tests) = (text(RULES)?, text(TESTS)?);
    let unproved = unproved(&rules, &tests);
    if !unproved.is_empty() {
        return Err(unproved.join("\n"));
    }
    let promtool = |arguments: &[&str]| run(Command::new(promtool).args(arguments).current_dir(crate::root()));
    promtool(&["check", "rules", RULES])?;
    promtool(&["test", "rules", TESTS])
}

fn text(path: &str) -> Result<String> {
    fs::read_to_string(crate::root().join(path)).map_err(|error| format!("read {path}: {error}"))
}

/// What promtool does not ask: whether every rule has a test in which it fires, and tells what to do.
fn unproved(rules: &str, tests: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for rule in rules.split("- alert: ").skip(1) {
        let name = rule.lines().next().unwrap_or_default().trim();
        let fires = format!("alertname=\"{name}\"");
        if !tests.contains(&fires) {
            findings.push(format!("{RULES}: {name} fires in no test of {TESTS}"));
        }
        for annotation in ANNOTATIONS {
            if !rule
                .lines()
                .any(|line| line.trim_start().starts_with(&format!("{annotation}:")))
            {
                findings.push(format!("{RULES}: {name} has no {annotation}"));
            }
        }
    }
    findings
}

/// The promtool in `PATH`, or one of our own.
pub(crate) fn promtool() -> Result<PathBuf> {
    let installed = tools::folder("promtool")?;
    if let Some(promtool) = on_path("promtool") {
        return Ok(promtool);
    }
    if !is_program(&installed) {
        eprintln!("promtool is missing: taking it out of Debian's package prometheus");
        install(&installed)?;
    }
    Ok(installed)
}

/// Unpacks the package instead of installing it, which would also start a server.
fn install(promtool: &Path) -> Result {
    let folder = tools::folder(&format!("prometheus-{}", std::process::id()))?;
    let failed = |error| format!("unpack promtool: {error}");
    fs::create_dir_all(&folder).map_err(failed)?;
    let unpacked = unpack(&folder).and_then(|unpacked| fs::rename(unpacked, promtool).map_err(failed));
    // What is left of it is large and of no use.
    let _ = fs::remove_dir_all(&folder);
    unpacked
}

fn unpack(folder: &Path) -> Result<PathBuf> {
    let download = || {
        capture(
            Command::new("apt-get")
                .args(["-q", "download", "prometheus"])
                .current_dir(folder),
        )
    };
    // A fresh machine does not know yet where packages are.
    if let Err(error) = download() {
        let updated = obstacle().is_none() && apt_get(&["update"]).is_ok();
        if !updated {
            return Err(error);
        }
        download()?;
    }
    let entries = fs::read_dir(folder).map_err(|error| format!("list {}: {error}", folder.display()))?;
    let package = entries
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .ok_or("apt-get downloaded no package prometheus")?;
    capture(Command::new("dpkg").arg("--extract").arg(package).arg(folder))?;
    let promtool = folder.join("usr/bin/promtool");
    if is_program(&promtool) {
        Ok(promtool)
    } else {
        Err("Debian's package prometheus has no promtool".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_that_no_test_fires_or_that_tells_nobody_what_to_do_is_found() {
        let rules = "- alert: A\n  annotations:\n    summary: s\n    description: d\n    action: a\n\
                     - alert: Ab\n  annotations:\n    summary: s\n    description: d\n";
        let found = unproved(rules, "{alertname=\"A\"}");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("Ab fires in no test"));
        assert!(found[1].contains("Ab has no action"));
        assert!(unproved(&rules.replace("- alert: Ab", "- record: ab"), "{alertname=\"A\"}").is_empty());
    }
}
