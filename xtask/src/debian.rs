//! Debian's packages, and whether we may touch them.

use std::process::Command;

use crate::Result;
use crate::process::{capture, on_path};
use crate::servers::is_root;

/// Why nothing can be installed here, if so.
pub(crate) fn obstacle() -> Option<&'static str> {
    if on_path("apt-get").is_none() {
        Some("there is no apt-get to install them with")
    } else if !is_root() && capture(Command::new("sudo").args(["-n", "true"])).is_err() {
        Some("apt-get needs root or sudo without a password")
    } else {
        None
    }
}

/// Runs apt-get with the rights to change the system, and without questions.
pub(crate) fn apt_get(arguments: &[&str]) -> Result<String> {
    let rights: &[&str] = if is_root() { &[] } else { &["sudo", "-n"] };
    let mut words = rights.to_vec();
    words.extend(["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]);
    words.extend(["-q", "-y", "-o", "DPkg::Lock::Timeout=120"]);
    words.extend(arguments);
    capture(Command::new(words[0]).args(&words[1..]))
}
