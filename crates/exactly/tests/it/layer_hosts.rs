//! One layer in front of several hosts.

use axum::Router;
use axum::routing::any;
use exactly::layer::Policy;

use crate::app::{Ask, answer, ask, counting, layer, memory};

const MISMATCH: &str = "CONFLICT.idempotency.payload_mismatch";

/// The same request for `host`, as HTTP/1.1 names it and as HTTP/2 does.
fn for_host(key: &str, host: &str) -> [Ask; 2] {
    let in_header = ask(key).header("host", host);
    let in_target = ask(key)
        .uri(&format!("http://{host}/refunds"))
        .header("host", "nobody.example");
    [in_header, in_target]
}

#[tokio::test]
async fn another_host_never_sees_the_answer() {
    let (app, runs) = counting(memory(), Policy::playbook());
    for (first, user) in for_host("k1", "a.example").into_iter().zip(["ada", "bob"]) {
        let first = first.header("x-user", user);
        assert_eq!(first.send(&app).await.key_status(), Some("stored"));
        for other in for_host("k1", "b.example") {
            let refused = other.header("x-user", user).send(&app).await;
            refused.assert_problem(409, MISMATCH);
        }
        let nowhere = ask("k1").header("x-user", user).send(&app).await;
        nowhere.assert_problem(409, MISMATCH);
        for same in ["a.example", "A.Example", "a.example:80", "a.example:8443"] {
            for again in for_host("k1", same) {
                let again = again.header("x-user", user).send(&app).await;
                assert_eq!(again.key_status(), Some("replayed"), "{same}");
            }
        }
    }
    assert_eq!(runs.get(), 2);
}

#[tokio::test]
async fn a_host_counts_inside_a_nested_router_too() {
    let inner = Router::new()
        .route("/refunds", any(async || answer(201, "done")))
        .layer(layer(memory(), Policy::playbook()));
    let app = Router::new().nest("/v1", inner);
    let to = |host: &str| ask("k1").uri(&format!("http://{host}/v1/refunds"));
    assert_eq!(to("a.example").send(&app).await.key_status(), Some("stored"));
    to("b.example").send(&app).await.assert_problem(409, MISMATCH);
    assert_eq!(to("a.example").send(&app).await.key_status(), Some("replayed"));
}

#[tokio::test]
async fn hosts_that_are_one_service_share_their_answers() {
    let (app, runs) = counting(memory(), Policy::playbook().compare_host(false));
    assert_eq!(ask("k1").send(&app).await.key_status(), Some("stored"));
    for host in ["a.example", "b.example:8080"] {
        for again in for_host("k1", host) {
            assert_eq!(again.send(&app).await.key_status(), Some("replayed"), "{host}");
        }
    }
    assert_eq!(runs.get(), 1);
}

#[tokio::test]
async fn instances_that_are_called_by_their_addresses_share_their_answers() {
    let (app, runs) = counting(memory(), Policy::playbook());
    assert_eq!(ask("k1").send(&app).await.key_status(), Some("stored"));
    for host in [
        "127.0.0.1:7701",
        "127.0.0.1:7702",
        "[::1]:7701",
        "localhost:7702",
        "10.0.0.7",
    ] {
        for again in for_host("k1", host) {
            assert_eq!(again.send(&app).await.key_status(), Some("replayed"), "{host}");
        }
    }
    assert_eq!(runs.get(), 1);
}
