//! Where programs go that checks need and the machine does not have: into the target folder, so that nothing of the machine
//! changes and a `cargo clean` takes them away.

use std::env;
use std::fs;
use std::path::PathBuf;

use crate::Result;

/// The folder that cargo builds into, wherever it is: that of the profile in which we lie is inside it.
pub(crate) fn target() -> Result<PathBuf> {
    let program = env::current_exe().map_err(|error| format!("find the target folder: {error}"))?;
    let target = program.parent().and_then(|profile| profile.parent());
    target
        .map(PathBuf::from)
        .ok_or_else(|| format!("find the target folder: {} lies in none", program.display()))
}

/// The folder of one tool, which may not exist yet.
pub(crate) fn folder(name: &str) -> Result<PathBuf> {
    let tools = target()?.join("tools");
    fs::create_dir_all(&tools).map_err(|error| format!("make {}: {error}", tools.display()))?;
    Ok(tools.join(name))
}

/// Why a tool could not be had, in one line: what was tried, and the last that was heard of it.
pub(crate) fn reason(error: &str) -> String {
    let mut lines = error.lines().map(str::trim).filter(|line| !line.is_empty());
    let tried = lines.next().unwrap_or_default();
    match lines.next_back() {
        Some(heard) => format!("{tried}: {heard}"),
        None => tried.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_line() {
        assert_eq!(
            reason("`pip` failed\nlooking\n\nno such host\n"),
            "`pip` failed: no such host"
        );
        assert_eq!(reason("`pip`: not found"), "`pip`: not found");
    }
}
