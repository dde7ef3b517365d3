//! Schedules on PostgreSQL, by the server's clock.

use std::sync::Arc;

use exactly_sql::PgQueue;

use super::Place;
use crate::scheduled;

#[tokio::test]
async fn rows_say_what_became_of_occurrences_on_postgres() {
    let place = Place::fresh();
    let queue = PgQueue::builder(place.pool.clone()).schema(&place.schema);
    let queue = Arc::new(queue.start().await.unwrap());
    scheduled::rows_say_what_became_of_occurrences(queue).await;
}
