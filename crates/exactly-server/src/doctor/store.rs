//! Whether a store can be trusted, and works.

use std::path::Path;
use std::time::Duration;

use clap::ValueEnum as _;
use exactly::clock::{Clock as _, Timestamp, WallClock};
use exactly::store::{Filter, Phase, TrailFilter};
use exactly::{Call, Fenced, Fingerprint, Key, OnLost, Operate, Scope, StoreError, StoreErrorKind, Token, Verdict};

use super::Check;
use crate::admin::desk::asked;
use crate::admin::input::HexBytes;
use crate::store::{Accept, Backend, StoreUrl};

/// How far the store's clock may be from this machine's. Leases do not mind; people who compare times do.
const SKEW_MAX: Duration = Duration::from_secs(5);

/// Below this a burst of calls can fill the disk before anybody looks again.
const SPACE_WARN: u64 = 1 << 30;
/// Below this not even the log of a busy minute fits.
const SPACE_FAIL: u64 = 100 << 20;

/// Everything about the store at `url`.
pub(super) async fn check(url: &StoreUrl, accept: &[Accept]) -> Vec<Check> {
    let backend = match url.backend() {
        Ok(backend) => backend,
        Err(error) => return vec![Check::fail("store", error, "give an address that names a store")],
    };
    let mut checks = Vec::new();
    if let Some(file) = url.file() {
        checks.push(space(&file));
        if !file.exists() {
            let found = format!("there is no file {} yet", file.display());
            checks.push(Check::warn(
                "store",
                found,
                "start `exactly serve`, or run `exactly migrate`, which makes it",
            ));
            return checks;
        }
    }
    // Whatever it is like, so that all that is wrong is told and not only the first thing.
    let store = match url.open_existing(Accept::value_variants()).await {
        Ok(store) => store,
        Err(error) => {
            checks.push(unopened(&error));
            return checks;
        }
    };
    checks.push(Check::ok("store", format!("{url} answers")));
    if backend != Backend::Redis {
        checks.push(Check::ok("schema", "up to date"));
    }
    checks.push(durable(url, accept).await);
    checks.push(clock(&*store, backend).await);
    checks.push(writable(&*store).await);
    checks.push(trail(&*store).await);
    checks.push(doubts(&*store).await);
    checks
}

fn unopened(error: &StoreError) -> Check {
    match error.kind() {
        StoreErrorKind::Refused => Check::fail("schema", error, "do what it says, or run `exactly migrate`"),
        StoreErrorKind::ReadOnly => Check::fail(
            "store",
            error,
            "give the address of the primary, or mount it for writing",
        ),
        StoreErrorKind::Full => Check::fail("store", error, "make room"),
        _ => Check::fail(
            "store",
            error,
            "start it, or mend its address, user, password or rights",
        ),
    }
}

/// Whether what is committed outlives a crash.
async fn durable(url: &StoreUrl, accept: &[Accept]) -> Check {
    const FIX: &str = "set what it names, or effects may repeat after a crash";
    match url.open_existing(&[]).await {
        Ok(_) => Check::ok("durability", "what is committed outlives a crash"),
        Err(error) => match url.open_existing(accept).await {
            Ok(_) => Check::warn("durability", format!("accepted: {error}"), FIX),
            Err(error) => Check::fail("durability", error, FIX),
        },
    }
}

async fn clock(store: &dyn Operate, backend: Backend) -> Check {
    let before = WallClock.now();
    let there = match asked("read the store's clock", store.now()).await {
        Ok(there) => there,
        Err(problem) => return Check::fail("clock", problem, "see why the store does not answer"),
    };
    judged(there, before, WallClock.now(), backend)
}

/// The store's clock was read somewhere between two looks at ours.
fn judged(there: Timestamp, before: Timestamp, after: Timestamp, backend: Backend) -> Check {
    let (ahead, behind) = (there.since(after), before.since(there));
    let told = |skew: Duration, word: &str| format!("the store's clock is {:.1} s {word}", skew.as_secs_f64());
    if ahead <= SKEW_MAX && behind <= SKEW_MAX {
        return Check::ok("clock", told(ahead.max(behind), "off"));
    }
    if backend == Backend::Sqlite && behind > SKEW_MAX {
        // Not a fault: it stood still while no process ran, and only outcomes are kept longer for it.
        return Check::ok("clock", told(behind, "behind, because no process ran for a while"));
    }
    let (skew, word) = if ahead > behind {
        (ahead, "ahead")
    } else {
        (behind, "behind")
    };
    Check::warn(
        "clock",
        told(skew, word),
        "set both clocks by NTP; leases are safe, but times shown to people are off",
    )
}

/// How long a probe that was cut short is there.
const PROBE_LEASE: Duration = Duration::from_secs(5);

const DISK_SPACE: &str = "disk space";
/// The last check, which only a store has that was opened.
pub(super) const DOUBTS: &str = "doubts";

/// Claims a key of its own and gives it back.
async fn writable(store: &dyn Operate) -> Check {
    const FIX: &str = "see what it says; a store that cannot be written to turns every request away";
    let key: String = HexBytes(*Token::random().as_bytes()).into();
    let Ok(key) = Key::new(key) else {
        return Check::fail("write", "a probe has no key", FIX);
    };
    let call = Call::new(Scope::global("exactly.doctor"), key, Fingerprint::of("probe"))
        .with_on_lost(OnLost::Rerun)
        .with_lease(PROBE_LEASE);
    match asked("begin a probe", store.begin(&call)).await {
        Ok(Verdict::Run(claim)) => match asked("give a probe back", store.abandon(&claim)).await {
            Ok(Fenced::Applied) => Check::ok("write", "a probe was claimed and given back"),
            Ok(Fenced::Superseded) => Check::fail("write", "a probe was claimed and could not be given back", FIX),
            Err(problem) => Check::fail("write", problem, FIX),
        },
        Ok(_) => Check::fail("write", "a fresh key was found taken", FIX),
        Err(problem) => Check::fail("write", problem, FIX),
    }
}

async fn trail(store: &dyn Operate) -> Check {
    let filter = TrailFilter {
        limit: 1,
        ..TrailFilter::default()
    };
    match asked("read the trail", store.trail(&filter)).await {
        Ok(_) => Check::ok("trail", "can be read"),
        Err(problem) => Check::fail("trail", problem, "operators cannot act without it; see what it says"),
    }
}

async fn doubts(store: &dyn Operate) -> Check {
    let filter = Filter {
        phase: Some(Phase::InDoubt),
        limit: Filter::LIMIT_MAX,
        ..Filter::default()
    };
    match asked("list records", store.list(&filter)).await {
        Ok(page) if page.calls.is_empty() => Check::ok(DOUBTS, "no call is in doubt"),
        Ok(page) => {
            let more = if page.next.is_some() { "more than " } else { "" };
            let found = format!("{more}{} calls are in doubt", page.calls.len());
            let fix = "find out what came of them: `exactly calls list --phase in_doubt`, then `exactly calls resolve`";
            Check::warn(DOUBTS, found, fix)
        }
        Err(problem) => Check::fail(DOUBTS, problem, "see what it says"),
    }
}

/// Room on the volume of a database's file.
fn space(file: &Path) -> Check {
    let folder = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    match rustix::fs::statvfs(folder) {
        Ok(volume) => judged_space(volume.f_bavail.saturating_mul(volume.f_frsize)),
        Err(error) => Check::fail(
            DISK_SPACE,
            format!("{}: {error}", folder.display()),
            "make the folder, or mend the path",
        ),
    }
}

fn judged_space(free: u64) -> Check {
    let found = format!("{} MiB are free", free >> 20);
    match free {
        ..SPACE_FAIL => Check::fail(
            DISK_SPACE,
            found,
            "make room: when the disk is full, every request is turned away",
        ),
        SPACE_FAIL..SPACE_WARN => Check::warn(
            DISK_SPACE,
            found,
            "make room soon, or shorten how long outcomes are kept",
        ),
        SPACE_WARN.. => Check::ok(DISK_SPACE, found),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn a_clock_that_is_off_is_told() {
        let at = Timestamp::from_millis;
        let check = |there, backend| judged(at(there), at(100_000), at(100_200), backend);
        assert_eq!(check(100_100, Backend::Postgres).status, Status::Ok);
        assert_eq!(check(95_001, Backend::Postgres).status, Status::Ok);
        let behind = check(90_000, Backend::Postgres);
        assert_eq!(
            (behind.status, behind.found.as_str()),
            (Status::Warn, "the store's clock is 10.0 s behind")
        );
        let ahead = check(110_200, Backend::Redis);
        assert_eq!(
            (ahead.status, ahead.found.as_str()),
            (Status::Warn, "the store's clock is 10.0 s ahead")
        );
        // SQLite's stands still while no process runs.
        assert_eq!(check(10_000, Backend::Sqlite).status, Status::Ok);
        assert_eq!(check(200_000, Backend::Sqlite).status, Status::Warn);
    }

    #[test]
    fn a_disk_that_fills_up_is_told_in_time() {
        assert_eq!(judged_space(50 << 20).status, Status::Fail);
        assert_eq!(judged_space(500 << 20).status, Status::Warn);
        assert_eq!(judged_space(5 << 30).status, Status::Ok);
    }
}
