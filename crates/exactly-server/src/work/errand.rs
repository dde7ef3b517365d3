//! What a job sends.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use exactly::queue::{InvalidTask, Lane, Task};
use http::{HeaderName, HeaderValue, Method, header};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use url::Url;
use utoipa::ToSchema;

/// The kind of jobs whose sender named none.
pub(crate) const HTTP_KIND: &str = "http";

/// What the worker tells of the job itself, so nobody else may.
pub(crate) const JOB_KEY: HeaderName = HeaderName::from_static("exactly-job-key");
pub(crate) const FENCE: HeaderName = HeaderName::from_static("exactly-fence");
pub(crate) const ATTEMPT: HeaderName = HeaderName::from_static("exactly-attempt");
pub(crate) const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// No request needs more.
const HEADERS_MAX: usize = 64;
/// The longest that one attempt may be given.
const TIMEOUT_MS_MAX: u64 = 86_400_000;

/// A request that is made for a job. At most one of `body` and `body_text`.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = JobRequest)]
pub(crate) struct Errand {
    /// Where it goes: an http or https address. Redirects are not followed.
    #[schema(max_length = 8192)]
    pub(crate) url: String,
    /// POST unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, pattern = "^(GET|POST|PUT|PATCH|DELETE)$")]
    pub(crate) method: Option<String>,
    /// What it carries beside what the job is known by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(required = false)]
    pub(crate) headers: BTreeMap<String, String>,
    /// Its body, as JSON, sent as it is written here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = serde_json::Value, required = false)]
    pub(crate) body: Option<Box<RawValue>>,
    /// Its body, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) body_text: Option<String>,
    /// How long one attempt may take, in milliseconds; 5 minutes unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1, maximum = 86_400_000)]
    pub(crate) timeout_ms: Option<u64>,
    /// Whether it may be sent again when nobody knows what came of it. True unless told otherwise, because it carries a key.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    #[schema(default = true, required = false)]
    pub(crate) repeatable: bool,
    /// What kind of job it is; there is one of a kind with a key. `http` unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_length = 128)]
    pub(crate) kind: Option<String>,
    /// The lane that it waits in; the one of its kind unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_length = 255)]
    pub(crate) lane: Option<String>,
    /// The version of the algorithm that is to do it, kept with the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) version: Option<u32>,
}

/// What is wrong with a part of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) field: String,
    pub(crate) why: String,
}

impl Wrong {
    pub(crate) fn new(field: impl Into<String>, why: impl fmt::Display) -> Self {
        Self {
            field: field.into(),
            why: why.to_string(),
        }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.why)
    }
}

impl Errand {
    /// Refuses what could never be sent, while somebody is there to be told.
    pub(crate) fn check(&self) -> Result<(), Wrong> {
        address("url", &self.url)?;
        self.method()?;
        check_headers("headers", &self.headers)?;
        if self.body.is_some() && self.body_text.is_some() {
            return Err(Wrong::new("body_text", "there is a body too; accepted is one of them"));
        }
        if let Some(ms) = self.timeout_ms.filter(|ms| !(1..=TIMEOUT_MS_MAX).contains(ms)) {
            let why = format!("is {ms}, accepted are 1 to {TIMEOUT_MS_MAX}");
            return Err(Wrong::new("timeout_ms", why));
        }
        for (field, name) in [("kind", Some(self.kind())), ("lane", self.lane.as_deref())] {
            if name.is_some_and(|name| name.starts_with("exactly.")) {
                let why = format!("{field}s that begin with `exactly.` are the server's own");
                return Err(Wrong::new(field, why));
            }
        }
        Ok(())
    }

    /// The task of this request under this key.
    pub(crate) fn task(&self, key: &str) -> Result<Task, Wrong> {
        self.check()?;
        let task = self.unchecked_task(key).map_err(|error| {
            let why = error.to_string();
            // The message names which part it is about.
            let field = ["kind", "payload"]
                .into_iter()
                .find(|part| why.contains(&format!("the {part}")));
            Wrong::new(field.unwrap_or("key"), why)
        })?;
        match &self.lane {
            Some(lane) => Ok(task.in_lane(Lane::new(lane.as_str()).map_err(|why| Wrong::new("lane", why))?)),
            None => Ok(task),
        }
    }

    fn unchecked_task(&self, key: &str) -> Result<Task, InvalidTask> {
        // What is a column of its own is not in the payload too.
        let sent = Self {
            kind: None,
            lane: None,
            version: None,
            ..self.clone()
        };
        let payload = serde_json::to_vec(&sent).expect("texts and numbers are always JSON");
        Ok(Task::new(self.kind(), key, payload)?.with_version(self.version.unwrap_or(0)))
    }

    pub(crate) fn kind(&self) -> &str {
        self.kind.as_deref().unwrap_or(HTTP_KIND)
    }

    pub(crate) fn method(&self) -> Result<Method, Wrong> {
        let text = self.method.as_deref().unwrap_or("POST");
        let accepted = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
        let found = accepted.into_iter().find(|method| method.as_str() == text);
        found.ok_or_else(|| {
            let why = format!("is {text:?}, accepted are GET, POST, PUT, PATCH and DELETE");
            Wrong::new("method", why)
        })
    }

    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout_ms.map(Duration::from_millis)
    }

    /// The body, and what it is if nobody says otherwise. The same bytes on every attempt.
    pub(crate) fn content(&self) -> Option<(Bytes, Option<&'static str>)> {
        let json = self.body.as_ref().map(|body| {
            let bytes = Bytes::copy_from_slice(body.get().as_bytes());
            (bytes, Some("application/json"))
        });
        json.or_else(|| {
            let text = self.body_text.as_ref()?;
            Some((Bytes::copy_from_slice(text.as_bytes()), None))
        })
    }

    /// The same without what opens other doors, to be shown.
    pub(crate) fn without_secrets(mut self) -> Self {
        hide_secrets(&mut self.headers);
        self
    }
}

/// Takes out the values of headers that open other doors, by what such headers are called.
pub(crate) fn hide_secrets(headers: &mut BTreeMap<String, String>) {
    const WORDS: [&str; 7] = ["auth", "cookie", "key", "secret", "token", "signature", "password"];
    for (name, value) in headers {
        let name = name.to_ascii_lowercase();
        if WORDS.iter().any(|word| name.contains(word)) {
            "…".clone_into(value);
        }
    }
}

/// An address that can be called.
pub(crate) fn address(field: &str, text: &str) -> Result<Url, Wrong> {
    let url: Url = text
        .parse()
        .map_err(|error| Wrong::new(field, format!("is no address: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(Wrong::new(field, "accepted is an http or https address"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        let why = "put the name and the password into an Authorization header";
        return Err(Wrong::new(field, why));
    }
    Ok(url)
}

pub(crate) fn check_headers(field: &str, headers: &BTreeMap<String, String>) -> Result<(), Wrong> {
    if headers.len() > HEADERS_MAX {
        let why = format!("there are {}, and {HEADERS_MAX} are the most", headers.len());
        return Err(Wrong::new(field, why));
    }
    for (name, value) in headers {
        let at = || format!("{field}.{name}");
        let parsed: HeaderName = name.parse().map_err(|_| Wrong::new(at(), "is no name of a header"))?;
        if HeaderValue::from_str(value).is_err() {
            return Err(Wrong::new(at(), "has a value that cannot stand in a header"));
        }
        let framing = [
            header::HOST,
            header::CONTENT_LENGTH,
            header::TRANSFER_ENCODING,
            header::CONNECTION,
            header::UPGRADE,
            header::TE,
            header::TRAILER,
            header::EXPECT,
        ];
        let own = parsed == IDEMPOTENCY_KEY || parsed.as_str().starts_with("exactly-");
        if own || framing.contains(&parsed) || parsed == "keep-alive" || parsed == "x-request-timeout" {
            return Err(Wrong::new(at(), "is set by the server itself; leave it out"));
        }
    }
    Ok(())
}

/// Without headers, content and the query, which are the sender's secrets.
impl fmt::Debug for Errand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.url.split(['?', '#']).next().unwrap_or_default();
        f.debug_struct("Errand")
            .field("method", &self.method)
            .field("place", &place)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_yes(yes: &bool) -> bool {
    *yes
}
