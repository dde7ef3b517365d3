//! What dashboards and traces are told of calls.

use std::io;
use std::sync::{Arc, Mutex};

use exactly::client::Outcome;
use exactly::telemetry;
use tracing_subscriber::fmt::format::FmtSpan;

use super::scripted::{Act, Scripted, answer};
use super::{hasty, refused_address};
use crate::counts::Counts;

fn busy() -> Act {
    Act::Answer(answer("503 Service Unavailable", "", ""))
}

#[tokio::test]
async fn retries_waits_and_endings_are_counted_by_their_names() {
    let counts = Counts::default();
    let _here = metrics::set_default_local_recorder(&counts);
    telemetry::describe_client();
    assert_eq!(counts.of("retry_calls_total class=user-facing outcome=unknown"), 0);

    let ok = Act::Answer(answer("200 OK", "", ""));
    let server = Scripted::start([busy(), busy(), ok, Act::CutAnswer(String::new(), 0)]).await;
    let client = hasty();
    assert!(client.post(server.url("/")).send().await.applied().is_ok());
    assert_eq!(counts.of("retry_attempts_total class=user-facing"), 2);
    assert_eq!(counts.of("retry_delay_seconds class=user-facing"), 2);
    assert_eq!(counts.of("retry_calls_total class=user-facing outcome=applied"), 1);

    let outcome = client.post(server.url("/")).retries(0).send().await;
    assert!(matches!(outcome, Outcome::Unknown(_)));
    assert_eq!(counts.of("retry_calls_total class=user-facing outcome=unknown"), 1);
    assert_eq!(counts.of("retry_exhausted_total class=user-facing reason=attempts"), 1);

    let dead = format!("http://{}", refused_address());
    assert!(client.post(&dead).send().await.applied().is_err());
    assert_eq!(counts.of("retry_calls_total class=user-facing outcome=not_applied"), 1);
    assert_eq!(counts.of("retry_exhausted_total class=user-facing reason=attempts"), 2);
    let left = counts.of(&format!("retry_budget_remaining class=user-facing destination={dead}"));
    assert_eq!(f64::from_bits(left).to_string(), "7", "three of ten retries are taken");
}

/// What was written, for whoever looks at it afterwards.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn every_attempt_has_a_span_with_its_number_and_the_keys_digest_but_not_the_key() {
    let written = Written::default();
    let log = written.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_span_events(FmtSpan::CLOSE)
        .with_ansi(false)
        .with_writer(move || log.clone())
        .finish();
    let _here = tracing::subscriber::set_default(subscriber);
    let server = Scripted::start([busy(), Act::Answer(answer("200 OK", "", ""))]).await;
    let key = "refund-of-a-secret-order";
    assert!(hasty().post(server.url("/")).key(key).send().await.applied().is_ok());
    let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    let digest = exactly::Key::new(key).unwrap().digest();
    for attempt in ["attempt=1", "attempt=2"] {
        let line = text.lines().find(|line| line.contains(attempt)).expect(attempt);
        assert!(
            line.contains(&digest) && line.contains(&server.address.to_string()),
            "{line}"
        );
    }
    assert!(!text.contains(key), "{text}");
}
