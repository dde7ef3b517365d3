//! Customers who click twice, hang up, and try again.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{self, FuturesUnordered};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::time::{Instant, sleep, timeout};

use super::Run;
use super::upstream::Payments;

/// How many orders are placed, and how many at a time.
const ORDERS: u32 = 150;
const ORDERS_AT_A_TIME: usize = 12;
/// How often a customer clicks at most.
const CLICKS_MAX: u32 = 4;
/// How long a customer tries.
const PATIENCE: Duration = Duration::from_secs(30);
const ANSWER_MAX: usize = 64 * 1024;

pub(super) struct Storm {
    gateway: SocketAddr,
    run: Run,
    client: Client<HttpConnector, Full<Bytes>>,
    sent: AtomicU32,
    hung_up: AtomicU32,
    replayed: AtomicU32,
    unknown: AtomicU32,
    settled: AtomicU32,
    given_up: AtomicU32,
    disagreed: AtomicU32,
}

impl Storm {
    pub(super) fn new(gateway: SocketAddr, run: Run) -> Self {
        let counter = || AtomicU32::new(0);
        Self {
            gateway,
            run,
            client: Client::builder(TokioExecutor::new()).build_http(),
            sent: counter(),
            hung_up: counter(),
            replayed: counter(),
            unknown: counter(),
            settled: counter(),
            given_up: counter(),
            disagreed: counter(),
        }
    }

    pub(super) async fn run(&self) {
        stream::iter(1..=ORDERS)
            .for_each_concurrent(ORDERS_AT_A_TIME, |number| self.order(number))
            .await;
    }

    pub(super) fn progress(&self) -> String {
        let (settled, sent, hung_up) = (get(&self.settled), get(&self.sent), get(&self.hung_up));
        format!("{settled} of {ORDERS} orders answered, {sent} requests sent, {hung_up} hung up")
    }

    /// What happened, compared with the books of the service itself.
    pub(super) fn report(&self, payments: &Payments) -> String {
        let paid = payments.by_order();
        let storm = (1..=ORDERS).filter_map(|number| paid.get(&self.order_name(number)));
        let (mut effects, mut duplicates, mut orders) = (0, 0, 0);
        for times in storm {
            effects += times;
            duplicates += times - 1;
            orders += 1;
        }
        let rows = [
            ("orders placed", ORDERS),
            ("requests sent", get(&self.sent)),
            ("  of them hung up on", get(&self.hung_up)),
            ("  of them answered by a replay", get(&self.replayed)),
            ("  of them told that it is unknown", get(&self.unknown)),
            ("customers who gave up", get(&self.given_up)),
            ("answers that disagreed", get(&self.disagreed)),
            ("effects made", effects),
            ("duplicates", duplicates),
            ("orders not paid", ORDERS - orders),
        ];
        let lines = rows.map(|(what, count)| format!("  {what:.<36} {count:>6}\n"));
        format!("\nwhat happened:\n\n{}", lines.concat())
    }

    /// One customer: a few clicks at once, each tried until it has an answer.
    async fn order(&self, number: u32) {
        let clicks: FuturesUnordered<_> = (0..fastrand::u32(1..=CLICKS_MAX)).map(|_| self.click(number)).collect();
        let answers: Vec<Option<Bytes>> = clicks.collect().await;
        let distinct: HashSet<_> = answers.iter().flatten().collect();
        match distinct.len() {
            0 => self.given_up.fetch_add(1, Ordering::Relaxed),
            1 => self.settled.fetch_add(1, Ordering::Relaxed),
            _ => self.disagreed.fetch_add(1, Ordering::Relaxed),
        };
    }

    async fn click(&self, number: u32) -> Option<Bytes> {
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            let patience = if fastrand::u8(..5) == 0 {
                Duration::from_millis(fastrand::u64(1..60))
            } else {
                Duration::from_secs(15)
            };
            match timeout(patience, self.send(number)).await {
                Err(_) => {
                    self.hung_up.fetch_add(1, Ordering::Relaxed);
                }
                Ok(Some(answer)) => return Some(answer),
                Ok(None) => {}
            }
            sleep(Duration::from_millis(fastrand::u64(20..300))).await;
        }
        None
    }

    /// The final answer; `None` if it has to be tried again.
    async fn send(&self, number: u32) -> Option<Bytes> {
        self.sent.fetch_add(1, Ordering::Relaxed);
        let order = self.order_name(number);
        let body = format!("{{\"order\":\"{order}\",\"amount\":{}}}", number * 100);
        let request = Request::post(format!("http://{}/payments", self.gateway))
            .header("idempotency-key", &order)
            .header("content-type", "application/json")
            .body(Full::from(body))
            .expect("the parts are well-formed");
        let response = self.client.request(request).await.ok()?;
        if response
            .headers()
            .get("idempotency-status")
            .is_some_and(|status| status == "replayed")
        {
            self.replayed.fetch_add(1, Ordering::Relaxed);
        }
        let is_paid = response.status() == 201;
        let body = read(response).await?;
        if !is_paid && body.windows(15).any(|window| window == b"OUTCOME.unknown") {
            self.unknown.fetch_add(1, Ordering::Relaxed);
        }
        is_paid.then_some(body)
    }

    fn order_name(&self, number: u32) -> String {
        format!("storm-{}-{number}", self.run)
    }
}

async fn read(response: Response<hyper::body::Incoming>) -> Option<Bytes> {
    let body = Limited::new(response.into_body(), ANSWER_MAX).collect().await.ok()?;
    Some(body.to_bytes())
}

fn get(counter: &AtomicU32) -> u32 {
    counter.load(Ordering::Relaxed)
}
