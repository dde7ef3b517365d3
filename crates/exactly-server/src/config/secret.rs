//! Secrets in a file, or beside it.

use std::env;

/// `$NAME` is what the environment has under that name. No secret begins so.
#[expect(clippy::disallowed_methods, reason = "the configuration names the variable")]
pub(super) fn of_environment(secret: &str) -> Result<String, String> {
    match secret.strip_prefix('$') {
        Some(name) => env::var(name).map_err(|_| format!("{name} is not in the environment")),
        None => Ok(secret.to_owned()),
    }
}
