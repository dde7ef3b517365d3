//! How events are sent.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use exactly::webhook::delivery::{Course, Destinations, InvalidSender, Network, Sender};
use exactly::webhook::{Dispatcher, Outbox, Parking};

use super::fault::Faults;
use super::set;
use super::table::{Table, duration};
use crate::store::Ledger;

/// From what a receiver in the same house needs to what still leaves room for others.
const DEADLINE: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_mins(2);
const PARKED: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_hours(24);
const PARK_AFTER_MAX: usize = 1000;

/// What a server that sends events goes by.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    /// Whom consumers know the events by, unless an event says otherwise.
    pub(crate) source: String,
    /// How long one exchange may take, from the name to the end of the answer.
    pub(crate) deadline: Duration,
    /// How long it may take until a connection is there.
    pub(crate) connect: Duration,
    /// Which addresses may be dialled.
    pub(crate) destinations: Destinations,
    /// When a delivery is attempted, from when it was made.
    pub(crate) course: Course,
    /// When an endpoint that fails is left alone.
    pub(crate) parking: Parking,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            source: "exactly".to_owned(),
            deadline: Duration::from_secs(15),
            connect: Duration::from_secs(5),
            destinations: Destinations::default(),
            course: Course::default(),
            parking: Parking::default(),
        }
    }
}

/// What can stand as the source of an event.
#[derive(Debug)]
pub(crate) struct Source(pub(crate) String);

impl Source {
    pub(crate) const BYTES_MAX: usize = Outbox::<dyn Ledger>::SOURCE_BYTES_MAX;
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if (1..=Self::BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control) {
            return Ok(Self(text.to_owned()));
        }
        Err(format!(
            "accepted is a text of 1 to {} bytes without control characters",
            Self::BYTES_MAX
        ))
    }
}

/// A time after the event as it stands in a list.
struct Offset(Duration);

impl FromStr for Offset {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        duration(text).map(Self).ok_or(())
    }
}

impl Events {
    pub(super) fn of_table(mut table: Table<'_>, faults: &mut Faults<'_>) -> Self {
        let mut events = Self::default();
        let accepted = "a text of 1 to 128 bytes without control characters";
        let source = table.parsed::<Source>("source", accepted, faults);
        set(&mut events.source, source.map(|source| source.0));
        set(&mut events.deadline, table.duration("deadline", &DEADLINE, faults));
        set(&mut events.connect, table.duration("connect", &DEADLINE, faults));
        events.destinations = destinations(&mut table, faults);
        let accepted = "times after the event, the first 0s and each later than the one before, up to 31d: \
                        [\"0s\", \"5s\", \"30s\"]";
        if let Some(offsets) = table.list::<Offset>("attempts", accepted, faults) {
            let offsets: Vec<Duration> = offsets.into_iter().map(|offset| offset.0).collect();
            match Course::new(offsets) {
                Ok(course) => events.course = course,
                Err(error) => table.refuse_key("attempts", &format!("a list of {accepted} ({error})"), faults),
            }
        }
        let parking = &mut events.parking;
        if let Some(failures) = table.count("park_after", faults) {
            if failures > PARK_AFTER_MAX {
                table.refuse_key("park_after", &format!("at most {PARK_AFTER_MAX}"), faults);
            }
            parking.failures = u32::try_from(failures).unwrap_or(u32::MAX);
        }
        set(&mut parking.first, table.duration("park_for", &PARKED, faults));
        set(&mut parking.most, table.duration("park_for_max", &PARKED, faults));
        if parking.most < parking.first {
            let what = "events.park_for_max is less than park_for: make it as long at least";
            table.refuse_whole(what, faults);
        }
        table.finish(faults);
        events
    }

    /// What sends events, over this queue.
    pub(crate) fn dispatcher(&self, queue: &Arc<dyn Ledger>) -> Result<Dispatcher<dyn Ledger>, InvalidSender> {
        let sender = Sender::builder()
            .destinations(self.destinations.clone())
            .deadline(self.deadline)
            .connect_timeout(self.connect)
            .build()?;
        Ok(Dispatcher::new(Arc::clone(queue), sender)
            .with_course(self.course.clone())
            .with_parking(self.parking))
    }
}

fn destinations(table: &mut Table<'_>, faults: &mut Faults<'_>) -> Destinations {
    let mut destinations = Destinations::default();
    if table.flag("allow_private", faults) == Some(true) {
        destinations = destinations.allow_private();
    }
    let accepted = "networks such as \"10.0.0.0/8\", \"fd00::/8\" or \"127.0.0.1\"";
    for network in table.list::<Network>("allow", accepted, faults).unwrap_or_default() {
        destinations = destinations.allow(network);
    }
    let https = table.flag("require_https", faults).unwrap_or_default();
    destinations.require_https(https)
}
