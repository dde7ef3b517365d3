//! Links from one page to another file of the project.

use std::collections::HashSet;

use super::Finding;
use super::tree::Tree;

/// Relative links must lead to a file or folder that is part of the project, not merely on disk.
pub(super) fn relative(tree: &Tree) -> Vec<Finding> {
    let mut known: HashSet<String> = HashSet::from([String::new()]);
    for file in &tree.files {
        let ends = file.path.match_indices('/').map(|(at, _)| at);
        known.extend(ends.map(|at| file.path[..at].to_owned()));
        known.insert(file.path.clone());
    }
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.extension() == "md") {
        let (folder, _) = file.path.rsplit_once('/').unwrap_or_default();
        let mut quoting = false;
        for (number, line) in file.lines() {
            let is_fence = line.trim_start().starts_with("```");
            quoting ^= is_fence;
            if quoting || is_fence {
                continue;
            }
            for target in targets(line) {
                if !resolve(folder, &target).is_some_and(|path| known.contains(&path)) {
                    let what = format!("the link to `{target}` leads nowhere");
                    let fix = "correct it, or add the file";
                    findings.push(Finding::new(&file.path, number, what, fix));
                }
            }
        }
    }
    findings
}

/// The files that a line links to, as written: `[text](target)`, `[name]: target`.
fn targets(line: &str) -> Vec<String> {
    let line = without_code(line);
    let inline = line.match_indices("](").filter_map(|(at, mark)| {
        let rest = &line[at + mark.len()..];
        rest.split(')').next()
    });
    let definition = line
        .trim_start()
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("]: "))
        .map(|(_, target)| target);
    inline.chain(definition).filter_map(file_part).collect()
}

/// Without title and fragment; none for other schemes and for places on the same page.
fn file_part(target: &str) -> Option<String> {
    let target = target.split_whitespace().next()?;
    let target = target.trim_start_matches('<').trim_end_matches('>');
    let path = target.split(['#', '?']).next()?;
    let has_scheme = path.split('/').next()?.contains(':');
    (!path.is_empty() && !has_scheme).then(|| path.replace("%20", " "))
}

fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// The path from the project's root, or none when it leaves the project.
fn resolve(folder: &str, target: &str) -> Option<String> {
    let (folder, target) = match target.strip_prefix('/') {
        Some(from_root) => ("", from_root),
        None => (folder, target),
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(target.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::super::places;
    use super::*;

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let page = "[a](gone.md) and ![b](img/gone.svg \"title\")\n\n[c]: ../../outside.md\n";
        let found = places(relative, &[("docs/a.md", page), ("README.md", "[d](docs/b.md#e)\n")]);
        assert_eq!(found, ["docs/a.md:1", "docs/a.md:1", "docs/a.md:3", "README.md:1"]);
    }

    #[test]
    fn links_that_lead_somewhere_or_elsewhere_are_not_found() {
        let page = "[a](../README.md#top), [b](b.md), [c](/docs), [d](#here), [e](.)\n\
                    [f](https://example.com/x.md) [g](mailto:a@example.com) `[h](gone.md)`\n\
                    ```\n[i](gone.md)\n```\n[`code`](b.md)\n";
        let files = [("docs/a.md", page), ("docs/b.md", ""), ("README.md", "")];
        assert_eq!(places(relative, &files), [""; 0]);
    }
}
