//! `exactly doctor`.

use std::fs;

use exactly::queue::{Ask, End, Failure, FailureKind, Queue as _, Settlement, Task, WorkerId};
use exactly::store::Phase;
use exactly_sql::SqliteQueue;
use serde_json::{Value, json};

use crate::binary::{Ran, Shop, TOKEN, exactly};
use crate::servers;

/// Name and status of each check.
fn statuses(report: &Value) -> Vec<(&str, &str)> {
    let checks = report["checks"].as_array().unwrap();
    checks
        .iter()
        .map(|check| (check["name"].as_str().unwrap(), check["status"].as_str().unwrap()))
        .collect()
}

fn report(ran: &Ran, code: i32) -> Value {
    assert_eq!(ran.code, code, "{ran:?}");
    serde_json::from_str(&ran.out).unwrap()
}

fn doctor(arguments: &[&str]) -> Ran {
    exactly(&[&["doctor", "--json"], arguments].concat())
}

const HEALTHY: [(&str, &str); 9] = [
    ("store", "ok"),
    ("schema", "ok"),
    ("durability", "ok"),
    ("clock", "ok"),
    ("write", "ok"),
    ("trail", "ok"),
    ("doubts", "ok"),
    ("tasks' schema", "ok"),
    ("tasks", "ok"),
];

/// A shop whose store has all that a server keeps.
async fn migrated() -> Shop {
    let shop = Shop::open().await;
    exactly(&["migrate", "--store", &shop.url()]).ok();
    shop
}

#[tokio::test]
async fn a_good_store_is_good_and_left_as_it_was() {
    let shop = migrated().await;
    let ran = doctor(&["--store", &shop.url()]);
    let report = report(&ran, 0);
    assert_eq!(report["healthy"], true);
    assert_eq!(statuses(&report), [&[("disk space", "ok")][..], &HEALTHY].concat());
    assert_eq!(shop.calls(&["list"]).ok(), "no calls\n");
    assert_eq!(shop.calls(&["trail"]).ok(), "no entries\n");
    let table = exactly(&["doctor", "--store", &shop.url()]).ok();
    assert!(
        table.starts_with("CHECK ") && table.contains("a probe was claimed and given back"),
        "{table}"
    );
}

#[tokio::test]
async fn doubts_are_told_with_what_to_do() {
    let shop = migrated().await;
    shop.add("POST /refunds", "r-1", Phase::InDoubt).await;
    let table = exactly(&["doctor", "--store", &shop.url()]).ok();
    assert!(table.contains("1 calls are in doubt"), "{table}");
    assert!(
        table.contains("fix: find out what came of them: `exactly calls list --phase in_doubt`"),
        "{table}"
    );
}

#[tokio::test]
async fn a_store_that_is_not_there_yet_is_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("exactly.db");
    let url = format!("sqlite:{}", file.display());
    let report = report(&doctor(&["--store", &url]), 0);
    assert_eq!(statuses(&report), [("disk space", "ok"), ("store", "warn")]);
    assert!(!file.exists());
    let url = format!("sqlite:{}/no/such/folder.db", folder.path().display());
    assert_eq!(self::report(&doctor(&["--store", &url]), 1)["healthy"], false);
}

#[tokio::test]
async fn a_schema_that_is_missing_is_told_and_can_be_made() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("exactly.db");
    fs::write(&file, "").unwrap();
    let url = format!("sqlite:{}", file.display());
    let found = report(&doctor(&["--store", &url]), 1);
    assert_eq!(statuses(&found), [("disk space", "ok"), ("schema", "fail")]);
    assert!(
        found["checks"][1]["found"]
            .as_str()
            .unwrap()
            .contains("run `exactly migrate`"),
        "{found}"
    );
    let told = exactly(&["migrate", "--store", &url]).ok();
    assert!(told.ends_with("the schema is up to date\n"), "{told}");
    assert_eq!(report(&doctor(&["--store", &url]), 0)["healthy"], true);
}

#[tokio::test]
async fn tasks_without_their_tables_are_told_where_jobs_are_run() {
    // Records alone, as a service has them that uses the library, or a server with --no-jobs.
    let shop = Shop::open().await;
    let found = report(&doctor(&["--store", &shop.url()]), 1);
    let failed: Vec<_> = statuses(&found)
        .into_iter()
        .filter(|(_, status)| *status != "ok")
        .collect();
    assert_eq!(failed, [("tasks' schema", "fail")]);
    let check = found["checks"].as_array().unwrap().last().unwrap();
    assert!(
        check["found"].as_str().unwrap().contains("run `exactly migrate`"),
        "{check}"
    );

    let file = shop.path("exactly.toml");
    fs::write(&file, format!("store = {:?}\njobs.enabled = false\n", shop.url())).unwrap();
    let found = report(&doctor(&["--config", &file.display().to_string()]), 0);
    assert!(
        statuses(&found).iter().all(|(name, _)| !name.starts_with("tasks")),
        "{found}"
    );
}

#[tokio::test]
async fn tasks_that_wait_for_somebody_are_told_with_what_to_do() {
    let shop = migrated().await;
    let queue = SqliteQueue::beside(&shop.store().await).start().await.unwrap();
    let failure = || Failure::new(FailureKind::Logic, "no such customer");
    let task = |key: &str| Task::new("offer", key, "{}").unwrap();
    for (key, end) in [
        ("a", End::Bury(failure())),
        ("b", End::Bury(failure())),
        ("c", End::Hold(failure())),
    ] {
        queue.enqueue(&[task(key)]).await.unwrap();
        let leased = queue.lease(&Ask::new(WorkerId::random(), 1)).await.unwrap();
        let settled = queue.settle(&[Settlement::new(leased[0].lease, end)]).await.unwrap();
        assert_eq!(settled.len(), 1);
    }
    queue.enqueue(&[task("d")]).await.unwrap();
    let found = report(&doctor(&["--store", &shop.url()]), 0);
    let check = found["checks"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&check["name"], &check["status"], &check["found"]),
        (&json!("tasks"), &json!("warn"), &json!("2 are dead, 1 are held"))
    );
    assert!(
        check["fix"]
            .as_str()
            .unwrap()
            .contains("`exactly jobs list --state dead`"),
        "{check}"
    );
    let ids: Vec<_> = ["a", "b", "c"].map(|key| task(key).id()).into();
    queue.revive(&ids).await.unwrap();
    let found = report(&doctor(&["--store", &shop.url()]), 0);
    let check = found["checks"].as_array().unwrap().last().unwrap();
    assert_eq!(check["found"], "4 wait, 0 run, none is dead or held", "{check}");
}

#[tokio::test]
async fn a_file_that_is_no_database_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("exactly.db");
    fs::write(&file, "this is a letter to my grandmother, and no database").unwrap();
    let ran = exactly(&["doctor", "--store", &format!("sqlite:{}", file.display())]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.out.contains("FAIL") && ran.out.contains("fix: "), "{ran:?}");
}

#[tokio::test]
async fn a_configuration_is_looked_at_with_the_store_that_it_names() {
    let shop = migrated().await;
    let file = shop.path("exactly.toml");
    fs::write(&file, format!("store = {:?}\n", shop.url())).unwrap();
    let path = file.display().to_string();
    let found = report(&doctor(&["--config", &path]), 0);
    assert_eq!(statuses(&found)[0], ("configuration", "ok"));
    assert_eq!(statuses(&found).len(), 11);
    fs::write(&file, "stroe = \"sqlite:x.db\"\n").unwrap();
    let found = report(&doctor(&["--config", &path]), 1);
    assert!(
        found["checks"][0]["found"]
            .as_str()
            .unwrap()
            .contains("stroe is not a setting"),
        "{found}"
    );
}

#[tokio::test]
async fn a_server_is_asked_whether_it_lives_and_takes_the_token() {
    let shop = Shop::open().await;
    let server = shop.serve();
    let good = report(&doctor(&["--admin", &server.admin, "--token", TOKEN]), 0);
    assert_eq!(
        statuses(&good),
        [("server", "ok"), ("server's store", "ok"), ("token", "ok")]
    );
    let wrong = report(
        &doctor(&["--admin", &server.admin, "--token", "not-the-right-token"]),
        1,
    );
    assert_eq!(statuses(&wrong)[2], ("token", "fail"));
    let none = report(&doctor(&["--admin", &server.admin]), 0);
    assert_eq!(statuses(&none)[2], ("token", "warn"));
    let gone = report(&doctor(&["--admin", "http://127.0.0.1:1"]), 1);
    assert!(
        gone["checks"][0]["found"]
            .as_str()
            .unwrap()
            .contains("is `exactly serve` running"),
        "{gone}"
    );
}

#[tokio::test]
async fn nothing_to_look_at_is_a_mistake() {
    exactly(&["doctor"]).refused(2, "--store URL, --admin URL or --config FILE");
    let ran = exactly(&["doctor", "--store", "mysql://ada:hunter2@db"]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.out.contains("accepted is sqlite:FILE") && !ran.out.contains("hunter2"),
        "{ran:?}"
    );
}

#[tokio::test]
async fn a_postgres_is_looked_at_after_its_migration() {
    let database = servers::postgres_database().await;
    let found = report(&doctor(&["--store", &database]), 1);
    assert_eq!(statuses(&found), [("schema", "fail")]);
    assert!(
        found["checks"][0]["found"]
            .as_str()
            .unwrap()
            .contains("run `exactly migrate`"),
        "{found}"
    );
    exactly(&["migrate", "--store", &database]).ok();
    assert_eq!(statuses(&report(&doctor(&["--store", &database]), 0)), HEALTHY);
    assert_eq!(exactly(&["calls", "list", "--store", &database]).ok(), "no calls\n");
}

#[tokio::test]
async fn a_redis_is_looked_at() {
    let url = servers::redis();
    let found = report(&doctor(&["--store", &url]), 0);
    // It has no schema and keeps no tasks. Others share this server, and may have doubts of their own.
    let is_asked = |name: &str| !matches!(name, "schema" | "doubts" | "tasks' schema" | "tasks");
    let expected: Vec<_> = HEALTHY.into_iter().filter(|(name, _)| is_asked(name)).collect();
    let found: Vec<_> = statuses(&found)
        .into_iter()
        .filter(|(name, _)| *name != "doubts")
        .collect();
    assert_eq!(found, expected);
}
