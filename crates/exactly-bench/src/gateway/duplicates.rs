//! A thousand requests with one key at once.

use std::time::Duration;

use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::Options;
use super::front::Front;
use crate::Result;
use crate::child::Server;
use crate::load::{Connection, ask};
use crate::report::{Finding, Wanted};
use crate::serve::App;
use crate::versus::Ratio;

const COUNT: usize = 1000;
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
const SETTLE: Duration = Duration::from_secs(1);

/// One call of the upstream, equal answers for all, and others served meanwhile.
pub(super) async fn measure(options: &Options, scratch: &TempDir) -> Result<Finding> {
    let upstream = Server::start(&App::Bare).await?;
    let front = Front {
        options,
        scratch: scratch.path(),
        upstream: upstream.address,
    };
    let gateway = front.exactly("duplicates").await?;
    let mut connections = Vec::new();
    for _ in 0..COUNT {
        connections.push(Connection::open_for(gateway.address, "/slow-payments").await?);
    }
    let mut answers = JoinSet::new();
    for mut connection in connections {
        answers.spawn(async move {
            let answer = connection.exchange().await?;
            let body = connection.answered().split(|byte| *byte == b'{').nth(1);
            Ok::<_, crate::Error>((answer.status, body.unwrap_or_default().to_vec()))
        });
    }
    sleep(SETTLE).await;
    let asked = Instant::now();
    let mut stranger = Connection::open_for(gateway.address, "/payments").await?;
    stranger.key_mut().fill(b'x');
    let served = timeout(ANSWER_WITHIN, stranger.exchange()).await??.status;
    let stranger_ms = asked.elapsed().as_secs_f64() * 1000.0;
    ask(upstream.address, "/release").await?;
    let released = Instant::now();
    let mut first: Option<Vec<u8>> = None;
    let mut equal: u32 = 0;
    while let Some(answered) = timeout(ANSWER_WITHIN, answers.join_next()).await? {
        let (status, body) = answered??;
        let is_same = *first.get_or_insert_with(|| body.clone()) == body;
        equal += u32::from(status == 201 && is_same);
    }
    let answered_ms = released.elapsed().as_secs_f64() * 1000.0;
    let runs: u32 = ask(upstream.address, "/runs").await?.parse()?;
    let others = runs.saturating_sub(1);
    if others != 1 || served != 201 {
        return Err(
            format!("the upstream was called {others} times for one key, and a stranger was told {served}").into(),
        );
    }
    Ok(Finding {
        notes: vec![format!(
            "a request with another key was answered in {stranger_ms:.0} ms meanwhile; all {COUNT} were answered \
             {answered_ms:.0} ms after the upstream"
        )],
        ..Finding::alone(
            "duplicates",
            &format!("equal answers to {COUNT} requests at once with one key, one call of the upstream"),
            "equal",
            Ratio::once(f64::from(equal)),
            Wanted::AtLeast(COUNT as f64),
        )
    })
}
