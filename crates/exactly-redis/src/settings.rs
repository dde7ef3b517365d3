//! Whether a server may be trusted with records.
//!
//! Redis is most often run as a cache, with settings under which it forgets. A forgotten record is an effect repeated,
//! so such a server is refused, and whoever wants it anyway has to say so.

use std::collections::HashMap;

use exactly::{StoreError, StoreErrorKind};
use redis::RedisError;
use redis::aio::MultiplexedConnection;

use crate::error::{Fault, Remedy};

/// Scripts that read the clock and then write need effect replication (5), and `SCAN … TYPE` is of 6.
const VERSION_MIN: u32 = 6;

const SETTINGS: [&str; 4] = [
    "maxmemory-policy",
    "appendonly",
    "appendfsync",
    "no-appendfsync-on-rewrite",
];

/// What the caller accepts although it breaks the promise.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tolerance {
    pub(crate) everysec: bool,
    pub(crate) unread_settings: bool,
}

/// Refuses a server that may forget, cannot be written to, or is too old for the scripts.
pub(crate) async fn check(link: &mut MultiplexedConnection, tolerance: Tolerance) -> Result<(), Fault> {
    match redis::cmd("INFO").query_async::<Vec<u8>>(link).await {
        Ok(info) => check_server(&String::from_utf8_lossy(&info))?,
        Err(error) if Fault::is_denial(&error) && tolerance.unread_settings => {}
        Err(error) if Fault::is_denial(&error) => return Err(forbidden("INFO", error)),
        Err(error) => return Err(Fault::of("read server info", error)),
    }
    if tolerance.unread_settings {
        return Ok(());
    }
    let mut questions = redis::pipe();
    for setting in SETTINGS {
        // One by one: a list of names needs Redis 7.
        questions.cmd("CONFIG").arg("GET").arg(setting);
    }
    match questions.query_async::<Vec<HashMap<String, String>>>(link).await {
        Ok(answers) => check_settings(&answers.into_iter().flatten().collect(), tolerance),
        Err(error) if Fault::is_denial(&error) => Err(forbidden("CONFIG GET", error)),
        Err(error) => Err(Fault::of("read server settings", error)),
    }
}

fn check_server(info: &str) -> Result<(), Fault> {
    let field = |name: &str| {
        let mut lines = info.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(field, _)| *field == name).map(|(_, value)| value.trim())
    };
    // Valkey and others name here the Redis that they are compatible with.
    let version = field("redis_version").unwrap_or_default();
    let major: u32 = version
        .split('.')
        .next()
        .and_then(|major| major.parse().ok())
        .unwrap_or_default();
    if major < VERSION_MIN {
        return Err(Fault::refused(format!(
            "refuse redis server: redis_version is `{version}`; {VERSION_MIN} is the oldest that works, and there is \
             no way around it"
        )));
    }
    if field("role") == Some("slave") {
        let context = "refuse redis server: role is slave, and a replica accepts no writes; give the address of its \
                       primary";
        return Err(Fault {
            error: StoreError::new(StoreErrorKind::ReadOnly, context),
            remedy: Remedy::None,
        });
    }
    Ok(())
}

fn check_settings(settings: &HashMap<String, String>, tolerance: Tolerance) -> Result<(), Fault> {
    const AS_IT_IS: &str = "use it as it is with `accept_unread_settings`";
    let value = |name: &str| settings.get(name).map_or("unknown", String::as_str);
    // Judged even where `maxmemory` is 0 and nothing is evicted yet. Setting a limit later looks harmless, needs no
    // restart and would not be noticed here, while the right policy costs a server without a limit nothing.
    require(
        ("maxmemory-policy", value("maxmemory-policy")),
        "noeviction",
        "Redis drops records to make room, and their effects run again",
        AS_IT_IS,
    )?;
    require(
        ("appendonly", value("appendonly")),
        "yes",
        "a crash loses every record since the last snapshot, and their effects run again",
        AS_IT_IS,
    )?;
    match value("appendfsync") {
        "everysec" if tolerance.everysec => {}
        fsync => require(
            ("appendfsync", fsync),
            "always",
            "records are acknowledged before they are on disk, and after a crash their effects run again",
            match fsync {
                "everysec" => "accept the loss of up to two seconds of records with `accept_everysec`",
                _ => AS_IT_IS,
            },
        )?,
    }
    require(
        ("no-appendfsync-on-rewrite", value("no-appendfsync-on-rewrite")),
        "no",
        "while the append-only file is rewritten nothing is brought to disk, whatever appendfsync says",
        AS_IT_IS,
    )
}

fn require((setting, value): (&str, &str), accepted: &str, why: &str, way_out: &str) -> Result<(), Fault> {
    if value == accepted {
        return Ok(());
    }
    Err(Fault::refused(format!(
        "refuse redis server: {setting} is `{value}`, so {why}; set {setting} to `{accepted}`, or {way_out}"
    )))
}

fn forbidden(command: &str, error: RedisError) -> Fault {
    let context = format!(
        "refuse redis server: {command} is not allowed, so nobody can tell whether it evicts records or loses them in \
         a crash; allow {command} to this user, or vouch for {} with `accept_unread_settings`",
        SETTINGS.join(", ")
    );
    Fault {
        error: StoreError::new(StoreErrorKind::Refused, context).with_source(error),
        remedy: Remedy::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_version(version: &str) -> Option<String> {
        let info = format!("# Server\r\nredis_version:{version}\r\nrole:master\r\n");
        check_server(&info).err().map(|fault| fault.error.to_string())
    }

    #[test]
    fn a_server_that_is_too_old_is_refused_with_its_version() {
        assert_eq!(check_version("6.0.16"), None);
        assert_eq!(check_version("10.0.0"), None);
        let refused = check_version("5.0.14").unwrap();
        assert!(
            refused.contains("redis_version is `5.0.14`") && refused.contains('6'),
            "{refused}"
        );
        assert!(check_version("unstable").is_some());
    }

    #[test]
    fn a_setting_that_the_server_does_not_know_is_not_taken_for_granted() {
        let refused = check_settings(&HashMap::new(), Tolerance::default()).unwrap_err();
        assert_eq!(refused.error.kind(), StoreErrorKind::Refused);
        assert!(
            refused.error.to_string().contains("maxmemory-policy is `unknown`"),
            "{}",
            refused.error
        );
    }
}
