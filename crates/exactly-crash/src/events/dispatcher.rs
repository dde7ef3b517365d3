//! Sends events.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use exactly::queue::{Queue, WorkerId};
use exactly::webhook::delivery::{Course, Destinations, Sender};
use exactly::webhook::{Dispatcher, Parking};
use exactly::worker::Worker;
use exactly_sql::PgQueue;
use tokio::sync::watch;

use super::EventSabotage;
use super::fenceless::Fenceless;
use super::network::SENDERS;
use crate::crew::{LEASE, POLL, SWEEP};
use crate::failure::{Result, failed};
use crate::place::Place;
use crate::victim::READY;

const CONCURRENCY: usize = 16;

/// Short, so that what the network holds back is sent again while the round lasts.
pub(super) const DEADLINE: Duration = Duration::from_millis(700);

/// As many attempts as there can be: close together while others die, and then for longer than any round.
const CLOSE: u64 = 60;
const CLOSE_MS: u64 = 300;
const APART_MS: u64 = 3000;

/// Parked often, and not for long.
const PARKING: Parking = Parking {
    failures: 10,
    first: Duration::from_millis(300),
    most: Duration::from_secs(1),
};

/// Sends until it is killed.
pub(super) async fn dispatch(queue: PgQueue, place: &Place, sabotage: EventSabotage) -> Result<()> {
    let queue = Arc::new(queue);
    let address = watch::Sender::new(None);
    let addresses = address.subscribe();
    let sender = Sender::builder()
        .destinations(Destinations::default().allow_private())
        .deadline(DEADLINE)
        // Whatever it dials it dials at an address of its own, by which the network tells who sent a request.
        .lookup(move |_| {
            let mut addresses = addresses.clone();
            Box::pin(async move {
                let address = addresses.wait_for(Option::is_some).await;
                Ok(address.map(|address| Vec::from_iter(*address)).unwrap_or_default())
            })
        })
        .build()
        .map_err(failed("build sender"))?;
    // A worker stops by itself when its leases have ended, if it knows.
    let (leased_from, lease): (Arc<dyn Queue>, _) = match sabotage {
        EventSabotage::NoFence => (Arc::new(Fenceless::new(Arc::clone(&queue), &place.name)), LEASE * 60),
        _ => (Arc::<PgQueue>::clone(&queue), LEASE),
    };
    let worker = Worker::builder(leased_from)
        .concurrency(CONCURRENCY)
        .lease(lease)
        .heartbeat(LEASE / 3)
        .sweep_every(SWEEP)
        .poll_every(POLL)
        // Killed as often as here, a delivery is not to blame.
        .rescues_max(u32::MAX);
    let dispatcher = Dispatcher::new(queue, sender)
        .with_course(course()?)
        .with_parking(PARKING);
    let running = dispatcher.register(worker).start().map_err(failed("start worker"))?;
    address.send_replace(Some(dialled_by(running.id())));
    println!("{READY} {}", running.id());
    std::future::pending().await
}

/// The address at which this worker finds its endpoints.
pub(super) fn dialled_by(worker: WorkerId) -> IpAddr {
    let [first, ..] = worker.as_uuid().as_bytes();
    sender(first % SENDERS)
}

/// The addresses of the network.
pub(super) fn sender(number: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 1, number + 1).into()
}

fn course() -> Result<Course> {
    let last = CLOSE * CLOSE_MS;
    let close = (0..CLOSE).map(|n| n * CLOSE_MS);
    let apart = (0..Course::ATTEMPTS_MAX as u64 - CLOSE).map(|n| last + n * APART_MS);
    let offsets: Vec<_> = close.chain(apart).map(Duration::from_millis).collect();
    Course::new(offsets).map_err(failed("make course"))
}
