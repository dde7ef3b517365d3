//! What is wrong with a file, and where.

/// One thing that is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Counted from one; 0 if it is the file as a whole.
    pub(crate) line: usize,
    /// The setting or the table, with the keys that lead to it; none if the text is no TOML there.
    pub(crate) key: Option<String>,
    pub(crate) what: String,
}

/// Everything that is wrong with a file.
#[derive(Debug)]
pub(crate) struct Faults<'t> {
    text: &'t str,
    found: Vec<Fault>,
}

impl<'t> Faults<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        Self {
            text,
            found: Vec::new(),
        }
    }

    /// Something that is wrong with `key`.
    pub(crate) fn add(&mut self, at: usize, key: impl Into<String>, what: impl Into<String>) {
        let fault = Fault {
            line: self.line(at),
            key: Some(key.into()),
            what: what.into(),
        };
        self.found.push(fault);
    }

    /// Something that cannot be read at all.
    pub(crate) fn add_unread(&mut self, at: usize, what: impl Into<String>) {
        let fault = Fault {
            line: self.line(at),
            key: None,
            what: what.into(),
        };
        self.found.push(fault);
    }

    pub(crate) fn extend(&mut self, faults: Vec<Fault>) {
        self.found.extend(faults);
    }

    /// The line of a place in the text.
    pub(crate) fn line(&self, at: usize) -> usize {
        1 + self.text.get(..at).unwrap_or(self.text).matches('\n').count()
    }

    /// In the order of the file.
    pub(crate) fn into_found(mut self) -> Vec<Fault> {
        self.found.sort_by_key(|fault| fault.line);
        self.found
    }
}
