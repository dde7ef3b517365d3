//! Processes that share a journal, or die and leave one.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use exactly::client::journal::Opened;
use exactly::client::{Client, Journal as _};
use exactly_sql::SqliteJournal;
use tokio::time::timeout;

use super::calls::Service;
use super::{Desk, entry};

const PATIENCE: Duration = Duration::from_secs(30);
/// How many processes open one operation at once.
const RACERS: usize = 4;
const OPERATIONS: usize = 20;

/// What makes a test one of its own processes, and what that one is told.
const PART: &str = "EXACTLY_TEST_PART";

/// The same test again, in a process of its own.
fn spawn(test: &str, told: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("sqlite::journal::processes::{test}"), "--nocapture"])
        .env(PART, told)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What this process is told, if it is not the one that watches the others.
fn told() -> Option<Vec<String>> {
    let told = std::env::var_os(PART)?.into_string().unwrap();
    Some(told.lines().map(str::to_owned).collect())
}

/// What a part printed behind `>`.
async fn said(child: Child) -> Vec<String> {
    let output = tokio::task::spawn_blocking(move || child.wait_with_output());
    let output = timeout(PATIENCE, output).await.unwrap().unwrap().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let lines = text.lines().filter_map(|line| line.split_once('>'));
    lines.map(|(_, said)| said.to_owned()).collect()
}

#[tokio::test]
async fn of_processes_that_race_for_an_operation_one_names_its_key() {
    if let Some(told) = told() {
        return race(&told).await;
    }
    let desk = Desk::new();
    // Not made before, so that they race for the file and its schema as well.
    let path = desk.path().display().to_string();
    let racers: Vec<_> = (0..RACERS)
        .map(|racer| {
            spawn(
                "of_processes_that_race_for_an_operation_one_names_its_key",
                &format!("{path}\n{racer}"),
            )
        })
        .collect();
    let mut all = Vec::new();
    for racer in racers {
        let keys = said(racer).await;
        assert_eq!(keys.len(), OPERATIONS, "{keys:?}");
        all.push(keys);
    }
    let mut made = 0;
    for operation in 0..OPERATIONS {
        let (_, key) = all[0][operation].split_once(' ').unwrap();
        for keys in &all {
            let (how, other) = keys[operation].split_once(' ').unwrap();
            assert_eq!(other, key, "operation {operation}");
            made += usize::from(how == "new");
        }
    }
    assert_eq!(made, OPERATIONS, "each was new to one of them");
}

async fn race(told: &[String]) {
    let journal = SqliteJournal::open(&told[0]).await.unwrap();
    for operation in 0..OPERATIONS {
        let own = format!("{}-{operation}", told[1]);
        match journal.open(&entry(&operation.to_string(), &own, 1)).await.unwrap() {
            Opened::New => println!(">new {own}"),
            Opened::Resumed { key, .. } => println!(">resumed {}", key.as_str()),
            opened => panic!("{opened:?}"),
        }
    }
}

#[tokio::test]
async fn a_process_that_is_killed_after_sending_and_started_again_has_one_effect() {
    if let Some(told) = told() {
        return refund(&told).await;
    }
    let (service, url) = Service::start([None]).await;
    let desk = Desk::new();
    let told = format!("{}\n{url}", desk.path().display());
    let test = "a_process_that_is_killed_after_sending_and_started_again_has_one_effect";
    let mut first = spawn(test, &told);
    timeout(PATIENCE, service.arrived.notified()).await.unwrap();
    first.kill().unwrap();
    first.wait().unwrap();

    assert_eq!(said(spawn(test, &told)).await, ["applied rf_1"]);
    let keys = service.keys();
    assert_eq!((keys.len(), service.effects()), (2, 1), "{keys:?}");
    assert_eq!(keys[0], keys[1]);
}

async fn refund(told: &[String]) {
    let journal = SqliteJournal::open(&told[0]).await.unwrap();
    let client = Client::builder().journal(Arc::new(journal)).build().unwrap();
    let outcome = client.post(&told[1]).operation("refund-17").json(&10).send().await;
    let text = outcome.answer().map(|answer| answer.text().into_owned());
    println!(">{} {}", outcome.as_str(), text.unwrap_or_default());
}
