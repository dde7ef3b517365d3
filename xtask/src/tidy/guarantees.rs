//! Promises that name the tests which hold them.

use std::collections::HashSet;

use super::Finding;
use super::lexed::Lexed;
use super::tree::Tree;

const PAGE: &str = "GUARANTEES.md";

/// Every name in backticks in the last column of a table must be a function of the workspace.
pub(super) fn tests(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.files.iter().find(|file| file.path == PAGE) else {
        let fix = "write down each promise and the test that holds it";
        return vec![Finding::new(PAGE, 1, "missing", fix)];
    };
    let functions = functions(tree);
    let mut findings = Vec::new();
    let lines: Vec<(usize, &str)> = page.lines().collect();
    for (index, (number, line)) in lines.iter().enumerate() {
        let is_heading = lines.get(index + 1).is_some_and(|(_, next)| is_rule(next));
        if !line.starts_with('|') || is_rule(line) || is_heading {
            continue;
        }
        for name in names(last_cell(line)) {
            let function = name.rsplit("::").next().unwrap_or(name).trim_end_matches("()");
            if !functions.contains(function) {
                let what = format!("no test is called `{name}`");
                let fix = "name the test that holds this promise, or write it";
                findings.push(Finding::new(PAGE, *number, what, fix));
            }
        }
    }
    findings
}

fn functions(tree: &Tree) -> HashSet<String> {
    let mut functions = HashSet::new();
    for file in tree.rust() {
        let lexed = Lexed::new(&file.text);
        let mut words = lexed.code.split(|c: char| !c.is_alphanumeric() && c != '_');
        while let Some(word) = words.next() {
            if word == "fn" {
                functions.extend(words.next().map(str::to_owned));
            }
        }
    }
    functions
}

/// The line between a table's heading and its rows.
fn is_rule(line: &str) -> bool {
    line.starts_with('|') && line.contains('-') && line.chars().all(|c| "|-: ".contains(c))
}

fn last_cell(row: &str) -> &str {
    let row = row.trim_end().trim_end_matches('|');
    row.rsplit_once('|').map_or(row, |(_, cell)| cell)
}

fn names(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::super::places;
    use super::tests as check;

    const TEST: (&str, &str) = ("tests/it/a.rs", "#[test]\nfn a_stale_claim_cannot_complete() {}\n");

    #[test]
    fn a_promise_without_its_test_is_found() {
        let page = "| promise | `held` by |\n|---|:-:|\n\
                    | fenced | `store::a_stale_claim_cannot_complete` |\n\
                    | `kept` | `a_stale_claim_cannot_complete`, `store::gone` |\n";
        assert_eq!(places(check, &[("GUARANTEES.md", page), TEST]), ["GUARANTEES.md:4"]);
    }

    #[test]
    fn promises_with_tests_and_prose_are_not_found() {
        let page = "Run `cargo xtask test`.\n\n| promise | test |\n|---|---|\n\
                    | `fenced` | `a_stale_claim_cannot_complete` |\n| not promised | – |\n";
        assert_eq!(places(check, &[("GUARANTEES.md", page), TEST]), [""; 0]);
    }

    #[test]
    fn a_function_named_only_in_a_comment_holds_nothing() {
        let page = "| p | t |\n|---|---|\n| a | `b` |\n";
        let found = places(check, &[("GUARANTEES.md", page), ("a.rs", "// fn b() {}\n")]);
        assert_eq!(found, ["GUARANTEES.md:3"]);
    }

    #[test]
    fn a_missing_page_is_found() {
        assert_eq!(places(check, &[TEST]), ["GUARANTEES.md:1"]);
    }
}
