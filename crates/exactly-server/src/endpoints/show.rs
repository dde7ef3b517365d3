//! What people are shown about endpoints.

use std::fmt::Write as _;

use crate::admin::endpoints::ask::Scheme;
use crate::admin::endpoints::wire::{
    EndpointMade, EndpointPage, EndpointSeen, EndpointShown, EndpointState, HealthShown, SecretShown, Tested,
};
use crate::calls::{Table, plain, when};

pub(super) fn page(page: &EndpointPage) -> String {
    let mut table = Table::new(["ID", "STATE", "URL", "TYPES"]);
    for endpoint in &page.endpoints {
        table.row([&endpoint.id, state(endpoint.state), &endpoint.url, &types(endpoint)]);
    }
    let mut text = if page.endpoints.is_empty() {
        "no endpoints\n".to_owned()
    } else {
        table.to_string()
    };
    if let Some(next) = &page.next {
        let _ = writeln!(text, "there are more: --after {next}");
    }
    text
}

pub(super) fn seen(seen: &EndpointSeen) -> String {
    let EndpointSeen { endpoint, health } = seen;
    let mut table = facts(endpoint);
    add_health(&mut table, health);
    let mut text = table.to_string();
    for failure in &health.last_failures {
        let status = failure.status.map(|status| format!(" {status}")).unwrap_or_default();
        let (at, event, why) = (when(&failure.at), &failure.event, plain(&failure.why));
        let _ = writeln!(text, "failed{status} at {at}, event {event}: {why}");
    }
    text + &rest(endpoint)
}

fn add_health(table: &mut Table, health: &HealthShown) {
    table.row(["waiting", &health.waiting.to_string()]);
    table.row(["running", &health.running.to_string()]);
    table.row(["dead", &health.dead.to_string()]);
    if let Some(until) = &health.parked_until {
        table.row([
            "parked",
            &format!("until {}, because it fails all the time", when(until)),
        ]);
    }
    let success = health.last_success.as_deref();
    table.row(["last success", &success.map_or_else(|| "-".to_owned(), when)]);
}

pub(super) fn endpoint(endpoint: &EndpointShown) -> String {
    facts(endpoint).to_string() + &rest(endpoint)
}

fn facts(endpoint: &EndpointShown) -> Table {
    let mut table = Table::bare();
    table.row(["id", &endpoint.id]);
    table.row(["state", state(endpoint.state)]);
    if let Some(reason) = &endpoint.reason {
        table.row(["reason", reason]);
    }
    table.row(["url", &endpoint.url]);
    table.row(["types", &types(endpoint)]);
    for (name, value) in &endpoint.headers {
        table.row(["header", &format!("{name}: {value}")]);
    }
    table.row(["at once", &endpoint.concurrency.to_string()]);
    if let Some(per_second) = endpoint.per_second {
        table.row(["per second", &per_second.to_string()]);
    }
    if let Some(before) = &endpoint.discard_before {
        table.row(["discards", &format!("what was made before {}", when(before))]);
    }
    for signs in &endpoint.secrets {
        table.row(["signs", &secret(signs)]);
    }
    table
}

/// What to do about one that gets nothing.
fn rest(endpoint: &EndpointShown) -> String {
    if endpoint.state == EndpointState::Active {
        return String::new();
    }
    format!(
        "\nIts deliveries wait. To send them:\n  exactly endpoints resume {}\n",
        endpoint.id
    )
}

pub(super) fn made(made: &EndpointMade) -> String {
    let mut text = endpoint(&made.endpoint);
    if let Some(secret) = &made.secret {
        let _ = write!(text, "\nIts secret, which is not shown again:\n  {secret}\n");
    }
    text
}

pub(super) fn tested(tested: &Tested) -> String {
    format!(
        "event {} is on its way to {}\n  exactly deliveries show {}\n",
        tested.event, tested.endpoint, tested.delivery
    )
}

fn secret(secret: &SecretShown) -> String {
    let mut text = match (secret.scheme, &secret.public_key) {
        (Some(Scheme::V1), _) => "v1 (HMAC-SHA256)".to_owned(),
        (Some(Scheme::V1a), Some(key)) => format!("v1a (ed25519), verified with {key}"),
        (Some(Scheme::V1a), None) => "v1a (ed25519)".to_owned(),
        (None, _) => "(unreadable)".to_owned(),
    };
    if let Some(until) = &secret.until {
        let _ = write!(text, ", until {}", when(until));
    }
    text
}

fn state(state: EndpointState) -> &'static str {
    match state {
        EndpointState::Active => "active",
        EndpointState::Paused => "paused",
        EndpointState::Disabled => "disabled",
    }
}

fn types(endpoint: &EndpointShown) -> String {
    if endpoint.types.is_empty() {
        "(everything)".to_owned()
    } else {
        endpoint.types.join(" ")
    }
}
