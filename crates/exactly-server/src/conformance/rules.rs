//! Every sentence of the contract that can be seen from outside.

mod content;
mod doubt;
mod ending;
mod hang_up;
mod header;
mod in_flight;
mod key;
mod key_setting;
mod label;
mod replay;
mod retention;
mod scope;
mod store;

use super::rule::Rule;

/// All rules, in the order of the contract.
pub(super) fn all() -> impl Iterator<Item = &'static Rule> {
    [
        key::RULES,
        key_setting::RULES,
        scope::RULES,
        content::RULES,
        replay::RULES,
        header::RULES,
        in_flight::RULES,
        hang_up::RULES,
        ending::RULES,
        doubt::RULES,
        label::RULES,
        retention::RULES,
        store::RULES,
    ]
    .into_iter()
    .flatten()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_rule_has_a_name_of_its_own_and_one_sentence() {
        let mut ids = HashSet::new();
        for rule in all() {
            assert!(ids.insert(rule.id), "{}", rule.id);
            let is_id = rule
                .id
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
            assert!(is_id, "{}", rule.id);
            assert!(rule.statement.ends_with('.'), "{}", rule.statement);
            let is_source = |source: &str| ["Y", "T", "P", "H", "I", "+"].contains(&source);
            assert!(rule.sources.split(' ').all(is_source), "{}: {}", rule.id, rule.sources);
        }
    }
}
