//! `exactly serve --demo`, as somebody runs it who has just heard of it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use tokio::time::timeout;

use crate::PATIENCE;
use crate::client::{Ask, ask, get};
use crate::server::until;

/// A demonstration whose storm is over, still serving until it is dropped.
struct Demonstration {
    child: Child,
    /// What it said, up to how to stop it.
    told: String,
    _folder: TempDir,
}

impl Demonstration {
    fn watch(arguments: &[&str], store: Option<&str>) -> Self {
        let folder = TempDir::new().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_exactly"));
        command
            .args(["serve", "--demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
            .args(arguments)
            .env_remove("EXACTLY_STORE")
            .env_remove("EXACTLY_ADMIN_TOKEN")
            .current_dir(folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(store) = store {
            command.env("EXACTLY_STORE", store);
        }
        let mut demonstration = Self {
            child: command.spawn().unwrap(),
            told: String::new(),
            _folder: folder,
        };
        let output = BufReader::new(demonstration.child.stdout.take().unwrap());
        for line in output.lines() {
            let line = line.unwrap();
            demonstration.told.push_str(&line);
            demonstration.told.push('\n');
            if line == "stop with Ctrl-C" {
                return demonstration;
            }
        }
        panic!("it ended too early: {}", demonstration.told);
    }

    /// A number of the summary.
    fn count(&self, what: &str) -> u32 {
        let mut lines = self.told.lines().map(str::trim);
        let found = lines.find_map(|line| line.strip_prefix(what)?.trim_start_matches('.').trim().parse().ok());
        found.unwrap_or_else(|| panic!("{what} is not in {}", self.told))
    }

    #[track_caller]
    fn has_paid_each_order_once(&self) {
        let orders = self.count("orders placed");
        assert!(orders > 0 && self.count("requests sent") > orders, "{}", self.told);
        assert_eq!(self.count("effects made"), orders, "{}", self.told);
        assert_eq!(self.count("duplicates"), 0, "{}", self.told);
        assert_eq!(self.count("answers that disagreed"), 0, "{}", self.told);
    }

    /// The payment and the ledger that it invites to ask for with curl, as requests.
    fn invited(&self) -> (SocketAddr, Ask, Ask) {
        let told = self.told.replace("\\\n", "");
        let mut commands = told.lines().map(str::trim).filter(|line| line.starts_with("curl "));
        let (payment, ledger) = (commands.next().unwrap(), commands.next().unwrap());
        let (_, rest) = payment.split_once("http://").unwrap();
        let (place, rest) = rest.split_once('/').unwrap();
        let (path, rest) = rest.split_once(' ').unwrap();
        let mut quoted = rest.split('\'').skip(1).step_by(2);
        let mut paying = ask("POST", &format!("/{path}"));
        for header in quoted.by_ref().take(2) {
            let (name, value) = header.split_once(": ").unwrap();
            paying = paying.header(name, value);
        }
        let (_, asked) = ledger.trim_end_matches('\'').split_once(place).unwrap();
        (place.parse().unwrap(), paying.body(quoted.next().unwrap()), get(asked))
    }
}

impl Drop for Demonstration {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn a_demonstration_pays_every_order_once_and_what_it_invites_to_too() {
    let mut demonstration = Demonstration::watch(&[], None);
    demonstration.has_paid_each_order_once();
    let (gateway, payment, ledger) = demonstration.invited();
    // The service is flaky on purpose: it may be busy, or leave a doubt that the gateway has to ask about.
    let paid = until(async || Some(payment.to(gateway).await).filter(|answer| answer.status() == 201));
    let paid = timeout(PATIENCE, paid).await.expect("it is paid");
    let again = payment.to(gateway).await;
    assert_eq!((again.status(), again.key_status()), (201, Some("replayed")));
    assert_eq!(again.body, paid.body);
    let payments: Value = serde_json::from_slice(&ledger.to(gateway).await.body).unwrap();
    assert_eq!(payments.as_array().unwrap().len(), 1, "{payments}");

    // Nobody looks at a terminal here, so progress is lines.
    demonstration.child.kill().unwrap();
    let mut log = String::new();
    demonstration
        .child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut log)
        .unwrap();
    let first = log.lines().next().unwrap_or_default();
    assert!(first.starts_with("0 of 150 orders answered"), "{log}");
    assert!(!log.contains('\r'), "{log:?}");
}

#[tokio::test]
async fn a_second_demonstration_on_the_same_store_is_one_of_its_own() {
    let folder = TempDir::new().unwrap();
    let store = format!("sqlite:{}", folder.path().join("exactly.db").display());
    for (arguments, environment) in [(&["--store", &store][..], None), (&[], Some(store.as_str()))] {
        let demonstration = Demonstration::watch(arguments, environment);
        demonstration.has_paid_each_order_once();
        let (gateway, payment, ledger) = demonstration.invited();
        let paid = until(async || Some(payment.to(gateway).await).filter(|answer| answer.status() == 201));
        timeout(PATIENCE, paid).await.expect("it is paid");
        let payments: Value = serde_json::from_slice(&ledger.to(gateway).await.body).unwrap();
        assert_eq!(payments.as_array().unwrap().len(), 1, "{payments}");
    }
}
