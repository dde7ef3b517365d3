//! From the server to the service that events are for.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::json;
use tokio::time::timeout;

use super::{Hub, OURS, SHOP, by_shop, by_stripe, told};
use crate::PATIENCE;
use crate::binary::exactly;
use crate::client::ask;
use crate::events::{OFTEN, quick, verified};
use crate::jobs::{Backend, api, post};
use crate::server::{TOKEN, until};
use crate::upstream::{Upstream, reply};

#[tokio::test]
async fn what_a_service_refuses_is_tried_again_until_it_has_it() {
    let status = Arc::new(AtomicU16::new(200));
    let hub = Hub::open(Backend::Sqlite, &status).await;
    // A route that is not deployed yet, a token that ran out, a page that moved: what was acknowledged is not lost by any.
    for refusal in [404, 401, 302, 410, 503] {
        status.store(refusal, Ordering::SeqCst);
        let id = format!("evt_{refusal}");
        hub.send("shop", &by_shop(&id, 0, "1"), "1").await;
        let path = format!("/v1/inbox/shop/{id}");
        let refused = until(async || Some(hub.get(&path).await).filter(|shown| shown["event"]["failures"] != 0));
        let refused = timeout(PATIENCE, refused).await.expect("an attempt fails");
        assert_eq!(refused["event"]["state"], "waiting", "{refused}");
        let why = refused["attempts"][0]["message"].as_str().unwrap();
        assert!(why.contains(&refusal.to_string()), "{refused}");
        status.store(200, Ordering::SeqCst);
        hub.until_state("shop", &id, "done").await;
    }
    let keys: HashSet<_> = hub
        .got("/shop")
        .iter()
        .filter_map(|got| Some(got.header("idempotency-key")?.to_owned()))
        .collect();
    assert_eq!(keys.len(), 5, "one for each event, over its attempts");
}

#[tokio::test]
async fn nothing_is_passed_on_earlier_than_its_service_asked() {
    let service = Upstream::answering(|request| async move {
        let asks: &[_] = if request.target() == "/shop" {
            &[("retry-after", "3600")]
        } else {
            &[]
        };
        reply(503, asks, "")
    })
    .await;
    let hub = Hub::before(Backend::Sqlite, service, &quick(OFTEN)).await;
    hub.send("shop", &by_shop("evt_1", 0, "1"), "1").await;
    hub.send("pay", &by_stripe(0, "{\"id\": \"evt_1\"}"), "{\"id\": \"evt_1\"}")
        .await;
    // One that asks for nothing is tried by the table meanwhile.
    let tried = until(async || (hub.got("/pay").len() >= 3).then_some(()));
    timeout(PATIENCE, tried).await.expect("the table goes on");
    let asked = hub.get("/v1/inbox/shop/evt_1").await;
    assert_eq!(asked["event"]["state"], "waiting", "{asked}");
    let why = asked["event"]["failure"]["message"].as_str().unwrap();
    assert!(why.contains("asked to wait for 3600s"), "{asked}");
    assert_eq!(hub.got("/shop").len(), 1);
}

#[tokio::test]
async fn a_service_that_never_answers_delays_no_delivery_and_no_job() {
    let service = Upstream::answering(|request| async move {
        if request.target() == "/shop" {
            std::future::pending::<()>().await;
        }
        reply(200, &[], "")
    })
    .await;
    let settings = quick(OFTEN) + "deadline = \"2m\"\n";
    let hub = Hub::before(Backend::Sqlite, service, &settings).await;
    // As many as the worker has places, and as it leases ahead.
    for number in 0..80 {
        let taken = hub.send("shop", &by_shop(&format!("evt_{number}"), 0, "1"), "1").await;
        assert_eq!(told(&taken), (202, Some("deferred")));
    }
    let hanging = until(async || (hub.got("/shop").len() >= 16).then_some(()));
    timeout(PATIENCE, hanging).await.expect("its share of the places");
    let (at, admin) = (hub.service.address, hub.server.admin);
    let (code, made) = post(
        admin,
        "/v1/endpoints",
        &json!({"id": "books", "url": format!("http://{at}/books")}),
    )
    .await;
    assert_eq!(code, 201, "{made}");
    post(admin, "/v1/events", &json!({"type": "invoice.paid", "data": 1})).await;
    post(
        admin,
        "/v1/jobs",
        &json!({"key": "a", "url": format!("http://{at}/job")}),
    )
    .await;
    hub.send("pay", &by_stripe(0, "{\"id\": \"evt_1\"}"), "{\"id\": \"evt_1\"}")
        .await;
    for path in ["/books", "/job", "/pay"] {
        let came = until(async || (hub.got(path).len() == 1).then_some(()));
        timeout(PATIENCE, came)
            .await
            .unwrap_or_else(|late| panic!("{path}: {late}"));
    }
    assert_eq!(hub.got("/shop").len(), 16, "and no more while those are under way");
}

#[tokio::test]
async fn an_operators_cap_on_a_source_outlives_a_restart() {
    let mut hub = Hub::open(Backend::Sqlite, &Arc::new(AtomicU16::new(200))).await;
    let path = "/v1/lanes/exactly.inbox.shop";
    let caps = async |hub: &Hub| {
        let lanes = hub.get("/v1/lanes").await;
        let cap_of = |name: &str| {
            let mut all = lanes["lanes"].as_array().unwrap().iter();
            all.find(|lane| lane["lane"] == name).map(|lane| lane["cap"].clone())
        };
        (cap_of("exactly.inbox.shop"), cap_of("exactly.inbox.pay"))
    };
    assert_eq!(caps(&hub).await, (Some(json!(16)), Some(json!(16))));
    let capped = api(hub.server.admin, "PUT", path, Some(&json!({"cap": 2}))).await;
    assert_eq!(capped.status(), 200, "{}", capped.text());
    hub.server.restart();
    assert_eq!(caps(&hub).await, (Some(json!(2)), Some(json!(16))));
}

#[tokio::test]
async fn another_content_type_is_not_another_event() {
    let hub = Hub::open(Backend::Sqlite, &Arc::new(AtomicU16::new(200))).await;
    let body = "{\"id\": \"evt_1\"}";
    hub.send("pay", &by_stripe(0, body), body).await;
    hub.until_state("pay", "evt_1", "done").await;
    let mut otherwise = by_stripe(0, body);
    otherwise.push(("x-github-event", "push".to_owned()));
    let mut request = ask("POST", "/v1/inbox/pay").header("content-type", "application/json; charset=utf-8");
    for (name, value) in &otherwise {
        request = request.header(name, value);
    }
    let again = request.body(body.to_owned()).to(hub.server.door.unwrap()).await;
    assert_eq!(told(&again), (200, Some("duplicate")), "{}", again.text());
    assert_eq!(hub.get("/v1/inbox?quarantined=true").await["events"], json!([]));
}

#[tokio::test]
async fn a_service_can_tell_that_it_was_passed_on_by_us() {
    let hub = Hub::open(Backend::Sqlite, &Arc::new(AtomicU16::new(200))).await;
    hub.send("shop", &by_shop("evt_1", 0, "1"), "1").await;
    hub.until_state("shop", "evt_1", "done").await;
    let got = hub.got("/shop");
    assert_eq!(verified(OURS, &got[0]).unwrap().event_id, "evt_1".into());
    verified(SHOP, &got[0]).expect_err("the sender's secret is not ours");
    hub.send("pay", &by_stripe(0, "{\"id\": \"evt_1\"}"), "{\"id\": \"evt_1\"}")
        .await;
    hub.until_state("pay", "evt_1", "done").await;
    assert_eq!(
        hub.got("/pay")[0].header("webhook-signature"),
        None,
        "nobody asked for one"
    );
}

#[tokio::test]
async fn what_a_service_refuses_to_the_end_is_dead_until_it_is_requeued() {
    let status = Arc::new(AtomicU16::new(503));
    let (answered, given) = (Arc::clone(&status), quick(r#""0s", "50ms", "100ms", "2s""#));
    let service = Upstream::answering(move |_| {
        let status = answered.load(Ordering::SeqCst);
        async move { reply(status, &[], "heard") }
    })
    .await;
    let hub = Hub::before(Backend::Sqlite, service, &given).await;
    hub.send("shop", &by_shop("evt_1", 0, "1"), "1").await;
    let dead = hub.until_state("shop", "evt_1", "dead").await;
    let attempts = dead["attempts"].as_array().unwrap().len();
    assert!((2..=4).contains(&attempts), "{dead}");
    assert_eq!(hub.got("/shop").len(), attempts, "a request for each attempt");
    let again = hub.send("shop", &by_shop("evt_1", 0, "1"), "1").await;
    assert_eq!(told(&again), (200, Some("duplicate")));

    let admin = format!("http://{}", hub.server.admin);
    let store = format!("sqlite:{}", hub.server.file("exactly.db").display());
    for way in [["--admin", &admin], ["--store", &store]] {
        let run = |arguments: &[&str]| exactly(&[&["inbox"], arguments, &way, &["--token", TOKEN]].concat());
        let listed = run(&["list", "--source", "shop", "--state", "dead"]).ok();
        assert!(listed.contains("evt_1") && listed.contains("dead"), "{listed}");
        assert_eq!(run(&["list", "--source", "pay"]).ok(), "no events\n");
        let shown = run(&["show", "shop", "evt_1"]).ok();
        assert!(
            shown.contains("503") && shown.contains("exactly jobs requeue"),
            "{shown}"
        );
        run(&["show", "shop", "evt_2"]).refused(1, "it never came");
    }
    status.store(200, Ordering::SeqCst);
    let job = dead["event"]["job"].as_str().unwrap();
    post(hub.server.admin, &format!("/v1/jobs/{job}/requeue"), &json!({})).await;
    hub.until_state("shop", "evt_1", "done").await;
}
