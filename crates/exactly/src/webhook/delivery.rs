//! One delivery on the wire, and when the next one is due.
//!
//! A [`Sender`] makes one POST and tells what came of it. Unlike a general HTTP client it never makes a second one: it follows no
//! redirect, repeats nothing, and dials no address that [`Destinations`] does not let it, whatever a name turns out to stand
//! for. An endpoint may be hostile, so there is one deadline over the whole [`Exchange`], and little of an answer is kept.
//!
//! What an exchange means is a plain function of it: [`verdict`], by the [`Course`] that a delivery takes.
//!
//! ```no_run
//! # async fn send() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use exactly::webhook::delivery::{Attempt, Course, Parcel, Sender, Target, Verdict, verdict};
//!
//! let sender = Sender::builder().build()?;
//! let url: Target = "https://hooks.example/orders".parse()?;
//! let exchange = sender
//!     .send(Parcel { url: &url, headers: http::HeaderMap::new(), body: r#"{"eventId":"evt_1"}"#.into() })
//!     .await;
//! let attempt = Attempt { ended: exchange.took, ..Attempt::default() };
//! match verdict(&exchange, &Course::default(), &attempt) {
//!     Verdict::Delivered => println!("it has it"),
//!     Verdict::Retry { after, failure } => println!("again in {after:?}: {failure}"),
//!     Verdict::Gone => println!("nobody is there any more"),
//!     Verdict::Dead(failure) => println!("given up: {failure}"),
//! }
//! # Ok(()) }
//! ```

mod connections;
mod course;
mod destinations;
mod dial;
mod exchange;
mod headers;
mod names;
mod network;
mod sender;
mod target;
mod verdict;

pub use self::course::{Attempt, Course, InvalidCourse};
pub use self::destinations::{Destinations, Refused};
pub use self::exchange::{Answer, Exchange, Fault, Trouble, TroubleKind};
pub use self::headers::{CustomHeaders, InvalidHeader};
pub use self::names::Resolving;
pub use self::network::{InvalidNetwork, Network};
pub use self::sender::{InvalidSender, Parcel, Sender, SenderBuilder};
pub use self::target::{InvalidTarget, Target};
pub use self::verdict::{Verdict, verdict};
