//! Millions of records, made by the database itself out of one that a request left.

use crate::Result;
use crate::database::Database;
use crate::load::series_prefix;
use crate::serve::{PRINCIPAL, Place};

/// How many rows one statement makes, so that there is progress to show.
const CHUNK: u64 = 500_000;

/// What the bench's requests ask for.
const OPERATION: &str = "POST /payments";

/// Copies the record of a series' first key to all others up to `count`. With `expires_in`, an SQL interval, they end
/// at another time than the first one.
///
/// The primary key is taken off and made again, which is ten times faster and leaves its pages fuller than years of
/// inserts would.
pub(super) async fn multiply(
    database: &Database,
    place: &Place,
    series: u32,
    count: u64,
    expires_in: Option<&str>,
) -> Result<()> {
    let table = format!("{}.calls", place.schema);
    let key = format!("'{}' || lpad(n::text, 12, '0')", series_prefix(series));
    let id = id_sql(&key);
    let expires_at = match expires_in {
        Some(interval) => format!("now() + interval '{interval}'"),
        None => "c.expires_at".to_owned(),
    };
    let is_there = format!("select from {table}, (values (0)) as v (n) where id = {id} and key = {key} and state = 1");
    if database.execute(is_there).await? != 1 {
        return Err("the first record is not where the layout of ids puts it".into());
    }
    database
        .execute(format!("alter table {table} drop constraint calls_pkey"))
        .await?;
    let mut from = 1;
    while from < count {
        let to = (from + CHUNK).min(count);
        let last = to - 1;
        let copy = format!(
            "insert into {table} (lease_ms, lease_until, created_at, completed_at, expires_at, attempt, state, on_lost,
                    waited, id, fingerprint, token, principal, operation, key, outcome)
             select lease_ms, lease_until, created_at, completed_at, {expires_at}, attempt, state, on_lost, waited,
                    {id}, fingerprint, token, principal, operation, {key}, outcome
             from (select * from {table} limit 1) c, generate_series({from}, {last}) n"
        );
        database.execute(copy).await?;
        eprintln!("  {to} of {count} records made");
        from = to;
    }
    database
        .execute(format!(
            "alter table {table} add constraint calls_pkey primary key (id)"
        ))
        .await?;
    database.execute(format!("vacuum analyze {table}")).await?;
    Ok(())
}

/// The id of a call in SQL: the hash of tag, principal, operation and key, each behind its length.
fn id_sql(key: &str) -> String {
    let prefix = id_prefix();
    let prefix = exactly::Hex(&prefix);
    format!("sha256('\\x{prefix}'::bytea || int8send(octet_length({key})) || convert_to({key}, 'UTF8'))")
}

fn id_prefix() -> Vec<u8> {
    let mut prefix = part("exactly/call/v1");
    prefix.extend(1_u64.to_be_bytes());
    prefix.extend(part(PRINCIPAL));
    prefix.extend(part(OPERATION));
    prefix
}

fn part(text: &str) -> Vec<u8> {
    let mut part = (text.len() as u64).to_be_bytes().to_vec();
    part.extend(text.as_bytes());
    part
}

#[cfg(test)]
mod tests {
    use exactly::{CallId, Key, Scope};
    use sha2::{Digest as _, Sha256};

    use super::*;

    #[test]
    fn ids_made_by_the_database_are_those_of_the_library() {
        let key = "00000001-0000-4000-8000-000000000000";
        let mut bytes = id_prefix();
        bytes.extend(part(key));
        let id = CallId::new(&Scope::new(PRINCIPAL, OPERATION), &Key::new(key).unwrap());
        assert_eq!(Sha256::digest(bytes)[..], id.as_bytes()[..]);
    }
}
