//! What an answer tells.

use std::time::Duration;

use super::code::{Code, Repeat};

/// Whether an effect came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It did.
    Happened,
    /// It did not.
    DidNotHappen,
    /// Nobody on this side knows.
    Unknown,
}

/// What the server says of the key, by `Idempotency-Status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyWord {
    /// This is the call's answer, kept from now on.
    Stored,
    /// This is the call's answer, as it was kept.
    Replayed,
    /// Nothing happened, and a repetition runs.
    Freed,
    /// Nobody knows what came of it.
    Unknown,
}

/// Until when the key stands for this call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// That long from when the answer came.
    In(Duration),
    /// For good.
    Never,
}

/// What an answer tells, apart from its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// The HTTP status.
    pub status: u16,
    /// The meaning of its error code, if it has one that is known.
    pub code: Option<Code>,
    /// The server's own word on whether repeating helps.
    pub retryable: Option<bool>,
    /// What became of the key.
    pub key: Option<KeyWord>,
    /// How long the server wants to be left alone.
    pub retry_after: Option<Duration>,
    /// Until when the key stands.
    pub expires: Option<Expiry>,
}

impl Heard {
    /// A bare status, from a server that says nothing else.
    pub const fn status(status: u16) -> Self {
        Self {
            status,
            code: None,
            retryable: None,
            key: None,
            retry_after: None,
            expires: None,
        }
    }

    /// Whether the effect came about, as far as this answer alone can tell.
    pub fn fate(&self) -> Fate {
        match self.code {
            Some(Code::ProviderDuplicate | Code::ReplayUnavailable) => return Fate::Happened,
            Some(Code::OutcomeUnknown | Code::InProgress | Code::DependencyTimeout) => return Fate::Unknown,
            _ => {}
        }
        match self.key {
            Some(KeyWord::Unknown) => return Fate::Unknown,
            Some(KeyWord::Freed) => return Fate::DidNotHappen,
            Some(KeyWord::Stored | KeyWord::Replayed) | None => {}
        }
        match self.status {
            // 303 says where the result of what was done is found.
            200..=299 | 303 => Fate::Happened,
            // 503 is how a server says that it did not begin; 307 and 308 send the request elsewhere undone.
            400..=499 | 503 | 307 | 308 => Fate::DidNotHappen,
            // A 500 comes before or after the effect, and a gateway's 502 or 504 from somebody who does not know.
            _ => Fate::Unknown,
        }
    }

    /// Whether this is the answer that the key will have from now on, so that no attempt before or behind it, not even one
    /// that is still on its way, can come to another end.
    pub fn speaks_for_the_key(&self) -> bool {
        matches!(self.key, Some(KeyWord::Stored | KeyWord::Replayed))
    }

    /// Whether repeating the call can help: by the server's word, else by the code, else by the status.
    pub fn repeat(&self) -> Repeat {
        if let Some(retryable) = self.retryable {
            return if retryable { Repeat::Helps } else { Repeat::IsUseless };
        }
        if let Some(code) = self.code {
            return code.repeat();
        }
        match self.status {
            408 | 429 | 500 | 502 | 503 | 504 => Repeat::Helps,
            _ => Repeat::IsUseless,
        }
    }
}
