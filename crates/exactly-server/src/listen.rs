//! `exactly listen`: a receiver of events on this machine, for development.
//!
//! It verifies what comes in as a consumer would and prints it. It keeps nothing: each delivery is shown, also one that came
//! before, and says so.

mod event;
mod forward;

use std::collections::{HashSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use exactly::clock::{Clock as _, WallClock};
use exactly::webhook::delivery::Target;
use exactly::webhook::{InvalidKey, Verified, Verifier};
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use tokio::net::TcpListener;

use self::event::Heard;
use self::forward::Forward;
use crate::calls::{Refused, ended};
use crate::cli::Ended;
use crate::serve::say;

/// More than an event has.
const BODY_MAX: usize = 4 << 20;
/// How many ids are remembered, to say what came again.
const KNOWN_MAX: usize = 10_000;

/// Whose signatures are verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Style {
    /// Standard Webhooks, as `exactly` signs.
    #[default]
    Standard,
    /// Stripe's.
    Stripe,
    /// GitHub's.
    Github,
}

/// What listening looks like.
const HELP: &str = "Example:
  exactly listen --port 9000 --secret whsec_…
  exactly endpoints create --url http://127.0.0.1:9000/ --secret whsec_…

The server has to be allowed to dial this machine: allow = [\"127.0.0.1\"] under [events] in its settings.";

/// Where to listen, and what to do with what comes.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// The port, on this machine only; 0 for any that is free.
    #[arg(long, default_value = "9000")]
    port: u16,
    /// What verifies: `whsec_…` or `whpk_…`, or the secret that Stripe or GitHub shows; can be repeated.
    #[arg(
        long = "secret",
        value_name = "SECRET",
        env = "EXACTLY_WEBHOOK_SECRET",
        hide_env_values = true,
        required = true
    )]
    secrets: Vec<String>,
    /// Whose signatures are verified.
    #[arg(long = "source-style", value_enum, default_value_t)]
    style: Style,
    /// Post what was verified to this address too, and answer what it answers.
    #[arg(long, value_name = "URL")]
    forward: Option<String>,
    /// Answer with this status, to rehearse failures.
    #[arg(long, default_value = "200", conflicts_with = "forward", value_parser = clap::value_parser!(u16).range(200..=599))]
    status: u16,
    /// Print one JSON object to a line.
    #[arg(long)]
    json: bool,
    /// End after so many events.
    #[arg(long, value_name = "NUMBER")]
    count: Option<u64>,
}

/// What every request goes through.
struct Listener {
    verifier: Verifier,
    forward: Option<Forward>,
    status: StatusCode,
    json: bool,
    known: Mutex<Known>,
    left: Mutex<Option<u64>>,
    enough: tokio::sync::Notify,
}

/// The ids that came last.
#[derive(Debug, Default)]
struct Known {
    ids: HashSet<Box<str>>,
    order: VecDeque<Box<str>>,
}

impl Args {
    pub(crate) async fn run(self) -> Ended {
        ended(async { self.listen().await }).await
    }

    async fn listen(self) -> Result<(), Refused> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let listener = Arc::new(self.listener()?);
        let bound = TcpListener::bind(address).await.map_err(|error| {
            Refused::Failed(format!("listen on {address}: {error}; choose another port with --port"))
        })?;
        let address = bound.local_addr().map_err(Refused::failed)?;
        // Standard output is for what comes in.
        eprintln!("listening on http://{address}/");
        let router = Router::new().fallback(receive).with_state(Arc::clone(&listener));
        let ended = async move { listener.enough.notified().await };
        let served = axum::serve(bound, router).with_graceful_shutdown(ended).await;
        served.map_err(Refused::failed)
    }

    fn listener(self) -> Result<Listener, Refused> {
        let verifier = self
            .verifier()
            .map_err(|why| Refused::Usage(format!("--secret: {why}")))?;
        let forward = self.forward.as_deref().map(|url| {
            let target: Target = url.parse().map_err(|why| Refused::Usage(format!("--forward: {why}")))?;
            Forward::new(target).map_err(Refused::failed)
        });
        Ok(Listener {
            verifier,
            forward: forward.transpose()?,
            status: StatusCode::from_u16(self.status).map_err(Refused::failed)?,
            json: self.json,
            known: Mutex::default(),
            left: Mutex::new(self.count),
            enough: tokio::sync::Notify::new(),
        })
    }

    fn verifier(&self) -> Result<Verifier, InvalidKey> {
        self.style.verifier(self.secrets.iter().map(|secret| secret.trim()))
    }
}

impl Style {
    /// What verifies events of somebody who signs so, by any of these secrets.
    pub(crate) fn verifier<'s>(self, secrets: impl Iterator<Item = &'s str> + Clone) -> Result<Verifier, InvalidKey> {
        let shared = || secrets.clone().map(str::parse).collect::<Result<Vec<_>, _>>();
        Ok(match self {
            Self::Standard => Verifier::standard(secrets.map(str::parse).collect::<Result<Vec<_>, _>>()?),
            Self::Stripe => Verifier::stripe(shared()?),
            Self::Github => Verifier::github(shared()?),
        })
    }
}

async fn receive(State(listener): State<Arc<Listener>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    let body = match Limited::new(body, BODY_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return listener.refuse(path, StatusCode::PAYLOAD_TOO_LARGE, &error.to_string()),
    };
    match listener.verifier.verify(&parts.headers, &body, WallClock.now()) {
        Ok(verified) => listener.take(path, &parts.headers, &body, &verified).await,
        Err(rejected) => listener.refuse(path, StatusCode::UNAUTHORIZED, &rejected.to_string()),
    }
}

impl Listener {
    async fn take(&self, path: &str, headers: &HeaderMap, body: &bytes::Bytes, verified: &Verified) -> Response {
        let again = !self
            .known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .add(&verified.event_id);
        let (status, answer) = match &self.forward {
            Some(forward) => forward.post(headers, body).await,
            None => (self.status, bytes::Bytes::new()),
        };
        let heard = Heard::new(path, verified, body, again, status);
        say(&heard.shown(self.json));
        self.count();
        (status, answer).into_response()
    }

    fn refuse(&self, path: &str, status: StatusCode, why: &str) -> Response {
        let heard = Heard::refused(path, status, why);
        say(&heard.shown(self.json));
        self.count();
        (status, format!("{why}\n")).into_response()
    }

    fn count(&self) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(left) = &mut *left {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.enough.notify_one();
            }
        }
    }
}

impl Known {
    /// Whether it is new.
    fn add(&mut self, id: &str) -> bool {
        if self.order.len() >= KNOWN_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
        let is_new = self.ids.insert(id.into());
        if is_new {
            self.order.push_back(id.into());
        }
        is_new
    }
}

/// As it is written on the command line, whose help names the default.
impl std::fmt::Display for Style {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Standard => "standard",
            Self::Stripe => "stripe",
            Self::Github => "github",
        })
    }
}
