//! What the server is told: by a file, by flags, by the environment.
//!
//! Everything that is wrong is told at once, each with file, line, key, value and what is accepted.

mod events;
mod fault;
mod inbox;
mod jobs;
mod need;
mod policy;
mod probe;
mod route;
mod seal;
mod secret;
mod table;
#[cfg(test)]
mod tests;
mod upstream;

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use exactly::layer::{Builder, Policy};
use http::uri::PathAndQuery;
use http::{HeaderName, Uri, header};
use toml::de::DeTable;

pub(crate) use self::events::{Events, Source};
pub(crate) use self::fault::Fault;
use self::fault::Faults;
pub(crate) use self::inbox::{Inbox, Source as InboxSource, is_name as is_source_name};
pub(crate) use self::jobs::Jobs;
use self::need::Need;
pub(crate) use self::probe::Probe;
use self::route::Defaults;
pub(crate) use self::route::Route;
use self::seal::Seal;
use self::table::Table;
pub(crate) use self::table::duration;
pub(crate) use self::upstream::Upstream;
use crate::store::{StoreOptions, StoreUrl};

/// What is read without being named.
const FILE_DEFAULT: &str = "exactly.toml";
/// Where requests come in unless told otherwise.
const LISTEN_DEFAULT: &str = "127.0.0.1:8080";
/// The operators' address: never reachable from elsewhere unless told so.
pub(crate) const ADMIN_DEFAULT: &str = "127.0.0.1:8081";
const STORE_DEFAULT: &str = "sqlite:exactly.db";
const CONNECTIONS_MAX_DEFAULT: usize = 10_000;

const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_hours(24);
const DRAIN: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_hours(24);
const RECONCILE_EVERY: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_hours(24);

/// Everything that the server is told.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    pub(crate) admin: SocketAddr,
    /// Whether `/metrics` is shown without the token.
    pub(crate) open_metrics: bool,
    pub(crate) upstream: Option<Upstream>,
    pub(crate) store: StoreUrl,
    pub(crate) store_options: StoreOptions,
    pub(crate) credentials: Credentials,
    /// A path of the upstream that is asked whether a caller may use a key.
    pub(crate) authorize: Option<PathAndQuery>,
    /// Where calls in doubt are settled: their ids are appended.
    pub(crate) settle_link: Option<String>,
    /// How often the upstream is asked about calls in doubt.
    pub(crate) reconcile_every: Duration,
    /// How many clients may be connected at a time.
    pub(crate) connections_max: usize,
    pub(crate) held_max: usize,
    pub(crate) timeouts: Timeouts,
    pub(crate) jobs: Jobs,
    pub(crate) events: Events,
    pub(crate) inbox: Inbox,
    pub(crate) default_policy: Policy,
    pub(crate) routes: Vec<Route>,
    /// What the store and the flags have to be like for it.
    pub(crate) needs: Vec<Need>,
}

/// What tells one caller from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) headers: Vec<HeaderName>,
    pub(crate) cookies: Vec<String>,
    /// Everybody shares their keys.
    pub(crate) global: bool,
}

/// How long the server waits for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timeouts {
    /// For a connection to the upstream.
    pub(crate) connect: Duration,
    /// For the head of its answer, and between two pieces of it.
    pub(crate) response: Duration,
    /// For a client to send the head of its request.
    pub(crate) header: Duration,
    /// For the whole body of a request with a key.
    pub(crate) request: Duration,
    /// For the whole body of the answer to one.
    pub(crate) answer: Duration,
    /// Between two pieces of a request's body, or of an answer that a client takes.
    pub(crate) body: Duration,
    /// For running requests, once told to stop.
    pub(crate) drain: Duration,
}

/// A file that cannot be used.
#[derive(Debug)]
pub(crate) struct ConfigError {
    path: PathBuf,
    faults: Vec<Fault>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: LISTEN_DEFAULT.parse().expect("the constant is an address"),
            admin: ADMIN_DEFAULT.parse().expect("the constant is an address"),
            open_metrics: false,
            upstream: None,
            store: StoreUrl::new(STORE_DEFAULT),
            store_options: StoreOptions::default(),
            credentials: Credentials::default(),
            authorize: None,
            settle_link: None,
            reconcile_every: Duration::from_secs(10),
            connections_max: CONNECTIONS_MAX_DEFAULT,
            held_max: Builder::HELD_MAX_DEFAULT,
            timeouts: Timeouts::default(),
            jobs: Jobs::default(),
            events: Events::default(),
            inbox: Inbox::default(),
            default_policy: Policy::playbook(),
            routes: Vec::new(),
            needs: Vec::new(),
        }
    }
}

impl Default for Credentials {
    fn default() -> Self {
        Self {
            headers: vec![header::AUTHORIZATION],
            cookies: Vec::new(),
            global: false,
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(3),
            response: Duration::from_mins(1),
            header: Duration::from_secs(10),
            request: Builder::REQUEST_WITHIN_DEFAULT,
            answer: Builder::ANSWER_WITHIN_DEFAULT,
            body: Duration::from_secs(30),
            drain: Duration::from_secs(30),
        }
    }
}

impl Config {
    /// Reads the file at `path`, whatever it needs of the store.
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = text_of(path)?;
        Self::parse(&text).map_err(|faults| ConfigError::new(path, faults))
    }

    /// Reads the file at `path` and puts the `flags` over it. Whatever could not be served then is a fault.
    pub(crate) fn read_to_serve(path: &Path, flags: impl FnOnce(&mut Self)) -> Result<Self, ConfigError> {
        let text = text_of(path)?;
        let (mut config, mut faults) = Self::of_text(&text);
        flags(&mut config);
        faults.extend(config.unmet());
        let found = faults.into_found();
        if found.is_empty() {
            Ok(config)
        } else {
            Err(ConfigError::new(path, found))
        }
    }

    /// The same with `exactly.toml` in the current folder, if there is one.
    pub(crate) fn read_default_to_serve(flags: impl FnOnce(&mut Self)) -> Result<Self, ConfigError> {
        let path = Path::new(FILE_DEFAULT);
        if path.exists() {
            return Self::read_to_serve(path, flags);
        }
        let mut config = Self::default();
        flags(&mut config);
        Ok(config)
    }

    pub(crate) fn parse(text: &str) -> Result<Self, Vec<Fault>> {
        let (config, faults) = Self::of_text(text);
        let found = faults.into_found();
        if found.is_empty() { Ok(config) } else { Err(found) }
    }

    fn of_text(text: &str) -> (Self, Faults<'_>) {
        let mut faults = Faults::new(text);
        let (root, errors) = DeTable::parse_recoverable(text);
        for error in errors {
            faults.add_unread(error.span().map_or(0, |span| span.start), error.message());
        }
        let config = Self::of_table(Table::root(root.get_ref()), &mut faults);
        (config, faults)
    }

    fn of_table(mut root: Table<'_>, faults: &mut Faults<'_>) -> Self {
        let mut config = Self::default();
        let address = "an address such as \"127.0.0.1:8080\"";
        set(&mut config.listen, root.parsed("listen", address, faults));
        if let Some(mut admin) = root.table("admin", faults) {
            set(&mut config.admin, admin.parsed("listen", address, faults));
            set(&mut config.open_metrics, admin.flag("open_metrics", faults));
            admin.finish(faults);
        }
        config.upstream = root.parsed("upstream", Upstream::ACCEPTED, faults);
        set(&mut config.store, root.text("store", faults).map(StoreUrl::new));
        if let Err(error) = config.store.backend() {
            // Not the way in which other values are refused: it may hold a password.
            root.refuse_hidden("store", format!("store: {error}"), faults);
        }
        let accepted = "\"unsynced\", \"unlogged\", \"in-memory\", \"everysec\" and \"unread-settings\"";
        set(&mut config.store_options.accept, root.list("accept", accepted, faults));
        config.authorize = root.read("authorize", "a path such as \"/auth\"", faults, |value| {
            let path = value.as_str()?.parse::<PathAndQuery>().ok()?;
            path.as_str().starts_with('/').then_some(path)
        });
        let link = "a URL such as \"https://ops.example/calls/\"";
        config.settle_link = root.read("settle_link", link, faults, |value| {
            let link = value.as_str()?.parse::<Uri>().ok()?;
            link.scheme().is_some().then(|| link.to_string())
        });
        let every = root.duration("reconcile_every", &RECONCILE_EVERY, faults);
        set(&mut config.reconcile_every, every);
        set(&mut config.connections_max, root.count("connections_max", faults));
        set(&mut config.held_max, root.bytes("held_max", faults));
        if let Some(table) = root.table("principal", faults) {
            config.credentials = Credentials::of_table(table, faults);
        }
        if let Some(mut table) = root.table("timeouts", faults) {
            let timeouts = &mut config.timeouts;
            set(&mut timeouts.connect, table.duration("connect", &TIMEOUT, faults));
            set(&mut timeouts.response, table.duration("response", &TIMEOUT, faults));
            set(&mut timeouts.header, table.duration("header", &TIMEOUT, faults));
            set(&mut timeouts.request, table.duration("request", &TIMEOUT, faults));
            set(&mut timeouts.answer, table.duration("answer", &TIMEOUT, faults));
            set(&mut timeouts.body, table.duration("body", &TIMEOUT, faults));
            set(&mut timeouts.drain, table.duration("drain", &DRAIN, faults));
            table.finish(faults);
        }
        if let Some(table) = root.table("jobs", faults) {
            config.jobs = Jobs::of_table(table, faults);
        }
        if let Some(table) = root.table("events", faults) {
            config.events = Events::of_table(table, faults);
        }
        if let Some(table) = root.table("inbox", faults) {
            config.needs.push(Need::of_inbox(&table, faults));
            config.inbox = Inbox::of_table(table, faults);
        }
        config.set_routes(&mut root, faults);
        policy::refuse_held(&root, &config, faults);
        root.finish(faults);
        config
    }

    /// The routes, and what they begin with.
    fn set_routes(&mut self, root: &mut Table<'_>, faults: &mut Faults<'_>) {
        let seal = root.table("seal", faults).map(|table| Seal::of_table(table, faults));
        let mut seal = seal.unwrap_or_default();
        let mut defaults = Defaults::default();
        if let Some(mut table) = root.table("defaults", faults) {
            self.needs.extend(Need::of_policy(&mut table, faults));
            defaults.policy = policy::of_table(&mut table, Policy::playbook(), faults);
            defaults.guarantee = policy::guarantee_of(&mut table, defaults.guarantee);
            defaults.is_sealed = Seal::is_wanted(&mut table, false, faults);
            self.default_policy = seal.put_on(defaults.policy.clone(), defaults.is_sealed, &table, faults);
            policy::refuse(&table, None, &self.default_policy, faults);
            table.finish(faults);
        }
        for mut table in root.tables("routes", faults) {
            self.needs.extend(Need::of_policy(&mut table, faults));
            let route = Route::of_table(&mut table, &defaults, &mut seal, &self.routes, faults);
            self.routes.extend(route);
            table.finish(faults);
        }
        seal.refuse_idle(root, faults);
    }
}

fn text_of(path: &Path) -> Result<String, ConfigError> {
    fs::read_to_string(path).map_err(|error| {
        let fault = Fault {
            line: 0,
            key: None,
            what: error.to_string(),
        };
        ConfigError::new(path, vec![fault])
    })
}

fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

impl Credentials {
    fn of_table(mut table: Table<'_>, faults: &mut Faults<'_>) -> Self {
        let mut credentials = Self::default();
        set(&mut credentials.headers, table.list("headers", "header names", faults));
        let cookies = table.list::<CookieName>("cookies", "cookie names", faults);
        set(
            &mut credentials.cookies,
            cookies.map(|names| names.into_iter().map(|name| name.0).collect()),
        );
        set(&mut credentials.global, table.flag("global", faults));
        if !credentials.global && credentials.headers.is_empty() && credentials.cookies.is_empty() {
            let what = "principal names neither headers nor cookies: name what tells callers apart, or set \
                        global = true if all of them may share their keys and answers";
            table.refuse_whole(what, faults);
        }
        table.finish(faults);
        credentials
    }
}

/// What a cookie can be called: anything else would never be found among cookies.
struct CookieName(String);

impl FromStr for CookieName {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let is_token = text
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"=;,\"\\".contains(&byte));
        if is_token && !text.is_empty() {
            Ok(Self(text.to_owned()))
        } else {
            Err(())
        }
    }
}

impl ConfigError {
    fn new(path: &Path, faults: Vec<Fault>) -> Self {
        Self {
            path: path.to_owned(),
            faults,
        }
    }

    /// In the order of the file.
    pub(crate) fn faults(&self) -> &[Fault] {
        &self.faults
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        for (index, Fault { line, what, .. }) in self.faults.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { "\n" })?;
            match line {
                0 => write!(f, "{path}: {what}")?,
                line => write!(f, "{path}:{line}: {what}")?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}
