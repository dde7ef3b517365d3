//! The scripts, put together from the parts that they share.

use redis::{Pipeline, Script};

macro_rules! script {
    ($($part:literal),+) => { concat!($(include_str!(concat!("script/", $part, ".lua"))),+) };
}

const BEGIN: &str = script!("record", "judge", "lease", "begin");
const PEEK: &str = script!("record", "judge", "peek");
const RENEW: &str = script!("record", "lease", "renew");
const COMPLETE: &str = script!("record", "complete");
const ABANDON: &str = script!("record", "abandon");
const FORGET: &str = script!("record", "forget");
const NOTE: &str = script!("record", "note");

/// One per transition and one for the trail, called by their hashes. Losing a claim is a renewal for no time, and giving one back is an
/// abandonment with one more condition.
pub(crate) struct Scripts {
    pub(crate) begin: Script,
    pub(crate) peek: Script,
    pub(crate) renew: Script,
    pub(crate) complete: Script,
    pub(crate) abandon: Script,
    pub(crate) forget: Script,
    pub(crate) note: Script,
}

impl Scripts {
    pub(crate) fn new() -> Self {
        Self {
            begin: Script::new(BEGIN),
            peek: Script::new(PEEK),
            renew: Script::new(RENEW),
            complete: Script::new(COMPLETE),
            abandon: Script::new(ABANDON),
            forget: Script::new(FORGET),
            note: Script::new(NOTE),
        }
    }
}

/// Brings the scripts to a server, so that each is known by its hash when it is first needed. A server that forgot one,
/// because it was told to, is sent it again with the step that misses it.
pub(crate) fn load() -> Pipeline {
    let mut load = redis::pipe();
    for script in [BEGIN, PEEK, RENEW, COMPLETE, ABANDON, FORGET, NOTE] {
        load.cmd("SCRIPT").arg("LOAD").arg(script).ignore();
    }
    load
}
