//! What no file may contain, whatever it is for.

use super::lexed::Lexed;
use super::tree::Tree;
use super::{CHECKS_FOLDER, Finding};

const UNFINISHED_CODE: &[&str] = &["todo!(", "unimplemented!(", "#[ignore"];
const UNFINISHED_WORDS: &[&str] = &["FIXME", "XXX"];

/// Files whose white space a person typed. Others may carry bytes that matter.
const TYPED: &[&str] = &[
    "", "css", "html", "js", "json", "lua", "md", "rs", "sh", "sql", "toml", "ts", "yaml", "yml",
];

const MACHINE_FOLDERS: &[&str] = &["/root/", "/work/", "/home/", "/Users/"];

/// What a public lock file may name. Any other registry is somebody's mirror.
const PUBLIC_REGISTRIES: &[&str] = &[
    "https://github.com/rust-lang/crates.io-index",
    "https://registry.npmjs.org/",
];
const REGISTRY_MARKS: &[&str] = &[
    "registry+",
    "sparse+",
    "://registry.",
    "://npm.",
    "://pypi.",
    "artifactory",
    "replace-with",
];

pub(super) fn unfinished(tree: &Tree) -> Vec<Finding> {
    let fix = "finish it, or leave it out and say so where users read";
    let mut findings = Vec::new();
    for file in tree.rust() {
        for (number, line) in Lexed::new(&file.text).lines() {
            for mark in UNFINISHED_CODE.iter().filter(|mark| line.contains(**mark)) {
                findings.push(Finding::new(&file.path, number, format!("`{mark}`"), fix));
            }
        }
    }
    for file in tree.written_here().filter(|file| !file.path.starts_with(CHECKS_FOLDER)) {
        for (number, line) in file.lines() {
            let mut words = line.split(|c: char| !c.is_alphanumeric());
            if let Some(word) = words.find(|word| UNFINISHED_WORDS.contains(word)) {
                findings.push(Finding::new(&file.path, number, word, fix));
            }
        }
    }
    findings
}

pub(super) fn whitespace(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.written_here().filter(|file| TYPED.contains(&file.extension())) {
        for (number, line) in (1..).zip(file.text.split('\n')) {
            if line.contains('\t') {
                findings.push(Finding::new(&file.path, number, "a tab", "indent with spaces"));
            }
            if line.ends_with(char::is_whitespace) {
                let what = "white space at the end of the line";
                findings.push(Finding::new(&file.path, number, what, "remove it"));
            }
        }
        if !file.text.is_empty() && !file.text.ends_with('\n') {
            let last = file.text.lines().count();
            let what = "no newline at the end of the file";
            findings.push(Finding::new(&file.path, last, what, "add one"));
        }
    }
    findings
}

/// Absolute paths that exist on one machine only.
pub(super) fn machine_paths(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| !file.path.starts_with(CHECKS_FOLDER)) {
        for (number, line) in file.lines() {
            for folder in MACHINE_FOLDERS.iter().filter(|folder| has_root(line, folder)) {
                let what = format!("a path under `{folder}`, which only one machine has");
                let fix = "make it relative, or take it from the environment";
                findings.push(Finding::new(&file.path, number, what, fix));
            }
        }
    }
    findings
}

/// Whether the folder begins a path, and is not the middle of a longer one or of an address.
fn has_root(line: &str, folder: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || "_-.~/}*".contains(c);
    line.match_indices(folder)
        .any(|(at, _)| !line[..at].ends_with(inside) || line[..at].ends_with("file://"))
}

/// Lock files and settings that point at a registry which others cannot reach.
pub(super) fn registries(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| !file.path.starts_with(CHECKS_FOLDER)) {
        for (number, line) in file.lines() {
            let public = PUBLIC_REGISTRIES.iter().any(|registry| line.contains(registry));
            if !public && REGISTRY_MARKS.iter().any(|mark| line.contains(mark)) {
                let fix = "let it come from crates.io or registry.npmjs.org";
                findings.push(Finding::new(&file.path, number, "another registry", fix));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::places;
    use super::*;

    #[test]
    fn unfinished_work_is_found_in_code_and_in_prose() {
        let bad = "fn f() {\n    todo!()\n}\n#[ignore = \"slow\"]\nfn g() { unimplemented!(\"g\") } // FIXME\n";
        let found = places(unfinished, &[("a.rs", bad), ("a.md", "XXX: later\n")]);
        assert_eq!(found, ["a.rs:2", "a.rs:4", "a.rs:5", "a.rs:5", "a.md:1"]);
        let good = "// never leave a todo!() behind\nlet template = \"/tmp/XXXXXX\";\n";
        assert!(places(unfinished, &[("a.rs", good)]).is_empty());
    }

    #[test]
    fn stray_whitespace_is_found_where_a_person_typed_it() {
        let bad = [("a.rs", "a \n\tb\nc\r\n"), ("run", "a"), ("a.md", "a\n")];
        assert_eq!(places(whitespace, &bad), ["a.rs:1", "a.rs:2", "a.rs:3", "run:1"]);
        let good = [("a.rs", "a\n\nb\n"), ("a.svg", "\t"), ("tests/vectors/a.json", "\t1")];
        assert!(places(whitespace, &good).is_empty());
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        let bad = "see /root/.cargo\n\"file:///home/me/x\"\n`/work/main`\n";
        assert_eq!(places(machine_paths, &[("a.md", bad)]), ["a.md:1", "a.md:2", "a.md:3"]);
        let good = "docs/work/a.md, https://example.com/home/, $ROOT/root/ and ./work/b\n";
        assert!(places(machine_paths, &[("a.md", good)]).is_empty());
    }

    #[test]
    fn registries_that_others_cannot_reach_are_found() {
        let bad = "source = \"registry+https://crates.example/index\"\n\"https://npm.example/a\"\n";
        assert_eq!(places(registries, &[("a.lock", bad)]), ["a.lock:1", "a.lock:2"]);
        let good = "source = \"registry+https://github.com/rust-lang/crates.io-index\"\n\
                    \"resolved\": \"https://registry.npmjs.org/a/-/a-1.tgz\"\n";
        assert!(places(registries, &[("a.lock", good)]).is_empty());
    }
}
