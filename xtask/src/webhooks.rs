//! Libraries of others that sign and verify webhooks, for the tests that hold ours against them.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{capture, is_program, on_path};
use crate::{Result, tools, typescript};

/// Where the tests find them: `bin/python`, `bin/node` and `node_modules` in this folder.
pub(crate) const LIBRARIES: &str = "EXACTLY_TEST_WEBHOOK_LIBRARIES";

/// Every package with its version: what passes today passes tomorrow.
const REQUIREMENTS: &str = include_str!("webhooks/requirements.txt");
const PACKAGES: &str = include_str!("webhooks/package.json");
const PACKAGES_LOCK: &str = include_str!("webhooks/package-lock.json");

/// The folder of the libraries, installed if need be.
pub(crate) fn libraries() -> Result<PathBuf> {
    if on_path("openssl").is_none() {
        typescript::install(&["openssl"], "OpenSSL 3")?;
    }
    let folder = tools::folder("webhooks")?;
    let (installed, list) = (folder.join("installed.txt"), format!("{REQUIREMENTS}{PACKAGES_LOCK}"));
    let programs = ["bin/python", "bin/node"].map(|program| is_program(&folder.join(program)));
    if programs == [true; 2] && fs::read_to_string(&installed).is_ok_and(|said| said == list) {
        return Ok(folder);
    }
    eprintln!("installing the webhook libraries of others with pip and npm");
    let _ = fs::remove_dir_all(&folder);
    install_python(&folder)?;
    install_node(&folder)?;
    // Last, because it says that all the rest is there.
    write(&installed, &list)?;
    Ok(folder)
}

fn install_python(folder: &Path) -> Result {
    capture(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
    let wanted = folder.join("requirements.txt");
    write(&wanted, REQUIREMENTS)?;
    let mut pip = Command::new(folder.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    capture(pip.arg("--requirement").arg(&wanted))?;
    Ok(())
}

fn install_node(folder: &Path) -> Result {
    let npm = typescript::npm()?;
    let path = typescript::node_first(&npm)?;
    write(&folder.join("package.json"), PACKAGES)?;
    write(&folder.join("package-lock.json"), PACKAGES_LOCK)?;
    let mut command = Command::new(&npm);
    command.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"]);
    capture(command.current_dir(folder).env("PATH", &path))?;
    let node = env::split_paths(&path)
        .map(|folder| folder.join("node"))
        .find(|node| is_program(node))
        .ok_or("node is installed, but not in PATH")?;
    let link = folder.join("bin/node");
    symlink(&node, &link).map_err(|error| format!("link {}: {error}", link.display()))
}

fn write(path: &Path, text: &str) -> Result {
    fs::write(path, text).map_err(|error| format!("write {}: {error}", path.display()))
}
