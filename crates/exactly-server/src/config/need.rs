//! What a file asks for that its store, or a flag, may not give.

use super::fault::{Fault, Faults};
use super::table::Table;
use super::{Config, Inbox};
use crate::store::Backend;

/// A setting that needs something beside itself. It is judged once the flags are known too.
#[derive(Clone, Debug)]
pub(crate) struct Need {
    line: usize,
    key: String,
    of: Needed,
}

#[derive(Clone, Copy, Debug)]
enum Needed {
    /// The upstream's own database.
    Joining,
    /// Somewhere to keep events as jobs.
    Tasks,
}

impl Need {
    /// What a policy needs.
    pub(super) fn of_policy(table: &mut Table<'_>, faults: &Faults<'_>) -> Option<Self> {
        table.is_text("guarantee", "joined").then(|| Self {
            line: faults.line(table.at_of("guarantee")),
            key: table.name_of("guarantee"),
            of: Needed::Joining,
        })
    }

    /// What an address for events of others needs.
    pub(super) fn of_inbox(table: &Table<'_>, faults: &Faults<'_>) -> Self {
        Self {
            line: faults.line(table.at_of("listen")),
            key: table.name_of("listen"),
            of: Needed::Tasks,
        }
    }

    fn unmet(&self, config: &Config) -> Option<Fault> {
        // A store that is none is told already.
        let backend = config.store.backend().ok()?;
        let (key, store) = (&self.key, &config.store);
        let what = match self.of {
            Needed::Joining if backend != Backend::Postgres => format!(
                "{key} is \"joined\", which needs the upstream's PostgreSQL database, and store is {store}: set store = \
                 \"postgres://…\", or another guarantee"
            ),
            Needed::Tasks if backend == Backend::Redis => format!(
                "{}, accepted is none on {store}, because what comes in is kept as jobs: set store = \"sqlite:FILE\" or \
                 \"postgres://…\", or leave [inbox] out",
                listens(key, &config.inbox)
            ),
            Needed::Tasks if !config.jobs.enabled => format!(
                "{}, accepted is none while jobs are off, because what comes in is kept as jobs: set jobs.enabled = true \
                 and leave --no-jobs out, or leave [inbox] out",
                listens(key, &config.inbox)
            ),
            Needed::Joining | Needed::Tasks => return None,
        };
        Some(Fault {
            line: self.line,
            key: Some(key.clone()),
            what,
        })
    }
}

fn listens(key: &str, inbox: &Inbox) -> String {
    match inbox.listen {
        Some(address) => format!("{key} is \"{address}\""),
        None => format!("{key} is no address"),
    }
}

impl Config {
    /// What the chosen store and flags cannot do for the file.
    pub(super) fn unmet(&self) -> Vec<Fault> {
        self.needs.iter().filter_map(|need| need.unmet(self)).collect()
    }
}
