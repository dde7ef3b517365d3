//! Where to ask what came of a call.

use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::time::Duration;

use exactly::{CallId, Key};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::fault::Faults;
use super::table::Table;

const ACCEPTED: &str = "a path with {call} or {key} in it, such as \"/refunds/by-call/{call}\"";

const AFTER_DEFAULT: Duration = Duration::from_secs(2);
const AFTER: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_hours(24);

/// A GET that the upstream answers with what it did for a call.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    template: String,
    /// How long after an attempt was lost an upstream that knows nothing of it is believed.
    pub(crate) after: Duration,
    /// How long one answer may take, if the route says so.
    pub(crate) limit: Option<Duration>,
    /// Sent along, for instance the credentials of an operator.
    pub(crate) headers: HeaderMap,
}

impl Probe {
    /// The probe under `reconcile` in a route's table, with its `reconcile_headers`.
    pub(super) fn of_table(table: &mut Table<'_>, faults: &mut Faults<'_>) -> Option<Self> {
        let template = table.read("reconcile", ACCEPTED, faults, |value| {
            let text = value.as_str()?;
            let is_path = text.starts_with('/') && (text.contains("{call}") || text.contains("{key}"));
            (is_path && fill(text, "k", "c").parse::<PathAndQuery>().is_ok()).then(|| text.to_owned())
        });
        let after = table
            .duration("reconcile_after", &AFTER, faults)
            .unwrap_or(AFTER_DEFAULT);
        let limit = table.duration("reconcile_timeout", &super::TIMEOUT, faults);
        let mut headers = HeaderMap::new();
        if let Some(mut named) = table.table("reconcile_headers", faults) {
            for (name, value) in named.texts(faults) {
                if let (Ok(name), Ok(mut value)) = (name.parse::<HeaderName>(), HeaderValue::from_str(value)) {
                    value.set_sensitive(true);
                    headers.append(name, value);
                } else {
                    let what = format!("reconcile_headers: {name} and its value are not a header");
                    named.refuse_hidden(name, what, faults);
                }
            }
        }
        Some(Self {
            template: template?,
            after,
            limit,
            headers,
        })
    }

    /// The path to ask.
    pub(crate) fn path(&self, key: &Key, call: &CallId) -> String {
        fill(&self.template, &escape(key.as_str()), &call.to_string())
    }
}

fn fill(template: &str, key: &str, call: &str) -> String {
    // The key last: what a client chose is never looked at again.
    template.replace("{call}", call).replace("{key}", key)
}

/// Escapes everything that could mean something in a path or a query.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use exactly::Scope;

    #[test]
    fn a_key_cannot_lead_the_probe_elsewhere() {
        let probe = Probe {
            template: "/by-key/{key}?call={call}".to_owned(),
            after: AFTER_DEFAULT,
            limit: None,
            headers: HeaderMap::new(),
        };
        let key = Key::new("../a?b=/{call}&é").unwrap();
        let id = CallId::new(&Scope::global("POST /x"), &key);
        let path = probe.path(&key, &id);
        assert_eq!(
            path,
            format!("/by-key/%2E%2E%2Fa%3Fb%3D%2F%7Bcall%7D%26%C3%A9?call={id}")
        );
        assert!(path.parse::<PathAndQuery>().is_ok());
    }
}
