//! The shape of the tree, as a test: what reviewers would otherwise have to remember.
//!
//! A check belongs here when its rule can be said in one sentence and a reader of the finding knows
//! what to do.

mod boundaries;
mod guarantees;
mod layout;
mod lexed;
mod links;
mod text;
mod tree;

use std::ffi::OsString;
use std::fmt;

use crate::{Failure, Result};
use tree::Tree;

/// Where the checks and their bad examples are written down: they quote what they forbid.
const CHECKS_FOLDER: &str = "xtask/src/tidy/";

const CHECKS: &[fn(&Tree) -> Vec<Finding>] = &[
    layout::files,
    layout::modules,
    layout::sizes,
    text::unfinished,
    text::whitespace,
    text::machine_paths,
    text::registries,
    boundaries::sql,
    boundaries::clocks,
    guarantees::tests,
    links::relative,
];

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    line: usize,
    what: String,
    fix: &'static str,
}

impl Finding {
    fn new(path: &str, line: usize, what: impl Into<String>, fix: &'static str) -> Self {
        Self {
            path: path.to_owned(),
            line,
            what: what.into(),
            fix,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, what, fix } = self;
        write!(f, "{path}:{line}: {what} – {fix}")
    }
}

pub(crate) fn command(arguments: &[OsString]) -> Result<(), Failure> {
    if let Some(argument) = arguments.first() {
        let argument = argument.to_string_lossy();
        return Err(Failure::Usage(format!("takes no arguments, not `{argument}`")));
    }
    Ok(check()?)
}

pub(crate) fn check() -> Result {
    let tree = Tree::of_workspace(&crate::root())?;
    let mut findings: Vec<Finding> = CHECKS.iter().flat_map(|check| check(&tree)).collect();
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        1 => Err("1 finding".into()),
        count => Err(format!("{count} findings")),
    }
}

/// Where a check found something, as `path:line`, for the tests of the checks.
#[cfg(test)]
fn places(check: fn(&Tree) -> Vec<Finding>, files: &[(&str, &str)]) -> Vec<String> {
    let found = check(&Tree::of(files));
    found
        .iter()
        .map(|finding| format!("{}:{}", finding.path, finding.line))
        .collect()
}
