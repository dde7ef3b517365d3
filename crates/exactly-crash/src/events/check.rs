//! Whether a round kept its promises.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// What was found when everything was over.
#[derive(Clone, Debug, Default)]
pub struct Books {
    /// Who is told of every event.
    pub endpoints: BTreeSet<String>,
    /// Rows that producers' transactions left: event and nonce.
    pub committed: BTreeMap<String, String>,
    /// Events that are in the queue.
    pub published: BTreeSet<String>,
    /// Rows that consumers left: event and endpoint, and the nonce that came with the event.
    pub applied: Vec<(Name, String)>,
    /// Deliveries that are in the queue.
    pub deliveries: BTreeMap<Name, Delivery>,
    /// How many requests were on the wire, by delivery and sender.
    pub posts: BTreeMap<(Name, String), usize>,
    /// Deliveries that were seen done and otherwise, or done again, later.
    pub changed: BTreeSet<Name>,
    /// What the dead held for too long, and for how long.
    pub stuck: BTreeMap<String, Duration>,
}

/// What a delivery is known by: event and endpoint, with a space between.
pub type Name = String;

/// A delivery as it stands.
#[derive(Clone, Debug, Default)]
pub struct Delivery {
    /// Whether its endpoint is said to have the event.
    pub is_done: bool,
    /// Every attempt in its history, oldest first, and then the one that succeeded.
    pub attempts: Vec<Attempt>,
}

/// An attempt at a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Its fence.
    pub fence: u64,
    /// Who made it.
    pub sender: String,
}

/// A promise that was not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Where.
    pub name: String,
    /// How.
    pub fault: Fault,
}

/// How a promise was broken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// It was applied so often.
    Duplicate(usize),
    /// It was committed, and not applied.
    Lost,
    /// What it tells of was not committed.
    Unexpected,
    /// What was applied is not what was committed.
    OtherContent,
    /// A delivery that was done was touched again.
    Reopened,
    /// More requests were on the wire than its sender has attempts in the history: requests, and attempts.
    Unnoted(usize, usize),
    /// It is not done although everything is over.
    Unfinished,
    /// Nobody took it from a dead worker for so long, after the lease had ended.
    Stuck(Duration),
}

/// What is wrong with these books, the gravest first.
pub fn check(books: &Books) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut fault = |name: &str, fault| {
        violations.push(Violation {
            name: name.to_owned(),
            fault,
        });
    };
    check_applied(books, &mut fault);
    for event in books
        .published
        .iter()
        .filter(|event| !books.committed.contains_key(*event))
    {
        fault(event, Fault::Unexpected);
    }
    for (name, delivery) in &books.deliveries {
        let in_turn = delivery.attempts.is_sorted_by(|one, next| one.fence < next.fence);
        if books.changed.contains(name) || !in_turn {
            fault(name, Fault::Reopened);
        }
        if !delivery.is_done {
            fault(name, Fault::Unfinished);
        }
    }
    for ((name, sender), posts) in &books.posts {
        let attempts = books.deliveries.get(name).map(|delivery| delivery.attempts.iter());
        let noted = attempts.into_iter().flatten();
        let noted = noted.filter(|attempt| attempt.sender == *sender).count();
        if *posts > noted {
            fault(name, Fault::Unnoted(*posts, noted));
        }
    }
    for (name, time) in &books.stuck {
        fault(name, Fault::Stuck(*time));
    }
    violations.sort_by(|one, other| one.fault.cmp(&other.fault));
    violations
}

/// Every event of a row that is there, once for each endpoint, and no other.
fn check_applied(books: &Books, fault: &mut impl FnMut(&str, Fault)) {
    let mut applied: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, nonce) in &books.applied {
        applied.entry(name).or_default().push(nonce);
    }
    for (event, nonce) in &books.committed {
        for endpoint in &books.endpoints {
            let name = format!("{event} {endpoint}");
            match applied.remove(name.as_str()).as_deref() {
                None => fault(&name, Fault::Lost),
                Some([one]) if one == nonce => {}
                Some([_]) => fault(&name, Fault::OtherContent),
                Some(several) => fault(&name, Fault::Duplicate(several.len())),
            }
            if !books.deliveries.contains_key(&name) {
                fault(&name, Fault::Unfinished);
            }
        }
    }
    for name in applied.keys() {
        fault(name, Fault::Unexpected);
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name)?;
        match &self.fault {
            Fault::Duplicate(times) => write!(f, "applied {times} times"),
            Fault::Lost => f.write_str("committed, and not applied"),
            Fault::Unexpected => f.write_str("what it tells of was not committed"),
            Fault::OtherContent => f.write_str("applied with another content than was committed"),
            Fault::Reopened => f.write_str("touched again after it was done"),
            Fault::Unnoted(posts, attempts) => {
                write!(
                    f,
                    "{posts} requests of one sender, and {attempts} attempts of it in the history"
                )
            }
            Fault::Unfinished => f.write_str("not done"),
            Fault::Stuck(time) => write!(f, "held by a dead worker for {time:?} after its lease had ended"),
        }
    }
}
