//! Where records are, by URL.
//!
//! One place knows which stores there are. Everything else works on `Arc<dyn Operate>`, and for tasks on `Arc<dyn Ledger>`.

mod ledger;

use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use clap::ValueEnum;
use exactly::{Operate, StoreError, StoreErrorKind};
use exactly_redis::RedisStore;
use exactly_sql::{
    Name, PgQueue, PgQueueBuilder, PgStore, PgStoreBuilder, SqliteQueue, SqliteQueueBuilder, SqliteStore,
    SqliteStoreBuilder,
};

pub(crate) use self::ledger::Ledger;

const ACCEPTED: &str = "sqlite:FILE, postgres://… or redis://… (rediss:// with TLS)";

/// The address of a store. It may hold a password, so people only ever see what is around it, and it is never refused
/// where a command line would print it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct StoreUrl(String);

/// Which store it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    Sqlite,
    Postgres,
    Redis,
}

/// How a store is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoreOptions {
    /// What is accepted although it may let effects repeat.
    pub(crate) accept: Vec<Accept>,
    /// Whether the schema is brought up to date, or only checked.
    pub(crate) migrate: bool,
}

/// Something under which a store can forget, so that effects repeat. None of it is accepted unless told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Accept {
    /// SQLite and PostgreSQL: a power cut can take back what was committed.
    Unsynced,
    /// PostgreSQL: the table is unlogged, and a crash of the server empties it.
    Unlogged,
    /// SQLite: the database is in memory, and every restart forgets it.
    InMemory,
    /// Redis: `appendfsync everysec`, so a crash loses the last second or two.
    Everysec,
    /// Redis: its settings are not looked at; you vouch that it neither evicts records nor loses them.
    UnreadSettings,
}

/// The flags that name a store.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct StoreArgs {
    /// The store: `sqlite:FILE`, `postgres://…` or `redis://…`.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "EXACTLY_STORE",
        hide_env_values = true
    )]
    pub(crate) store: Option<StoreUrl>,
    /// Accept a store that may forget, so that effects may repeat.
    #[arg(long, global = true, value_enum, value_name = "WHAT")]
    pub(crate) accept: Vec<Accept>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            accept: Vec::new(),
            migrate: true,
        }
    }
}

impl StoreOptions {
    fn accepts(&self, what: Accept) -> bool {
        self.accept.contains(&what)
    }
}

impl FromStr for Accept {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        ValueEnum::from_str(text, false)
    }
}

impl StoreUrl {
    pub(crate) fn new(url: impl Into<String>) -> Self {
        Self(url.into())
    }

    /// Which store it names. An unknown one is refused without repeating the address.
    pub(crate) fn backend(&self) -> Result<Backend, StoreError> {
        let scheme = self.0.split_once(':').map(|(scheme, _)| scheme);
        match scheme {
            Some("sqlite") => Ok(Backend::Sqlite),
            Some("postgres" | "postgresql") => Ok(Backend::Postgres),
            Some("redis" | "rediss") => Ok(Backend::Redis),
            Some(other) if is_scheme(other) => Err(refused(&format!("its scheme is {other:?}"))),
            _ => Err(refused("it names no store")),
        }
    }

    /// The file of a SQLite database, unless it is in memory.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        let path = self.0.strip_prefix("sqlite:")?;
        let path = path.strip_prefix("//").unwrap_or(path);
        let path = path.split_once('?').map_or(path, |(path, _)| path);
        (path != ":memory:" && !path.is_empty()).then(|| PathBuf::from(decoded(path)))
    }

    /// Opens a store that is there already, as it is: no file is made, and no schema changed.
    pub(crate) async fn open_existing(&self, accept: &[Accept]) -> Result<Arc<dyn Operate>, StoreError> {
        let options = self.as_it_is(accept)?;
        self.existing().open(&options).await
    }

    /// Refuses a file that is not there, and leaves the schema alone.
    fn as_it_is(&self, accept: &[Accept]) -> Result<StoreOptions, StoreError> {
        if let Some(file) = self.file().filter(|file| !file.exists()) {
            let context = format!(
                "open {self}: there is no file {}; `exactly serve` or `exactly migrate` makes one",
                file.display()
            );
            return Err(StoreError::new(StoreErrorKind::Unavailable, context));
        }
        Ok(StoreOptions {
            accept: accept.to_vec(),
            migrate: false,
        })
    }

    /// The same store, which is not made if it is missing.
    fn existing(&self) -> Self {
        if self.file().is_none() || self.0.contains("mode=") {
            return self.clone();
        }
        let joint = if self.0.contains('?') { '&' } else { '?' };
        Self(format!("{}{joint}mode=rw", self.0))
    }

    /// What makes an empty database ready for records, as SQL text; `None` for a store without a schema.
    pub(crate) fn migrations_sql(&self) -> Result<Option<String>, StoreError> {
        let name = |text: &str| Name::new(text).expect("the default is a name");
        Ok(match self.backend()? {
            Backend::Sqlite => {
                let records = SqliteStore::migrations_sql(&name(SqliteStoreBuilder::TABLE_DEFAULT));
                Some(records + &SqliteQueue::migrations_sql(&name(SqliteQueueBuilder::PREFIX_DEFAULT))?)
            }
            Backend::Postgres => {
                let (schema, records) = (
                    name(PgStoreBuilder::SCHEMA_DEFAULT),
                    name(PgStoreBuilder::TABLE_DEFAULT),
                );
                let tasks = PgQueue::migrations_sql(&schema, &name(PgQueueBuilder::TABLE_DEFAULT));
                Some(PgStore::migrations_sql(&schema, &records) + &tasks)
            }
            Backend::Redis => None,
        })
    }

    /// Opens the store. Refuses one that may forget, unless `options` accept it.
    pub(crate) async fn open(&self, options: &StoreOptions) -> Result<Arc<dyn Operate>, StoreError> {
        let opened = match self.backend()? {
            Backend::Sqlite => self.open_sqlite(options).await.map(shared),
            Backend::Postgres => self.open_postgres(options).await.map(shared),
            Backend::Redis => self.open_redis(options).await.map(shared),
        };
        opened.map_err(|error| with_flags(&error, &self.to_string()))
    }

    async fn open_sqlite(&self, options: &StoreOptions) -> Result<SqliteStore, StoreError> {
        let mut builder = SqliteStore::at(&self.0).migrate(options.migrate);
        if options.accepts(Accept::Unsynced) {
            builder = builder.accept_unsynced();
        }
        if options.accepts(Accept::InMemory) {
            builder = builder.accept_in_memory();
        }
        builder.start().await
    }

    async fn open_postgres(&self, options: &StoreOptions) -> Result<PgStore, StoreError> {
        let mut builder = PgStore::at(&self.0).migrate(options.migrate);
        if options.accepts(Accept::Unsynced) {
            builder = builder.accept_unsynced();
        }
        if options.accepts(Accept::Unlogged) {
            builder = builder.accept_unlogged();
        }
        builder.start().await
    }

    async fn open_redis(&self, options: &StoreOptions) -> Result<RedisStore, StoreError> {
        let mut builder = RedisStore::at(&self.0);
        if options.accepts(Accept::Everysec) {
            builder = builder.accept_everysec();
        }
        if options.accepts(Accept::UnreadSettings) {
            builder = builder.accept_unread_settings();
        }
        builder.start().await
    }
}

impl FromStr for StoreUrl {
    type Err = Infallible;

    fn from_str(url: &str) -> Result<Self, Infallible> {
        Ok(Self::new(url))
    }
}

impl fmt::Display for StoreUrl {
    /// Without user, password and parameters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.split(['?', '#']).next().unwrap_or_default();
        // A password may have such a character too.
        if self.0[shown.len()..].contains('@') && !matches!(self.backend(), Ok(Backend::Sqlite)) {
            let scheme = shown.split(':').next().unwrap_or_default();
            return write!(f, "{scheme}://…");
        }
        match (shown.split_once("://"), self.backend()) {
            (_, Ok(Backend::Sqlite)) => f.write_str(shown),
            (Some((scheme, rest)), Ok(_)) => {
                let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
                write!(f, "{scheme}://{place}")
            }
            _ => f.write_str("an address that names no store"),
        }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}

fn shared(store: impl Operate) -> Arc<dyn Operate> {
    Arc::new(store)
}

fn is_scheme(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

fn refused(why: &str) -> StoreError {
    let context = format!("read the store's address: {why}; accepted is {ACCEPTED}");
    StoreError::new(StoreErrorKind::Refused, context)
}

/// The library names the method that accepts a weakness; here it is a flag. A server that cannot be reached may not run.
fn with_flags(error: &StoreError, place: &str) -> StoreError {
    const FLAGS: [(&str, &str); 5] = [
        ("accept_unsynced", "unsynced"),
        ("accept_unlogged", "unlogged"),
        ("accept_in_memory", "in-memory"),
        ("accept_everysec", "everysec"),
        ("accept_unread_settings", "unread-settings"),
    ];
    let mut text = error.to_string();
    for (method, flag) in FLAGS {
        text = text.replace(&format!("{method}()"), method);
        text = text.replace(method, &format!("--accept {flag}"));
    }
    for advice in [
        "run `SqliteStore::migrations_sql`'s text, or open with `migrate(true)`",
        "run `SqliteQueue::migrations_sql`'s text, or open with `migrate(true)`",
        "run the text of `PgStore::migrations_sql`, or start with `migrate(true)`",
        "run the text of `PgQueue::migrations_sql`, or start with `migrate(true)`",
    ] {
        text = text.replace(advice, "run `exactly migrate`");
    }
    if error.kind() == StoreErrorKind::Unavailable && !place.starts_with("sqlite:") {
        text.push_str("; is it running, and is that its address?");
    }
    StoreError::new(error.kind(), format!("open {place}: {text}"))
}

fn decoded(path: &str) -> String {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let hex = (byte == b'%')
            .then(|| after.get(..2).and_then(|hex| str::from_utf8(hex).ok()))
            .flatten();
        let decoded = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(decoded.unwrap_or(byte));
        rest = if decoded.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_store_is_refused_with_what_is_accepted_and_without_its_password() {
        for url in [
            "mysql://ada:hunter2@db/shop",
            "hunter2",
            "postgres//ada:hunter2@db",
            "POSTGRES://ada:hunter2@db",
            "",
        ] {
            let url = StoreUrl::new(url);
            let told = format!("{} {url} {url:?}", url.backend().unwrap_err());
            assert!(told.contains("sqlite:FILE, postgres://"), "{told}");
            assert!(!told.contains("hunter2"), "{told}");
        }
    }

    #[test]
    fn an_address_is_shown_without_user_and_password() {
        for (url, shown) in [
            ("sqlite:exactly.db?mode=rw", "sqlite:exactly.db"),
            (
                "postgres://ada:hun@ter2@db:5432/shop?password=hunter2",
                "postgres://db:5432/shop",
            ),
            ("rediss://:hunter2@cache/1", "rediss://cache/1"),
            ("postgres://ada:hun?ter2@db/x", "postgres://…"),
        ] {
            assert_eq!(StoreUrl::new(url).to_string(), shown);
        }
    }

    #[tokio::test]
    async fn no_failure_to_open_shows_the_password() {
        for url in [
            "postgres://ada:hunter2@127.0.0.1:1/shop",
            "postgres://ada:hunter2@[::1/shop",
            "postgres://ada:hunter2@127.0.0.1:notaport/shop",
            "redis://ada:hunter2@127.0.0.1:1/0",
            "redis://ada:hunter2@127.0.0.1:1/notanumber",
        ] {
            let error = StoreUrl::new(url).open(&StoreOptions::default()).await.unwrap_err();
            let told = format!("{error} {error:?}");
            assert!(!told.contains("hunter2"), "{told}");
        }
    }

    #[tokio::test]
    async fn a_refusal_names_the_flag_that_accepts() {
        let error = StoreUrl::new("sqlite::memory:")
            .open(&StoreOptions::default())
            .await
            .unwrap_err();
        assert!(error.to_string().contains("`--accept in-memory`"), "{error}");
    }

    #[test]
    fn the_file_of_a_database_is_found_in_its_address() {
        for (url, file) in [
            ("sqlite:exactly.db", Some("exactly.db")),
            ("sqlite://var/lib/ex%20actly.db?mode=rw", Some("var/lib/ex actly.db")),
            ("sqlite:///var/100%.db", Some("/var/100%.db")),
            ("sqlite::memory:", None),
            ("postgres://db/x", None),
        ] {
            assert_eq!(StoreUrl::new(url).file(), file.map(PathBuf::from), "{url}");
        }
        assert_eq!(StoreUrl::new("sqlite:a.db").existing().0, "sqlite:a.db?mode=rw");
    }
}
