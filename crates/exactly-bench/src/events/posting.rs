//! A bare client that posts the same bodies to the same sink, and keeps no account of anything.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use exactly::clock::{Clock as _, WallClock};
use exactly::webhook::{Secret, Signer, sign};
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::deliveries::{DRAINED, sent};
use crate::Result;
use crate::jobs::Order;
use crate::jobs::contender::{Contender, Program, Tables};
use crate::jobs::said;

pub(super) const NAME: &str = "hyper";
pub(super) const PROGRAM: &str = "posting";

/// As many as the dispatcher has under way at once.
const CONNECTIONS: u64 = 64;

/// It has no tables to look into.
const NOTHING: Tables = Tables {
    left: "select 0::int8",
    failed: "select 0::int8",
    done: None,
};

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Settings {
    sink: SocketAddr,
    endpoints: u64,
}

pub(super) fn posting(sink: SocketAddr, endpoints: u64) -> Contender {
    Contender {
        name: NAME,
        program: Program::own(PROGRAM),
        settings: serde_json::json!(Settings { sink, endpoints }),
        processes: 1,
        jobs_max: None,
        tables: NOTHING,
    }
}

pub(super) async fn run(step: &str, order: Order<Settings>) -> Result<()> {
    if step == "fill" {
        return Ok(());
    }
    let (settings, jobs) = (order.settings, order.jobs);
    // Made beforehand: it is the client that is measured, and it signs nothing.
    let now = WallClock.now();
    let signer = Signer::V1(Secret::random());
    let mut parcels = Vec::new();
    for number in 0..jobs / settings.endpoints {
        let (id, body) = sent(DRAINED, number)?;
        let signature = sign(std::slice::from_ref(&signer), &id, now, &body);
        parcels.push((id.as_str().to_owned(), signature, body));
    }
    let (parcels, seconds) = (Arc::new(parcels), (now.as_millis() / 1000).to_string());
    said::work(async move {
        let mut posting = JoinSet::new();
        for connection in 0..CONNECTIONS {
            let (parcels, settings, seconds) = (Arc::clone(&parcels), settings.clone(), seconds.clone());
            posting.spawn(async move {
                let stream = TcpStream::connect(settings.sink).await?;
                stream.set_nodelay(true)?;
                let (mut sender, driver) = http1::handshake(TokioIo::new(stream)).await?;
                tokio::spawn(driver);
                let mut number = connection;
                while number < jobs {
                    let (place, parcel) = (number % settings.endpoints, number / settings.endpoints);
                    let (id, signature, body) = &parcels[usize::try_from(parcel)?];
                    let request = Request::post(format!("/hook/{DRAINED}-{place}"))
                        .header("host", settings.sink.to_string())
                        .header("content-type", "application/json")
                        .header("webhook-id", id)
                        .header("webhook-timestamp", &seconds)
                        .header("webhook-signature", signature)
                        .body(Full::<Bytes>::new(body.clone()))?;
                    let answer = sender.send_request(request).await?;
                    if !answer.status().is_success() {
                        return Err(format!("the sink said {}", answer.status()).into());
                    }
                    answer.into_body().collect().await?;
                    said::handled(1);
                    number += CONNECTIONS;
                }
                Ok::<_, crate::Error>(())
            });
        }
        while let Some(ended) = posting.join_next().await {
            ended??;
        }
        std::future::pending().await
    })
    .await
}
