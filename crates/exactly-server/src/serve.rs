//! `exactly serve`: the gateway, the API and the work behind them.

mod accept;
mod activity;
mod background;
mod desk;
mod doubts;
mod framing;
mod patient;
mod shutdown;
mod token;
mod workers;

use std::error::Error;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use exactly::{Operate, telemetry};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tower::ServiceExt as _;

use self::accept::Acceptor;
use self::shutdown::Shutdown;
use self::workers::Workers;
use crate::admin::{self, Admin, AdminToken, settle};
use crate::cli::Ended;
use crate::config::{Config, ConfigError, Upstream};
use crate::demo::Demo;
use crate::door;
use crate::gateway::{Gateway, meter};
use crate::store::{Ledger, StoreArgs};
use crate::work::{Nudge, Work};

/// Upper bounds of the buckets of job durations, up to beyond the time limit that jobs have by default.
const JOB_SECONDS: [f64; 14] = [
    0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0,
];

/// What to serve.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The configuration; `exactly.toml` is read without being named, if it is there.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where requests come in [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// The service to protect: http://HOST:PORT
    #[arg(long, value_name = "URL")]
    upstream: Option<Upstream>,
    /// Where operators come in [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDR")]
    admin: Option<SocketAddr>,
    /// What operators show to be let in; without it, one is made at the first start and printed once.
    #[arg(long, value_name = "TOKEN", env = "EXACTLY_ADMIN_TOKEN", hide_env_values = true)]
    admin_token: Option<String>,
    /// Start a flaky payments service, protect it, and let a storm of double clicks, retries and hang-ups come over it.
    #[arg(long, conflicts_with_all = ["upstream", "config"])]
    pub(crate) demo: bool,
    /// Run no jobs and no schedules here, and keep no tables for them.
    #[arg(long)]
    no_jobs: bool,
    #[command(flatten)]
    store: StoreArgs,
}

impl Args {
    pub(crate) async fn run(self) -> Ended {
        let mut config = self.configured()?;
        let mut demo = None;
        if self.demo {
            let has_store = self.store.store.is_some();
            let (started, of_demo) = Demo::start(&config, has_store).await?;
            (demo, config) = (Some(Arc::new(started)), of_demo);
        }
        let Some(upstream) = config.upstream.clone() else {
            return Err(
                "no upstream: give --upstream http://HOST:PORT, upstream = \"…\" in exactly.toml, or --demo".into(),
            );
        };
        let shutdown = Shutdown::on_signals()?;
        let metrics = recorder()?;
        telemetry::describe();
        meter::describe();
        let (store, queue) = open(&config).await?;
        let server = Server::bind(&config, &upstream, store, queue).await?;
        // Last, since a new token is shown once.
        let (token, told) = token::find(self.admin_token, &config.store)?;
        say(&format!("exactly: protecting {upstream} on http://{}", server.listen));
        say(&format!("exactly: operators on http://{}{told}", server.admin));
        if let Some((address, _)) = &server.door {
            say(&format!("exactly: events come in on http://{address}"));
        }
        let (listen, admin) = (server.listen, server.admin);
        // Kept to the end: the demonstration's records are in its folder.
        if let Some(demo) = demo.clone() {
            tokio::spawn(async move { demo.run(listen, admin).await });
        }
        Box::pin(server.run(token, metrics, shutdown)).await?;
        Ok(ExitCode::SUCCESS)
    }

    /// The file, and over it the flags.
    fn configured(&self) -> Result<Config, ConfigError> {
        let flags = |config: &mut Config| self.put_over(config);
        match &self.config {
            Some(path) => Config::read_to_serve(path, flags),
            None if self.demo => {
                let mut config = Config::default();
                flags(&mut config);
                Ok(config)
            }
            None => Config::read_default_to_serve(flags),
        }
    }

    fn put_over(&self, config: &mut Config) {
        config.listen = self.listen.unwrap_or(config.listen);
        config.admin = self.admin.unwrap_or(config.admin);
        if let Some(upstream) = &self.upstream {
            config.upstream = Some(upstream.clone());
        }
        if let Some(store) = &self.store.store {
            config.store = store.clone();
        }
        config.store_options.accept.extend(&self.store.accept);
        config.jobs.enabled &= !self.no_jobs;
    }
}

/// The queue, or why there is none.
type Tasks = Result<Arc<dyn Ledger>, &'static str>;

async fn open(config: &Config) -> Result<(Arc<dyn Operate>, Tasks), Box<dyn Error + Send + Sync>> {
    if !config.jobs.enabled {
        let store = config.store.open(&config.store_options).await?;
        return Ok((store, Err(admin::JOBS_OFF)));
    }
    let (store, queue) = config.store.open_with_tasks(&config.store_options).await?;
    Ok((store, queue.ok_or(admin::NO_QUEUE)))
}

/// What counts. Runs of jobs are counted in buckets, because quantiles of several instances cannot be added up.
fn recorder() -> Result<PrometheusHandle, metrics_exporter_prometheus::BuildError> {
    PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full(telemetry::JOB_DURATION.to_owned()), &JOB_SECONDS)?
        .install_recorder()
}

/// Everything that runs, bound to its addresses.
struct Server {
    listen: SocketAddr,
    admin: SocketAddr,
    listener: TcpListener,
    admin_acceptor: Acceptor,
    /// Where events of others come in.
    door: Option<(SocketAddr, Acceptor)>,
    gateway: Gateway,
    store: Arc<dyn Operate>,
    queue: Tasks,
    config: Config,
}

impl Server {
    async fn bind(
        config: &Config,
        upstream: &Upstream,
        store: Arc<dyn Operate>,
        queue: Tasks,
    ) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let listener = bind("listen", config.listen).await?;
        let admin_listener = bind("admin", config.admin).await?;
        let admin = admin_listener.local_addr()?;
        let door = match (config.inbox.listen, &queue) {
            (Some(address), Ok(_)) => {
                let listener = TcpListener::bind(address).await;
                let listener = listener.map_err(|error| format!("inbox.listen on {address}: {error}"))?;
                let address = listener.local_addr()?;
                Some((address, Acceptor::alone(listener, config)))
            }
            (Some(_), Err(why)) => return Err(format!("[inbox]: events are kept as jobs, and {why}").into()),
            (None, _) => None,
        };
        let mut config = config.clone();
        config
            .settle_link
            .get_or_insert_with(|| format!("http://{admin}/v1/calls/"));
        let gateway = Gateway::new(&config, upstream, &store)?;
        Ok(Self {
            listen: listener.local_addr()?,
            admin,
            listener,
            admin_acceptor: Acceptor::alone(admin_listener, &config),
            door,
            gateway,
            store,
            queue,
            config,
        })
    }

    /// Serves until told to stop, then finishes what is under way.
    async fn run(
        self,
        token: AdminToken,
        metrics: PrometheusHandle,
        shutdown: Shutdown,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        background::start(&self.gateway, &self.store, &self.config, metrics.clone());
        let nudge = Nudge::default();
        let work = match &self.queue {
            Ok(queue) => Some(Work::start(queue, &self.config, &nudge).await?),
            Err(_) => None,
        };
        let settle = settle::by_layer(self.gateway.layer().clone());
        let render = Arc::new(move || metrics.render());
        let admin = Admin::new(Arc::clone(&self.store), token, settle, render);
        let admin = admin::router(
            admin
                .with_open_metrics(self.config.open_metrics)
                .with_jobs(self.queue.clone(), nudge)
                .with_events(self.queue.clone(), &self.config.events),
        );
        let operators = self.admin_acceptor.serve(
            move |request| admin.clone().oneshot(request.map(axum::body::Body::new)),
            &shutdown,
        );
        let senders = received(self.door, self.queue, &self.config, &shutdown);
        let workers = Workers::start(&self.gateway, self.listener, &self.config, &shutdown)?;
        let drained = async {
            tokio::join!(workers.served(), operators, senders, drained_at(work, &shutdown));
            self.gateway.layer().drain().await;
            workers.stop();
        };
        shutdown.bounded(self.config.timeouts.drain, drained).await;
        Ok(())
    }
}

/// Takes in events until the server is told to stop.
async fn received(door: Option<(SocketAddr, Acceptor)>, queue: Tasks, config: &Config, shutdown: &Shutdown) {
    if let (Some((_, acceptor)), Ok(queue)) = (door, queue) {
        let senders = door::router(queue, &config.inbox);
        let answer = move |request: http::Request<_>| senders.clone().oneshot(request.map(axum::body::Body::new));
        acceptor.serve(answer, shutdown).await;
    }
}

/// Runs jobs until the server is told to stop, then finishes what is under way.
async fn drained_at(work: Option<Work>, shutdown: &Shutdown) {
    if let Some(work) = work {
        shutdown.asked().await;
        work.drain().await;
    }
}

/// Says something to whoever started the server. Nobody has to listen: a closed pipe is no reason to stop.
pub(crate) fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

async fn bind(setting: &str, address: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(address).await.map_err(|error| {
        format!("{setting} on {address}: {error}; is another server there? choose another with --{setting} ADDR")
    })
}
