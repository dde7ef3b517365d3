//! The policy of one route, and what can never come of it.

use exactly::layer::{Guarantee, Policy};
use http::Method;

use super::fault::Faults;
use super::policy;
use super::probe::Probe;
use super::seal::Seal;
use super::table::Table;

/// The policy of one route.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) policy: Policy,
    pub(crate) reconcile: Option<Probe>,
}

/// What every route begins with.
#[derive(Clone, Debug)]
pub(super) struct Defaults {
    /// Not sealed, so that a route can go without.
    pub(super) policy: Policy,
    pub(super) guarantee: Guarantee,
    pub(super) is_sealed: bool,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            policy: Policy::playbook(),
            guarantee: Guarantee::AtMostOnce,
            is_sealed: false,
        }
    }
}

impl Route {
    /// The route of `table`, which comes after the routes of `earlier`.
    pub(super) fn of_table(
        table: &mut Table<'_>,
        defaults: &Defaults,
        seal: &mut Seal,
        earlier: &[Self],
        faults: &mut Faults<'_>,
    ) -> Option<Self> {
        let accepted = "\"POST\", \"PUT\", \"PATCH\" or \"DELETE\": on others, keys are not looked at";
        let method = table.read("method", accepted, faults, |value| {
            let method = value.as_str()?.parse().ok()?;
            [Method::POST, Method::PUT, Method::PATCH, Method::DELETE]
                .contains(&method)
                .then_some(method)
        });
        let path = table.text("path", faults);
        let policy = policy::of_table(table, defaults.policy.clone(), faults);
        let is_sealed = Seal::is_wanted(table, defaults.is_sealed, faults);
        let policy = seal.put_on(policy, is_sealed, table, faults);
        let reconcile = Probe::of_table(table, faults);
        let guarantee = policy::guarantee_of(table, defaults.guarantee);
        refuse_idle(table, guarantee, faults);
        // A path is judged beside a method that cannot be, too.
        let judged = method.as_ref().unwrap_or(&Method::POST);
        policy::refuse(table, path.as_deref().map(|path| (judged, path)), &policy, faults);
        let (Some(method), Some(path)) = (method, path) else {
            if !table.has("method") || !table.has("path") {
                table.refuse_whole("a route needs method and path", faults);
            }
            return None;
        };
        let route = Self {
            method,
            path,
            policy,
            reconcile,
        };
        if let Some(first) = earlier.iter().find(|first| first.hides(&route)) {
            let accepted = format!(
                "one that no route before it has: {} {} is there already, and the first match counts",
                first.method, first.path
            );
            table.refuse_key("path", &accepted, faults);
        }
        Some(route)
    }

    /// Whether all that `later` matches is matched here before.
    fn hides(&self, later: &Self) -> bool {
        self.method == later.method && shape(&self.path).eq(shape(&later.path))
    }
}

/// The segments of a pattern. What a name in it is does not matter to what it matches.
fn shape(pattern: &str) -> impl Iterator<Item = &str> {
    pattern.split('/').map(|segment| match segment {
        rest if rest.starts_with("{*") => "{*}",
        name if name.starts_with('{') => "{}",
        literal => literal,
    })
}

/// Refuses settings that nobody would ever look at.
fn refuse_idle(table: &Table<'_>, guarantee: Guarantee, faults: &mut Faults<'_>) {
    let never_in_doubt = match guarantee {
        Guarantee::Rerunnable => Some("rerunnable"),
        Guarantee::Joined => Some("joined"),
        _ => None,
    };
    for key in ["reconcile", "reconcile_after", "reconcile_headers"] {
        if let Some(guarantee) = never_in_doubt {
            let accepted =
                format!("none where guarantee is {guarantee:?}: nothing is in doubt there, so nobody is asked");
            table.refuse_key(key, &accepted, faults);
        } else if !table.has("reconcile") {
            table.refuse_key(key, "one beside reconcile, which says where to ask", faults);
        }
    }
}
