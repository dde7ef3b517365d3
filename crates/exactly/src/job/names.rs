//! Names that come out the same whoever makes them.

use std::fmt::{Display, Write as _};

use uuid::Uuid;

/// The key of a job that its subject gets once per local date: `2026-02-19:ada`.
///
/// The time zone is left out on purpose. Somebody who travels has the same date twice, or lives it in two zones, and still
/// gets one job for it; put the zone into the payload.
///
/// ```
/// assert_eq!(exactly::job::daily_key("2026-02-19", "ada"), "2026-02-19:ada");
/// ```
pub fn daily_key(local_date: impl Display, subject: impl Display) -> String {
    format!("{local_date}:{subject}")
}

/// The UUID (version 5) of these parts, in this order. Other parts come to another id, also if they are the same text when
/// written one after the other.
///
/// ```
/// use exactly::job::deterministic_id;
/// use uuid::Uuid;
///
/// let offers = Uuid::from_u128(0x6ba7_b810_9dad_11d1_80b4_00c0_4fd4_30c8);
/// let id = deterministic_id(&offers, &["2026-02-19", "ada", "bob"]);
/// assert_eq!(id, deterministic_id(&offers, &["2026-02-19", "ada", "bob"]));
/// assert_ne!(id, deterministic_id(&offers, &["2026-02-19", "adab", "ob"]));
/// ```
pub fn deterministic_id(namespace: &Uuid, parts: &[&str]) -> Uuid {
    let mut name = String::new();
    for part in parts {
        // The length in front says where the part ends, whatever it contains.
        let _ = write!(name, "{}:{part}", part.len());
    }
    Uuid::new_v5(namespace, name.as_bytes())
}
