//! The gateway itself, on each of its stores, set up as the documentation says.

use super::EVERYTHING;
use super::process::{Upstream, check};
use crate::server::Server;
use crate::servers;

const BEYOND: [&str; 2] = ["ending-5xx-freed", "store-down"];
const BEYOND_AT_ONCE: [&str; 3] = ["in-flight-limit", "ending-5xx-freed", "store-down"];

/// A gateway with `settings` before the routes passes everything that can be seen on it.
async fn keeps_the_contract(settings: &str, arguments: &[&str], not_applicable: &[&str]) {
    let upstream = Upstream::start();
    let gateway = Server::with(upstream.address, &format!("{settings}\n{}", documented_routes()));
    let run = check(gateway.listen, &[EVERYTHING, arguments].concat()).await;
    assert_eq!(run.ids("failed"), [""; 0], "{}", run.failures());
    assert_eq!(run.ids("not-applicable"), not_applicable);
    assert_eq!(run.code, 0);
}

/// The route table that the documentation tells people to use.
fn documented_routes() -> &'static str {
    let page = include_str!("../../../../../docs/conformance.md");
    let (_, block) = page.split_once("```toml\n").expect("the page has a configuration");
    let (block, _) = block.split_once("```").expect("which ends");
    &block[block.find("[[routes]]").expect("it has routes")..]
}

#[tokio::test]
async fn the_gateway_keeps_the_contract_on_sqlite() {
    keeps_the_contract("", &[], &BEYOND).await;
}

#[tokio::test]
async fn the_gateway_keeps_the_contract_on_postgres() {
    let store = servers::postgres_database().await;
    keeps_the_contract(&format!("store = {store:?}"), &[], &BEYOND).await;
}

#[tokio::test]
async fn the_gateway_keeps_the_contract_on_redis() {
    let store = servers::redis();
    keeps_the_contract(&format!("store = {store:?}"), &[], &BEYOND).await;
}

#[tokio::test]
async fn the_gateway_keeps_the_contract_as_ietf() {
    let preset = "[defaults]\npreset = \"ietf\"";
    keeps_the_contract(preset, &["--preset", "ietf"], &BEYOND_AT_ONCE).await;
}

#[tokio::test]
async fn the_gateway_keeps_the_contract_as_stripe() {
    let preset = "[defaults]\npreset = \"stripe\"";
    keeps_the_contract(preset, &["--preset", "stripe"], &BEYOND_AT_ONCE).await;
}
