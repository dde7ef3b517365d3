//! Where the server programs are, and how Debian gets them.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{POSTGRES_BIN, REDIS_SERVER};
use crate::Result;
use crate::debian::{apt_get, obstacle};
use crate::process::{capture, is_program, on_path};

const DEBIAN_POSTGRES: &str = "/usr/lib/postgresql";

/// The folder with `postgres` and `initdb`. Debian keeps it out of `PATH`.
pub(super) fn postgres_bin() -> Option<PathBuf> {
    let complete = |bin: &PathBuf| is_program(&bin.join("postgres")) && is_program(&bin.join("initdb"));
    // A link in PATH may stand alone; the programs beside its target are of one version.
    let linked = on_path("postgres")
        .and_then(|program| fs::canonicalize(program).ok())
        .and_then(|program| program.parent().map(Path::to_path_buf));
    env::var_os(POSTGRES_BIN)
        .map(PathBuf::from)
        .into_iter()
        .chain(linked)
        .chain(newest_first(Path::new(DEBIAN_POSTGRES)))
        .find(complete)
}

fn newest_first(root: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(root) else {
        return Vec::new();
    };
    let mut versions: Vec<(u32, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    versions.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    versions.into_iter().map(|(_, bin)| bin).collect()
}

pub(super) fn redis_server() -> Option<PathBuf> {
    env::var_os(REDIS_SERVER)
        .map(PathBuf::from)
        .filter(|program| is_program(program))
        .or_else(|| on_path("redis-server"))
        .or_else(|| on_path("valkey-server"))
}

/// `15.18`, from what the program says of itself.
pub(super) fn version(program: &Path) -> Result<String> {
    let said = capture(Command::new(program).arg("--version"))?;
    Ok(said
        .split_whitespace()
        .map(|word| word.trim_start_matches("v="))
        .find(|word| word.starts_with(|first: char| first.is_ascii_digit()))
        .unwrap_or("of unknown version")
        .to_owned())
}

/// Installs Debian packages, or says in one line what a person has to install.
pub(crate) fn install(packages: &[&str]) -> Result {
    let wanted = packages.join(" and ");
    if let Some(obstacle) = obstacle() {
        return Err(format!(
            "server programs are missing and {obstacle}: install {wanted}, or set {} and {}",
            super::POSTGRES_URL,
            super::REDIS_URL
        ));
    }
    eprintln!("installing {wanted} with apt-get");
    // One broken source among many fails the update; the install knows whether it mattered.
    let updated = apt_get(&["update"]);
    let mut install = vec!["install", "--no-install-recommends"];
    install.extend(packages);
    apt_get(&install).map_err(|error| match updated {
        Ok(_) => error,
        Err(update) => format!("{update}\n{error}"),
    })?;
    Ok(())
}
