//! `exactly conformance upstream`: a service that counts its effects.
//!
//! It stands behind the server that is checked. Every `POST`, `PUT`, `PATCH` and `DELETE` that reaches it is a run, and
//! makes one effect. The query says under which tag it is counted and how the run goes: slowly, with which status, with
//! the connection cut before or after the effect. Whoever checks asks for the counts afterwards.

mod answer;
mod ledger;
mod listen;
mod plan;

use std::convert::Infallible;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

use self::ledger::Ledger;
use self::listen::Door;
use self::plan::{Cut, Plan};
use crate::cli::Ended;

/// What its answers say, so that whoever asks knows whom he has before him.
pub(super) const MARK: &str = "exactly conformance";

/// The longest request body that is read.
const BODY_MAX: usize = 16 * 1024 * 1024;
/// How long a run waits for its release.
const HOLD_MAX: Duration = Duration::from_secs(20);
/// How long the port can stay closed.
const DOWN_MAX: Duration = Duration::from_secs(10);

/// Where it listens.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The address to listen on; port 0 takes any free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9090")]
    listen: SocketAddr,
}

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// What all connections share.
#[derive(Clone, Debug)]
struct Upstream {
    ledger: Arc<Ledger>,
    door: Door,
}

impl Args {
    pub(crate) async fn run(self) -> Ended {
        let listen = self.listen;
        let listener = TcpListener::bind(listen)
            .await
            .map_err(|error| format!("listen on {listen}: {error}; give another address with --listen"))?;
        let address = listener.local_addr()?;
        writeln!(io::stdout(), "listening on http://{address}")?;
        let (door, opened) = listen::door();
        let upstream = Upstream {
            ledger: Arc::default(),
            door,
        };
        listen::serve(listener, opened, move |request| upstream.clone().answer(request)).await?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Upstream {
    /// An error cuts the connection without an answer.
    async fn answer(self, request: Request<Incoming>) -> io::Result<Response<Body>> {
        let path = request.uri().path().trim_end_matches('/').to_owned();
        let plan = match Plan::read(request.uri().query().unwrap_or_default()) {
            Ok(plan) => plan,
            Err(fault) => return Ok(answer::json(StatusCode::BAD_REQUEST, &json!({ "fault": fault }))),
        };
        let method = request.method().clone();
        // Nothing runs before the whole request is here. That is also what lets a hang-up be noticed afterwards.
        let Ok(_) = Limited::new(request.into_body(), BODY_MAX).collect().await else {
            let fault = format!("the body broke off, or is over {BODY_MAX} bytes");
            return Ok(answer::json(StatusCode::BAD_REQUEST, &json!({ "fault": fault })));
        };
        match method {
            Method::GET if path.ends_with("/effects") => Ok(self.tell(&plan)),
            Method::POST if path.ends_with("/effects/release") => {
                self.ledger.release(&plan.tag);
                Ok(self.tell(&plan))
            }
            Method::POST if path.ends_with("/effects/down") => {
                self.door.close_for(plan.wait.min(DOWN_MAX)).await;
                Ok(self.tell(&plan))
            }
            Method::POST | Method::PUT | Method::PATCH | Method::DELETE => self.run(&plan).await,
            _ => {
                let read = self.ledger.read(&plan.tag);
                Ok(answer::json(StatusCode::OK, &json!({ "tag": plan.tag, "read": read })))
            }
        }
    }

    /// One run of an operation.
    async fn run(self, plan: &Plan) -> io::Result<Response<Body>> {
        let Some(run) = self.ledger.start(&plan.tag) else {
            let fault = json!({ "fault": "too many tags are counted: restart the upstream" });
            return Ok(answer::json(StatusCode::INSUFFICIENT_STORAGE, &fault));
        };
        let cut = plan.cut(run.number);
        if cut == Cut::Before {
            return Err(io::Error::other("cut before the effect"));
        }
        sleep(plan.wait).await;
        if plan.hold {
            // Whoever forgets to release it does not hold it for ever.
            let _ = timeout(HOLD_MAX, run.released()).await;
        }
        let status = plan.status(run.number);
        // These say that nothing happened, so nothing does.
        let effect = match status.as_u16() {
            408 | 425 | 429 | 503 => None,
            _ => Some(run.effect()),
        };
        match cut {
            Cut::After => Err(io::Error::other("cut after the effect")),
            _ => Ok(answer::of_run(plan, status, run.number, effect, cut == Cut::Answer)),
        }
    }

    fn tell(&self, plan: &Plan) -> Response<Body> {
        let counts = self.ledger.counts(&plan.tag);
        let told = json!({
            "upstream": MARK,
            "tag": plan.tag,
            "runs": counts.runs,
            "effects": counts.effects,
            "running": counts.running,
            "reads": counts.reads,
        });
        answer::json(StatusCode::OK, &told)
    }
}

/// For bodies that cannot fail.
fn never(never: Infallible) -> io::Error {
    match never {}
}
