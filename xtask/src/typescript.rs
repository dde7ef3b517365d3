//! The TypeScript client: its build, and its tests in Node and in Chromium against a gateway that was just built.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::debian::{apt_get, obstacle};
use crate::process::{Told, capture, is_program, on_path, run, run_counting};
use crate::tally::{self, Tally};
use crate::{Result, openapi, tools};

const FOLDER: &str = "clients/typescript";

/// The oldest Node that the client promises to run in.
const NODE_MAJOR_MIN: u32 = 20;
/// What the registry gives where the machine's own Node is older.
const NODE_PACKAGE: &str = "node@22";

/// Where the tests look for what they run against.
const SERVER: &str = "EXACTLY_SERVER";
const CHROMIUM: &str = "EXACTLY_CHROMIUM";

/// Debian's name first, then those of others.
const CHROMIUM_NAMES: &[&str] = &["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// Why the tests cannot run.
pub(crate) enum Unready {
    /// Something is not there and cannot be had now.
    Missing(String),
    /// It could be had, and does not work.
    Broken(String),
}

impl Unready {
    pub(crate) fn into_message(self) -> String {
        match self {
            Self::Missing(message) | Self::Broken(message) => message,
        }
    }
}

/// The programs that the tests need.
pub(crate) struct Kit {
    npm: PathBuf,
    /// The folders in which programs are looked for, with the right Node in the first.
    path: OsString,
    chromium: PathBuf,
}

/// Everything in one go, for whoever wants all tests or none.
pub(crate) fn test() -> Result {
    let kit = kit().map_err(|unready| format!("the TypeScript client: {}", unready.into_message()))?;
    check(&kit, &mut Tally::default())
}

/// Compiles the client and runs its tests, which are counted in `tally`.
pub(crate) fn check(kit: &Kit, tally: &mut Tally) -> Result {
    openapi::build()?;
    let folder = crate::root().join(FOLDER);
    // A test whose source is gone must not run on.
    let _ = fs::remove_dir_all(folder.join("dist"));
    run(&mut kit.npm(&["run", "--silent", "build"]))?;
    let mut tests = kit.npm(&["run", "--silent", "test"]);
    tests
        .env(SERVER, tools::target()?.join("debug/exactly"))
        .env(CHROMIUM, &kit.chromium);
    if Told::Out.is_seen() {
        tests.env("FORCE_COLOR", "1");
    }
    run_counting(&mut tests, Told::Out, tally::of_node, tally)
}

/// Finds or installs what the tests need.
pub(crate) fn kit() -> Result<Kit, Unready> {
    let npm = npm().map_err(Unready::Missing)?;
    let path = node_first(&npm).map_err(Unready::Missing)?;
    let chromium = chromium().map_err(Unready::Missing)?;
    let kit = Kit { npm, path, chromium };
    kit.install_packages()?;
    Ok(kit)
}

impl Kit {
    fn npm(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.npm);
        command
            .args(arguments)
            .current_dir(crate::root().join(FOLDER))
            .env("PATH", &self.path);
        command
    }

    /// The compiler and what drives the browser, exactly as the lock file has them.
    fn install_packages(&self) -> Result<(), Unready> {
        let broken = |error: String| Unready::Broken(error);
        let folder = crate::root().join(FOLDER);
        let lock = fs::read(folder.join("package-lock.json"))
            .map_err(|error| broken(format!("read {FOLDER}/package-lock.json: {error}")))?;
        let installed = folder.join("node_modules/.installed-lock");
        if fs::read(&installed).is_ok_and(|list| list == lock) {
            return Ok(());
        }
        eprintln!("installing the packages of {FOLDER} with npm");
        if let Err(error) = capture(&mut self.npm(&["ci", "--no-audit", "--no-fund"])) {
            // A registry that answers is no excuse: then it is the lock file that is wrong.
            let away = capture(&mut self.npm(&["view", "typescript", "version"])).is_err();
            return Err(if away {
                Unready::Missing(unreached(&error))
            } else {
                broken(error)
            });
        }
        // Last, because it says that all the rest is there.
        fs::write(&installed, lock).map_err(|error| broken(format!("write {}: {error}", installed.display())))
    }
}

/// What npm said when its registry did not answer, without where it wrote that down.
fn unreached(said: &str) -> String {
    let lines = said.lines().filter(|line| !line.contains("complete log of this run"));
    let told: Vec<&str> = lines.collect();
    format!("npm's registry cannot be reached\n{}", told.join("\n"))
}

/// npm, which comes with Node.
pub(crate) fn npm() -> Result<PathBuf> {
    if on_path("npm").is_none() || on_path("node").is_none() {
        install(&["nodejs", "npm"], "Node.js 20 or newer, with npm")?;
    }
    on_path("npm").ok_or_else(|| "npm is installed, but not in PATH".into())
}

/// The search path with a Node that is new enough in front.
pub(crate) fn node_first(npm: &Path) -> Result<OsString> {
    let path = env::var_os("PATH").unwrap_or_default();
    let own = on_path("node").ok_or("node is installed, but not in PATH")?;
    if major(&own).is_ok_and(|major| major >= NODE_MAJOR_MIN) {
        return Ok(path);
    }
    let folder = tools::folder("node")?;
    let bin = folder.join("node_modules/node/bin");
    if !is_program(&bin.join("node")) {
        eprintln!("node is older than {NODE_MAJOR_MIN}: installing {NODE_PACKAGE} with npm");
        let failed = |error| format!("make {}: {error}", folder.display());
        fs::create_dir_all(&folder).map_err(failed)?;
        let mut command = Command::new(npm);
        command.args(["install", "--no-audit", "--no-fund", "--no-save", "--prefix"]);
        capture(command.arg(&folder).arg(NODE_PACKAGE).current_dir(&folder))
            .map_err(|error| format!("{error}\ninstall Node.js {NODE_MAJOR_MIN} or newer"))?;
    }
    let major = major(&bin.join("node"))?;
    if major < NODE_MAJOR_MIN {
        return Err(format!(
            "npm's {NODE_PACKAGE} is Node.js {major}: install {NODE_MAJOR_MIN} or newer"
        ));
    }
    let folders = std::iter::once(bin).chain(env::split_paths(&path));
    env::join_paths(folders).map_err(|error| format!("put node into PATH: {error}"))
}

fn major(node: &Path) -> Result<u32> {
    let said = capture(Command::new(node).arg("--version"))?;
    major_of(&said).ok_or_else(|| format!("`node --version` says `{}`, which is no version", said.trim()))
}

/// The first number of `v20.1.2`.
fn major_of(version: &str) -> Option<u32> {
    version.trim().strip_prefix('v')?.split('.').next()?.parse().ok()
}

fn chromium() -> Result<PathBuf> {
    let named = env::var_os(CHROMIUM).map(PathBuf::from);
    let found = || CHROMIUM_NAMES.iter().find_map(|name| on_path(name));
    if let Some(chromium) = named.filter(|path| is_program(path)).or_else(found) {
        return Ok(chromium);
    }
    install(&["chromium"], &format!("Chromium, or set {CHROMIUM}"))?;
    found().ok_or_else(|| "chromium is installed, but not in PATH".into())
}

/// Installs Debian packages, or says what a person has to install.
pub(crate) fn install(packages: &[&str], wanted: &str) -> Result {
    let names = packages.join(" and ");
    if let Some(obstacle) = obstacle() {
        return Err(format!("{names} missing and {obstacle}: install {wanted}"));
    }
    eprintln!("installing {names} with apt-get");
    // One broken source among many fails the update; the install knows whether it mattered.
    let _ = apt_get(&["update"]);
    let arguments: Vec<&str> = ["install", "--no-install-recommends"]
        .iter()
        .chain(packages)
        .copied()
        .collect();
    apt_get(&arguments).map_err(|error| format!("{error}\ninstall {wanted}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_node_is_read() {
        assert_eq!(major_of("v20.20.2\n"), Some(20));
        assert_eq!(major_of("v9.1.0"), Some(9));
        assert_eq!(major_of("nothing"), None);
    }

    #[test]
    fn a_registry_that_is_away_is_told_in_one_line_without_a_path_of_this_machine() {
        let said = "`npm ci` failed: exit status: 1\nnpm error code ECONNREFUSED\n\
                    npm error A complete log of this run can be found in: /tmp/a.log";
        let reason = tools::reason(&unreached(said));
        assert_eq!(reason, "npm's registry cannot be reached: npm error code ECONNREFUSED");
    }
}
