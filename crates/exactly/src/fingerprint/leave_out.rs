use std::collections::BTreeSet;
use std::error;
use std::fmt;

/// The fields of a body that a route does not count as part of the request: a client's clock, an attempt number, a
/// token that is new on every try.
///
/// A field left out may change, appear and vanish between two attempts. Everything else in the body still counts, and a
/// body without a canonical form (invalid JSON, say) counts whole.
///
/// ```
/// use exactly::fingerprint::LeaveOut;
///
/// let leave_out = LeaveOut::nothing().pointer("/client/sentAt")?.field("csrf_token");
/// assert_eq!(
///     LeaveOut::nothing().pointer("sentAt").unwrap_err().to_string(),
///     r#"json pointer "sentAt": must start with a slash, as in "/sentAt""#,
/// );
/// # Ok::<(), exactly::fingerprint::InvalidPointer>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaveOut {
    /// Sets that are read in order, so that the order of configuration does not change a fingerprint.
    pointers: BTreeSet<Box<str>>,
    fields: BTreeSet<Box<str>>,
    /// The pointers again, in the shape of the bodies they point into.
    tree: Branch,
}

/// A place in JSON bodies, and the places below it that pointers lead to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Branch {
    /// Few, as people write them: searched one by one.
    children: Vec<(Box<str>, Branch)>,
    left_out: bool,
}

/// A text that is no JSON pointer, or that points at the whole body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidPointer {
    pointer: Box<str>,
    reason: Reason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    WholeBody,
    NoSlash,
    Tilde,
}

impl LeaveOut {
    /// Every byte counts.
    #[must_use]
    pub const fn nothing() -> Self {
        Self {
            pointers: BTreeSet::new(),
            fields: BTreeSet::new(),
            tree: Branch::new(),
        }
    }

    /// Leaves out one place of JSON bodies, named by a JSON pointer (RFC 6901) such as `/client/sentAt` or
    /// `/items/0/id`.
    ///
    /// The empty pointer is refused: a route whose whole body does not count would answer any request with the stored
    /// answer to another.
    pub fn pointer(mut self, pointer: &str) -> Result<Self, InvalidPointer> {
        let invalid = |reason| InvalidPointer {
            pointer: pointer.into(),
            reason,
        };
        if pointer.is_empty() {
            return Err(invalid(Reason::WholeBody));
        }
        let path = pointer.strip_prefix('/').ok_or_else(|| invalid(Reason::NoSlash))?;
        let mut branch = &mut self.tree;
        for token in path.split('/') {
            let name = unescape(token).ok_or_else(|| invalid(Reason::Tilde))?;
            branch = branch.child_or_new(&name);
        }
        branch.left_out = true;
        self.pointers.insert(pointer.into());
        Ok(self)
    }

    /// Leaves out every field of this name from forms, and every part of this name from `multipart/form-data`.
    #[must_use]
    pub fn field(mut self, name: &str) -> Self {
        self.fields.insert(name.into());
        self
    }

    pub(super) fn pointers(&self) -> impl ExactSizeIterator<Item = &str> {
        self.pointers.iter().map(|pointer| &**pointer)
    }

    pub(super) fn fields(&self) -> impl ExactSizeIterator<Item = &str> {
        self.fields.iter().map(|field| &**field)
    }

    pub(super) fn has_fields(&self) -> bool {
        !self.fields.is_empty()
    }

    /// A name that is not UTF-8 cannot have been configured.
    pub(super) fn has_field(&self, name: &[u8]) -> bool {
        self.has_fields() && str::from_utf8(name).is_ok_and(|name| self.fields.contains(name))
    }

    pub(super) fn tree(&self) -> &Branch {
        &self.tree
    }
}

impl Branch {
    pub(super) const fn new() -> Self {
        Self {
            children: Vec::new(),
            left_out: false,
        }
    }

    pub(super) fn is_left_out(&self) -> bool {
        self.left_out
    }

    /// Whether any pointer leads further down from here.
    pub(super) fn has_children(&self) -> bool {
        !self.children.is_empty()
    }

    pub(super) fn child(&self, name: &[u8]) -> Option<&Self> {
        let mut children = self.children.iter();
        children.find_map(|(known, child)| (known.as_bytes() == name).then_some(child))
    }

    fn child_or_new(&mut self, name: &str) -> &mut Self {
        let known = self.children.iter().position(|(known, _)| **known == *name);
        let at = known.unwrap_or_else(|| {
            self.children.push((name.into(), Self::new()));
            self.children.len() - 1
        });
        &mut self.children[at].1
    }
}

/// `~1` stands for a slash and `~0` for a tilde; any other tilde is a mistake.
fn unescape(token: &str) -> Option<String> {
    let mut name = String::with_capacity(token.len());
    let mut chars = token.chars();
    while let Some(char) = chars.next() {
        name.push(match char {
            '~' => match chars.next()? {
                '0' => '~',
                '1' => '/',
                _ => return None,
            },
            char => char,
        });
    }
    Some(name)
}

impl fmt::Display for InvalidPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pointer = &self.pointer;
        write!(f, "json pointer {pointer:?}: ")?;
        match self.reason {
            Reason::WholeBody => f.write_str("points at the whole body; name a field in it"),
            Reason::NoSlash => {
                let fixed = format!("/{pointer}");
                write!(f, "must start with a slash, as in {fixed:?}")
            }
            Reason::Tilde => f.write_str("a tilde must be followed by 0 (for a tilde) or 1 (for a slash)"),
        }
    }
}

impl error::Error for InvalidPointer {}
