//! What lives in one place only: SQL and the reading of clocks.

use super::lexed::Lexed;
use super::tree::{File, Tree};
use super::{CHECKS_FOLDER, Finding};

const SQL_HOMES: &[&str] = &[
    "crates/exactly-sql/",
    "crates/exactly-bench/",
    "crates/exactly-crash/",
    "examples/",
    CHECKS_FOLDER,
];

/// A statement begins with the first word and has the second one somewhere behind it.
const STATEMENTS: &[(&str, &str)] = &[
    ("insert into ", ""),
    ("delete from ", ""),
    ("update ", " set "),
    ("select ", " from "),
];

const CLOCK_HOMES: &[&str] = &[
    "crates/exactly/src/clock.rs",
    "crates/exactly-bench/",
    "crates/exactly-crash/",
    "xtask/",
];

/// SQL statements in string literals outside the crates that speak SQL.
pub(super) fn sql(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust().filter(|file| !is_home(file, SQL_HOMES)) {
        for (line, string) in Lexed::new(&file.text).without_tests().strings {
            if let Some(statement) = statement(&string) {
                let what = format!("SQL (`{statement}`)");
                let fix = "move it to crates/exactly-sql";
                findings.push(Finding::new(&file.path, line, what, fix));
            }
        }
    }
    findings
}

fn statement(string: &str) -> Option<&'static str> {
    // A literal may break its lines anywhere.
    let words: Vec<&str> = string.split_whitespace().filter(|word| *word != "\\").collect();
    let string = format!("{} ", words.join(" ").to_lowercase());
    let has = |(begin, then): &&(&str, &str)| {
        string.match_indices(begin).any(|(at, _)| {
            !string[..at].ends_with(char::is_alphanumeric) && string[at + begin.len() - 1..].contains(then)
        })
    };
    STATEMENTS.iter().find(has).map(|(begin, _)| begin.trim_end())
}

/// Clocks that a test cannot hold still. Clippy knows the types; this also sees what is compiled
/// under a feature or for a platform that nobody linted.
pub(super) fn clocks(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust().filter(|file| !is_home(file, CLOCK_HOMES)) {
        let lexed = Lexed::new(&file.text).without_tests();
        let tokio_instant =
            imports_instant(&lexed.code, "tokio::time::") && !imports_instant(&lexed.code, "std::time::");
        for (number, line) in lexed.lines() {
            let instant = line.match_indices("Instant::now").any(|(at, _)| {
                let path = &line[..at];
                path.ends_with("std::time::") || !(tokio_instant || path.ends_with("tokio::time::"))
            });
            if instant || line.contains("SystemTime::now") {
                let fix = "take the time from exactly::clock";
                findings.push(Finding::new(&file.path, number, "a clock read in place", fix));
            }
        }
    }
    findings
}

/// Whether `Instant` is imported from that module, by itself or in a list.
fn imports_instant(code: &str, module: &str) -> bool {
    code.match_indices(module).any(|(at, _)| {
        let named = &code[at + module.len()..];
        let list = named.strip_prefix('{').and_then(|rest| rest.split('}').next());
        list.map_or_else(
            || named.starts_with("Instant;"),
            |list| list.split(',').any(|name| name.trim() == "Instant"),
        )
    })
}

fn is_home(file: &File, homes: &[&str]) -> bool {
    file.has_folder("tests") || file.name() == "tests.rs" || homes.iter().any(|home| file.path.starts_with(home))
}

#[cfg(test)]
mod tests {
    use super::super::places;
    use super::*;

    #[test]
    fn sql_outside_its_crates_is_found() {
        let bad = "f(\"INSERT INTO t values (1)\");\ng(\"with x as (select a,\n b\n from t)\");\n\
                   h(r\"update t set a = 1\", \"delete from t\")\n";
        let found = places(sql, &[("crates/exactly/src/a.rs", bad)]);
        let lines = [1, 2, 5, 5];
        assert_eq!(found, lines.map(|line| format!("crates/exactly/src/a.rs:{line}")));
    }

    #[test]
    fn sql_at_home_and_prose_are_not_found() {
        let statement = "f(\"select 1 from t\")\n";
        let prose = "// select one from many\ntokio::select! {}\nf(\"reselect it\", \"update me\")\n";
        let tested = format!("fn f() {{}}\n#[cfg(test)]\nmod tests {{\n{statement}}}\n");
        let good = [
            ("crates/exactly-sql/src/a.rs", statement),
            ("crates/exactly/tests/it/a.rs", statement),
            ("examples/refunds/src/main.rs", statement),
            ("docs/a.md", statement),
            ("crates/exactly/src/a.rs", prose),
            ("crates/exactly/src/b.rs", &tested),
        ];
        assert_eq!(places(sql, &good), [""; 0]);
    }

    #[test]
    fn clocks_read_in_place_are_found() {
        let bad = [
            ("a.rs", "let now = SystemTime::now();\n"),
            (
                "b.rs",
                "use std::time::{Duration, Instant};\nlet now = Instant::now();\n",
            ),
            (
                "c.rs",
                "use tokio::time::Instant;\nlet now = std::time::Instant::now();\n",
            ),
        ];
        assert_eq!(places(clocks, &bad), ["a.rs:1", "b.rs:2", "c.rs:2"]);
    }

    #[test]
    fn clocks_at_home_and_pausable_ones_are_not_found() {
        let read = "let now = SystemTime::now();\n";
        let good = [
            ("crates/exactly/src/clock.rs", read),
            ("crates/exactly-sql/tests/it/main.rs", read),
            ("xtask/src/ci.rs", read),
            (
                "a.rs",
                "use tokio::time::{Instant, sleep};\nlet now = Instant::now();\n",
            ),
            ("b.rs", "let now = tokio::time::Instant::now();\n// Instant::now\n"),
        ];
        assert_eq!(places(clocks, &good), [""; 0]);
    }
}
