//! Whom a schedule is for.

use std::collections::BTreeMap;
use std::fmt::{self, Debug};

use sha2::{Digest as _, Sha256};

use super::Tick;
use crate::queue::{InvalidTask, Task};
use crate::schedule::Zone;
use crate::store::Reply;
use crate::{StoreError, StoreErrorKind};

/// Whom a schedule is for, and what each gets.
pub trait Audience: Debug + Send + Sync + 'static {
    /// The names of all zones in which there is somebody, as they are stored: old names and slips too.
    fn zones(&self) -> Reply<'_, Vec<String>>;

    /// How many parts run beside each other. Fixed for a tick when it fires.
    fn shards(&self) -> u32 {
        1
    }

    /// At most `limit` subjects in zones of these names that belong to this shard, after this one, in the order of their
    /// ids. An empty page is the end.
    fn page<'a>(
        &'a self,
        zones: &'a [String],
        shard: Shard,
        after: Option<&'a str>,
        limit: u32,
    ) -> Reply<'a, Vec<String>>;

    /// What this subject gets for this tick. [`Tick::key`] has the key that makes it one per local date.
    fn task(&self, tick: &Tick, subject: &str) -> Result<Task, StoreError>;
}

/// A part of an audience.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shard {
    /// From zero on.
    pub index: u32,
    /// How many there are.
    pub of: u32,
}

impl Shard {
    /// All of it.
    pub const WHOLE: Self = Self { index: 0, of: 1 };

    /// Whether a subject belongs to this part. The same everywhere and for good, and even over any kind of ids.
    pub fn takes(&self, subject: &str) -> bool {
        self.of <= 1 || Self::number(subject) % u64::from(self.of) == u64::from(self.index)
    }

    /// The number by which subjects are dealt out, for a column to index.
    pub fn number(subject: &str) -> u64 {
        let digest = Sha256::digest(subject.as_bytes());
        let (first, _) = digest.split_first_chunk().expect("a digest has 32 bytes");
        u64::from_be_bytes(*first) >> 1
    }
}

/// Makes a task for one subject.
type Make = Box<dyn Fn(&Tick, &str) -> Result<Task, InvalidTask> + Send + Sync>;

/// One task per occurrence in one zone, for nobody in particular.
pub struct Only {
    zone: String,
    make: Make,
}

impl Only {
    /// The subject of such a task.
    pub const SUBJECT: &'static str = "all";

    /// In this zone, `make` says what is to be done.
    pub fn new(zone: &Zone, make: impl Fn(&Tick, &str) -> Result<Task, InvalidTask> + Send + Sync + 'static) -> Self {
        Self {
            zone: zone.name().to_owned(),
            make: Box::new(make),
        }
    }
}

impl Debug for Only {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Only").field("zone", &self.zone).finish_non_exhaustive()
    }
}

impl Audience for Only {
    fn zones(&self) -> Reply<'_, Vec<String>> {
        Box::pin(async { Ok(vec![self.zone.clone()]) })
    }

    fn page<'a>(&'a self, _: &'a [String], _: Shard, after: Option<&'a str>, _: u32) -> Reply<'a, Vec<String>> {
        Box::pin(async move {
            let only = after.is_none().then(|| Self::SUBJECT.to_owned());
            Ok(only.into_iter().collect())
        })
    }

    fn task(&self, tick: &Tick, subject: &str) -> Result<Task, StoreError> {
        (self.make)(tick, subject).map_err(refused)
    }
}

/// Subjects that are known beforehand, each with its zone.
pub struct Subjects {
    zones: Vec<String>,
    /// Sorted by id.
    people: Vec<(String, usize)>,
    shards: u32,
    make: Make,
}

impl Subjects {
    /// These subjects by id and zone; `make` says what each gets.
    pub fn new(
        subjects: impl IntoIterator<Item = (String, String)>,
        make: impl Fn(&Tick, &str) -> Result<Task, InvalidTask> + Send + Sync + 'static,
    ) -> Self {
        let mut places = BTreeMap::new();
        let mut people = Vec::new();
        for (subject, zone) in subjects {
            let next = places.len();
            people.push((subject, *places.entry(zone).or_insert(next)));
        }
        people.sort();
        let mut zones = vec![String::new(); places.len()];
        for (zone, place) in places {
            zones[place] = zone;
        }
        Self {
            zones,
            people,
            shards: 1,
            make: Box::new(make),
        }
    }

    /// In so many parts that run beside each other.
    #[must_use]
    pub fn in_shards(mut self, shards: u32) -> Self {
        self.shards = shards.max(1);
        self
    }
}

impl Debug for Subjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.people.len();
        f.debug_struct("Subjects")
            .field("count", &count)
            .finish_non_exhaustive()
    }
}

impl Audience for Subjects {
    fn zones(&self) -> Reply<'_, Vec<String>> {
        Box::pin(async { Ok(self.zones.clone()) })
    }

    fn shards(&self) -> u32 {
        self.shards
    }

    fn page<'a>(
        &'a self,
        zones: &'a [String],
        shard: Shard,
        after: Option<&'a str>,
        limit: u32,
    ) -> Reply<'a, Vec<String>> {
        Box::pin(async move {
            let from = after.map_or(0, |after| self.people.partition_point(|(id, _)| id.as_str() <= after));
            let subjects = self.people[from..].iter();
            let subjects = subjects.filter(|(id, zone)| zones.contains(&self.zones[*zone]) && shard.takes(id));
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            Ok(subjects.take(limit).map(|(id, _)| id.clone()).collect())
        })
    }

    fn task(&self, tick: &Tick, subject: &str) -> Result<Task, StoreError> {
        (self.make)(tick, subject).map_err(refused)
    }
}

/// A task that cannot be made is a mistake in its making.
pub(super) fn refused(error: InvalidTask) -> StoreError {
    StoreError::new(StoreErrorKind::Refused, "make the task of a schedule").with_source(error)
}
