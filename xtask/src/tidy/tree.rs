//! The files that belong to the project.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::Result;
use crate::process::capture;

pub(super) struct Tree {
    pub(super) files: Vec<File>,
}

pub(super) struct File {
    /// From the workspace's root, with `/`.
    pub(super) path: String,
    /// Empty for what is not text.
    pub(super) text: String,
}

impl Tree {
    /// What git tracks and what it would track if it were added.
    pub(super) fn of_workspace(root: &Path) -> Result<Self> {
        let mut git = Command::new("git");
        // The gate may run as another user than the one who cloned.
        git.args(["-c", "safe.directory=*", "ls-files", "-z"])
            .args(["--cached", "--others", "--exclude-standard"])
            .current_dir(root);
        let mut paths = match capture(&mut git) {
            Ok(listed) => listed.split_terminator('\0').map(str::to_owned).collect(),
            // An unpacked archive has no git, and nothing in it is ignored but what we build.
            Err(_) => walk(root)?,
        };
        paths.sort();
        paths.dedup();
        let mut files = Vec::with_capacity(paths.len());
        for path in paths {
            let on_disk = root.join(&path);
            // Removed and not yet committed, or a link to something that has its own entry.
            if !on_disk.symlink_metadata().is_ok_and(|found| found.is_file()) {
                continue;
            }
            let bytes = fs::read(&on_disk).map_err(|error| format!("read {path}: {error}"))?;
            let text = String::from_utf8(bytes).unwrap_or_default();
            let text = if text.contains('\0') { String::new() } else { text };
            files.push(File { path, text });
        }
        Ok(Self { files })
    }

    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let file = |(path, text): &(&str, &str)| File {
            path: (*path).to_owned(),
            text: (*text).to_owned(),
        };
        Self {
            files: files.iter().map(file).collect(),
        }
    }

    pub(super) fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.extension() == "rs")
    }

    /// What is written as a program: names and sizes count in every language.
    pub(super) fn code(&self) -> impl Iterator<Item = &File> {
        self.files
            .iter()
            .filter(|file| ["rs", "ts"].contains(&file.extension()))
    }

    /// The files whose text is ours to shape: test vectors and vendored assets keep their bytes.
    pub(super) fn written_here(&self) -> impl Iterator<Item = &File> {
        self.files
            .iter()
            .filter(|file| !file.has_folder("vectors") && !file.has_folder("vendor"))
    }
}

impl File {
    pub(super) fn has_folder(&self, name: &str) -> bool {
        self.folders().any(|folder| folder == name)
    }

    pub(super) fn folders(&self) -> impl Iterator<Item = &str> {
        let (folders, _) = self.path.rsplit_once('/').unwrap_or_default();
        folders.split('/')
    }

    pub(super) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// The part after the last dot; a name like `run` has none.
    pub(super) fn extension(&self) -> &str {
        self.name().rsplit_once('.').map_or("", |(_, extension)| extension)
    }

    /// The lines with their numbers, from one.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines())
    }
}

fn walk(root: &Path) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(root.join(&folder)).map_err(|error| format!("list {folder}: {error}"))?;
        for entry in entries.flatten() {
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            if entry.path().is_dir() {
                if ![".git", "target", "node_modules", "dist"].contains(&name.as_str()) {
                    folders.push(format!("{folder}{name}/"));
                }
            } else {
                paths.push(format!("{folder}{name}"));
            }
        }
    }
    Ok(paths)
}
