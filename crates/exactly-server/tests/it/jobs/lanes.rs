//! A service that hangs holds up its own lane.

use serde_json::json;
use tokio::time::timeout;

use super::{Backend, Shop, post, put, requests_to};
use crate::PATIENCE;
use crate::server::until;
use crate::upstream::{Gate, Upstream, reply};

/// More than there are places, with what is leased ahead.
const HANGING: usize = 300;

async fn a_service_that_hangs_holds_up_its_own_lane_only(backend: Backend) {
    let gate = Gate::default();
    let upstream = Upstream::answering({
        let gate = gate.clone();
        move |request| {
            let gate = gate.clone();
            async move {
                if request.target() == "/hang" {
                    gate.passed().await;
                }
                reply(200, &[], "{}")
            }
        }
    });
    let shop = Shop::with(backend, upstream.await, "").await;
    let hanging = |number: usize| json!({"key": number.to_string(), "url": shop.url("/hang")});
    let jobs: Vec<_> = (0..HANGING).map(hanging).collect();
    let (status, told) = post(shop.server.admin, "/v1/jobs", &json!({"jobs": jobs})).await;
    assert_eq!(status, 200, "{told}");
    let sent = async |path: &str, count: usize| {
        let sent = until(async || (requests_to(&shop.upstream, path).len() >= count).then_some(()));
        let late = timeout(PATIENCE, sent).await.is_err();
        assert!(
            !late,
            "{} of {count} came to {path}",
            requests_to(&shop.upstream, path).len()
        );
    };
    // A quarter of the places.
    sent("/hang", 64).await;
    let schedule = json!({"pattern": "every 1s", "job": {"url": shop.url("/tick"), "kind": "ticking"}});
    let (status, told) = put(shop.server.admin, "/v1/schedules/ticking", &schedule).await;
    assert_eq!(status, 200, "{told}");
    for number in 0..3 {
        let job = json!({"key": number.to_string(), "kind": "other", "url": shop.url("/other")});
        let id = shop.new_job(job).await;
        shop.until_job(&id, "done").await;
        sent("/tick", number + 1).await;
    }
    assert_eq!(requests_to(&shop.upstream, "/hang").len(), 64);
    gate.open();
    sent("/hang", HANGING).await;
}

#[tokio::test]
async fn a_service_that_hangs_holds_up_its_own_lane_only_on_postgres() {
    a_service_that_hangs_holds_up_its_own_lane_only(Backend::Postgres).await;
}

#[tokio::test]
async fn a_service_that_hangs_holds_up_its_own_lane_only_on_sqlite() {
    a_service_that_hangs_holds_up_its_own_lane_only(Backend::Sqlite).await;
}
