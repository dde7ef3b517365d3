//! The promises of queues whose tasks commit with the effect, one function each.

pub mod enqueue_in;
pub mod raise_in;
pub mod record_in;
pub mod settle_in;

use std::time::Duration;

use exactly::Fenced;
use exactly::queue::{End, Lease, Settlement, TransactionalQueue};

use crate::QueueHarness;
use crate::answers::answered;

/// Long enough for an answer that should not come to come.
const A_WHILE: Duration = Duration::from_millis(150);

type Tx<H> = <<H as QueueHarness>::Queue as TransactionalQueue>::Tx;

async fn settled_in<Q: TransactionalQueue>(queue: &Q, tx: &mut Q::Tx, lease: Lease, end: End) -> Fenced {
    let fenced = answered(queue.settle_in(tx, &[Settlement::new(lease, end)]).await);
    let [fenced] = fenced[..] else {
        panic!("one settlement has one answer, not {fenced:?}")
    };
    fenced
}
