//! Which policy a request falls under.

use std::sync::Arc;

use http::request::Parts;
use http::{Method, Uri};

use super::{ConfigError, Policy};

/// The route of a request that no pattern and no router named. All such requests share one scope per caller and method,
/// so a key that comes again on another path is a conflict, never a foreign answer.
const UNNAMED: &str = "*";

/// A policy for one method and path pattern.
#[derive(Clone, Debug)]
pub(super) struct Route {
    method: Method,
    pattern: Arc<str>,
    pub(super) policy: Arc<Policy>,
}

impl Route {
    pub(super) fn new(method: Method, pattern: &str, policy: Policy) -> Self {
        Self {
            method,
            pattern: pattern.into(),
            policy: Arc::new(policy),
        }
    }

    pub(super) fn name(&self) -> String {
        format!("{} {}", self.method, self.pattern)
    }

    pub(super) fn fault(&self) -> Option<ConfigError> {
        let segments: Vec<_> = self.pattern.split('/').collect();
        let rest_is_last = segments.iter().rev().skip(1).all(|segment| !segment.starts_with("{*"));
        let braces_match = segments
            .iter()
            .all(|segment| segment.starts_with('{') == segment.ends_with('}'));
        (!self.pattern.starts_with('/') || !rest_is_last || !braces_match).then(|| {
            ConfigError::new(
                &self.name(),
                "pattern",
                &self.pattern,
                "/literal, /{name} or a final /{*rest}",
            )
        })
    }

    fn matches(&self, parts: &Parts) -> bool {
        if self.method != parts.method {
            return false;
        }
        let mut path = uri(parts).path().split('/');
        for segment in self.pattern.split('/') {
            if segment.starts_with("{*") {
                return path.next().is_some();
            }
            let Some(actual) = path.next() else { return false };
            let fits = if segment.starts_with('{') {
                !actual.is_empty()
            } else {
                segment == actual
            };
            if !fits {
                return false;
            }
        }
        path.next().is_none()
    }
}

/// The policy and the name of the route that `parts` asks for: the first pattern that matches, or what the router
/// matched.
pub(super) fn find<'a>(routes: &'a [Route], default: &'a Arc<Policy>, parts: &'a Parts) -> (&'a Arc<Policy>, &'a str) {
    match routes.iter().find(|route| route.matches(parts)) {
        Some(route) => (&route.policy, &route.pattern),
        None => (default, matched_path(parts).unwrap_or(UNNAMED)),
    }
}

#[cfg(feature = "axum")]
fn matched_path(parts: &Parts) -> Option<&str> {
    let matched = parts.extensions.get::<axum::extract::MatchedPath>();
    matched.map(axum::extract::MatchedPath::as_str)
}

#[cfg(not(feature = "axum"))]
fn matched_path(_parts: &Parts) -> Option<&str> {
    None
}

/// What the client asked for. A nested router cuts off the part of the path that led to it, and with it which order is to
/// be refunded.
pub(super) fn uri(parts: &Parts) -> &Uri {
    #[cfg(feature = "axum")]
    if let Some(original) = parts.extensions.get::<axum::extract::OriginalUri>() {
        return original;
    }
    &parts.uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_segments() {
        let check = |pattern: &str, path: &str, expected: bool| {
            let route = Route::new(Method::POST, pattern, Policy::playbook());
            assert!(route.fault().is_none(), "{pattern}");
            let (parts, ()) = http::Request::post(path).body(()).unwrap().into_parts();
            assert_eq!(route.matches(&parts), expected, "{pattern} {path}");
        };
        check("/refunds", "/refunds", true);
        check("/refunds", "/refunds?x=1", true);
        check("/refunds", "/refunds/", false);
        check("/refunds", "/refunds/1", false);
        check("/refunds/{id}", "/refunds/1", true);
        check("/refunds/{id}", "/refunds/", false);
        check("/refunds/{id}", "/refunds/1/2", false);
        check("/refunds/{id}/lines", "/refunds/1/lines", true);
        check("/{*rest}", "/", true);
        check("/{*rest}", "/a/b", true);
        check("/api/{*rest}", "/api", false);
        check("/api/{*rest}", "/api/v1/x", true);
    }

    #[test]
    fn a_pattern_that_cannot_match_is_a_fault() {
        for pattern in ["refunds", "", "/{*rest}/more", "/{id", "/id}"] {
            assert!(
                Route::new(Method::POST, pattern, Policy::playbook()).fault().is_some(),
                "{pattern}"
            );
        }
    }
}
