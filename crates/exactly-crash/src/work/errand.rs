//! What there is to do, for whom, and where it leaves its traces.

use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use exactly::job::{self, Context, Job, JobError, JobHandler, daily_key};
use exactly::schedule::{Pattern, TimeOfDay};
use exactly::scheduler::{Plan, Subjects, Tick};
use exactly::worker::Builder;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::WorkSabotage;
use super::calendar;
use super::desk::Desk;
use crate::failure::{Result, failed};
use crate::place::Place;

/// In the hour that is left out where the clocks go forward, and comes twice where they go back.
const HOUR: i8 = 2;
const MINUTE: i8 = 30;

/// The clocks go forward in the first of them while a round lasts, and back in the last. The third and the fourth are one.
const ZONES: [&str; 8] = [
    "Europe/Berlin",
    "America/New_York",
    "Asia/Calcutta",
    "Asia/Kolkata",
    "Africa/Cairo",
    "Asia/Kathmandu",
    "Pacific/Chatham",
    "Australia/Sydney",
];

/// Somebody is said to live there.
const NO_ZONE: &str = "Mars/Olympus_Mons";

/// More than one chunk of a fan-out sees to, so that there is a cursor.
const MANY: usize = 1040;
const FEW: usize = 12;

/// How long an errand takes at most, once its effect is made.
const TAKES_MS: u64 = 4;

/// How long it takes at most before somebody writes a letter.
const THINKS_MS: u64 = 100;

/// How many errands share a transaction, and how many transactions are open at once.
const SHARE: usize = 8;
const SHARED_AT_ONCE: usize = 2;

/// What kinds of errands there are.
pub(super) trait Kind: Send + Sync + 'static {
    const NAME: &'static str;
}

/// Writes a row in a transaction that it shares. For so many subjects that they come in chunks.
#[derive(Debug)]
pub(super) enum Digest {}

/// Writes a row in a transaction of its own. For a few in every zone, in two shards.
#[derive(Debug)]
pub(super) enum Offer {}

/// Writes where no transaction of the queue reaches, and shows its fence there.
#[derive(Debug)]
pub(super) enum Letter {}

impl Kind for Digest {
    const NAME: &'static str = "digest";
}

impl Kind for Offer {
    const NAME: &'static str = "offer";
}

impl Kind for Letter {
    const NAME: &'static str = "letter";
}

/// The names of all kinds.
pub(super) const KINDS: [&str; 3] = [Digest::NAME, Offer::NAME, Letter::NAME];

/// What one subject gets on one date. Its outcome is the nonce of the attempt that was settled.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
struct Errand<K> {
    date: Date,
    subject: String,
    zone: String,
    #[serde(skip)]
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind> Job for Errand<K> {
    const KIND: &'static str = K::NAME;
    type Outcome = String;

    fn key(&self) -> String {
        daily_key(self.date, &self.subject)
    }
}

impl<K: Kind> Errand<K> {
    /// What its traces are known by.
    fn trace(&self) -> String {
        trace(K::NAME, self.date, &self.subject)
    }
}

fn trace(kind: &str, date: Date, subject: &str) -> String {
    format!("{kind}:{}", daily_key(date, subject))
}

/// The schedules of a round.
pub(super) fn plans() -> Result<Vec<Plan>> {
    Ok(vec![plan::<Digest>(1)?, plan::<Offer>(2)?, plan::<Letter>(1)?])
}

fn plan<K: Kind>(shards: u32) -> Result<Plan> {
    let subjects = Subjects::new(subjects(K::NAME), |tick: &Tick, subject: &str| {
        let errand = Errand::<K> {
            date: tick.local_date,
            subject: subject.to_owned(),
            zone: tick.zone.clone(),
            kind: PhantomData,
        };
        Ok(job::task(&errand).expect("an errand is short"))
    });
    let (hour, minute) = (HOUR.unsigned_abs(), MINUTE.unsigned_abs());
    let daily = TimeOfDay::new(hour, minute).map_err(failed("read time of day"))?;
    let plan = Plan::new(K::NAME, Pattern::Daily(daily), subjects.in_shards(shards));
    // Nothing is missed, however long all schedulers were dead.
    let plan = plan.and_then(|plan| plan.catching_up(Plan::CATCH_UP_MAX));
    plan.map_err(failed("make plan"))
}

/// Who gets errands of this kind, and the zone of each.
fn subjects(kind: &str) -> Vec<(String, String)> {
    let in_zone = |zone: &'static str, count| {
        (0..count).map(move |number| (format!("{}-{number:04}", zone.to_lowercase()), zone.to_owned()))
    };
    if kind == Digest::NAME {
        return in_zone(ZONES[0], MANY).collect();
    }
    let everywhere = ZONES.into_iter().flat_map(|zone| in_zone(zone, FEW));
    everywhere.chain(in_zone(NO_ZONE, 1)).collect()
}

/// What there must be at the end: a trace per subject and local date on which the hour falls into the round. By the
/// calendar's library alone, not by what is under test.
pub(super) fn expected() -> Result<BTreeSet<String>> {
    let mut expected = BTreeSet::new();
    let subjects = KINDS
        .iter()
        .flat_map(|kind| subjects(kind).into_iter().map(|who| (*kind, who)));
    for (kind, (subject, zone)) in subjects.filter(|(_, (_, zone))| zone != NO_ZONE) {
        for date in dates(&zone)? {
            expected.insert(trace(kind, date, &subject));
        }
    }
    Ok(expected)
}

/// How many rows of occurrences there must be: one per schedule, zone and date, and one for each that has a zone that is
/// none.
pub(super) fn occurrences() -> Result<usize> {
    let mut count = 0;
    for kind in KINDS {
        let zones: BTreeSet<String> = subjects(kind).into_iter().map(|(_, zone)| zone).collect();
        for zone in zones {
            count += match zone.as_str() {
                NO_ZONE => 1,
                // The same zone by its old name.
                "Asia/Calcutta" => 0,
                zone => dates(zone)?.len(),
            };
        }
    }
    Ok(count)
}

/// How many of those are of a zone that is none.
pub(super) fn occurrences_nowhere() -> usize {
    let nowhere = |kind: &&str| subjects(kind).iter().any(|(_, zone)| zone == NO_ZONE);
    KINDS.into_iter().filter(nowhere).count()
}

fn dates(zone: &str) -> Result<Vec<Date>> {
    let zone = TimeZone::get(zone).map_err(failed("find zone"))?;
    let instant = |at: exactly::clock::Timestamp| {
        let ms = i64::try_from(at.as_millis()).unwrap_or(i64::MAX);
        jiff::Timestamp::from_millisecond(ms).map_err(failed("read instant"))
    };
    let (begin, end) = (instant(calendar::begin())?, instant(calendar::end())?);
    let mut date = begin.to_zoned(zone.clone()).date();
    let mut dates = Vec::new();
    loop {
        let at = date.at(HOUR, MINUTE, 0, 0).to_zoned(zone.clone());
        let at = at.map_err(failed("read local time"))?.timestamp();
        if at > end {
            return Ok(dates);
        }
        if at > begin {
            dates.push(date);
        }
        date = date.tomorrow().map_err(failed("go to next date"))?;
    }
}

/// A worker that does errands of all kinds.
pub(super) fn register<D: Desk>(worker: Builder, desk: &Arc<D>, place: &Place, sabotage: WorkSabotage) -> Builder {
    let effect = format!(
        "insert into {} (key, nonce, amount) values ($1, $2, 1)",
        place.effects_table()
    );
    let letter = letter_sql(place, sabotage);
    let worker = if sabotage == WorkSabotage::LooseEffect {
        worker
            .job(loose::<Digest, D>(desk, effect.clone()))
            .job(loose::<Offer, D>(desk, effect))
    } else {
        worker
            .job(bound::<Digest, D>(desk, effect.clone(), SHARE))
            .job(bound::<Offer, D>(desk, effect, 1))
    };
    let desk = Arc::clone(desk);
    worker.job(job::from_fn(move |errand: Errand<Letter>, cx: Context| {
        let (desk, letter) = (Arc::clone(&desk), letter.clone());
        async move {
            let fence = i64::try_from(cx.fence().get()).map_err(JobError::logic)?;
            let nonce = nonce();
            let trace = errand.trace();
            // In a task of its own, as a request that is under way: when the lease is lost and the handler is dropped, it
            // arrives all the same.
            let sent = tokio::spawn({
                let nonce = nonce.clone();
                async move {
                    // Long, so that many wake up from a freeze with an old fence and the letter still to be written.
                    sleep(Duration::from_millis(fastrand::u64(..THINKS_MS))).await;
                    desk.fenced(letter, trace, nonce, fence).await
                }
            });
            let written = sent.await.map_err(JobError::logic)?;
            if !written.map_err(JobError::transient)? {
                return Err(JobError::transient("somebody with a later fence was here"));
            }
            take_time().await;
            Ok(nonce)
        }
    }))
}

/// Refuses what is late, unless it is sabotaged.
fn letter_sql(place: &Place, sabotage: WorkSabotage) -> String {
    let letters = place.letters_table();
    let guard = match sabotage {
        WorkSabotage::NoFence => String::new(),
        WorkSabotage::None | WorkSabotage::LooseEffect => " where letters.fence < excluded.fence".to_owned(),
    };
    format!(
        "insert into {letters} as letters (key, nonce, fence) values ($1, $2, $3)
         on conflict (key) do update set nonce = excluded.nonce, fence = excluded.fence{guard}"
    )
}

/// Its row commits with its outcome, or neither does.
fn bound<K: Kind, D: Desk>(desk: &Arc<D>, sql: String, share: usize) -> impl JobHandler + use<K, D> {
    let handler = job::transactional(Arc::clone(desk), move |errand: Errand<K>, tx, _| {
        let sql = sql.clone();
        Box::pin(async move {
            let nonce = nonce();
            let inserted = D::inside(tx, sql, errand.trace(), nonce.clone()).await;
            inserted.map_err(JobError::transient)?;
            take_time().await;
            Ok(nonce)
        })
    });
    handler.sharing(share, SHARED_AT_ONCE)
}

/// Its row commits by itself: what the lab must notice.
fn loose<K: Kind, D: Desk>(desk: &Arc<D>, sql: String) -> impl JobHandler + use<K, D> {
    let desk = Arc::clone(desk);
    job::from_fn(move |errand: Errand<K>, _| {
        let (desk, sql) = (Arc::clone(&desk), sql.clone());
        async move {
            let nonce = nonce();
            let inserted = desk.outside(sql, errand.trace(), nonce.clone()).await;
            inserted.map_err(JobError::transient)?;
            take_time().await;
            Ok(nonce)
        }
    })
}

fn nonce() -> String {
    format!("{:032x}", fastrand::u128(..))
}

async fn take_time() {
    sleep(Duration::from_millis(fastrand::u64(..TAKES_MS))).await;
}
