use std::error::Error;
use std::fmt;

/// Why the lab could not do its work. It says nothing about the stores.
#[derive(Debug)]
pub struct Failure {
    context: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    pub(crate) fn new(context: impl Into<String>) -> Self {
        Self {
            context: context.into(),
            source: None,
        }
    }
}

/// Says what was attempted when an error came.
pub(crate) fn failed<E>(context: impl Into<String>) -> impl FnOnce(E) -> Failure
where
    E: Into<Box<dyn Error + Send + Sync>>,
{
    move |error| Failure {
        context: context.into(),
        source: Some(error.into()),
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Some(source) => write!(f, "{}: {source}", self.context),
            None => f.write_str(&self.context),
        }
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
