//! Connections that stop speaking HTTP.

use std::fmt;
use std::sync::Arc;

use exactly::layer::Body;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;

use super::forward;

/// A client's wish to speak another protocol.
pub(super) struct Wanted {
    protocol: HeaderValue,
    client: OnUpgrade,
    /// Taken for as long as bytes pass.
    place: Option<Place>,
}

/// A place among the clients that may be connected. Clones are the same place.
#[derive(Clone, Debug)]
pub(crate) struct Place(
    #[expect(dead_code, reason = "held, not looked at")] pub(crate) Arc<dyn fmt::Debug + Send + Sync>,
);

/// What the client wants to upgrade to, if it does and may. Not to another HTTP: what is asked for in it would pass the
/// gateway unseen.
pub(super) fn wanted<B>(request: &mut Request<B>) -> Option<Wanted> {
    let protocol = request.headers().get(header::UPGRADE)?.clone();
    let mut names = protocol.to_str().ok()?.split(',').map(str::trim);
    if names.any(is_http) || request.headers().get_all(header::UPGRADE).iter().count() > 1 {
        return None;
    }
    let client = request.extensions_mut().remove::<OnUpgrade>()?;
    let place = request.extensions_mut().remove::<Place>();
    Some(Wanted {
        protocol,
        client,
        place,
    })
}

fn is_http(protocol: &str) -> bool {
    let name = protocol.split('/').next().unwrap_or_default();
    ["h2c", "h2", "http"].iter().any(|http| name.eq_ignore_ascii_case(http))
}

impl Wanted {
    /// Asks the upstream for it too: the headers of one connection do not reach the next by themselves.
    pub(super) fn ask_for(&self, headers: &mut HeaderMap) {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, self.protocol.clone());
    }

    /// The upstream agreed: from here on bytes pass both ways until either side ends.
    pub(super) fn join(self, mut response: Response<Incoming>) -> Response<Body> {
        let upstream = hyper::upgrade::on(&mut response);
        tokio::spawn(async move {
            let (Ok(client), Ok(upstream)) = tokio::join!(self.client, upstream) else {
                return;
            };
            // An error is one side going away, which ends it for both.
            let _ = copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(upstream)).await;
            drop(self.place);
        });
        let protocol = response.headers().get(header::UPGRADE).cloned();
        forward::strip_hop_by_hop(response.headers_mut());
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, protocol.unwrap_or(self.protocol));
        response.map(|_| Body::default())
    }
}
