//! Events that go out once and come in once.
//!
//! An [`Event`] is published in the transaction of the change that it tells of, as a task of the [queue](crate::queue): rolled
//! back, it was never there; committed, it is delivered to every endpoint that wants it, signed, until each has answered that
//! it has it. The other side applies it once, because whoever receives an event twice knows it by its id.
//!
//! Nothing here is a queue of its own. An event is a task, each of its deliveries is one, and so is what was received; leases,
//! fences, rescue, history and dead letter are the same for all of them.

#[cfg(feature = "webhook-delivery")]
pub mod delivery;
#[cfg(feature = "webhook-delivery")]
mod dispatch;
mod event;
mod inbox;
mod order;
mod outbox;
mod signature;

#[cfg(feature = "webhook-delivery")]
pub use self::dispatch::{
    Copies, DELIVERY_KIND, DeliveryName, Dispatcher, Enclosed, Endpoint, EndpointError, EndpointFailure,
    EndpointHealth, EndpointId, EndpointSecret, Endpoints, InvalidEndpoint, InvalidReplay, Parking, REPLAY_KIND,
    Replay, ReplayError, ReplayId, ReplayState, ReplayView, Replays, Standing, Tally, Turn, TypeFilter, Which,
};
pub use self::event::{Event, EventId, EventType, InvalidEvent, Stored};
pub use self::inbox::{
    Applying, Inbox, InboxBuilder, Incoming, InvalidInbox, NotReceived, Receipt, Received, Refused, Version,
};
pub use self::order::OrderKey;
#[cfg(feature = "webhook-delivery")]
use self::order::SHARDS;
pub use self::outbox::{EVENT_KIND, Outbox, PublishError, Published};
pub use self::signature::{
    ID_HEADER, InvalidKey, Rejected, SIGNATURE_HEADER, Secret, SharedSecret, Signer, SigningKey, TIMESTAMP_HEADER,
    Verified, Verifier, VerifyWith, VerifyingKey, sign,
};
