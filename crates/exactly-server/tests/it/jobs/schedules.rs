//! Schedules fire once, whoever is there.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use tokio::time::timeout;

use super::{Backend, QUICK, Shop, api, get, json_of, post, put, requests_to};
use crate::PATIENCE;
use crate::server::{Server, until};
use crate::servers;
use crate::upstream::{Upstream, reply};

/// What the bodies of requests to `path` say that they are for.
fn occurrences(upstream: &Upstream, path: &str) -> Vec<Value> {
    let requests = requests_to(upstream, path);
    let bodies = requests
        .iter()
        .map(|request| serde_json::from_slice::<Value>(&request.body).unwrap());
    bodies.map(|body| body["exactly"].clone()).collect()
}

fn instants(upstream: &Upstream, path: &str) -> Vec<String> {
    let mut instants: Vec<_> = occurrences(upstream, path)
        .iter()
        .map(|told| told["instant"].as_str().unwrap().to_owned())
        .collect();
    instants.sort();
    instants
}

async fn fired(upstream: &Upstream, path: &str, times: usize) {
    let fired = until(async || (requests_to(upstream, path).len() >= times).then_some(()));
    timeout(PATIENCE, fired).await.expect("it fires");
}

/// Each second once, and none left out.
fn assert_every_second_once(instants: &[String]) {
    let seconds: Vec<i64> = instants
        .iter()
        .map(|instant| instant.parse::<jiff::Timestamp>().unwrap().as_second())
        .collect();
    for pair in seconds.windows(2) {
        assert_eq!(pair[0] + 1, pair[1], "{instants:?}");
    }
}

#[tokio::test]
async fn two_servers_fire_a_schedule_once_per_occurrence() {
    let upstream = Upstream::counting().await;
    let settings = format!("store = \"{}\"\n{QUICK}", servers::postgres_database().await);
    let one = Server::with(upstream.address, &settings);
    let definition = json!({
        "pattern": "every 1s",
        "job": {"url": format!("http://{}/tick", upstream.address), "body": {"a": 1}},
    });
    let (status, shown) = put(one.admin, "/v1/schedules/heartbeat", &definition).await;
    assert_eq!(status, 200, "{shown}");
    let two = Server::with(upstream.address, &settings);
    fired(&upstream, "/tick", 6).await;
    drop(one);
    let before = upstream.requests().len();
    fired(&upstream, "/tick", before + 3).await;
    let keys: Vec<_> = requests_to(&upstream, "/tick")
        .iter()
        .map(|request| request.header("idempotency-key").unwrap().to_owned())
        .collect();
    let mut times = instants(&upstream, "/tick");
    let total = times.len();
    times.dedup();
    // The server that was killed may have been in the middle of one, which the other sends again with its key.
    assert!(total - times.len() <= 1, "{times:?}");
    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), times.len());
    // One that was leased by the server that was killed comes when its lease has ended.
    let gaps = async || {
        let mut times = instants(&upstream, "/tick");
        times.dedup();
        let seconds: Vec<i64> = times
            .iter()
            .map(|instant| instant.parse::<jiff::Timestamp>().unwrap().as_second())
            .collect();
        seconds.windows(2).all(|pair| pair[0] + 1 == pair[1]).then_some(())
    };
    timeout(PATIENCE, until(gaps)).await.expect("none is left out");
    let body: Value = serde_json::from_slice(&requests_to(&upstream, "/tick")[0].body).unwrap();
    assert_eq!(
        (&body["a"], &body["exactly"]["schedule"]),
        (&json!(1), &json!("heartbeat"))
    );
    let told = get(two.admin, "/v1/schedules/heartbeat/occurrences?limit=5").await;
    assert_eq!(told["more"], true);
    assert!(
        told["occurrences"][1]["ended"].is_string(),
        "those that are due: {told}"
    );
    let listed = told["occurrences"].as_array().unwrap();
    assert!(
        listed
            .windows(2)
            .all(|pair| pair[0]["instant"].as_str() > pair[1]["instant"].as_str()),
        "{told}"
    );
}

async fn a_schedule_is_paused_resumed_and_deleted(backend: Backend) {
    let shop = Shop::open(backend, Upstream::counting().await).await;
    let admin = shop.server.admin;
    let path = "/v1/schedules/heartbeat";
    let definition = json!({
        "pattern": "every 1s", "job": {"url": shop.url("/tick"), "headers": {"x-api-key": "s3cret"}},
    });
    let (_, shown) = put(admin, path, &definition).await;
    assert_eq!(shown["definition"]["job"]["headers"]["x-api-key"], "…", "{shown}");
    fired(&shop.upstream, "/tick", 2).await;
    assert_eq!(
        requests_to(&shop.upstream, "/tick")[0].header("x-api-key"),
        Some("s3cret")
    );
    assert_every_second_once(&instants(&shop.upstream, "/tick"));

    let (status, shown) = post(admin, &format!("{path}/pause?reason=noise"), &json!({})).await;
    assert_eq!(
        (status, &shown["paused"], &shown["next"]),
        (200, &json!(true), &json!(null)),
        "{shown}"
    );
    let withdrawn = async |least: usize| {
        let found = until(async || {
            let told = get(admin, &format!("{path}/occurrences?limit=1000")).await;
            let ended = told["occurrences"].as_array().unwrap().iter();
            (ended.filter(|row| row["ended"] == "withdrawn").count() >= least).then_some(())
        });
        timeout(PATIENCE, found)
            .await
            .expect("what falls into the pause is withdrawn");
    };
    withdrawn(1).await;
    let paused_at = shop.upstream.requests().len();
    withdrawn(3).await;
    assert_eq!(shop.upstream.requests().len(), paused_at, "nothing fires in a pause");
    // Writing it anew does not resume it.
    let (_, shown) = put(admin, path, &definition).await;
    assert_eq!(shown["paused"], true, "{shown}");

    let (_, shown) = post(admin, &format!("{path}/resume"), &json!({})).await;
    assert!(shown["next"].is_string(), "{shown}");
    fired(&shop.upstream, "/tick", paused_at + 2).await;
    let told = api(admin, "DELETE", path, None).await;
    assert_eq!((told.status(), &json_of(&told)["name"]), (200, &json!("heartbeat")));
    assert_eq!(api(admin, "GET", path, None).await.status(), 404);
    assert_eq!(api(admin, "DELETE", path, None).await.status(), 404);
    assert_eq!(get(admin, "/v1/schedules").await["schedules"], json!([]));
    let trail = get(admin, "/v1/trail").await.to_string();
    for deed in [
        "write schedule heartbeat",
        "pause schedule heartbeat; reason: noise",
        "delete schedule",
    ] {
        assert!(trail.contains(deed), "{deed} is not in {trail}");
    }
}

#[tokio::test]
async fn a_schedule_is_paused_resumed_and_deleted_on_postgres() {
    a_schedule_is_paused_resumed_and_deleted(Backend::Postgres).await;
}

#[tokio::test]
async fn a_schedule_is_paused_resumed_and_deleted_on_sqlite() {
    a_schedule_is_paused_resumed_and_deleted(Backend::Sqlite).await;
}

/// A service that knows people by zone, and answers about those of one shard.
async fn people() -> Upstream {
    Upstream::answering(|request| async move {
        let (path, query) = request.target().split_once('?').unwrap_or((request.target(), ""));
        if path != "/people" {
            return reply(200, &[], "");
        }
        let query: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let all = |name: &str| {
            query
                .iter()
                .filter(|(key, _)| key == name)
                .map(|(_, value)| value.clone())
                .collect()
        };
        let one = |name: &str| -> Option<String> { Vec::<String>::into_iter(all(name)).next() };
        if one("zones").is_some() {
            let zones = json!({"zones": ["Asia/Calcutta", "Asia/Kolkata", "Europe/Oslo", "Nowhere/Land"]});
            return reply(200, &[("content-type", "application/json")], &zones.to_string());
        }
        let (zones, after): (Vec<String>, _) = (all("zone"), one("after").unwrap_or_default());
        let number = |name: &str| one(name).unwrap().parse::<usize>().unwrap();
        let known = [
            ("a", "Asia/Calcutta"),
            ("b", "Asia/Kolkata"),
            ("c", "Europe/Oslo"),
            ("long\n", "Europe/Oslo"),
        ];
        let found: Vec<_> = known
            .iter()
            .enumerate()
            .filter(|(place, (id, zone))| {
                zones.contains(&(*zone).to_owned())
                    && place % number("shards") == number("shard")
                    && *id > after.as_str()
            })
            .map(|(_, (id, _))| *id)
            .collect();
        reply(
            200,
            &[("content-type", "application/json")],
            &json!({"subjects": found}).to_string(),
        )
    })
    .await
}

#[tokio::test]
async fn each_subject_of_a_service_gets_its_job_and_a_bad_schedule_stops_no_other() {
    let shop = Shop::open(Backend::Postgres, people().await).await;
    let admin = shop.server.admin;
    let away = json!({
        "pattern": "every 1s", "subjects": {"url": "http://127.0.0.1:1/people"}, "job": {"url": shop.url("/never")},
    });
    assert_eq!(put(admin, "/v1/schedules/away", &away).await.0, 200);
    let offers = json!({
        "pattern": "every 1s",
        "subjects": {"url": shop.url("/people"), "shards": 2, "headers": {"x-key": "k"}},
        "job": {"url": shop.url("/offer"), "kind": "offers", "lane": "offers"},
    });
    assert_eq!(put(admin, "/v1/schedules/offers", &offers).await.0, 200);
    fired(&shop.upstream, "/offer", 12).await;
    let mut by_instant: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for told in occurrences(&shop.upstream, "/offer") {
        let text = |name: &str| told[name].as_str().unwrap().to_owned();
        by_instant
            .entry(text("instant"))
            .or_default()
            .push((text("subject"), text("zone")));
    }
    let first = by_instant.values_mut().next().unwrap();
    first.sort();
    let expected = [
        ("a", "Asia/Kolkata"),
        ("b", "Asia/Kolkata"),
        ("c", "Europe/Oslo"),
        ("long\n", "Europe/Oslo"),
    ];
    assert_eq!(*first, expected.map(|(id, zone)| (id.to_owned(), zone.to_owned())));
    assert!(requests_to(&shop.upstream, "/never").is_empty());
    let listed = get(admin, "/v1/schedules/offers/occurrences?limit=1000").await;
    let unknown = listed["occurrences"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["zone"] == "Nowhere/Land");
    assert_eq!(unknown.unwrap()["state"], "dead", "{listed}");
    let jobs = get(admin, "/v1/jobs?kind=offers&lane=offers&limit=1000").await;
    let keys = jobs["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| job["key"].as_str().unwrap());
    assert!(keys.clone().all(|key| key.starts_with("offers:20")), "{jobs}");
    let asked = shop
        .upstream
        .requests()
        .into_iter()
        .find(|request| request.target().contains("zones=1"));
    assert_eq!(asked.unwrap().header("x-key"), Some("k"));
}

#[tokio::test]
async fn a_schedule_that_could_never_fire_is_refused_with_the_field() {
    let shop = Shop::open(Backend::Postgres, Upstream::counting().await).await;
    let job = json!({"url": shop.url("/tick")});
    let people = json!({"url": shop.url("/people")});
    for (definition, field) in [
        (json!({"pattern": "hourly", "zone": "UTC", "job": job}), "pattern"),
        (
            json!({"pattern": "cron 0 0 30 2 *", "zone": "UTC", "job": job}),
            "pattern",
        ),
        (json!({"pattern": "daily 09:00", "job": job}), "zone"),
        (
            json!({"pattern": "daily 09:00", "zone": "Europe/Olso", "job": job}),
            "zone",
        ),
        (
            json!({"pattern": "daily 09:00", "zone": "UTC", "subjects": people, "job": job}),
            "zone",
        ),
        (
            json!({"pattern": "every 1s", "catch_up_s": 604_801, "job": job}),
            "catch_up_s",
        ),
        (json!({"pattern": "every 1s"}), "job"),
        (json!({"pattern": "every 1s", "job": {"url": "gopher://x"}}), "job.url"),
        (
            json!({"pattern": "every 1s", "job": {"url": shop.url("/"), "body": [1]}}),
            "job.body",
        ),
        (
            json!({"pattern": "every 1s", "job": job, "subjects": {"url": "x"}}),
            "subjects.url",
        ),
        (
            json!({"pattern": "every 1s", "job": job, "subjects": {"url": shop.url("/"), "shards": 0}}),
            "subjects.shards",
        ),
        (
            json!({"pattern": "every 1s", "subjects": people, "job": {"url": shop.url("/"), "body_text": "x"}}),
            "job.body_text",
        ),
        (
            json!({"pattern": "every 1s", "job": {"url": shop.url("/"), "key": "k"}}),
            "job.key",
        ),
    ] {
        let (status, problem) = put(shop.server.admin, "/v1/schedules/bad", &definition).await;
        assert_eq!(
            (status, &problem["field"]),
            (422, &json!(field)),
            "{definition} {problem}"
        );
    }
    let right = json!({"pattern": "daily 09:00", "zone": "Europe/Oslo", "job": job});
    let (status, problem) = put(shop.server.admin, "/v1/schedules/a%20b", &right).await;
    assert_eq!((status, &problem["field"]), (422, &json!("name")), "{problem}");
    let (status, shown) = put(shop.server.admin, "/v1/schedules/good", &right).await;
    assert_eq!(status, 200);
    assert!(shown["next"].as_str().unwrap().ends_with(":00:00Z"), "{shown}");
    assert_eq!(
        get(shop.server.admin, "/v1/schedules").await["schedules"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}
