//! Calls by the start of their id, as people copy it from a table.

use exactly::CallId;

use super::Refused;
use super::reach::Reach;
use crate::admin::ask::ListQuery;
use crate::admin::input::{HexBytes, Limit};

/// Fewer digits could be mistaken for something else.
const DIGITS_MIN: usize = 8;
const DIGITS: usize = 64;

/// The call whose id begins with `text`, if there is one and no other.
pub(super) async fn find(reach: &Reach, text: &str) -> Result<CallId, Refused> {
    let text = text.to_ascii_lowercase();
    check(&text)?;
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let query = ListQuery {
        after: before(&text).map(HexBytes),
        limit: Limit::try_from(2).ok(),
        ..ListQuery::default()
    };
    let page = reach.list(&query).await?;
    let found: Vec<_> = page.calls.iter().filter(|call| call.id.starts_with(&text)).collect();
    match found[..] {
        [call] => call.id.parse().map_err(Refused::failed),
        [] => Err(Refused::Failed(format!(
            "call {text}: no record has an id that begins so"
        ))),
        _ => Err(Refused::Failed(format!(
            "call {text}: several records have ids that begin so; give more digits"
        ))),
    }
}

/// Refuses what is no id.
pub(super) fn check(text: &str) -> Result<(), Refused> {
    let is_hex = text.bytes().all(|digit| digit.is_ascii_hexdigit());
    if is_hex && (DIGITS_MIN..=DIGITS).contains(&text.len()) {
        return Ok(());
    }
    Err(Refused::Usage(format!(
        "{text:?} is no id: accepted are {DIGITS_MIN} to {DIGITS} hex digits"
    )))
}

/// The id just before all that begin with `prefix`, since pages start after an id; none if they are the first.
fn before(prefix: &str) -> Option<[u8; 32]> {
    let first: CallId = format!("{prefix:0<DIGITS$}").parse().ok()?;
    let mut bytes = *first.as_bytes();
    for byte in bytes.iter_mut().rev() {
        let borrows = *byte == 0;
        *byte = byte.wrapping_sub(1);
        if !borrows {
            return Some(bytes);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_with_a_prefix_comes_right_after_what_is_before_it() {
        for (prefix, expected) in [
            ("00000001", Some(format!("00000000{}", "f".repeat(56)))),
            ("abcdef01", Some(format!("abcdef00{}", "f".repeat(56)))),
            ("abcdef012", Some(format!("abcdef011{}", "f".repeat(55)))),
            ("00000000", None),
        ] {
            let before = before(prefix).map(|bytes| CallId::from_bytes(bytes).to_string());
            assert_eq!(before, expected, "{prefix}");
        }
    }

    #[test]
    fn what_is_no_id_is_refused() {
        for text in ["", "abc", "1234567", "1234567g", &"0".repeat(65)] {
            assert!(matches!(check(text), Err(Refused::Usage(_))), "{text:?}");
        }
        assert!(check("12345678").is_ok());
    }
}
