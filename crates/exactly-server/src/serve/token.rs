//! The operators' token, if nobody chose one.
//!
//! It is made once and printed once; what stays on disk is its digest, so whoever reads the disk cannot use it.

use std::error::Error;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use exactly::Hex;

use crate::admin::AdminToken;
use crate::store::StoreUrl;

/// The token to ask for, and what to say about it.
pub(super) fn find(
    chosen: Option<String>,
    store: &StoreUrl,
) -> Result<(AdminToken, String), Box<dyn Error + Send + Sync>> {
    if let Some(chosen) = chosen {
        return Ok((AdminToken::new(&chosen)?, String::new()));
    }
    let path = path(store);
    match fs::read_to_string(&path) {
        Ok(digest) => {
            let token = AdminToken::of_digest(digest.trim()).ok_or_else(|| {
                format!(
                    "read {}: it is no digest of a token; delete it to make a new one",
                    path.display()
                )
            })?;
            let told = format!(", with the token whose digest is in {}", path.display());
            Ok((token, told))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let text = random()?;
            let token = AdminToken::new(&text)?;
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)
                .map_err(|error| format!("write {}: {error}; or set EXACTLY_ADMIN_TOKEN", path.display()))?;
            writeln!(file, "{token:x}")?;
            let told = format!("\nexactly: their token, shown this once: {text}");
            Ok((token, told))
        }
        Err(error) => Err(format!("read {}: {error}; or set EXACTLY_ADMIN_TOKEN", path.display()).into()),
    }
}

/// Beside the database, or in the current folder if that is elsewhere.
fn path(store: &StoreUrl) -> PathBuf {
    let mut path = store
        .file()
        .unwrap_or_else(|| PathBuf::from("exactly"))
        .into_os_string();
    path.push(".token");
    path.into()
}

fn random() -> Result<String, Box<dyn Error + Send + Sync>> {
    let mut bytes = [0; 24];
    getrandom::fill(&mut bytes)?;
    Ok(Hex(&bytes).to_string())
}
