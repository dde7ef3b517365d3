//! `exactly call`: one request from a terminal or a script, repeated safely.
//!
//! It is the library's client with a readable account of every attempt. How it went is the exit code, so that a script can
//! branch on it, and *unknown* is a code of its own: whoever takes it for a failure makes a second operation of the first.

mod given;
mod log;
mod told;

use std::error::Error;
use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{Write as _, stderr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use exactly::client::{Client, ErrorKind, Outcome, RequestBuilder, fresh_key, is_safe};
use exactly::retry::Class;
use exactly_sql::SqliteJournal;
use http::{HeaderName, Method, header};

use self::log::{Form, Log};
use self::told::Told;
use crate::calls::Refused;
use crate::cli::{Ended, chain};

/// Who is calling, if nobody says otherwise.
pub(crate) const USER_AGENT: &str = concat!("exactly/", env!("CARGO_PKG_VERSION"));

const AFTER_HELP: &str = "\
Exit codes:
  0  applied: it happened, once
  1  not applied: it did not happen, and will not
  2  told wrongly; nothing was sent
  3  unknown: it may have happened. Do not make it anew: run the same command with --resume KEY,
     or again with the same --journal and --operation, unless the last line says otherwise
  4  applied, but its answer broke off, is too long, or could not be written

A command line is visible to other users of the machine. Put tokens and keys into a --header-file.";

/// One request, and how often to repeat it.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The method, such as POST. All but GET, HEAD and OPTIONS get a key.
    #[arg(value_parser = given::method)]
    method: Method,
    /// Where it goes: http://… or https://…
    #[arg(value_parser = given::url)]
    url: String,
    /// A header; can be repeated.
    #[arg(short = 'H', long, value_name = "NAME: VALUE", value_parser = given::header)]
    header: Vec<(HeaderName, http::HeaderValue)>,
    /// A file with a header on each line; can be repeated. They stay with the origin of the URL.
    #[arg(long, value_name = "FILE")]
    header_file: Vec<PathBuf>,
    /// The body: text, @FILE, or - for standard input. It is sent as it is.
    #[arg(short, long, value_name = "TEXT|@FILE|-")]
    data: Option<String>,
    /// The same for JSON, which is checked and announced as such.
    #[arg(long, value_name = "TEXT|@FILE|-", conflicts_with = "data")]
    data_json: Option<String>,
    /// The key, if it is not to be a random one.
    #[arg(long, value_parser = given::key)]
    key: Option<String>,
    /// The key of a run that ended as unknown: goes on with it. A refusal then leaves it unknown.
    #[arg(long, value_name = "KEY", value_parser = given::key, conflicts_with = "key")]
    resume: Option<String>,
    /// The header that carries the key.
    #[arg(long, value_name = "NAME", default_value = "Idempotency-Key")]
    key_header: HeaderName,
    /// What this operation is called in the journal. Run again, even after a crash, it goes on with its first key.
    #[arg(long, value_name = "NAME", requires = "journal")]
    operation: Option<String>,
    /// The file in which operations are written down before they are sent. It is made if it is missing.
    #[arg(long, value_name = "FILE", requires = "operation")]
    journal: Option<PathBuf>,
    /// What kind of work it is: how often, how long and how soon it is repeated.
    #[arg(long, default_value = "user-facing", value_parser = class())]
    class: Class,
    /// Repeat it at most so often.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=100))]
    retries: Option<u32>,
    /// The time for all attempts and the waits between them: 500ms, 10s, 5m.
    #[arg(long, value_name = "DURATION", value_parser = given::duration)]
    within: Option<Duration>,
    /// The time for each attempt, after which it is given up and repeated. By default that of the class.
    #[arg(long, value_name = "DURATION", value_parser = given::duration)]
    attempt: Option<Duration>,
    /// If it ends as unknown, ask this URL what was done for the key: 2xx it happened, 404 it did not and will not.
    /// A 404 is asked for again, and believed if it is still one 2 s after the last attempt.
    #[arg(long, value_name = "URL", value_parser = given::url)]
    ask: Option<String>,
    /// Trust the certificate authorities in this PEM file, and no others.
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// Write the body of the answer to this file instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print the attempts as CSV instead, as they end. The answer only goes to --output then.
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Print the outcome, the attempts and the answer as JSON.
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) async fn run(self) -> Ended {
        match self.carry_out().await {
            Ok(code) => Ok(code),
            Err(Refused::Failed(why) | Refused::Usage(why)) => {
                say(format_args!("exactly: {why}"));
                Ok(ExitCode::from(2))
            }
        }
    }

    async fn carry_out(mut self) -> Result<ExitCode, Refused> {
        // Whatever can be wrong on this side is found before anything is sent.
        let output = self.output.as_ref().map(open_output).transpose()?;
        let client = self.client()?;
        let client = match &self.journal {
            None => client,
            Some(path) => match SqliteJournal::open(path).await {
                Ok(journal) => client.journal(Arc::new(journal)),
                Err(error) => return Ok(self.unsent(&error)),
            },
        };
        let client = match client.build() {
            Ok(client) => client,
            Err(error) => return Ok(self.unsent(&error)),
        };
        let call = self.request(&client)?;
        let interrupted = interruption();
        let log = Arc::new(Log::start(self.form(), self.known_key(), self.operation.as_deref()));
        let noted = Arc::clone(&log);
        let call = call.on_attempt(move |attempt, wait| noted.note(attempt, wait));
        let told = tokio::select! {
            outcome = finish(call, self.ask.as_deref()) => judged(&outcome)?,
            () = interrupted => Told::interrupted(&log, self.known_key(), self.may_have_run()),
        };
        Ok(told.show(&self, output))
    }

    fn client(&self) -> Result<exactly::client::ClientBuilder, Refused> {
        let client = Client::builder().class(self.class).key_header(self.key_header.clone());
        let Some(path) = &self.cacert else { return Ok(client) };
        let usage = |why: String| Refused::Usage(format!("--cacert {}: {why}", path.display()));
        let pem = std::fs::read(path).map_err(|error| usage(error.to_string()))?;
        client.authorities(&pem).map_err(|error| usage(chain(&error)))
    }

    /// The request with everything that it carries. A key is made here, so that it is known whatever comes.
    fn request(&mut self, client: &Client) -> Result<RequestBuilder, Refused> {
        for path in &self.header_file {
            self.header.extend(given::headers(path)?);
        }
        let keys = self.header.iter().filter(|(name, _)| *name == self.key_header).count();
        if keys + usize::from(self.key.is_some() || self.resume.is_some()) > 1 {
            return Err(Refused::Usage(
                "there is more than one key for one operation".to_owned(),
            ));
        }
        if keys == 0 && self.key.is_none() && self.journal.is_none() && !is_safe(&self.method) {
            self.key = Some(fresh_key().as_str().to_owned());
        }
        let mut call = client.request(self.method.clone(), &self.url);
        for (name, value) in &self.header {
            call = call.header(name, value);
        }
        if !self.gives(&header::USER_AGENT) {
            call = call.header(header::USER_AGENT, USER_AGENT);
        }
        if let Some(body) = given::body(self.data.as_deref(), self.data_json.as_deref())? {
            if self.data_json.is_some() && !self.gives(&header::CONTENT_TYPE) {
                call = call.header(header::CONTENT_TYPE, "application/json");
            }
            call = call.body(body);
        }
        call = match (&self.key, &self.resume) {
            (_, Some(key)) => call.resume(key.as_str()),
            (Some(key), None) => call.key(key.as_str()),
            (None, None) => call,
        };
        if let Some(operation) = &self.operation {
            call = call.operation(operation);
        }
        if let Some(retries) = self.retries {
            call = call.retries(retries);
        }
        if let Some(within) = self.within {
            call = call.within(within);
        }
        if let Some(attempt) = self.attempt {
            call = call.attempt_within(attempt);
        }
        Ok(call)
    }

    /// Whether somebody gave a header of this name.
    fn gives(&self, name: &HeaderName) -> bool {
        self.header.iter().any(|(given, _)| given == name)
    }

    /// The key, unless the journal has another one.
    fn known_key(&self) -> Option<&str> {
        let given = self.resume.as_deref().or(self.key.as_deref());
        let sent = || {
            let (_, value) = self.header.iter().find(|(name, _)| *name == self.key_header)?;
            value.to_str().ok()
        };
        given.or_else(sent).filter(|_| self.journal.is_none())
    }

    fn form(&self) -> Form {
        if self.csv { Form::Csv } else { Form::Lines }
    }

    /// Whether an earlier run may have sent it.
    fn may_have_run(&self) -> bool {
        self.resume.is_some() || self.journal.is_some()
    }

    /// This run cannot send it.
    fn unsent(&self, error: &(dyn Error + 'static)) -> ExitCode {
        let why = format!("nothing was sent: {}", chain(error));
        Told::unsent(self.known_key(), self.may_have_run(), why).show(self, None)
    }
}

/// Says something on standard error. That nobody hears it is no reason to stop a call half way.
fn say(line: impl Display) {
    let _ = writeln!(stderr().lock(), "{line}");
}

/// Carries it out, and asks if that did not tell.
async fn finish(call: RequestBuilder, ask: Option<&str>) -> Outcome {
    match (call.send().await, ask) {
        (Outcome::Unknown(unknown), Some(url)) => unknown.ask(url).await,
        (outcome, _) => outcome,
    }
}

/// What an outcome means here. A mistake is one whether or not an earlier run sent something without it.
fn judged(outcome: &Outcome) -> Result<Told, Refused> {
    let error = match outcome {
        Outcome::Applied(_) => None,
        Outcome::NotApplied(not) => not.error(),
        Outcome::Unknown(unknown) => unknown.error(),
    };
    match error {
        Some(error) if error.kind() == ErrorKind::Invalid && outcome.account().attempts().is_empty() => {
            Err(Refused::Usage(chain(error)))
        }
        _ => Ok(Told::of(outcome)),
    }
}

/// Somebody wants it to stop. Signals are heard from now on, not only once this is waited for: the key is told before the
/// first attempt, and whoever reads it may be quick.
#[cfg(unix)]
fn interruption() -> impl Future<Output = ()> {
    use tokio::signal::unix::{Signal, SignalKind, signal};

    async fn come(signal: &mut Option<Signal>) {
        match signal {
            Some(signal) => _ = signal.recv().await,
            None => std::future::pending().await,
        }
    }

    let mut interrupt = signal(SignalKind::interrupt()).ok();
    let mut terminate = signal(SignalKind::terminate()).ok();
    async move {
        tokio::select! {
            () = come(&mut interrupt) => {}
            () = come(&mut terminate) => {}
        }
    }
}

/// Somebody wants it to stop.
#[cfg(not(unix))]
async fn interruption() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}

/// Opens the file for the answer and leaves what is in it, should no answer come.
fn open_output(path: &PathBuf) -> Result<File, Refused> {
    let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
    opened.map_err(|error| Refused::Usage(format!("--output {}: {error}", path.display())))
}

fn class() -> impl clap::builder::TypedValueParser<Value = Class> {
    let names = PossibleValuesParser::new(Class::ALL.map(Class::as_str));
    names.try_map(|name| {
        Class::ALL
            .into_iter()
            .find(|class| class.as_str() == name)
            .ok_or("no such class")
    })
}
