//! Tests, checks and measurements of the workspace: `cargo xtask help`.
//!
//! Only the standard library is used, so that a clean clone gets from `cargo xtask` to its first
//! check in seconds.
#![expect(
    clippy::disallowed_methods,
    reason = "a build tool measures real time and waits for real servers; no runtime thread is blocked"
)]

mod alerts;
mod ci;
mod debian;
mod measure;
mod openapi;
mod process;
mod servers;
mod suite;
mod tally;
mod tidy;
mod tools;
mod typescript;
mod webhooks;

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// What went wrong, in the words shown to whoever called.
type Result<T = (), E = String> = std::result::Result<T, E>;

const EXIT_USAGE: u8 = 2;

/// Why a command did not pass, as scripts can tell by the exit code.
enum Failure {
    Failed(String),
    /// It was said already.
    Told,
    Usage(String),
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self::Failed(message)
    }
}

struct Command {
    name: &'static str,
    arguments: &'static str,
    about: &'static str,
    run: fn(&[OsString]) -> Result<(), Failure>,
}

const COMMANDS: &[Command] = &[
    Command {
        name: "test",
        arguments: "[-- NEXTEST ARGS]",
        about: "every test, on private PostgreSQL and Redis servers; with arguments, without doctests and TypeScript",
        run: suite::command,
    },
    Command {
        name: "ci",
        arguments: "[STEP…]",
        about: "the whole gate, or only the named steps of it",
        run: ci::command,
    },
    Command {
        name: "tidy",
        arguments: "",
        about: "the shape of the tree: names, sizes, where SQL and clocks may live, links, guarantees",
        run: tidy::command,
    },
    Command {
        name: "bench",
        arguments: "ARGS",
        about: "exactly-bench, in release, on the same private servers",
        run: measure::bench,
    },
    Command {
        name: "crash",
        arguments: "[ARGS]",
        about: "exactly-crash, in release, on the same private servers",
        run: measure::crash,
    },
];

fn main() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let Some((name, rest)) = arguments.split_first() else {
        eprint!("{}", help());
        return ExitCode::from(EXIT_USAGE);
    };
    let name = name.to_string_lossy();
    if ["help", "--help", "-h"].contains(&&*name) {
        print!("{}", help());
        return ExitCode::SUCCESS;
    }
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        let known: Vec<&str> = COMMANDS.iter().map(|command| command.name).collect();
        eprintln!("xtask: unknown command `{name}`: expected {} or help", known.join(", "));
        return ExitCode::from(EXIT_USAGE);
    };
    match (command.run)(rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Failed(message)) => {
            eprintln!("xtask {name}: {message}");
            ExitCode::FAILURE
        }
        Err(Failure::Told) => ExitCode::FAILURE,
        Err(Failure::Usage(message)) => {
            eprintln!("xtask {name}: {message}");
            ExitCode::from(EXIT_USAGE)
        }
    }
}

fn help() -> String {
    use std::fmt::Write as _;

    let mut text = String::from("usage: cargo xtask COMMAND\n\n");
    for command in COMMANDS {
        let call = format!("{} {}", command.name, command.arguments);
        writeln!(text, "  {call:<24}{}", command.about).expect("a string takes every write");
    }
    write!(
        text,
        "\nThe servers come from PATH or /usr/lib/postgresql; on Debian, missing ones are installed.\n\
         {} and {} name running ones to use instead.\n\
         Exit code: 0 passed, 1 failed, {EXIT_USAGE} wrong command line.\n",
        servers::POSTGRES_URL,
        servers::REDIS_URL
    )
    .expect("a string takes every write");
    text
}

/// The workspace that is asked about, even when the binary was built in another clone that shares
/// the target folder.
fn root() -> PathBuf {
    let manifest =
        env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest
        .parent()
        .expect("xtask lies inside the workspace")
        .to_path_buf()
}

/// The arguments behind an optional `--`.
fn forwarded(arguments: &[OsString]) -> &[OsString] {
    match arguments.split_first() {
        Some((first, rest)) if first == "--" => rest,
        _ => arguments,
    }
}
