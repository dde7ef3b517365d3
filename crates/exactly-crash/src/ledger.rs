//! The file that effects outside of any database are written to.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use exactly::CallId;

use crate::failure::{Failure, Result, failed};
use crate::history::{Effect, Ledger};

/// The writing end, in a victim.
///
/// Every line is one write to a file opened for appending: a process that dies leaves a line or none, and two processes
/// do not mix theirs.
#[derive(Debug)]
pub(crate) struct LedgerFile(File);

impl LedgerFile {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(path);
        file.map(Self).map_err(failed("open ledger"))
    }

    /// The handler was started.
    pub(crate) fn start(&self, key: &str, nonce: &str) -> io::Result<()> {
        self.write(&format!("start {key} {nonce} 0\n"))
    }

    /// The handler says that nothing happened.
    pub(crate) fn free(&self, key: &str, nonce: &str) -> io::Result<()> {
        self.write(&format!("free {key} {nonce} 0\n"))
    }

    /// The effect itself, on disk when this returns.
    pub(crate) fn effect(&self, key: &str, nonce: &str, amount: u32) -> io::Result<()> {
        self.write(&format!("effect {key} {nonce} {amount}\n"))?;
        self.0.sync_data()
    }

    /// The store refused an outcome because its claim owned the record no longer.
    pub(crate) fn fence(&self, call: &CallId) -> io::Result<()> {
        self.write(&format!("fence {call} - 0\n"))
    }

    fn write(&self, line: &str) -> io::Result<()> {
        // Not `write_all`, which would go on with a second write.
        let written = (&self.0).write(line.as_bytes())?;
        if written < line.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        Ok(())
    }
}

/// Reads what victims wrote.
pub(crate) fn read(path: &Path) -> Result<Ledger> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        // Nobody got as far as an effect.
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(failed("read ledger")(error)),
    };
    let mut ledger = Ledger::default();
    for line in text.lines() {
        let torn = || Failure::new(format!("read ledger: not a line: {line:?}"));
        let fields: Vec<&str> = line.split(' ').collect();
        let [kind, key, nonce, amount] = fields[..] else {
            return Err(torn());
        };
        match kind {
            "start" => *ledger.starts.entry(key.to_owned()).or_default() += 1,
            "free" => *ledger.frees.entry(key.to_owned()).or_default() += 1,
            "fence" => ledger.fences += 1,
            "effect" => ledger.effects.push(Effect {
                key: key.to_owned(),
                nonce: nonce.to_owned(),
                amount: amount.parse().map_err(|_| torn())?,
            }),
            _ => return Err(torn()),
        }
    }
    Ok(ledger)
}
