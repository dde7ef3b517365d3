//! The one statement that carries out what most batches consist of.
//!
//! It takes every id at most once: a begin of a key never seen, a completion by the claim's owner, or a look at a record
//! that needs no change. What is left over (a second step on the same id, a takeover, a repeated completion) goes
//! through [`settle`](super::settle), which can do everything and costs a transaction of its own.

use std::collections::HashMap;

use bytes::Bytes;
use exactly::clock::Timestamp;
use exactly::store::record::{self, Change};
use exactly::{Call, CallId, Claim, Fenced, Keep};
use sqlx::postgres::{PgBindIterExt as _, PgRow};
use sqlx::{PgConnection, Row as _};

use super::row::{PgTime, StoredRecord, millis_code, on_lost_code};
use super::sql::{PgQuery, Sql};
use super::work::{Answer, Work};
use crate::batch::{Step, Write};
use crate::error::Shared;

/// What of a batch fits into the statement. The number is the step's place in the batch.
#[derive(Default)]
struct Group<'s> {
    begins: Vec<Begin<'s>>,
    completions: Vec<(usize, &'s Claim, &'s Bytes, Keep)>,
    looks: Vec<(usize, &'s Call)>,
    /// Begins and looks at an id that the statement already touches, and where its step is.
    repeats: Vec<(usize, usize)>,
}

struct Begin<'s> {
    index: usize,
    call: &'s Call,
    /// Another begin of the same batch will wait for this one.
    waited: bool,
}

/// What a batch's steps found in the table.
type Found = HashMap<usize, Result<StoredRecord, Shared>>;

/// Carries out what fits, and leaves the rest unanswered.
pub(super) async fn run(conn: &mut PgConnection, sql: &Sql, work: &mut Work<'_>) -> Result<(), sqlx::Error> {
    let group = Group::select(work.steps);
    if group.is_empty() {
        return Ok(());
    }
    if group.begins.is_empty() && group.completions.is_empty() {
        return group.look(conn, sql, work).await;
    }
    let rows = group.execute(conn, sql).await?;
    group.answer(work, &rows)
}

/// Answers what a look is enough for, and leaves the rest unanswered: for batches that must not wait for anybody.
pub(super) async fn look(conn: &mut PgConnection, sql: &Sql, work: &mut Work<'_>) -> Result<(), sqlx::Error> {
    let looks = |(index, step): (usize, _)| match step {
        &Step::Begin { ref call, .. } | &Step::Peek { ref call, .. } => Some((index, call)),
        Step::Write { .. } | Step::GiveBack { .. } => None,
    };
    let group = Group {
        looks: work.steps.iter().enumerate().filter_map(looks).collect(),
        ..Group::default()
    };
    if group.is_empty() {
        return Ok(());
    }
    group.look(conn, sql, work).await
}

/// Notes on rows in flight that someone waits for them. Returns those that are in flight no longer.
///
/// A row that a transaction elsewhere holds is not waited for. Whoever waits for its outcome then finds it by polling.
pub(super) async fn mark(conn: &mut PgConnection, sql: &Sql, work: &Work<'_>) -> Result<Vec<CallId>, sqlx::Error> {
    let mut ids = work.unmarked.clone();
    ids.sort_unstable();
    ids.dedup();
    // What was marked, or else is in flight all the same: held, or marked by someone who will wake us too.
    for query in [&sql.mark, &sql.in_flight] {
        if ids.is_empty() {
            break;
        }
        let rows = query.query().bind(bytes_of(&ids)).fetch_all(&mut *conn).await?;
        let waited_for = rows.iter().map(|row| row.try_get(0).map(CallId::from_bytes));
        let waited_for: Vec<CallId> = waited_for.collect::<Result<_, _>>()?;
        ids.retain(|id| !waited_for.contains(id));
    }
    Ok(ids)
}

impl<'s> Group<'s> {
    fn select(steps: &'s [Step]) -> Self {
        let mut group = Self::default();
        let mut first: HashMap<&CallId, (usize, Option<usize>)> = HashMap::with_capacity(steps.len());
        for (index, step) in steps.iter().enumerate() {
            if let Some(&(earlier, begin)) = first.get(step.id()) {
                if let (Step::Begin { .. }, Some(begin)) = (step, begin) {
                    group.begins[begin].waited = true;
                }
                if matches!(step, Step::Begin { .. } | Step::Peek { .. }) {
                    group.repeats.push((index, earlier));
                }
                continue;
            }
            let mut begin = None;
            match step {
                Step::Begin { call, .. } => {
                    begin = Some(group.begins.len());
                    group.begins.push(Begin {
                        index,
                        call,
                        waited: false,
                    });
                }
                Step::Peek { call, .. } => group.looks.push((index, call)),
                Step::Write {
                    write: Write::Complete { claim, outcome, keep },
                    ..
                } => {
                    group.completions.push((index, claim, outcome, *keep));
                }
                Step::Write { .. } | Step::GiveBack { .. } => {}
            }
            first.insert(step.id(), (index, begin));
        }
        group.begins.sort_unstable_by_key(|begin| begin.call.id());
        group.completions.sort_unstable_by_key(|(_, claim, ..)| claim.id);
        group
    }

    fn is_empty(&self) -> bool {
        self.begins.is_empty() && self.completions.is_empty() && self.looks.is_empty()
    }

    /// Looks alone need no more than a read, which is most of what transactional routes ask before they begin.
    async fn look(&self, conn: &mut PgConnection, sql: &Sql, work: &mut Work<'_>) -> Result<(), sqlx::Error> {
        let ids = self.looks.iter().map(|(_, call)| call.id().as_bytes()).bind_iter();
        let rows = sql.look.query().bind(ids).fetch_all(conn).await?;
        let mut found = Found::default();
        let mut now = Timestamp::from_millis(0);
        for row in &rows {
            now = Timestamp::from(row.try_get::<PgTime, _>(1)?);
            let (index, _) = *nth(&self.looks, row.try_get(0)?)?;
            found.insert(index, StoredRecord::read(row, 2).map_err(Shared::new));
        }
        let looks = self.looks.iter().map(|(index, _)| (*index, *index));
        for (index, looked) in looks.chain(self.repeats.iter().copied()) {
            let looks = matches!(work.steps[index], Step::Peek { .. });
            match found.get(&looked) {
                Some(Ok(stored)) => work.answer_unchanged(index, Some(&stored.record), stored.waited, now),
                None if looks => work.answer_unchanged(index, None, false, now),
                // A record that cannot be read is told below; a begin of one that is not there has to insert it.
                Some(Err(_)) | None => {}
            }
        }
        for (index, stored) in found {
            if let Err(error) = stored {
                work.answers[index] = Some(Answer::Failed(error));
            }
        }
        Ok(())
    }

    async fn execute(&self, conn: &mut PgConnection, sql: &Sql) -> Result<Vec<PgRow>, sqlx::Error> {
        let query = sql.group.query();
        let query = bind_begins(query, &self.begins.iter().map(|begin| (begin.call, begin.waited)));
        let completions = || self.completions.iter();
        let looks = self.looks.iter().map(|(_, call)| *call);
        query
            .bind(completions().map(|(_, claim, ..)| claim.id.as_bytes()).bind_iter())
            .bind(completions().map(|(_, claim, ..)| claim.token.as_bytes()).bind_iter())
            .bind(completions().map(|(_, _, outcome, _)| outcome.as_ref()).bind_iter())
            .bind(completions().map(|(.., keep)| keep_code(*keep)).bind_iter())
            .bind(
                self.begins
                    .iter()
                    .map(|begin| begin.call)
                    .chain(looks)
                    .map(|call| call.id().as_bytes())
                    .bind_iter(),
            )
            .fetch_all(conn)
            .await
    }

    fn answer(&self, work: &mut Work<'_>, rows: &[PgRow]) -> Result<(), sqlx::Error> {
        let (totals, existing) = rows.split_first().ok_or(sqlx::Error::RowNotFound)?;
        let now = Timestamp::from(totals.try_get::<PgTime, _>(1)?);
        let mut found = Found::default();
        self.answer_claimed(work, &mut found, totals, now)?;
        for row in existing {
            let index = self.looked_at(row.try_get(0)?)?;
            if work.answers[index].is_some() {
                continue;
            }
            let stored = StoredRecord::read(row, 5).map_err(Shared::new);
            if let Ok(stored) = &stored {
                work.answer_unchanged(index, Some(&stored.record), stored.waited, now);
            }
            found.insert(index, stored);
        }
        self.answer_completed(work, totals)?;
        for (index, _) in &self.looks {
            if !found.contains_key(index) {
                work.answer_unchanged(*index, None, false, now);
            }
        }
        for (index, earlier) in &self.repeats {
            if let Some(Ok(stored)) = found.get(earlier) {
                work.answer_unchanged(*index, Some(&stored.record), stored.waited, now);
            }
        }
        for (index, stored) in found {
            if let Err(error) = stored {
                work.answers[index] = Some(Answer::Failed(error));
            }
        }
        Ok(())
    }

    /// Begins whose row is neither claimed nor found lost to a commit that came in between; they ask again.
    fn answer_claimed(
        &self,
        work: &mut Work<'_>,
        found: &mut Found,
        totals: &PgRow,
        now: Timestamp,
    ) -> Result<(), sqlx::Error> {
        let Some(mut claimed) = totals.try_get::<Option<Vec<[u8; 32]>>, _>(2)? else {
            return Ok(());
        };
        claimed.sort_unstable();
        for Begin { index, call, waited } in &self.begins {
            if claimed.binary_search(call.id().as_bytes()).is_err() {
                continue;
            }
            let (change, verdict) = record::begin(None, call, now);
            work.answers[*index] = Some(Answer::Begun(verdict));
            if let (Change::Put(record), false) = (change, self.repeats.is_empty()) {
                found.insert(
                    *index,
                    Ok(StoredRecord {
                        record,
                        waited: *waited,
                    }),
                );
            }
        }
        Ok(())
    }

    fn answer_completed(&self, work: &mut Work<'_>, totals: &PgRow) -> Result<(), sqlx::Error> {
        let completed: Option<Vec<i64>> = totals.try_get(3)?;
        let waited: Option<Vec<i64>> = totals.try_get(4)?;
        for n in completed.into_iter().flatten() {
            let (index, ..) = *nth(&self.completions, n)?;
            work.settle(
                index,
                Fenced::Applied,
                waited.as_ref().is_some_and(|waited| waited.contains(&n)),
            );
        }
        Ok(())
    }

    /// The step that the `n`th look of the statement belongs to, counted from one.
    fn looked_at(&self, n: i64) -> Result<usize, sqlx::Error> {
        let begins = i64::try_from(self.begins.len()).unwrap_or(i64::MAX);
        if n <= begins {
            Ok(nth(&self.begins, n)?.index)
        } else {
            Ok(nth(&self.looks, n - begins)?.0)
        }
    }
}

/// Binds the begins as a statement's first nine parameters.
pub(super) fn bind_begins<'q, 's: 'q>(
    query: PgQuery<'q>,
    begins: &(impl Iterator<Item = (&'s Call, bool)> + Clone),
) -> PgQuery<'q> {
    let calls = || begins.clone().map(|(call, _)| call);
    query
        .bind(calls().map(|call| call.id().as_bytes()).bind_iter())
        .bind(calls().map(|call| call.fingerprint().as_bytes()).bind_iter())
        .bind(calls().map(|call| *call.token().as_bytes()).bind_iter())
        .bind(calls().map(|call| millis_code(call.lease())).bind_iter())
        .bind(calls().map(|call| on_lost_code(call.on_lost())).bind_iter())
        .bind(begins.clone().map(|(_, waited)| waited).bind_iter())
        .bind(calls().map(|call| call.scope().principal()).bind_iter())
        .bind(calls().map(|call| call.scope().operation()).bind_iter())
        .bind(calls().map(|call| call.key().as_str()).bind_iter())
}

/// Ids as a parameter.
pub(super) fn bytes_of(ids: &[CallId]) -> Vec<&[u8; 32]> {
    ids.iter().map(CallId::as_bytes).collect()
}

/// How long to keep an outcome, in milliseconds; none if forever.
pub(super) fn keep_code(keep: Keep) -> Option<i64> {
    match keep {
        Keep::For(duration) => Some(millis_code(duration)),
        Keep::Forever => None,
    }
}

/// The `n`th element, counted from one as SQL does.
fn nth<T>(items: &[T], n: i64) -> Result<&T, sqlx::Error> {
    let item = usize::try_from(n)
        .ok()
        .and_then(|n| n.checked_sub(1))
        .and_then(|n| items.get(n));
    item.ok_or_else(|| sqlx::Error::Protocol(format!("row {n} belongs to none of {} steps", items.len())))
}
