//! What an answer says about the effect.

use http::StatusCode;

use super::Guarantee;

/// What becomes of the key after an answer with `status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Store,
    Free,
    Doubt,
}

/// 408, 425, 429 and 503 say that nothing happened. Beyond that it depends on what was promised: in a transaction, the
/// upstream's too, a 5xx was rolled back and a rerunnable effect may be repeated, but otherwise a 500 is an answer like any
/// other, while 502 and 504 say that someone further down may have done it.
pub(super) fn fate(guarantee: Guarantee, status: StatusCode) -> Fate {
    match (status.as_u16(), guarantee) {
        (408 | 425 | 429 | 503, _) | (500.., Guarantee::Transactional | Guarantee::Rerunnable | Guarantee::Joined) => {
            Fate::Free
        }
        (502 | 504, Guarantee::AtMostOnce) => Fate::Doubt,
        _ => Fate::Store,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_depends_on_the_guarantee() {
        use Fate::{Doubt, Free, Store};
        let table = [
            // status, transactional, at-most-once, rerunnable
            (200, Store, Store, Store),
            (201, Store, Store, Store),
            (204, Store, Store, Store),
            (302, Store, Store, Store),
            (400, Store, Store, Store),
            (404, Store, Store, Store),
            (408, Free, Free, Free),
            (409, Store, Store, Store),
            (412, Store, Store, Store),
            (422, Store, Store, Store),
            (425, Free, Free, Free),
            (429, Free, Free, Free),
            (500, Free, Store, Free),
            (501, Free, Store, Free),
            (502, Free, Doubt, Free),
            (503, Free, Free, Free),
            (504, Free, Doubt, Free),
            (599, Free, Store, Free),
        ];
        for (code, transactional, at_most_once, rerunnable) in table {
            let status = StatusCode::from_u16(code).unwrap();
            assert_eq!(
                fate(Guarantee::Transactional, status),
                transactional,
                "{code} transactional"
            );
            assert_eq!(fate(Guarantee::AtMostOnce, status), at_most_once, "{code} at-most-once");
            assert_eq!(fate(Guarantee::Rerunnable, status), rerunnable, "{code} rerunnable");
            assert_eq!(fate(Guarantee::Joined, status), transactional, "{code} joined");
        }
    }
}
