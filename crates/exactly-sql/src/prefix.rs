//! Where names end that begin alike.

/// What comes behind every name that begins so, byte by byte. A search that ends there reads no other names, of which there may be
/// many more.
pub(crate) fn behind_all(prefix: &str) -> String {
    let mut letters = prefix.chars();
    let next = letters.next_back().and_then(|last| char::from_u32(u32::from(last) + 1));
    match next {
        Some(next) => format!("{}{next}", letters.as_str()),
        // Nothing has a name that begins with the last letter of all.
        None => char::MAX.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::behind_all;

    #[test]
    fn all_that_begin_so_are_before_it_and_nothing_else_is_behind_them() {
        for (prefix, first_other) in [
            ("endpoint/", "endpoint0"),
            ("a", "b"),
            ("ä", "å"),
            ("a\u{7f}", "a\u{80}"),
        ] {
            let end = behind_all(prefix);
            assert_eq!(end, first_other);
            assert!(*prefix < *end && format!("{prefix}zzz") < end && format!("{prefix}{}", char::MAX) < end);
        }
        for prefix in ["", "\u{d7ff}", "\u{10ffff}"] {
            assert_eq!(behind_all(prefix), "\u{10ffff}");
        }
    }
}
