//! The two ways to the desk.

use std::path::PathBuf;
use std::sync::Arc;

use exactly::CallId;

use super::{Client, Refused, Secret};
use crate::admin::ask::{FreeQuery, ListQuery, Purge, Resolve, ShowQuery, TrailQuery};
use crate::admin::desk::Desk;
use crate::admin::events::desk::EventDesk;
use crate::admin::input::Actor;
use crate::admin::jobs::desk::JobDesk;
use crate::admin::settle;
use crate::admin::wire::{CallDetail, CallPage, Purged, Settled, Trail};
use crate::config::{ADMIN_DEFAULT, Config};
use crate::events::reach::EventReach;
use crate::jobs::reach::JobReach;
use crate::store::{Accept, Backend, Ledger, StoreArgs, StoreUrl};
use crate::work::Nudge;

/// Why a store has no jobs.
const JOBS_NEED: &str = "it keeps no jobs, which need a SQLite or PostgreSQL store";

const EVENTS_NEED: &str = "it keeps no events, which need a SQLite or PostgreSQL store";

/// How to get at the calls: through a server, or straight on the store.
#[derive(Debug, clap::Args)]
pub(crate) struct ReachArgs {
    /// Ask the server with this admin address, unless a store is named [default: `http://127.0.0.1:8081`]
    #[arg(long, global = true, value_name = "URL")]
    admin: Option<String>,
    /// The server's token.
    #[arg(
        long,
        global = true,
        value_name = "TOKEN",
        env = "EXACTLY_ADMIN_TOKEN",
        hide_env_values = true
    )]
    token: Option<Secret>,
    #[command(flatten)]
    store: StoreArgs,
    /// With --store: the gateway's configuration, which says how the answers of its routes are stored.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Who does it, for the trail.
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        env = "EXACTLY_ACTOR",
        default_value = "cli"
    )]
    actor: String,
}

/// One of the two ways.
#[derive(Debug)]
pub(super) enum Reach {
    Api(Box<Client>),
    Store(Box<Straight>),
}

/// Straight on the store, in the name of `actor`.
pub(super) struct Straight {
    desk: Desk,
    actor: Actor,
}

impl ReachArgs {
    pub(super) async fn open(&self) -> Result<Reach, Refused> {
        let actor = self.actor()?;
        match (&self.admin, &self.store.store) {
            (None, Some(url)) => {
                let (config, accept) = self.configured()?;
                let store = Box::pin(url.open_existing(&accept)).await.map_err(Refused::failed)?;
                let settle = settle::by_config(&store, &config).map_err(Refused::failed)?;
                let desk = Desk::new(store, settle);
                Ok(Reach::Store(Box::new(Straight { desk, actor })))
            }
            _ => self.client(actor).map(|client| Reach::Api(Box::new(client))),
        }
    }

    /// The same for jobs.
    pub(crate) async fn open_jobs(&self) -> Result<JobReach, Refused> {
        let actor = self.actor()?;
        match (&self.admin, &self.store.store) {
            (None, Some(url)) => {
                let (desk, queue, _) = self.open_tasks(url, JOBS_NEED).await?;
                // Nobody here fires schedules: servers find what was changed by themselves.
                let desk = JobDesk::new(queue, desk, Nudge::default());
                Ok(JobReach::Store(Box::new(desk), actor))
            }
            _ => self.client(actor).map(|client| JobReach::Api(Box::new(client))),
        }
    }

    /// The same for events.
    pub(crate) async fn open_events(&self) -> Result<EventReach, Refused> {
        let actor = self.actor()?;
        match (&self.admin, &self.store.store) {
            (None, Some(url)) => {
                let (desk, queue, config) = self.open_tasks(url, EVENTS_NEED).await?;
                // What the server may dial is known only if its settings are.
                let dialled = self.config.is_some().then_some(config.events.destinations);
                let desk = EventDesk::new(queue, desk, config.events.source, dialled);
                Ok(EventReach::Store(Box::new(desk), actor))
            }
            _ => self.client(actor).map(|client| EventReach::Api(Box::new(client))),
        }
    }

    async fn open_tasks(&self, url: &StoreUrl, need: &str) -> Result<(Desk, Arc<dyn Ledger>, Config), Refused> {
        let none = || Refused::Failed(format!("{url}: {need}"));
        // Not opened only to be closed again, which its listener would take for a lost connection and say so.
        if matches!(url.backend(), Ok(Backend::Redis)) {
            return Err(none());
        }
        let (config, accept) = self.configured()?;
        let (store, queue) = Box::pin(url.open_existing_with_tasks(&accept))
            .await
            .map_err(Refused::failed)?;
        let queue = queue.ok_or_else(none)?;
        let settle = settle::by_config(&store, &config).map_err(Refused::failed)?;
        Ok((Desk::new(store, settle), queue, config))
    }

    fn actor(&self) -> Result<Actor, Refused> {
        Actor::try_from(self.actor.clone()).map_err(|why| Refused::Usage(format!("--actor: {why}")))
    }

    /// The file, and what is accepted of the store.
    fn configured(&self) -> Result<(Config, Vec<Accept>), Refused> {
        let config = self.config.as_deref().map(Config::read).transpose();
        let config = config.map_err(Refused::failed)?.unwrap_or_default();
        let accept = [&self.store.accept[..], &config.store_options.accept].concat();
        Ok((config, accept))
    }

    fn client(&self, actor: Actor) -> Result<Client, Refused> {
        let url = self.admin.clone().unwrap_or_else(|| format!("http://{ADMIN_DEFAULT}"));
        Client::new(&url, self.token.clone(), Some(actor))
    }
}

impl Reach {
    pub(super) async fn list(&self, query: &ListQuery) -> Result<CallPage, Refused> {
        match self {
            Self::Api(api) => api.get("/v1/calls", query).await,
            Self::Store(straight) => Ok(straight.desk.list(query).await?),
        }
    }

    pub(super) async fn show(&self, id: CallId, query: ShowQuery) -> Result<CallDetail, Refused> {
        match self {
            Self::Api(api) => api.get(&format!("/v1/calls/{id}"), &query).await,
            Self::Store(straight) => Ok(straight.desk.show(id, query.reveal, &straight.actor).await?),
        }
    }

    pub(super) async fn resolve(&self, id: CallId, resolve: Resolve) -> Result<Settled, Refused> {
        match self {
            Self::Api(api) => api.post(&format!("/v1/calls/{id}/resolve"), &resolve).await,
            Self::Store(straight) => Ok(straight.desk.resolve(id, resolve, &straight.actor).await?),
        }
    }

    pub(super) async fn free(&self, id: CallId, query: FreeQuery) -> Result<Settled, Refused> {
        match self {
            Self::Api(api) => api.delete(&format!("/v1/calls/{id}"), &query).await,
            Self::Store(straight) => Ok(straight.desk.free(id, query, &straight.actor).await?),
        }
    }

    pub(super) async fn purge(&self, purge: &Purge) -> Result<Purged, Refused> {
        match self {
            Self::Api(api) => api.post("/v1/purge", purge).await,
            Self::Store(straight) => Ok(straight.desk.purge(purge, &straight.actor).await?),
        }
    }

    pub(super) async fn trail(&self, query: &TrailQuery) -> Result<Trail, Refused> {
        match self {
            Self::Api(api) => api.get("/v1/trail", query).await,
            Self::Store(straight) => Ok(straight.desk.trail(query).await?),
        }
    }
}

impl std::fmt::Debug for Straight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Straight")
            .field("actor", &self.actor)
            .finish_non_exhaustive()
    }
}
