//! The gateway itself, on each of its stores, set up as the documentation says.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::EVERYTHING;
use super::process::{EXACTLY, Upstream, check};

/// `exactly serve`, running.
struct Gateway {
    child: Child,
    address: SocketAddr,
    _folder: TempDir,
}

impl Gateway {
    fn start(upstream: SocketAddr, store: &str, defaults: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let config = folder.path().join("exactly.toml");
        let routes = documented_routes();
        std::fs::write(
            &config,
            format!("upstream = \"http://{upstream}\"\n[defaults]\n{defaults}\n{routes}"),
        )
        .unwrap();
        let mut child = Command::new(EXACTLY)
            .current_dir(&folder)
            .args(["serve", "--config", "exactly.toml", "--store", store])
            .args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
            .env("EXACTLY_ADMIN_TOKEN", "a-token-of-some-length")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let (_, address) = line.trim().rsplit_once("http://").expect(&line);
        Self {
            child,
            address: address.parse().unwrap(),
            _folder: folder,
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The route table that the documentation tells people to use.
fn documented_routes() -> String {
    let page = include_str!("../../../../../docs/conformance.md");
    let (_, block) = page.split_once("```toml\n").expect("the page has a configuration");
    let (block, _) = block.split_once("```").expect("which ends");
    let at = block.find("[[routes]]").expect("it has routes");
    block[at..].to_owned()
}

async fn keeps_the_contract(store: &str, defaults: &str, arguments: &[&str], not_applicable: &[&str]) {
    let upstream = Upstream::start();
    let gateway = Gateway::start(upstream.address, store, defaults);
    let run = check(gateway.address, &[EVERYTHING, arguments].concat()).await;
    assert_eq!(run.ids("failed"), [""; 0], "{}", run.failures());
    assert_eq!(run.ids("not-applicable"), not_applicable);
    assert_eq!(run.code, 0);
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test is told by its environment where the server is"
)]
fn server(variable: &str) -> String {
    std::env::var(variable).expect("run `cargo xtask test`, which starts the servers")
}

const BEYOND: [&str; 2] = ["ending-5xx-freed", "store-down"];
const BEYOND_AT_ONCE: [&str; 3] = ["in-flight-limit", "ending-5xx-freed", "store-down"];

#[tokio::test]
async fn the_gateway_keeps_the_contract_on_sqlite() {
    keeps_the_contract("sqlite:exactly.db", "", &[], &BEYOND).await;
}

#[tokio::test]
async fn the_gateway_keeps_the_contract_on_postgres() {
    let url = server("EXACTLY_TEST_POSTGRES_URL");
    keeps_the_contract(&url, "", &[], &BEYOND).await;
}

#[tokio::test]
async fn the_gateway_keeps_the_contract_on_redis() {
    let url = server("EXACTLY_TEST_REDIS_URL");
    keeps_the_contract(&url, "", &[], &BEYOND).await;
}

#[tokio::test]
async fn the_gateway_keeps_the_contract_as_ietf() {
    let preset = "preset = \"ietf\"";
    keeps_the_contract("sqlite:exactly.db", preset, &["--preset", "ietf"], &BEYOND_AT_ONCE).await;
}

#[tokio::test]
async fn the_gateway_keeps_the_contract_as_stripe() {
    let preset = "preset = \"stripe\"";
    keeps_the_contract("sqlite:exactly.db", preset, &["--preset", "stripe"], &BEYOND_AT_ONCE).await;
}
