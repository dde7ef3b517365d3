//! The handler's end of its transaction.

use std::fmt;
use std::ops::{Deref, DerefMut};

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use exactly::layer::TxSlot;

/// The open transaction of a transactional route, as an axum extractor: what is written through it commits together
/// with the record of the call, or not at all.
///
/// It dereferences to the connection, so statements run on `&mut *tx`. There is no `commit`: the layer does that once the
/// handler has answered, and rolls back if it answered with 5xx or panicked. Drop it before answering, as a handler does
/// by returning.
///
/// ```
/// use axum::http::StatusCode;
/// use exactly_sql::SqliteTx;
///
/// async fn refund(mut tx: SqliteTx) -> Result<StatusCode, StatusCode> {
///     sqlx::query("insert into refunds (charge, amount) values ('ch_9ab', 1000)")
///         .execute(&mut *tx)
///         .await
///         .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
///     Ok(StatusCode::CREATED)
/// }
/// ```
pub struct Tx<T> {
    // `None` only while it is being dropped.
    tx: Option<T>,
    slot: TxSlot<T>,
}

/// The transaction of a route on PostgreSQL.
#[cfg(feature = "postgres")]
pub type PgTx = Tx<crate::PgTransaction>;

/// The transaction of a route on SQLite.
#[cfg(feature = "sqlite")]
pub type SqliteTx = Tx<crate::SqliteTransaction>;

impl<T: Deref> Deref for Tx<T> {
    type Target = T::Target;

    fn deref(&self) -> &T::Target {
        self.tx.as_ref().expect("it is given back only when dropped")
    }
}

impl<T: DerefMut> DerefMut for Tx<T> {
    fn deref_mut(&mut self) -> &mut T::Target {
        self.tx.as_mut().expect("it is given back only when dropped")
    }
}

impl<T> Drop for Tx<T> {
    fn drop(&mut self) {
        if let Some(tx) = self.tx.take() {
            self.slot.put_back(tx);
        }
    }
}

impl<T> fmt::Debug for Tx<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx").finish_non_exhaustive()
    }
}

impl<T: Send + 'static, S: Sync> FromRequestParts<S> for Tx<T> {
    type Rejection = (StatusCode, &'static str);

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Self::Rejection> {
        let misused = |why| (StatusCode::INTERNAL_SERVER_ERROR, why);
        let slot = parts.extensions.get::<TxSlot<T>>().cloned().ok_or_else(|| {
            misused("this handler needs a transaction: put an IdempotencyLayer::transactional of its database in front, with Guarantee::Transactional")
        })?;
        // Where it could not be opened, the layer answers for itself.
        let taken = slot.take().await;
        let tx =
            taken.ok_or_else(|| misused("this request's transaction was taken twice: extract it once per request"))?;
        Ok(Self { tx: Some(tx), slot })
    }
}
