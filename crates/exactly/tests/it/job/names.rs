//! Names that come out the same.

use exactly::job::{daily_key, deterministic_id};
use exactly::queue::TaskId;
use proptest::prelude::*;
use uuid::Uuid;

#[test]
fn ids_are_those_of_any_uuid_library() {
    // python3 -c "import uuid; print(uuid.uuid5(uuid.NAMESPACE_DNS, '10:2026-02-193:ada3:bob'))"
    let id = deterministic_id(&Uuid::NAMESPACE_DNS, &["2026-02-19", "ada", "bob"]);
    assert_eq!(id.to_string(), "80b1cae5-e768-57f2-8a1b-c2d949859afc");
}

#[test]
fn a_daily_key_knows_the_date_and_the_subject_and_no_zone() {
    assert_eq!(daily_key("2026-02-19", 7), "2026-02-19:7");
    assert_eq!(
        TaskId::of("offers", &daily_key("2026-02-19", 7)),
        TaskId::of("offers", "2026-02-19:7")
    );
}

proptest! {
    #[test]
    fn other_parts_come_to_another_id(
        one in proptest::collection::vec("[0-2:]{0,3}", 0..4),
        other in proptest::collection::vec("[0-2:]{0,3}", 0..4),
    ) {
        let id = |parts: &[String]| {
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            deterministic_id(&Uuid::NAMESPACE_OID, &parts)
        };
        prop_assert_eq!(id(&one) == id(&other), one == other);
    }
}
