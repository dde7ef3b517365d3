//! From a name to addresses that may be dialled.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::vec;

use hyper_util::client::legacy::connect::dns::Name;
use tower_service::Service;

use super::{Destinations, Refused};

/// Addresses that a name stands for, when they are there.
pub type Resolving = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

pub(super) type Lookup = Arc<dyn Fn(&str) -> Resolving + Send + Sync>;

/// How many addresses of a name are tried. Whoever owns a name can give it thousands.
const ADDRESSES_MAX: usize = 16;

/// Whatever went wrong in finding them.
type Failed = Box<dyn Error + Send + Sync>;

/// Gives whoever dials only addresses that may be dialled, and what is given is dialled: nothing is looked up between the check and the
/// dialling.
#[derive(Clone)]
pub(super) struct Names {
    pub(super) destinations: Destinations,
    pub(super) lookup: Lookup,
}

/// Asks the system.
pub(super) fn system() -> Lookup {
    Arc::new(|name| {
        let name = name.to_owned();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    })
}

impl Service<Name> for Names {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = Failed;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Failed>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let found = (self.lookup)(name.as_str());
        let destinations = self.destinations.clone();
        Box::pin(async move { permitted(&destinations, found.await?).map(Vec::into_iter) })
    }
}

/// What is left of a name's addresses. A private one beside public ones is left out; if none is left, the name is refused.
fn permitted(destinations: &Destinations, found: Vec<IpAddr>) -> Result<Vec<SocketAddr>, Failed> {
    let mut refused: Option<Refused> = None;
    let mut addresses = Vec::new();
    for address in found {
        match destinations.check(address) {
            Ok(()) => addresses.push(SocketAddr::new(address, 0)),
            Err(why) => refused = refused.or(Some(why)),
        }
    }
    addresses.truncate(ADDRESSES_MAX);
    match refused {
        _ if !addresses.is_empty() => Ok(addresses),
        Some(refused) => Err(refused.into()),
        None => Err("the name has no address".into()),
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names")
            .field("destinations", &self.destinations)
            .finish_non_exhaustive()
    }
}
