//! The books: payments, refunds, and what each moved.

use std::future::Future;

use serde::Serialize;
use sqlx::{PgConnection, SqliteConnection};

/// The tables, in the words that both databases understand but one.
pub(crate) fn schema(id: &str) -> String {
    format!(
        "create table if not exists payments ({id}, account text not null, amount bigint not null);
         create table if not exists refunds ({id}, payment bigint not null references payments, amount bigint not null);
         create table if not exists ledger ({id}, account text not null, amount bigint not null, why text not null);"
    )
}

/// How each database makes ids.
pub(crate) const SQLITE_ID: &str = "id integer primary key";
/// The same for PostgreSQL.
pub(crate) const POSTGRES_ID: &str = "id bigint primary key generated always as identity";

/// One movement of money.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Whose money.
    pub account: String,
    /// How much, in cents; refunds are negative.
    pub amount: i64,
    /// What moved it.
    pub why: String,
}

/// What a refund comes to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refunded {
    /// The refund's id.
    Yes(i64),
    /// More than what is left of the payment.
    TooMuch,
    /// There is no such payment.
    NoPayment,
}

/// Statements of the books, on a connection inside the handler's transaction.
pub(crate) trait Ledger: Send {
    /// Takes a payment and says its id.
    fn pay(&mut self, account: &str, amount: i64) -> impl Future<Output = sqlx::Result<i64>> + Send;
    /// Gives back a part of a payment.
    fn refund(&mut self, payment: i64, amount: i64) -> impl Future<Output = sqlx::Result<Refunded>> + Send;
    /// Everything that moved, in order.
    fn entries(&mut self) -> impl Future<Output = sqlx::Result<Vec<Entry>>> + Send;
}

/// The same statements for both databases.
macro_rules! ledger_on {
    ($connection:ty) => {
        impl Ledger for $connection {
            async fn pay(&mut self, account: &str, amount: i64) -> sqlx::Result<i64> {
                let id = sqlx::query_scalar("insert into payments (account, amount) values ($1, $2) returning id")
                    .bind(account)
                    .bind(amount)
                    .fetch_one(&mut *self)
                    .await?;
                sqlx::query("insert into ledger (account, amount, why) values ($1, $2, $3)")
                    .bind(account)
                    .bind(amount)
                    .bind(format!("payment {id}"))
                    .execute(self)
                    .await?;
                Ok(id)
            }

            async fn refund(&mut self, payment: i64, amount: i64) -> sqlx::Result<Refunded> {
                // Also locks the payment, so that two refunds cannot both take the last cent.
                let found: Option<(String, i64)> =
                    sqlx::query_as("update payments set amount = amount where id = $1 returning account, amount")
                        .bind(payment)
                        .fetch_optional(&mut *self)
                        .await?;
                let Some((account, paid)) = found else {
                    return Ok(Refunded::NoPayment);
                };
                let refunded: i64 = sqlx::query_scalar(
                    "select cast(coalesce(sum(amount), 0) as bigint) from refunds where payment = $1",
                )
                .bind(payment)
                .fetch_one(&mut *self)
                .await?;
                if amount > paid - refunded {
                    return Ok(Refunded::TooMuch);
                }
                let id = sqlx::query_scalar("insert into refunds (payment, amount) values ($1, $2) returning id")
                    .bind(payment)
                    .bind(amount)
                    .fetch_one(&mut *self)
                    .await?;
                sqlx::query("insert into ledger (account, amount, why) values ($1, $2, $3)")
                    .bind(account)
                    .bind(-amount)
                    .bind(format!("refund {id}"))
                    .execute(self)
                    .await?;
                Ok(Refunded::Yes(id))
            }

            async fn entries(&mut self) -> sqlx::Result<Vec<Entry>> {
                let rows: Vec<(String, i64, String)> =
                    sqlx::query_as("select account, amount, why from ledger order by id")
                        .fetch_all(self)
                        .await?;
                Ok(rows
                    .into_iter()
                    .map(|(account, amount, why)| Entry { account, amount, why })
                    .collect())
            }
        }
    };
}

ledger_on!(SqliteConnection);
ledger_on!(PgConnection);
