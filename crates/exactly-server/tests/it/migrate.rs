//! `exactly migrate`.

use serde_json::json;

use crate::binary::exactly;
use crate::servers;

#[test]
fn the_sql_is_printed_for_those_who_run_it_themselves() {
    let postgres = exactly(&["migrate", "--print", "--store", "postgres://db/shop"]).ok();
    assert!(
        postgres.contains("create table if not exists") && postgres.contains("exactly"),
        "{postgres}"
    );
    let sqlite = exactly(&["migrate", "--print", "--store", "sqlite:exactly.db"]).ok();
    assert!(sqlite.contains("exactly_calls"), "{sqlite}");
    assert!(!std::path::Path::new("exactly.db").exists());
}

#[test]
fn redis_says_that_it_has_no_schema() {
    for print in [&[][..], &["--print"]] {
        let told = exactly(&[&["migrate", "--store", "redis://ada:hunter2@127.0.0.1:1/"], print].concat()).ok();
        assert_eq!(
            told,
            "redis://127.0.0.1:1/: redis has no schema, so there is nothing to migrate\n"
        );
    }
}

#[test]
fn programs_are_told_whether_there_is_a_schema() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("exactly.db").display());
    let told = exactly(&["migrate", "--json", "--store", &url]).json();
    assert_eq!(told, json!({"store": url, "migrated": true}));
    let told = exactly(&["migrate", "--json", "--store", "redis://ada:hunter2@127.0.0.1:1/"]).json();
    assert_eq!(told, json!({"store": "redis://127.0.0.1:1/", "migrated": false}));
    exactly(&["migrate", "--json", "--print", "--store", &url]).refused(2, "--print");
}

#[test]
fn a_store_has_to_be_named() {
    exactly(&["migrate"]).refused(2, "--store URL or EXACTLY_STORE");
    exactly(&["migrate", "--store", "nonsense"]).refused(1, "accepted is sqlite:FILE");
}

#[tokio::test]
async fn what_is_printed_makes_a_database_ready() {
    let database = servers::postgres_database().await;
    let sql = exactly(&["migrate", "--print", "--store", &database]).ok();
    servers::run_sql(&database, sql).await;
    // Only looks, and finds nothing missing.
    assert_eq!(exactly(&["calls", "list", "--store", &database]).ok(), "no calls\n");
    // And running it again changes nothing.
    exactly(&["migrate", "--store", &database]).ok();
}
