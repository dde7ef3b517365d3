//! The peers that are written in Rust, built as their users would build them.

use std::path::{Path, PathBuf};

use tokio::process::Command;

use super::install as run;
use crate::Result;

const MANIFEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/Cargo.toml");

/// The folder with their programs.
pub(super) async fn build(folder: &Path) -> Result<PathBuf> {
    eprintln!("building the peers that are written in Rust");
    let mut cargo = Command::new(option_env!("CARGO").unwrap_or("cargo"));
    cargo
        .args([
            "build",
            "--release",
            "--locked",
            "--quiet",
            "--manifest-path",
            MANIFEST,
            "--target-dir",
        ])
        .arg(folder);
    // Some build scripts look at these and would begin anew, depending on whether cargo started us.
    let of_this_package = std::env::vars_os().map(|(name, _)| name).filter(|name| {
        let name = name.to_string_lossy();
        name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
    });
    for name in of_this_package {
        cargo.env_remove(name);
    }
    // Cargo itself is not asked which toolchain it is of; a crate that names one for its own development would be.
    if let Some(toolchain) = option_env!("RUSTUP_TOOLCHAIN") {
        cargo.env("RUSTUP_TOOLCHAIN", toolchain);
    }
    run(&mut cargo).await?;
    Ok(folder.join("release"))
}
