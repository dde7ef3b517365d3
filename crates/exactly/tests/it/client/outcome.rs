//! Applied, not applied, unknown: never wrong.

use exactly::client::{Client, Outcome};
use exactly::retry::Stop;

use super::scripted::{Act, Scripted, answer};

const STORED: &str = "idempotency-status: stored\r\n";

fn hasty() -> Client {
    // Waits are as short as they can be; no test depends on their length.
    Client::builder().random(|| 0).build().unwrap()
}

#[tokio::test]
async fn one_key_and_equal_bytes_on_every_attempt() {
    let busy = answer("503 Service Unavailable", "", "");
    let acts = [
        Act::Answer(busy),
        Act::CutRequest(10),
        Act::Silence,
        Act::Answer(answer("201 Created", STORED, "rf_1")),
    ];
    let server = Scripted::start(acts).await;
    let call = hasty().post(server.url("/refunds")).json(&[1, 2]);
    let outcome = call.within(std::time::Duration::from_millis(1500)).send().await;
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    let arrived = server.arrived();
    let keys: Vec<_> = arrived
        .iter()
        .map(|request| request.header("idempotency-key").unwrap())
        .collect();
    assert_eq!(keys.len(), 2, "{arrived:?}");
    assert_eq!(keys[0], keys[1]);
    assert!(arrived.iter().all(|request| request.body == b"[1,2]"));
    let Outcome::Unknown(unknown) = outcome else {
        unreachable!()
    };
    assert!(matches!(unknown.account().stop(), Some(Stop::Deadline { .. })));
    // What is unknown is settled by the same key.
    let outcome = unknown.resolve().await;
    assert!(
        matches!(&outcome, Outcome::Applied(applied) if applied.answer().text() == "rf_1"),
        "{outcome:?}"
    );
    assert_eq!(server.arrived()[2].header("idempotency-key").unwrap(), keys[0]);
}
