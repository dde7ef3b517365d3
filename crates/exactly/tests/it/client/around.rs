//! The engine around clients that are there already: a tower service, and reqwest with middleware. Time is paused.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use exactly::client::{Account, NoAnswer, RetryLayer};
use exactly::retry::{Class, Ending, Policy, Stop};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use tokio::time::Instant;
use tower::{Layer as _, ServiceExt as _};

/// What one attempt meets.
#[derive(Clone, Copy)]
enum Act {
    Answer(u16),
    /// A refusal that explains itself.
    Problem(u16, &'static str),
    After(u16, &'static str),
    Refuse,
    Break,
    Hang,
}

/// The attempts that were made: when, and with what.
type Seen = Arc<Mutex<Vec<(Duration, HeaderMap, Bytes)>>>;

async fn act(act: Act) -> io::Result<Response<Full<Bytes>>> {
    let response = Response::builder();
    let response = match act {
        Act::Answer(status) => response.status(status).body(Full::from("answer")),
        Act::Problem(status, problem) => response
            .status(status)
            .header("content-type", "application/problem+json")
            .body(Full::from(problem)),
        Act::After(status, wait) => response
            .status(status)
            .header("retry-after", wait)
            .body(Full::default()),
        Act::Refuse => return Err(io::ErrorKind::ConnectionRefused.into()),
        Act::Break => return Err(io::ErrorKind::ConnectionReset.into()),
        Act::Hang => return std::future::pending().await,
    };
    Ok(response.unwrap())
}

/// Sends one request through the layer to something that acts by the script, its last act again and again.
async fn send(
    policy: Policy,
    method: Method,
    script: &'static [Act],
) -> (
    Result<Response<impl http_body::Body<Data = Bytes, Error: std::fmt::Debug>>, NoAnswer>,
    Seen,
) {
    let seen = Seen::default();
    let (began, log) = (Instant::now(), Arc::clone(&seen));
    let client = tower::service_fn(move |request: Request<Full<Bytes>>| {
        let log = Arc::clone(&log);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let number = {
                let mut log = log.lock().unwrap();
                log.push((began.elapsed(), parts.headers, body));
                log.len() - 1
            };
            act(script[number.min(script.len() - 1)]).await
        }
    });
    let request = Request::builder().method(method).uri("http://shop.example/orders");
    let request = request.body(Full::from("two tickets")).unwrap();
    let answer = RetryLayer::new().policy(policy).layer(client).oneshot(request).await;
    (answer, seen)
}

fn user_facing() -> Policy {
    Policy::of(Class::UserFacing)
}

#[tokio::test(start_paused = true)]
async fn every_attempt_has_one_key_and_equal_bytes_and_less_time() {
    let (answer, seen) = send(
        user_facing(),
        Method::POST,
        &[Act::Break, Act::Answer(503), Act::Answer(201)],
    )
    .await;
    let answer = answer.unwrap();
    assert_eq!(answer.extensions().get(), Some(&Ending::Applied));
    assert_eq!(answer.extensions().get::<Account>().unwrap().attempts().len(), 3);
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 3);
    let key = |headers: &HeaderMap| headers["idempotency-key"].clone();
    assert!(
        seen.iter()
            .all(|(_, headers, body)| key(headers) == key(&seen[0].1) && body == "two tickets")
    );
    let left = |headers: &HeaderMap| headers["x-request-timeout"].to_str().unwrap().parse::<u128>().unwrap();
    for (at, headers, _) in seen.iter() {
        // Of ten seconds, what is left when the attempt begins.
        assert!(
            left(headers).abs_diff(10_000 - at.as_millis()) <= 1,
            "{at:?} {headers:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_body_of_a_refusal_is_read_and_handed_on() {
    const PROBLEM: &str = r#"{"code":"RATE_LIMIT.exceeded","retryable":false}"#;
    let (answer, seen) = send(user_facing(), Method::POST, &[Act::Problem(429, PROBLEM)]).await;
    let answer = answer.unwrap();
    assert_eq!(seen.lock().unwrap().len(), 1, "the server's word beats the table");
    assert_eq!(answer.extensions().get(), Some(&Ending::NotApplied));
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), PROBLEM);
}

#[tokio::test(start_paused = true)]
async fn a_retry_is_never_earlier_than_asked() {
    let script = &[Act::After(503, "3"), Act::After(429, "4"), Act::Answer(200)];
    let (answer, seen) = send(user_facing(), Method::POST, script).await;
    assert!(answer.is_ok());
    let times: Vec<_> = seen.lock().unwrap().iter().map(|(at, ..)| *at).collect();
    assert!(
        times[1] >= Duration::from_secs(3) && times[2] >= Duration::from_secs(7),
        "{times:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_total_time_is_never_exceeded() {
    let began = Instant::now();
    let (answer, _) = send(user_facing(), Method::POST, &[Act::Answer(500), Act::Hang]).await;
    assert!(began.elapsed() <= Duration::from_secs(10), "{:?}", began.elapsed());
    let error = answer.err().unwrap();
    assert_eq!(error.ending(), Ending::Unknown);
    assert!(matches!(error.account().stop(), Some(Stop::Deadline { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_day_of_deliveries_follows_its_offsets() {
    let (answer, seen) = send(Policy::of(Class::Webhook), Method::POST, &[Act::Refuse]).await;
    let error = answer.err().unwrap();
    assert_eq!(
        (error.ending(), error.account().stop()),
        (Ending::NotApplied, Some(Stop::Attempts))
    );
    let offsets = [0, 5, 30, 120, 600, 1800, 3600, 21_600, 43_200, 86_400];
    let times: Vec<_> = seen.lock().unwrap().iter().map(|(at, ..)| at.as_secs_f64()).collect();
    assert_eq!(times.len(), offsets.len());
    for (time, offset) in times.iter().zip(offsets) {
        let offset = f64::from(offset);
        assert!(
            (time - offset).abs() <= offset / 10.0 + 0.01,
            "{time} is not about {offset}"
        );
    }
    assert!(*times.last().unwrap() <= 86_400.0);
}

#[tokio::test(start_paused = true)]
async fn a_refused_connection_is_not_applied_and_a_broken_one_is_unknown() {
    for (script, ending) in [(&[Act::Refuse], Ending::NotApplied), (&[Act::Break], Ending::Unknown)] {
        let (answer, seen) = send(user_facing(), Method::POST, script).await;
        assert_eq!(answer.err().unwrap().ending(), ending);
        assert_eq!(seen.lock().unwrap().len(), 4);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_changes_nothing_is_repeated_without_a_key() {
    let (answer, seen) = send(user_facing(), Method::GET, &[Act::Break, Act::Answer(200)]).await;
    assert!(answer.is_ok());
    let seen = seen.lock().unwrap();
    assert!(
        seen.len() == 2
            && seen
                .iter()
                .all(|(_, headers, _)| !headers.contains_key("idempotency-key"))
    );
}

#[cfg(feature = "client-middleware")]
mod middleware {
    use exactly::client::RetryMiddleware;
    use reqwest_middleware::ClientBuilder;

    use super::super::refused_address;
    use super::super::scripted::{Act, Scripted, answer};
    use super::*;

    fn client() -> reqwest_middleware::ClientWithMiddleware {
        // Another test of this process may have been first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
        ClientBuilder::new(http.build().unwrap())
            .with(RetryMiddleware::new())
            .build()
    }

    #[tokio::test]
    async fn a_client_with_middleware_keeps_its_key_over_attempts() {
        let problem = answer(
            "409 Conflict",
            "content-type: application/json\r\n",
            r#"{"code":"CONFLICT.idempotency.in_progress"}"#,
        );
        let acts = [
            Act::Answer(problem),
            Act::CutRequest(20),
            Act::Answer(answer("201 Created", "", "rf_1")),
        ];
        let server = Scripted::start(acts).await;
        let response = client().post(server.url("/refunds")).body("ten").send().await.unwrap();
        assert_eq!(response.extensions().get(), Some(&Ending::Applied));
        assert_eq!(response.text().await.unwrap(), "rf_1");
        let arrived = server.arrived();
        assert_eq!(
            arrived[0].header("idempotency-key"),
            arrived[1].header("idempotency-key")
        );
        assert!(arrived.iter().all(|request| request.body == b"ten"));
    }

    #[tokio::test]
    async fn a_refusal_keeps_its_body_and_address() {
        let refusal = answer(
            "422 Unprocessable Content",
            "content-type: application/json\r\n",
            "{\"a\":1}",
        );
        let server = Scripted::start([Act::Answer(refusal)]).await;
        let url = server.url("/refunds");
        let response = client().post(&url).body("ten").send().await.unwrap();
        assert_eq!(
            (response.status().as_u16(), response.url().as_str()),
            (422, url.as_str())
        );
        assert_eq!(response.extensions().get(), Some(&Ending::NotApplied));
        assert_eq!(response.text().await.unwrap(), "{\"a\":1}");
    }

    #[tokio::test]
    async fn no_answer_is_an_error_that_says_what_is_known() {
        let error = client()
            .post(format!("http://{}/", refused_address()))
            .send()
            .await
            .unwrap_err();
        let reqwest_middleware::Error::Middleware(error) = error else {
            panic!("{error:?}")
        };
        assert_eq!(error.downcast_ref::<NoAnswer>().unwrap().ending(), Ending::NotApplied);
    }

    #[tokio::test]
    async fn a_streamed_body_is_sent_once() {
        let server = Scripted::start([Act::CutAnswer(String::new(), 0)]).await;
        let body = reqwest::Body::wrap(Full::<Bytes>::from("a file"));
        let error = client().post(server.url("/")).body(body).send().await.unwrap_err();
        let reqwest_middleware::Error::Middleware(error) = error else {
            panic!("{error:?}")
        };
        let error = error.downcast_ref::<NoAnswer>().unwrap();
        assert_eq!(
            (error.ending(), error.account().stop()),
            (Ending::Unknown, Some(Stop::Unrepeatable))
        );
    }
}
