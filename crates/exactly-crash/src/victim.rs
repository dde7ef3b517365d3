//! The server that is killed.
//!
//! A real one: axum on a socket, an [`IdempotencyLayer`] on the store under test, and a handler that makes an effect.

mod settle;
mod shop;

use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{MethodRouter, post};
use clap::Args;
use exactly::layer::{Builder, IdempotencyLayer, KeyRule, Policy};
use exactly::{Inspect, Keep, Store};
use exactly_sql::{PgTx, SqliteTx};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

use crate::failure::{Failure, Result, failed};
use crate::fused::Fused;
use crate::history::Guarantee;
use crate::ledger::LedgerFile;
use crate::place::{Place, StoreKind};
use crate::point::{Blow, Fuse, Point};
use crate::sabotaged::{Sabotage, Sabotaged};

pub(crate) use self::settle::{SETTLE_PATH, SettleAnswer, SettleOrder};
use self::shop::Shop;
pub(crate) use self::shop::{Order, Receipt};

/// Where effects are ordered.
pub(crate) const EFFECTS_PATH: &str = "/effects";

/// Answers once no handler runs any more.
pub(crate) const DRAIN_PATH: &str = "/drain";

/// Said on standard output once customers can come.
pub(crate) const READY: &str = "ready";

/// As short as the layer allows, so that lost attempts become doubts while the round lasts.
pub(crate) const LEASE: Duration = Duration::from_secs(1);

/// How long a duplicate waits for the first answer. Short, because after a kill many customers would wait for a dead
/// owner's lease to end, and the load would be gone.
const WAIT: Duration = Duration::from_millis(50);

/// Longer than any round, and short enough to leave nothing behind on a shared Redis.
const KEEP: Keep = Keep::For(Duration::from_hours(1));

/// A port is free again when its last owner is gone, which the kernel may take a moment to notice.
const BIND_WITHIN: Duration = Duration::from_secs(5);

/// The command line of a victim. Nobody but the lab types it.
#[derive(Clone, Debug, Args)]
pub(crate) struct VictimArguments {
    #[arg(long)]
    pub(crate) store: StoreKind,
    #[arg(long)]
    pub(crate) guarantee: Guarantee,
    #[arg(long)]
    pub(crate) sabotage: Sabotage,
    #[arg(long)]
    pub(crate) url: String,
    #[arg(long)]
    pub(crate) name: String,
    #[arg(long)]
    pub(crate) folder: PathBuf,
    #[arg(long)]
    pub(crate) port: u16,
    #[arg(long, requires_all = ["blow", "nth"])]
    pub(crate) at: Option<Point>,
    #[arg(long)]
    pub(crate) blow: Option<Blow>,
    #[arg(long, default_value_t = 0)]
    pub(crate) nth: u32,
}

/// Serves until it is killed, or until whoever started it goes away.
pub(crate) async fn serve(arguments: VictimArguments) -> Result<()> {
    exit_with_parent();
    let place = Place {
        store: arguments.store,
        url: arguments.url.clone(),
        name: arguments.name.clone(),
        folder: arguments.folder.clone(),
    };
    let shop = Arc::new(Shop {
        fuse: Arc::new(Fuse::new(arguments.at.zip(arguments.blow), arguments.nth)),
        ledger: Arc::new(LedgerFile::open(&place.ledger_file())?),
        effects_table: place.effects_table(),
    });
    let app = match place.store {
        StoreKind::Sqlite => {
            let store = Arc::new(place.open_sqlite().await?);
            let layer = IdempotencyLayer::transactional(dangerous(&store, &arguments, &shop));
            app(arguments.guarantee, shop, layer, post(shop::inside::<SqliteTx>), store)?
        }
        StoreKind::Postgres => {
            let store = Arc::new(place.open_postgres().await?);
            let layer = IdempotencyLayer::transactional(dangerous(&store, &arguments, &shop));
            app(arguments.guarantee, shop, layer, post(shop::inside::<PgTx>), store)?
        }
        StoreKind::Redis => {
            let store = Arc::new(place.open_redis().await?);
            let layer = IdempotencyLayer::builder(dangerous(&store, &arguments, &shop));
            app(arguments.guarantee, shop, layer, post(shop::outside), store)?
        }
    };
    let listener = bind(arguments.port).await?;
    println!("{READY}");
    axum::serve(listener, app).await.map_err(failed("serve"))
}

/// The store with its kill points, and without what the round takes away from it.
fn dangerous<S: Store>(store: &Arc<S>, arguments: &VictimArguments, shop: &Shop) -> Arc<Fused<Sabotaged<S>>> {
    let sabotaged = Sabotaged::new(Arc::clone(store), arguments.sabotage);
    Arc::new(Fused::new(sabotaged, Arc::clone(&shop.fuse), Arc::clone(&shop.ledger)))
}

fn app<S: Inspect>(
    guarantee: Guarantee,
    shop: Arc<Shop>,
    layer: Builder,
    inside: MethodRouter<Arc<Shop>>,
    store: Arc<S>,
) -> Result<Router> {
    let (promise, handler) = match guarantee {
        Guarantee::Transactional => (exactly::layer::Guarantee::Transactional, inside),
        Guarantee::AtMostOnce => (exactly::layer::Guarantee::AtMostOnce, post(shop::outside)),
    };
    let policy = Policy::playbook()
        .key(KeyRule::Required)
        .guarantee(promise)
        .lease(LEASE)
        .wait(WAIT)
        .keep(KEEP);
    let layer = layer.global_keys().policy(policy).build();
    let layer = layer.map_err(failed("build layer"))?;
    let drained = layer.clone();
    let effects = Router::new()
        .route(EFFECTS_PATH, handler)
        .layer(layer)
        .layer(from_fn_with_state(Arc::clone(&shop), before_answer))
        .with_state(shop);
    // Beside the layer, since these are not for customers.
    let settle = Router::new()
        .route(SETTLE_PATH, post(settle::settle::<S>))
        .with_state(store);
    let drain = Router::new().route(DRAIN_PATH, post(async move || drained.drain().await));
    Ok(effects.merge(settle).merge(drain))
}

async fn before_answer(State(shop): State<Arc<Shop>>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    shop.fuse.pass(Point::BeforeAnswer).await;
    response
}

pub(crate) async fn bind(port: u16) -> Result<TcpListener> {
    let deadline = Instant::now() + BIND_WITHIN;
    loop {
        match TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await {
            Ok(listener) => return Ok(listener),
            Err(error) if Instant::now() > deadline => {
                return Err(Failure::new(format!("listen on port {port}: {error}")));
            }
            Err(_) => sleep(Duration::from_millis(10)).await,
        }
    }
}

/// The other end of standard input closes when the lab is gone, however it ended.
pub(crate) fn exit_with_parent() {
    std::thread::spawn(|| {
        let mut nothing = Vec::new();
        let _ = std::io::stdin().read_to_end(&mut nothing);
        std::process::exit(0);
    });
}
