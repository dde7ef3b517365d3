//! The policy of a route, as a table says it.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use exactly::fingerprint::LeaveOut;
use exactly::key::{KeyFormat, KeySyntax};
use exactly::layer::{Guarantee, IdempotencyLayer, KeyRule, Policy};
use exactly::{Keep, MemoryStore};
use http::{HeaderName, Method};

use super::Config;
use super::fault::Faults;
use super::table::Table;

const HEADERS: &str = "header names";

// What the layer accepts too; here it is told with its line.
const LEASE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_hours(24);
const WAIT: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_hours(1);
/// Up to a hundred years; what is to be kept for longer is kept forever.
const KEEP: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_hours(24 * 36_500);

/// No transaction reaches through a gateway, but an upstream can join the record into its own.
const GUARANTEES: [(&str, Guarantee); 3] = [
    ("at-most-once", Guarantee::AtMostOnce),
    ("rerunnable", Guarantee::Rerunnable),
    ("joined", Guarantee::Joined),
];

/// `policy` with what `table` says about it.
pub(super) fn of_table(table: &mut Table<'_>, policy: Policy, faults: &mut Faults<'_>) -> Policy {
    let presets = [("playbook", 0), ("ietf", 1), ("stripe", 2)];
    let policy = match table.word("preset", &presets, faults) {
        None => policy,
        Some(0) => Policy::playbook(),
        Some(1) => Policy::ietf(),
        Some(_) => Policy::stripe(),
    };
    let policy = of_keys(table, policy, faults);
    let policy = of_guarantee(table, policy, faults);
    of_answers(table, policy, faults)
}

/// What `table` guarantees, if it begins with `default`. A preset begins anew.
pub(super) fn guarantee_of(table: &mut Table<'_>, default: Guarantee) -> Guarantee {
    let said = GUARANTEES.iter().find(|(word, _)| table.is_text("guarantee", word));
    match said {
        Some((_, guarantee)) => *guarantee,
        None if table.has("preset") => Guarantee::AtMostOnce,
        None => default,
    }
}

/// What the layer would refuse about a policy, which is for one route if there is one.
pub(super) fn refuse(table: &Table<'_>, route: Option<(&Method, &str)>, policy: &Policy, faults: &mut Faults<'_>) {
    let mut layer = IdempotencyLayer::builder(Arc::new(MemoryStore::new())).global_keys();
    // How much is held of all routes together is no policy's own.
    layer = layer.held_max(usize::MAX);
    layer = match route {
        Some((method, path)) => layer.route(method.clone(), path, policy.clone()),
        None => layer.policy(policy.clone()),
    };
    let Err(errors) = layer.build() else { return };
    let mut refused = Vec::new();
    for error in errors.iter() {
        match setting(error.key()).filter(|key| table.has(key)) {
            // One is enough for a list of which several cannot be.
            Some(key) if refused.contains(&key) => {}
            Some(key) => {
                table.refuse_key(key, error.accepted(), faults);
                refused.push(key);
            }
            None => table.refuse_whole(error.to_string(), faults),
        }
    }
}

/// What the layer's `key` is called in a file, where a file can say what the layer refuses.
fn setting(key: &str) -> Option<&'static str> {
    match key {
        "pattern" => Some("path"),
        "replayed_header" => Some("replayed_headers"),
        "guarantee" => Some("guarantee"),
        _ => None,
    }
}

/// What the layer would refuse about how much is held of all routes together.
pub(super) fn refuse_held(root: &Table<'_>, config: &Config, faults: &mut Faults<'_>) {
    let layer = IdempotencyLayer::builder(Arc::new(MemoryStore::new())).global_keys();
    let layer = layer.held_max(config.held_max).policy(config.default_policy.clone());
    let layer = config.routes.iter().fold(layer, |layer, route| {
        layer.route(route.method.clone(), &route.path, route.policy.clone())
    });
    let Err(errors) = layer.build() else { return };
    for error in errors.iter().filter(|error| error.key() == "held_max") {
        root.refuse_hidden("held_max", error.to_string(), faults);
    }
}

fn of_keys(table: &mut Table<'_>, policy: Policy, faults: &mut Faults<'_>) -> Policy {
    let rules = [
        ("required", KeyRule::Required),
        ("optional", KeyRule::Optional),
        ("off", KeyRule::Off),
    ];
    let formats = [("opaque", KeyFormat::Opaque), ("uuid-v4", KeyFormat::UuidV4)];
    let syntaxes = [("lenient", KeySyntax::Lenient), ("strict", KeySyntax::Strict)];
    let policy = or(policy, table.word("key", &rules, faults), Policy::key);
    let policy = or(policy, table.word("key_format", &formats, faults), Policy::key_format);
    let policy = or(policy, table.word("key_syntax", &syntaxes, faults), Policy::key_syntax);
    let policy = each(policy, headers(table, "key_headers", faults), Policy::key_header);
    or(policy, table.text("key_field", faults), Policy::key_field)
}

fn of_guarantee(table: &mut Table<'_>, policy: Policy, faults: &mut Faults<'_>) -> Policy {
    let policy = or(policy, table.word("guarantee", &GUARANTEES, faults), Policy::guarantee);
    let policy = or(policy, table.duration("lease", &LEASE, faults), Policy::lease);
    or(policy, table.duration("wait", &WAIT, faults), Policy::wait)
}

fn of_answers(table: &mut Table<'_>, policy: Policy, faults: &mut Faults<'_>) -> Policy {
    let policy = or(policy, keep(table, faults), Policy::keep);
    let policy = or(policy, table.bytes("body_max", faults), Policy::body_max);
    let policy = or(policy, table.bytes("answer_max", faults), Policy::answer_max);
    let policy = or(policy, table.flag("compare_host", faults), Policy::compare_host);
    let policy = each(
        policy,
        headers(table, "compared_headers", faults),
        Policy::compared_header,
    );
    let policy = each(
        policy,
        headers(table, "withheld_headers", faults),
        Policy::withheld_header,
    );
    let policy = each(
        policy,
        headers(table, "replayed_headers", faults),
        Policy::replayed_header,
    );
    let policy = match table.flag("store_answers", faults) {
        Some(false) => policy.never_store_answers(),
        Some(true) | None => policy,
    };
    or(policy, leave_out(table, faults), Policy::leave_out)
}

fn or<T>(policy: Policy, value: Option<T>, set: impl FnOnce(Policy, T) -> Policy) -> Policy {
    match value {
        Some(value) => set(policy, value),
        None => policy,
    }
}

fn each(policy: Policy, names: Vec<HeaderName>, add: impl Fn(Policy, HeaderName) -> Policy) -> Policy {
    names.into_iter().fold(policy, add)
}

fn headers(table: &mut Table<'_>, key: &'static str, faults: &mut Faults<'_>) -> Vec<HeaderName> {
    table.list(key, HEADERS, faults).unwrap_or_default()
}

fn keep(table: &mut Table<'_>, faults: &mut Faults<'_>) -> Option<Keep> {
    if table.is_text("keep", "forever") {
        return Some(Keep::Forever);
    }
    table.duration("keep", &KEEP, faults).map(Keep::For)
}

/// Fields that may differ between a request and its retry: JSON pointers begin with a slash, form fields do not.
fn leave_out(table: &mut Table<'_>, faults: &mut Faults<'_>) -> Option<LeaveOut> {
    let fields: Vec<String> = table.list("leave_out", "JSON pointers (\"/sentAt\") and form fields", faults)?;
    let mut leave_out = LeaveOut::nothing();
    for field in fields {
        let pointed = if field.starts_with('/') {
            leave_out.pointer(&field)
        } else {
            Ok(leave_out.field(&field))
        };
        match pointed {
            Ok(added) => leave_out = added,
            Err(error) => {
                table.refuse_key("leave_out", &error.to_string(), faults);
                return None;
            }
        }
    }
    Some(leave_out)
}
