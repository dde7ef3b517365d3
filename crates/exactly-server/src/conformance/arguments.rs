//! What the command line says about the server to check.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::counter::Counter;
use super::place::Place;
use super::preset::{Guarantee, Preset};
use super::request::Line;
use super::setting::Routes;
use super::socket::Trust;
use super::subject::Target;

/// Where the shipped upstream's operation is, as the target passes it on.
const PATH_DEFAULT: &str = "/effects/payments";
const BODY_DEFAULT: &str = r#"{"amount": {n}, "currency": "EUR", "reference": "{tag}"}"#;

/// Which server, and how to speak to it.
#[derive(Debug, clap::Args)]
pub(super) struct Check {
    /// The server to check, such as `http://127.0.0.1:8080` or `https://staging.example`. It gets real requests: never one that customers use.
    #[arg(long, value_name = "URL", required_unless_present = "list")]
    target: Option<Place>,
    /// Trust the certificate authorities in this PEM file, and no others.
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// Which statuses to expect.
    #[arg(long, value_enum, default_value_t)]
    preset: Preset,
    /// What the operation promises when something breaks.
    #[arg(long, value_enum, default_value_t)]
    guarantee: Guarantee,
    /// The operation's path; it is filled in as the body is.
    #[arg(long, value_name = "PATH", default_value = PATH_DEFAULT, help_heading = "Operation")]
    path: UrlPath,
    /// The operation's method.
    #[arg(long, default_value = "POST", value_parser = ["POST", "PUT", "PATCH", "DELETE"], help_heading = "Operation")]
    method: String,
    /// The operation's body. In it, tag in braces stands for a name that is new for each operation, and n in braces for
    /// a number that says what is asked for. Given twice, the second is the same operation with other content.
    #[arg(long, value_name = "TEMPLATE", default_value = BODY_DEFAULT, help_heading = "Operation")]
    body: Vec<String>,
    /// The body's type.
    #[arg(
        long,
        value_name = "TYPE",
        default_value = "application/json",
        help_heading = "Operation"
    )]
    content_type: String,
    /// A header of the caller, such as 'Authorization: Bearer x'; shown nowhere. Can be repeated.
    #[arg(long, value_name = "HEADER", help_heading = "Operation")]
    header: Vec<CallerHeader>,
    /// A header of a second caller, in place of the first one's of that name. Can be repeated.
    #[arg(long, value_name = "HEADER", help_heading = "Operation")]
    other_header: Vec<CallerHeader>,
    /// Another host that the target answers for, as something else than the first. Without it, all its names are one.
    #[arg(long, value_name = "HOST", help_heading = "Operation")]
    other_host: Option<HostName>,
    /// A route that is set otherwise, by the name of its setting: required, field, alias, uuid, off, leave-out,
    /// short, secret, rerunnable, impatient, or all. It is at /effects/NAME, or at PATH. Can be repeated.
    #[arg(long, value_name = "NAME[=PATH]", help_heading = "Operation")]
    route: Vec<Routes>,
    /// Where effects are counted: the shipped upstream's own address, or a URL with {tag} in it that answers with a
    /// number. Without it, the upstream is looked for behind the target.
    #[arg(long, value_name = "URL", help_heading = "Operation")]
    effects_url: Option<Counter>,
    /// Where a refusal's code is in its JSON, as a pointer such as /error/code, if refusals are not problem+json.
    #[arg(long, value_name = "POINTER", help_heading = "Operation")]
    code_at: Option<Pointer>,
    /// The target's store was stopped: check what it does then, and nothing else.
    #[arg(long)]
    store_down: bool,
    /// Check this rule only. Can be repeated.
    #[arg(long, value_name = "RULE")]
    pub(super) only: Vec<String>,
    /// How long one answer may take, in seconds; longer than duplicates wait.
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(3..=600))]
    timeout: u64,
    /// How many rules are tried at the same time.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(super) jobs: u8,
    #[command(flatten)]
    pub(super) output: Output,
}

/// What to tell, and where.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Report")]
pub(super) struct Output {
    /// Print the report as JSON, or write it to a file.
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    #[expect(
        clippy::option_option,
        reason = "absent, without a file, and with one are three things"
    )]
    pub(super) json: Option<Option<PathBuf>>,
    /// Write the report to a file as XML test results, which build servers read.
    #[arg(long, value_name = "FILE")]
    pub(super) junit: Option<PathBuf>,
    /// Show every exchange.
    #[arg(long, short)]
    pub(super) verbose: bool,
    /// List the rules instead of checking them.
    #[arg(long, conflicts_with_all = ["json", "junit", "verbose"])]
    pub(super) list: bool,
    /// List them as a Markdown table.
    #[arg(long, requires = "list")]
    pub(super) markdown: bool,
}

impl Check {
    /// The server to check; none if only the list is wanted.
    pub(super) fn target(&self) -> Result<Option<Target>, String> {
        let Some(place) = self.target.clone() else {
            return Ok(None);
        };
        let trust = self.cacert.as_deref().map(Trust::of_file).transpose()?;
        let trusted = |place: Place| match &trust {
            Some(trust) => place.trusting(trust),
            None => place,
        };
        let caller = lines(&self.header);
        let other_caller = (!self.other_header.is_empty()).then(|| {
            let mut other = lines(&self.other_header);
            let is_other = |line: &Line| other.iter().any(|other| other.name.eq_ignore_ascii_case(&line.name));
            let shared: Vec<_> = caller.iter().filter(|line| !is_other(line)).cloned().collect();
            other.extend(shared);
            other
        });
        let routes: BTreeMap<_, _> = self.route.iter().flat_map(|routes| routes.0.clone()).collect();
        let mut counter = self.effects_url.clone();
        if let Some(counter) = &mut counter {
            counter.place = trusted(counter.place.clone());
        }
        Ok(Some(Target {
            place: trusted(place),
            method: self.method.clone(),
            path: self.path.0.clone(),
            bodies: self.body.clone(),
            content_type: self.content_type.clone(),
            caller,
            other_caller,
            other_host: self.other_host.as_ref().map(|host| host.0.clone()),
            routes,
            counter,
            preset: self.preset,
            guarantee: self.guarantee,
            limit: Duration::from_secs(self.timeout),
            is_store_down: self.store_down,
            code_at: self.code_at.as_ref().map(|pointer| pointer.0.clone()),
        }))
    }
}

fn lines(headers: &[CallerHeader]) -> Vec<Line> {
    headers.iter().map(|header| header.0.clone()).collect()
}

/// A path that begins with a slash.
#[derive(Clone, Debug)]
struct UrlPath(String);

impl FromStr for UrlPath {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_path = text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_path
            .then(|| Self(text.to_owned()))
            .ok_or("it must begin with a slash and have no spaces")
    }
}

/// A host as a request names it.
#[derive(Clone, Debug)]
struct HostName(String);

impl FromStr for HostName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = "it must look like shop.example or shop.example:8080";
        let authority: http::uri::Authority = text.parse().map_err(|_| refused)?;
        let is_place = !authority.as_str().contains('@') && !authority.host().is_empty();
        is_place.then(|| Self(text.to_owned())).ok_or(refused)
    }
}

/// A JSON pointer.
#[derive(Clone, Debug)]
struct Pointer(String);

impl FromStr for Pointer {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_pointer = text.starts_with('/');
        is_pointer
            .then(|| Self(text.to_owned()))
            .ok_or("it must be a JSON pointer such as /error/code")
    }
}

/// A header that says who calls.
#[derive(Clone, Debug)]
struct CallerHeader(Line);

impl FromStr for CallerHeader {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = "it must look like 'Name: value'";
        let (name, value) = text.split_once(':').ok_or(refused)?;
        let name = http::HeaderName::from_str(name.trim()).map_err(|_| refused)?;
        let value = http::HeaderValue::from_str(value.trim()).map_err(|_| refused)?;
        let line = Line::new(name.as_str(), value.as_bytes());
        Ok(Self(Line {
            is_secret: true,
            ..line
        }))
    }
}
