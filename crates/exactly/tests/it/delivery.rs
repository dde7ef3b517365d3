//! One delivery on the wire, and when the next one is due.

mod addresses;
mod answers;
mod bodies;
mod breaks;
mod course;
mod headers;
mod hostile;
mod redirects;
mod reuse;
mod tls;
mod verdict;

use std::net::IpAddr;
use std::time::Duration;

use exactly::webhook::delivery::{Answer, Destinations, Exchange, Parcel, Resolving, Sender, SenderBuilder, Target};
use http::HeaderMap;

/// Long enough that no exchange which is to succeed meets it, on a machine that does other things too.
const PATIENT: Duration = Duration::from_secs(30);

/// A sender that may dial this machine.
fn local() -> SenderBuilder {
    Sender::builder()
        .destinations(Destinations::default().allow_private())
        .deadline(PATIENT)
}

fn target(url: &str) -> Target {
    url.parse().unwrap()
}

async fn send(sender: &Sender, url: &str) -> Exchange {
    let url = target(url);
    let parcel = Parcel {
        url: &url,
        headers: HeaderMap::new(),
        body: r#"{"eventId":"evt_1"}"#.into(),
    };
    sender.send(parcel).await
}

/// Sends with the default body, and expects an answer.
async fn answered(sender: &Sender, url: &str) -> Answer {
    let exchange = send(sender, url).await;
    exchange.answer.unwrap_or_else(|fault| panic!("{fault:?}"))
}

/// A name that stands for these addresses.
fn standing_for(addresses: &[&str]) -> impl Fn(&str) -> Resolving + Send + Sync + 'static {
    let addresses: Vec<IpAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
    move |_| {
        let addresses = addresses.clone();
        Box::pin(async move { Ok(addresses) })
    }
}
