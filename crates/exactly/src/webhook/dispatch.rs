//! From events to endpoints: who wants what, and sending it.
//!
//! A [`Dispatcher`] has a worker make one delivery of each event for each [`Endpoint`] that wants it, and send it until the
//! endpoint has it. A delivery waits in the lane of its endpoint, so one that is slow, dead or paused holds up no other: no
//! more of its deliveries are under way than it may have at once, and one that fails all the time is parked.

mod alone;
mod breaker;
mod copies;
mod courier;
mod enclosed;
mod endpoint;
mod endpoints;
mod fan_out;
mod gathered;
mod health;
mod letter;
mod lines;
mod mend;
mod named;
mod ordered;
mod pace;
mod replay;
mod replaying;
mod replays;
mod roster;
mod turn;

pub use self::breaker::Parking;
pub use self::copies::Copies;
pub use self::courier::Dispatcher;
pub use self::enclosed::{Enclosed, Turn};
pub use self::endpoint::{Endpoint, EndpointId, EndpointSecret, InvalidEndpoint, Standing, TypeFilter};
pub use self::endpoints::{EndpointError, Endpoints};
pub use self::fan_out::DELIVERY_KIND;
pub use self::health::{EndpointFailure, EndpointHealth};
pub use self::named::DeliveryName;
pub use self::replay::{InvalidReplay, Replay, ReplayId, ReplayState, ReplayView, Tally, Which};
pub use self::replays::{REPLAY_KIND, ReplayError, Replays};
