use std::fmt;
use std::sync::Arc;

use crate::digest;

/// Whose key it is, and for what: keys are unique inside a scope and mean nothing outside it.
///
/// The principal is who was authenticated (a user id, a tenant, the digest of a credential), never something a caller
/// can put into a header at will. The operation is what is asked for: the method and the matched route, such as `POST
/// /refunds`, or a name of your own, such as `league.join`. A raw URL is a bad operation: the same key on two spellings
/// of it would run twice.
///
/// ```
/// use exactly::{CallId, Key, Scope};
///
/// let key = Key::new("abc")?;
/// let ann = Scope::new("user-1", "POST /refunds");
/// let bob = Scope::new("user-2", "POST /refunds");
/// assert_ne!(CallId::new(&ann, &key), CallId::new(&bob, &key));
/// # Ok::<(), exactly::key::InvalidKey>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Scope {
    /// None only when asked for by name, so that a principal someone forgot to fill in (an empty text) is not
    /// everyone's.
    principal: Option<Arc<str>>,
    operation: Arc<str>,
}

impl Scope {
    /// The keys of one principal for one operation.
    pub fn new(principal: impl Into<Arc<str>>, operation: impl Into<Arc<str>>) -> Self {
        Self {
            principal: Some(principal.into()),
            operation: operation.into(),
        }
    }

    /// The keys of everyone: whoever sends a key first owns it, and whoever sends it again gets the stored answer.
    /// Right for services with a single caller or with unguessable keys.
    pub fn global(operation: impl Into<Arc<str>>) -> Self {
        Self {
            principal: None,
            operation: operation.into(),
        }
    }

    /// Who, or none in a global scope.
    #[must_use]
    pub fn principal(&self) -> Option<&str> {
        self.principal.as_deref()
    }

    /// What.
    #[must_use]
    pub fn operation(&self) -> &str {
        &self.operation
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let principal = match &self.principal {
            Some(principal) => format!("#{}", digest::short(principal)),
            None => "global".to_owned(),
        };
        f.debug_struct("Scope")
            .field("principal", &format_args!("{principal}"))
            .field("operation", &self.operation)
            .finish()
    }
}
