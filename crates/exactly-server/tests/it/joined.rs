//! A service in Python that joins: asked directly with what a gateway would send along, and behind the gateway.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use exactly::store::Filter;
use exactly::{Call, Claim, Fenced, Fingerprint, Inspect as _, Key, OnLost, Scope, Store, Verdict};
use exactly_sql::PgStore;
use tokio::time::{Instant, sleep};

use crate::SHORT;
use crate::client::{Ask, ask};
use crate::server::{Server, until};
use crate::servers::{postgres_database, psql};
use crate::wire::Message;

/// The service, killed when dropped.
struct Service {
    process: Child,
    address: SocketAddr,
    database: String,
}

impl Service {
    fn start(database: &str) -> Self {
        let (process, port) = spawn(database, 0);
        Self {
            process,
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            database: database.to_owned(),
        }
    }

    /// Starts again at the same address.
    fn restart(&mut self) {
        self.kill();
        (self.process, _) = spawn(&self.database, self.address.port());
    }

    fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// The answer to a request with the headers of `claim`; none if the service died.
    async fn pay(&self, claim: &Claim, mishap: &str) -> Option<Message> {
        let token = claim.token.as_bytes().map(|byte| format!("{byte:02x}")).concat();
        let request = payment(mishap)
            .header("exactly-call", &claim.id.to_string())
            .header("exactly-token", &token)
            .header("exactly-keep", "600");
        request.try_to(self.address).await
    }

    async fn payments(&self) -> String {
        ask("GET", "/payments").to(self.address).await.text()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(database: &str, port: u16) -> (Child, u16) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/upstream/joined.py");
    let mut process = Command::new("python3")
        .arg(script)
        .arg("--psql")
        .arg(psql())
        .args(["--database", database, "--port", &port.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is there");
    let mut port = String::new();
    let output = process.stdout.as_mut().expect("it is piped");
    BufReader::new(output).read_line(&mut port).expect("it writes text");
    let port = port.trim().parse().expect("the service starts and prints its port");
    (process, port)
}

fn payment(mishap: &str) -> Ask {
    ask("POST", "/payments")
        .header("x-mishap", mishap)
        .header("content-type", "application/json")
        .body(r#"{"amount": 1200}"#)
}

/// A store, and a service on the same database.
async fn shop() -> (PgStore, Service) {
    let database = postgres_database().await;
    let store = PgStore::open(&database).await.unwrap();
    let service = Service::start(&database);
    (store, service)
}

fn call(key: &str) -> Call {
    let scope = Scope::new("ann", "POST /payments");
    Call::new(scope, Key::new(key).unwrap(), Fingerprint::of("1200")).with_on_lost(OnLost::Rerun)
}

async fn begin(store: &PgStore, call: &Call) -> Claim {
    match store.begin(call).await.unwrap() {
        Verdict::Run(claim) => claim,
        verdict => panic!("expected to run, was told {verdict:?}"),
    }
}

async fn replayed(store: &PgStore, key: &str) -> String {
    match store.begin(&call(key)).await.unwrap() {
        Verdict::Replay(replay) => String::from_utf8_lossy(&replay.outcome).into_owned(),
        verdict => panic!("it happened, but: {verdict:?}"),
    }
}

#[tokio::test]
async fn a_service_in_python_joins() {
    let (store, service) = shop().await;
    let claim = begin(&store, &call("key")).await;
    let told = service.pay(&claim, "").await.unwrap();
    assert_eq!((told.status(), told.text().as_str()), (201, r#"{"payment": 1}"#));
    let stored = replayed(&store, "key").await;
    assert!(
        stored.contains("application/json") && stored.ends_with(&told.text()),
        "{stored}"
    );
    assert_eq!(store.abandon(&claim).await.unwrap(), Fenced::Superseded);
    // Run again after a lost commit, it undoes the second payment.
    let told = service.pay(&claim, "").await.unwrap();
    assert!(told.status() == 503 && told.text().contains("XO002"), "{told:?}");
    assert_eq!(service.payments().await, r#"{"payments": 1}"#);
}

#[tokio::test]
async fn a_service_in_python_that_dies_before_its_commit_did_nothing() {
    let (store, mut service) = shop().await;
    let claim = begin(&store, &call("key")).await;
    assert!(service.pay(&claim, "die-before-commit").await.is_none());
    assert_eq!(store.abandon(&claim).await.unwrap(), Fenced::Applied);
    service.restart();
    assert_eq!(service.payments().await, r#"{"payments": 0}"#);
    let claim = begin(&store, &call("key")).await;
    assert_eq!(service.pay(&claim, "").await.unwrap().status(), 201);
    assert_eq!(service.payments().await, r#"{"payments": 1}"#);
}

#[tokio::test]
async fn a_service_in_python_that_dies_after_its_commit_did_all() {
    let (store, mut service) = shop().await;
    let claim = begin(&store, &call("key")).await;
    assert!(service.pay(&claim, "die-after-commit").await.is_none());
    assert_eq!(store.abandon(&claim).await.unwrap(), Fenced::Superseded);
    assert!(replayed(&store, "key").await.ends_with(r#"{"payment": 1}"#));
    service.restart();
    assert_eq!(service.payments().await, r#"{"payments": 1}"#);
}

/// Slower than its lease, a service is fenced out once somebody took over, and is not before.
#[tokio::test]
async fn a_service_in_python_that_is_too_slow_cannot_commit() {
    let (store, service) = shop().await;
    let short = |key: &str| call(key).with_lease(Duration::from_millis(100));
    let first = begin(&store, &short("key")).await;
    let (slow, second) = tokio::join!(service.pay(&first, "sleep=2"), async {
        sleep(Duration::from_millis(500)).await;
        begin(&store, &call("key")).await
    });
    let told = slow.unwrap();
    assert_eq!(told.status(), 503);
    let says = told.text();
    assert!(
        says.contains("XO001") && says.contains("Attempt 2 owns the call"),
        "{says}"
    );
    assert_eq!(service.payments().await, r#"{"payments": 0}"#);
    assert_eq!(second.attempt.get(), 2);
    assert_eq!(service.pay(&second, "").await.unwrap().status(), 201);

    let alone = begin(&store, &short("other")).await;
    assert_eq!(service.pay(&alone, "sleep=0.5").await.unwrap().status(), 201);
    assert_eq!(service.payments().await, r#"{"payments": 2}"#);
}

/// A gateway in front of the service, with one route that it joins.
fn gateway(service: &Service) -> Server {
    let settings = format!(
        r#"store = "{}"
[timeouts]
response = "1s"
[[routes]]
method = "POST"
path = "/payments"
guarantee = "joined"
lease = "1s"
"#,
        service.database
    );
    Server::with(service.address, &settings)
}

#[track_caller]
fn assert_paid(told: &Message, key_status: &str, number: u32) {
    assert_eq!(told.status(), 201, "{told:?}");
    assert_eq!(told.key_status(), Some(key_status), "{told:?}");
    assert_eq!(told.text(), format!(r#"{{"payment": {number}}}"#));
    assert_eq!(told.header("content-type"), Some("application/json"));
}

/// Whatever the service does to its answer after the commit, its client is told of the payment, and there is one.
#[tokio::test]
async fn behind_the_gateway_a_payment_that_was_committed_is_told() {
    let (_, mut service) = shop().await;
    let gateway = gateway(&service);
    // The gateway gives up after a second, and finds that the service is about to commit.
    for (mishap, number) in [
        ("", 1),
        ("fail-after-commit", 2),
        ("hold=2", 3),
        ("die-after-commit", 4),
    ] {
        let key = format!("key {number}");
        let told = payment(mishap).key(&key).to(gateway.listen).await;
        assert_paid(&told, "stored", number);
        let told = payment("").key(&key).to(gateway.listen).await;
        assert_paid(&told, "replayed", number);
    }
    service.restart();
    assert_eq!(service.payments().await, r#"{"payments": 4}"#);
}

/// Without a commit nothing happened, whatever the service still tries, and a retry pays.
#[tokio::test]
async fn behind_the_gateway_a_payment_that_was_not_committed_did_not_happen() {
    let (_, mut service) = shop().await;
    let gateway = gateway(&service);
    for (mishap, number) in [("die-before-commit", 1), ("sleep=2", 2)] {
        let key = format!("key {number}");
        let asked = Instant::now();
        let told = payment(mishap).key(&key).to(gateway.listen).await;
        assert_eq!(told.status(), 503, "{told:?}");
        assert_eq!(told.code(), "TRANSIENT.handler_failed");
        if mishap == "die-before-commit" {
            service.restart();
        } else {
            // Until the service has woken up and found itself fenced out.
            sleep((asked + Duration::from_secs(3)).duration_since(Instant::now())).await;
        }
        let payments = service.payments().await;
        assert_eq!(payments, format!(r#"{{"payments": {}}}"#, number - 1), "after {mishap}");
        let told = payment("").key(&key).to(gateway.listen).await;
        assert_eq!((told.status(), told.key_status()), (201, Some("stored")), "{told:?}");
    }
    assert_eq!(service.payments().await, r#"{"payments": 2}"#);
}

/// The gateway is killed while its service works. The next one runs the call again, and the first cannot commit.
#[tokio::test]
async fn a_gateway_that_dies_leaves_no_payment_twice() {
    let (store, service) = shop().await;
    let mut gateway = gateway(&service);
    let listen = gateway.listen;
    let lost = tokio::spawn(async move { payment("sleep=3").key("key").try_to(listen).await });
    until(async || store.list(&Filter::default()).await.unwrap().calls.pop()).await;
    sleep(SHORT).await;
    gateway.restart();
    assert!(lost.await.unwrap().is_none(), "the gateway was killed");
    // Waits for the lease of the dead gateway to end.
    let told = payment("").key("key").to(gateway.listen).await;
    assert_eq!((told.status(), told.key_status()), (201, Some("stored")), "{told:?}");
    let calls = store.list(&Filter::default()).await.unwrap().calls;
    assert_eq!(calls[0].claim.attempt.get(), 2);
    // Until the first attempt has woken up and found itself fenced out.
    sleep(Duration::from_secs(3)).await;
    assert_eq!(service.payments().await, r#"{"payments": 1}"#);
}
