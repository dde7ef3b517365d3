//! Names and sizes of files and modules.

use super::Finding;
use super::lexed::Lexed;
use super::tree::Tree;

/// A list of cases may be longer than code.
const LINES_MAX: usize = 400;
const TEST_LINES_MAX: usize = 800;

/// Where things go when nobody decides what they are.
const NAMES_WITHOUT_MEANING: &[&str] = &[
    "core", "util", "utils", "helper", "helpers", "common", "misc", "manager",
];

const NAME_FIX: &str = "name it after what it does";

/// No `mod.rs`, and no file or folder of code whose name says nothing.
pub(super) fn files(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.code() {
        if file.name() == "mod.rs" {
            let fix = "name the file after its module, beside the module's folder";
            findings.push(Finding::new(&file.path, 1, "a mod.rs", fix));
        }
        let stem = file.name().split('.').next().unwrap_or_default();
        for part in file.folders().chain([stem]) {
            if NAMES_WITHOUT_MEANING.contains(&part) {
                let what = format!("`{part}` says nothing as a name");
                findings.push(Finding::new(&file.path, 1, what, NAME_FIX));
            }
        }
    }
    findings
}

/// The same names for modules written inside a file.
pub(super) fn modules(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        for (number, line) in Lexed::new(&file.text).lines() {
            let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            let named = words.find(|word| *word == "mod").and(words.next());
            // `mod util;` has a file of that name, which is the finding.
            let inline = line.contains('{');
            if let Some(name) = named.filter(|name| inline && NAMES_WITHOUT_MEANING.contains(name)) {
                let what = format!("`mod {name}` says nothing as a name");
                findings.push(Finding::new(&file.path, number, what, NAME_FIX));
            }
        }
    }
    findings
}

pub(super) fn sizes(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.code() {
        let max = if file.folders().any(|folder| ["test", "tests"].contains(&folder)) {
            TEST_LINES_MAX
        } else {
            LINES_MAX
        };
        let lines = file.text.lines().count();
        if lines > max {
            let what = format!("{lines} lines, over {max}");
            findings.push(Finding::new(
                &file.path,
                max + 1,
                what,
                "split it where a name offers itself",
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::places;
    use super::*;

    #[test]
    fn mod_rs_and_empty_names_are_found() {
        let bad = [
            ("crates/a/src/store/mod.rs", ""),
            ("crates/a/tests/common/database.rs", ""),
            ("crates/a/src/utils.rs", ""),
            ("clients/a/src/utils.ts", ""),
        ];
        let found = places(files, &bad);
        assert_eq!(found, bad.map(|(path, _)| format!("{path}:1")));
        let good = [
            ("crates/a/src/store.rs", ""),
            ("docs/common/page.md", ""),
            ("a/score.rs", ""),
        ];
        assert!(places(files, &good).is_empty());
    }

    #[test]
    fn inline_modules_without_a_meaning_are_found() {
        let bad = "mod key;\npub(crate) mod helpers {\n}\n";
        assert_eq!(places(modules, &[("a.rs", bad)]), ["a.rs:2"]);
        let good = "mod tests {\n}\n// mod util {\nuse core::mem;\n";
        assert!(places(modules, &[("a.rs", good)]).is_empty());
    }

    #[test]
    fn only_code_over_the_limit_is_found() {
        let longest = "\n".repeat(LINES_MAX);
        let longer = "\n".repeat(LINES_MAX + 1);
        assert!(places(sizes, &[("a.rs", &longest), ("a.md", &longer)]).is_empty());
        assert_eq!(
            places(sizes, &[("a.rs", &longer), ("b.ts", &longer)]),
            ["a.rs:401", "b.ts:401"]
        );
        let tests = [
            ("crates/a/tests/it/a.rs", &*longer),
            ("clients/a/test/a.test.ts", &longer),
        ];
        assert!(places(sizes, &tests).is_empty());
    }
}
