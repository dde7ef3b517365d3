//! Ending a doubt the way its owner would have.
//!
//! What is stored for a call of the gateway is an encoded answer, perhaps encrypted, kept for as long as its route says.
//! Only the layer with the route's policy can write that.

use std::collections::HashMap;
use std::sync::Arc;

use exactly::layer::{ConfigErrors, IdempotencyLayer, Policy, Settlement};
use exactly::store::CallView;
use exactly::{Fenced, Operate, Store, StoreError};
use futures_util::future::BoxFuture;

use crate::config::Config;

/// Settles a doubt of the gateway's.
pub(crate) type Settle = Arc<dyn Fn(&CallView, Settlement) -> BoxFuture<'static, Result<Fenced, StoreError>> + Send + Sync>;

/// Whether the call came in through the gateway, or a layer like it: its operation is a method and a route.
pub(crate) fn is_http(view: &CallView) -> bool {
    view.scope.operation().contains(' ')
}

/// Settles as the routes of `config` would.
pub(crate) fn by_config(store: &Arc<dyn Operate>, config: &Config) -> Result<Settle, ConfigErrors> {
    let store: Arc<dyn Store> = Arc::<dyn Operate>::clone(store);
    let layer = |policy: &Policy| {
        IdempotencyLayer::builder(Arc::clone(&store))
            .global_keys()
            .policy(policy.clone())
            .build()
    };
    let default = layer(&config.default_policy)?;
    let mut routes = HashMap::new();
    for route in &config.routes {
        let operation = format!("{} {}", route.method, route.path);
        // The first match counts, as for requests.
        routes.entry(operation).or_insert(layer(&route.policy)?);
    }
    Ok(Arc::new(move |view, settlement| {
        let layer = routes.get(view.scope.operation()).unwrap_or(&default).clone();
        let claim = view.claim.clone();
        Box::pin(async move { layer.settle(&claim, settlement).await })
    }))
}
