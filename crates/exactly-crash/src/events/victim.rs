//! A process of the crew.

use std::path::PathBuf;

use clap::Args;

use super::plan::Role;
use super::{EventSabotage, consumer, dispatcher, producer};
use crate::failure::Result;
use crate::place::{Place, StoreKind};
use crate::victim::exit_with_parent;

/// The command line of a process. Nobody but the lab types it.
#[derive(Clone, Debug, Args)]
pub(crate) struct EventVictimArguments {
    #[arg(long)]
    pub(super) sabotage: EventSabotage,
    #[arg(long)]
    pub(super) role: Role,
    #[arg(long)]
    url: String,
    /// Where its own side keeps everything.
    #[arg(long)]
    name: String,
    #[arg(long)]
    folder: PathBuf,
    /// Where a consumer listens.
    #[arg(long)]
    pub(super) port: u16,
    /// What a consumer verifies with.
    #[arg(long)]
    pub(super) secret: String,
}

/// Works until it is killed, or until whoever started it goes away.
pub(crate) async fn serve(arguments: EventVictimArguments) -> Result<()> {
    exit_with_parent();
    let place = Place {
        store: StoreKind::Postgres,
        url: arguments.url.clone(),
        name: arguments.name.clone(),
        folder: arguments.folder.clone(),
    };
    let queue = place.open_postgres_queue().await?;
    match arguments.role {
        Role::Producer => producer::produce(queue, &place, arguments.sabotage).await,
        Role::Dispatcher => dispatcher::dispatch(queue, &place, arguments.sabotage).await,
        Role::Consumer => consumer::consume(queue, &place, &arguments).await,
    }
}
