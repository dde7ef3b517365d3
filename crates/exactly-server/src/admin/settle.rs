//! Ending a doubt the way its owner would have.
//!
//! What is stored for a call of the gateway is an encoded answer, perhaps encrypted, kept for as long as its route says.
//! Only the layer with the route's policy can write that.

use std::sync::Arc;

use exactly::layer::{ConfigErrors, IdempotencyLayer, Settlement};
use exactly::store::CallView;
use exactly::{Fenced, Operate, Store, StoreError};
use futures_util::future::BoxFuture;

use crate::config::Config;

/// Settles a doubt of the gateway's.
pub(crate) type Settle =
    Arc<dyn Fn(&CallView, Settlement) -> BoxFuture<'static, Result<Fenced, StoreError>> + Send + Sync>;

/// Whether the call came in through the gateway, or a layer like it: its operation is a method and a route.
pub(crate) fn is_http(view: &CallView) -> bool {
    view.scope.operation().contains(' ')
}

/// Settles as the routes of `config` would.
pub(crate) fn by_config(store: &Arc<dyn Operate>, config: &Config) -> Result<Settle, ConfigErrors> {
    let store: Arc<dyn Store> = Arc::<dyn Operate>::clone(store);
    let builder = IdempotencyLayer::builder(store)
        .global_keys()
        .held_max(config.held_max)
        .policy(config.default_policy.clone());
    let routes = config.routes.iter().fold(builder, |builder, route| {
        builder.route(route.method.clone(), &route.path, route.policy.clone())
    });
    Ok(by_layer(routes.build()?))
}

/// Settles as the routes of `layer` do.
pub(crate) fn by_layer(layer: IdempotencyLayer) -> Settle {
    Arc::new(move |view, settlement| {
        let layer = layer.for_operation(view.scope.operation());
        let claim = view.claim.clone();
        Box::pin(async move { layer.settle(&claim, settlement).await })
    })
}
