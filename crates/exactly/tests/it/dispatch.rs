//! From an event to the endpoints that want it, over real sockets.

mod endpoints;
mod failing;
mod gathered;
mod isolation;
mod order;
mod order_kept;
mod receiver;
mod replays;
mod sending;

use std::sync::Arc;
use std::time::Duration;

use exactly::queue::{
    AttemptView, InspectQueue, MemoryQueue, Registry, TaskFilter, TaskId, TaskPage, TaskState, TaskView,
};
use exactly::webhook::delivery::{Course, Destinations, Sender};
use exactly::webhook::{
    DELIVERY_KIND, Dispatcher, Endpoint, EndpointId, Endpoints, Event, EventId, EventType, OrderKey, Outbox, Parking,
    Published, Secret,
};
use exactly::worker::{Builder, Running, Worker};
use tokio::time::{sleep, timeout};

use receiver::Receiver;

/// Longer than anything takes that is to happen.
const SOON: Duration = Duration::from_secs(20);
/// Long enough for something to happen that must not.
const A_WHILE: Duration = Duration::from_millis(300);

const NEVER_PARKED: Parking = Parking {
    failures: 1000,
    first: Duration::from_secs(1),
    most: Duration::from_secs(1),
};

/// A queue with a worker that sends, and those who know its endpoints.
struct Post {
    queue: Arc<MemoryQueue>,
    endpoints: Endpoints<MemoryQueue>,
    outbox: Outbox<MemoryQueue>,
    running: Option<Running>,
}

impl Post {
    fn start() -> Self {
        Self::with_parking(NEVER_PARKED)
    }

    fn with_parking(parking: Parking) -> Self {
        Self::on(MemoryQueue::new(), parking)
    }

    fn on(queue: MemoryQueue, parking: Parking) -> Self {
        Self::on_course(queue, parking, course(Duration::from_millis(20)))
    }

    fn on_course(queue: MemoryQueue, parking: Parking, course: Course) -> Self {
        let queue = Arc::new(queue);
        let worker = Worker::builder(Arc::<MemoryQueue>::clone(&queue));
        let dispatcher = dispatcher(&queue, parking, Duration::from_secs(2)).with_course(course);
        Self {
            running: Some(started(dispatcher, worker)),
            endpoints: Endpoints::new(Arc::clone(&queue)),
            outbox: Outbox::new(Arc::clone(&queue), "shop").unwrap(),
            queue,
        }
    }

    /// Adds an endpoint at this receiver.
    async fn add(&self, name: &str, receiver: &Receiver) -> Endpoint {
        let endpoint = endpoint(name, &receiver.url());
        self.endpoints.add(&endpoint).await.unwrap();
        endpoint
    }

    async fn publish(&self, id: &str, event_type: &str) {
        let published = self.outbox.publish(&event(id, event_type)).await.unwrap();
        assert_eq!(published, Published::New);
    }

    /// Publishes an event that is in order with others of this key.
    async fn publish_ordered(&self, id: &str, event_type: &str, key: &str) {
        let event = event(id, event_type).ordered_by(OrderKey::new(key).unwrap());
        let published = self.outbox.publish(&event).await.unwrap();
        assert_eq!(published, Published::New);
    }

    async fn delivery(&self, event: &str, endpoint: &str) -> TaskView {
        let id = TaskId::of(DELIVERY_KIND, &format!("{event} {endpoint}"));
        timeout(SOON, async {
            loop {
                if let Some(view) = self.queue.show(id).await.unwrap() {
                    break view;
                }
                sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .unwrap()
    }

    /// Waits until a delivery is in this state.
    async fn becomes(&self, event: &str, endpoint: &str, state: TaskState) -> TaskView {
        timeout(SOON, async {
            loop {
                let view = self.delivery(event, endpoint).await;
                if view.state == state {
                    break view;
                }
                sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .unwrap()
    }

    async fn attempts(&self, event: &str, endpoint: &str) -> Vec<AttemptView> {
        let id = TaskId::of(DELIVERY_KIND, &format!("{event} {endpoint}"));
        self.queue.attempts(id).await.unwrap()
    }

    /// How many deliveries there are.
    async fn deliveries(&self) -> usize {
        let filter = TaskFilter {
            kind: Some(DELIVERY_KIND.to_owned()),
            ..TaskFilter::default()
        };
        let page = TaskPage {
            after: None,
            limit: 100,
        };
        self.queue.list(&filter, page).await.unwrap().len()
    }
}

fn work(queue: &Arc<MemoryQueue>, parking: Parking) -> Running {
    let worker = Worker::builder(Arc::<MemoryQueue>::clone(queue));
    work_by(queue, parking, worker, Duration::from_secs(2))
}

fn work_by(queue: &Arc<MemoryQueue>, parking: Parking, worker: Builder, deadline: Duration) -> Running {
    started(dispatcher(queue, parking, deadline), worker)
}

fn started<Q: Registry + InspectQueue>(dispatcher: Dispatcher<Q>, worker: Builder) -> Running {
    let worker = dispatcher.register(worker).poll_every(Duration::from_millis(20));
    worker.start().unwrap()
}

/// Ten attempts, as far apart as the real ones are in order, and near enough to wait for.
fn course(apart: Duration) -> Course {
    Course::new((0..10).map(|n| apart * n).collect::<Vec<_>>()).unwrap()
}

fn dispatcher<Q: Registry>(queue: &Arc<Q>, parking: Parking, deadline: Duration) -> Dispatcher<Q> {
    let sender = Sender::builder()
        .destinations(Destinations::default().allow_private())
        .deadline(deadline)
        .build()
        .unwrap();
    Dispatcher::new(Arc::clone(queue), sender)
        .with_course(course(Duration::from_millis(20)))
        .with_parking(parking)
}

fn endpoint(name: &str, url: &str) -> Endpoint {
    Endpoint::new(EndpointId::new(name).unwrap(), url, Secret::random().expose())
}

fn id(name: &str) -> EndpointId {
    EndpointId::new(name).unwrap()
}

fn event(id: &str, event_type: &str) -> Event {
    let (id, event_type) = (EventId::new(id).unwrap(), EventType::new(event_type).unwrap());
    Event::with_id(id, event_type, &serde_json::json!({ "total": 12.50, "note": "ä\n" })).unwrap()
}
