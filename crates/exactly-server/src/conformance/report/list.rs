//! The rules themselves.

use std::fmt::Write as _;

use super::super::rule::{Need, Rule};

/// The rules with their sentences, for people.
pub(in super::super) fn listed(rules: &[&Rule]) -> String {
    let mut text = String::new();
    for rule in rules {
        let _ = writeln!(text, "{}\n    {} [{}]", rule.id, rule.statement, rule.sources);
        for need in needs(rule) {
            let _ = writeln!(text, "    {need}");
        }
    }
    text
}

/// The rules as a table of the docs.
pub(in super::super) fn markdown(rules: &[&Rule]) -> String {
    let mut text = String::from("| rule | what is promised | from | needs |\n|---|---|---|---|\n");
    for rule in rules {
        let needs: Vec<_> = needs(rule).iter().map(|need| need.replacen("needs ", "", 1)).collect();
        let needs = needs.join("; ");
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {needs} |",
            rule.id, rule.statement, rule.sources
        );
    }
    text
}

fn needs(rule: &Rule) -> Vec<String> {
    let in_words = rule.needs.iter().map(|need: &Need| need.describe());
    in_words.filter(|words| !words.is_empty()).collect()
}
