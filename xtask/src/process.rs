//! Programs run in the foreground, and where to find them.

use std::env;
use std::ffi::OsStr;
use std::io::{self, BufRead as _, BufReader, IsTerminal as _, Read, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::Result;
use crate::tally::Tally;

/// The cargo that started us, in the workspace's root.
pub(crate) fn cargo() -> Command {
    let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(crate::root());
    command
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    let named = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    crate::root().join(named.unwrap_or_else(|| "target".into()))
}

/// Makes sure that `cargo COMMAND` can be run.
pub(crate) fn install_if_missing(command: &str) -> Result {
    if capture(cargo().args([command, "--version"])).is_ok() {
        return Ok(());
    }
    let name = format!("cargo-{command}");
    eprintln!("{name} is missing: installing it, which takes minutes");
    run(cargo().args(["install", &name, "--locked"]))
}

/// Runs a program with our terminal. It is asked to stop when we die first.
pub(crate) fn run(command: &mut Command) -> Result {
    let shown = shown(command);
    let mut running = Background::start(command)?;
    running.ended(&shown)
}

/// Where a program that runs tests tells how they ended.
#[derive(Clone, Copy)]
pub(crate) enum Told {
    Out,
    Err,
}

impl Told {
    /// Whether somebody sees it, and colours with it.
    pub(crate) fn is_seen(self) -> bool {
        match self {
            Self::Out => io::stdout().is_terminal(),
            Self::Err => io::stderr().is_terminal(),
        }
    }
}

/// Runs a program with our terminal, and adds to `tally` what its lines say, each of which is passed on as it comes. They
/// count however it ends.
pub(crate) fn run_counting(
    command: &mut Command,
    told: Told,
    count: fn(&str) -> Option<Tally>,
    tally: &mut Tally,
) -> Result {
    let shown = shown(command);
    match told {
        Told::Out => command.stdout(Stdio::piped()),
        Told::Err => command.stderr(Stdio::piped()),
    };
    let mut running = Background::start(command)?;
    let (lines, mut ours): (Option<Box<dyn Read>>, Box<dyn Write>) = match told {
        Told::Out => (
            running.child.stdout.take().map(|pipe| Box::new(pipe) as _),
            Box::new(io::stdout()),
        ),
        Told::Err => (
            running.child.stderr.take().map(|pipe| Box::new(pipe) as _),
            Box::new(io::stderr()),
        ),
    };
    let mut lines = BufReader::new(lines.expect("it was started with a pipe"));
    let mut line = Vec::new();
    while lines
        .read_until(b'\n', &mut line)
        .map_err(|error| format!("read from `{shown}`: {error}"))?
        > 0
    {
        // Whoever no longer looks does not change what is counted.
        let _ = ours.write_all(&line).and_then(|()| ours.flush());
        if let Some(counted) = count(&String::from_utf8_lossy(&line)) {
            *tally += counted;
        }
        line.clear();
    }
    running.ended(&shown)
}

/// A program that runs beside us until this is dropped, or until we die.
pub(crate) struct Background {
    child: Child,
    leash: Option<Leash>,
}

impl Background {
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let shown = shown(command);
        let mut child = command.spawn().map_err(|error| format!("`{shown}`: {error}"))?;
        match Leash::tie(child.id()) {
            Ok(leash) => Ok(Self {
                child,
                leash: Some(leash),
            }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Waits for its end.
    fn ended(&mut self, shown: &str) -> Result {
        let status = self.child.wait().map_err(|error| format!("`{shown}`: {error}"))?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("`{shown}` failed: {status}"))
        }
    }

    /// What it says, if it was started with a pipe for that.
    pub(crate) fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // One that has ended by itself is no worse.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(leash) = self.leash.take() {
            leash.release();
        }
    }
}

/// Runs a program unseen and returns its standard output; on failure, what it said is the error.
pub(crate) fn capture(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("`{}`: {error}", shown(command)))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let said = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
    Err(format!(
        "`{}` failed: {}\n{}",
        shown(command),
        output.status,
        said.trim_end()
    ))
}

/// The first program of that name in `PATH`.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(|candidate| is_program(candidate))
}

pub(crate) fn is_program(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// A command as one would type it.
fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or(command.get_program());
    let words: Vec<_> = std::iter::once(program)
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect();
    words.join(" ")
}

/// Ends a child that outlives us. The standard library cannot catch a signal, and nothing can
/// catch SIGKILL, so a shell waits on a pipe that the kernel closes when we are gone.
struct Leash {
    shell: Child,
}

impl Leash {
    fn tie(child: u32) -> Result<Self> {
        let shell = Command::new("sh")
            .args(["-c", "read -r _ || kill -s TERM \"$1\"", "leash"])
            .arg(child.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C reaches the whole group of the terminal; the shell must survive it.
            .process_group(0)
            .spawn()
            .map_err(|error| format!("start sh: {error}"))?;
        Ok(Self { shell })
    }

    /// The child has ended, and its number may soon belong to another process.
    fn release(mut self) {
        if let Some(mut pipe) = self.shell.stdin.take() {
            // A shell that somebody ended no longer needs to be told.
            let _ = pipe.write_all(b"\n");
        }
        let _ = self.shell.wait();
    }
}
