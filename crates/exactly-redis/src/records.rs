//! The transitions of a record, each one script and one round trip.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use exactly::clock::millis;
use exactly::store::Wakeups;
use exactly::store::record::LOST_KEEP;
use exactly::{
    Attempt, Call, CallId, Claim, Fenced, Keep, LEASE_DEFAULT, OnLost, Replay, StoreError, StoreErrorKind, Token,
    Verdict,
};
use redis::ScriptInvocation;
use tokio::sync::{Mutex, Semaphore};
use tokio::time;

use crate::connection::{Connection, Connections};
use crate::error::{self, Fault};
use crate::script::Scripts;

/// How long a claim is given back on the connection that it was begun on, before another one is tried.
const GIVE_BACK_IN_ORDER: Duration = LEASE_DEFAULT;

/// How long a claim is given back in all: longer than restarts and failovers take. It is worth more than a lease, for
/// after that the call may be in doubt, and a person would be asked about an effect that nobody began.
const GIVE_BACK_PATIENCE: Duration = Duration::from_mins(15);

/// Between two tries. Only one claim is tried at a time, so this is also how often a server that is down is asked.
const GIVE_BACK_PAUSE: Duration = Duration::from_millis(500);

/// The most claims that are given back at once, which bounds the memory that an outage takes.
const GIVE_BACKS_MAX: usize = 16 * 1024;

/// Where records are and how they change.
pub(crate) struct Records {
    pub(crate) connections: Connections,
    prefix: String,
    pub(crate) scripts: Scripts,
    give_backs: Semaphore,
    // Held across tries, so that those who wait for the server do not all ask it.
    give_back_turn: Mutex<()>,
}

/// What `begin.lua` and `peek.lua` say: a word, a number (-1 for none) and bytes.
type Judgement = (String, i64, Bytes);

impl Records {
    pub(crate) fn new(connections: Connections, prefix: String) -> Self {
        Self {
            connections,
            prefix,
            scripts: Scripts::new(),
            give_backs: Semaphore::new(GIVE_BACKS_MAX),
            give_back_turn: Mutex::default(),
        }
    }

    /// A record's key in Redis. Each id falls into a cluster slot of its own, since the prefix has no braces.
    pub(crate) fn name(&self, id: &CallId) -> String {
        format!("{}:{id}", self.prefix)
    }

    /// Where settled records are announced.
    pub(crate) fn channel(&self) -> String {
        format!("{}:settled", self.prefix)
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Claims the call in the name of `begun_by`. A connection in `used` means that the request went out on it, whatever
    /// became of it.
    pub(crate) async fn begin(
        &self,
        call: &Call,
        begun_by: &Token,
        used: &mut Option<Connection>,
    ) -> Result<Verdict, StoreError> {
        const WHAT: &str = "begin record";
        let mut request = self.scripts.begin.key(self.name(call.id()));
        request
            .arg(call.fingerprint().as_bytes())
            .arg(call.token().as_bytes())
            .arg(millis(call.lease()));
        request.arg(match call.on_lost() {
            OnLost::Doubt => "doubt",
            OnLost::Rerun => "rerun",
        });
        request.arg(millis(LOST_KEEP)).arg(begun_by.as_bytes());
        request.arg(call.scope().operation()).arg(call.key().as_str());
        if let Some(principal) = call.scope().principal() {
            request.arg(principal);
        }
        let judgement = self.connections.run_and_tell(WHAT, &request, used).await?;
        verdict(WHAT, call, judgement)
    }

    pub(crate) async fn peek(&self, call: &Call) -> Result<Option<Verdict>, StoreError> {
        const WHAT: &str = "peek at record";
        let mut request = self.scripts.peek.key(self.name(call.id()));
        request.arg(call.fingerprint().as_bytes()).arg(call.token().as_bytes());
        let judgement = self.connections.run(WHAT, &request).await?;
        Ok(match verdict(WHAT, call, judgement)? {
            Verdict::Run(_) => None,
            verdict => Some(verdict),
        })
    }

    pub(crate) async fn renew(&self, claim: &Claim, lease: Duration) -> Result<Fenced, StoreError> {
        self.write("renew record", &self.lease(claim, lease)).await
    }

    pub(crate) async fn lose(&self, claim: &Claim) -> Result<Fenced, StoreError> {
        let mut request = self.lease(claim, Duration::ZERO);
        self.announce(&mut request, &claim.id);
        self.write("lose record", &request).await
    }

    pub(crate) async fn complete(&self, claim: &Claim, outcome: &Bytes, keep: Keep) -> Result<Fenced, StoreError> {
        let mut request = self.scripts.complete.key(self.name(&claim.id));
        request.arg(claim.token.as_bytes()).arg(outcome.as_ref());
        match keep {
            Keep::For(duration) => request.arg(millis(duration)),
            Keep::Forever => request.arg("forever"),
        };
        self.announce(&mut request, &claim.id);
        self.write("complete record", &request).await
    }

    pub(crate) async fn abandon(&self, claim: &Claim) -> Result<Fenced, StoreError> {
        self.write("abandon record", &self.removal(&claim.id, &claim.token))
            .await
    }

    pub(crate) async fn forget(&self, claim: &Claim) -> Result<Fenced, StoreError> {
        let mut request = self.scripts.forget.key(self.name(&claim.id));
        request.arg(claim.token.as_bytes());
        self.announce(&mut request, &claim.id);
        self.write("forget record", &request).await
    }

    /// Frees what the begin in the name of `begun_by` claimed, if it claimed anything and nobody else relies on it. Waits
    /// for a server that cannot be reached.
    pub(crate) async fn give_back(
        &self,
        call: &Call,
        begun_by: &Token,
        used: Option<Connection>,
    ) -> Result<(), StoreError> {
        const WHAT: &str = "give back record";
        let unavailable = |why| StoreError::new(StoreErrorKind::Unavailable, format!("{WHAT}: {why}"));
        let Ok(_place) = self.give_backs.try_acquire() else {
            return Err(unavailable(format!("{GIVE_BACKS_MAX} others wait for that")));
        };
        let mut request = self.removal(call.id(), &call.token());
        request.arg(begun_by.as_bytes());
        let given_back = async {
            if let Some(connection) = used {
                // On that connection it stays behind the begin, however late the server gets to read either.
                let given_back = time::timeout(GIVE_BACK_IN_ORDER, connection.send::<i64>(&request)).await;
                if matches!(given_back, Ok(Ok(_))) {
                    return Ok(());
                }
            }
            let _turn = self.give_back_turn.lock().await;
            loop {
                match self.write(WHAT, &request).await {
                    Err(error) if error::may_pass(error.kind()) => time::sleep(GIVE_BACK_PAUSE).await,
                    given_back => return given_back.map(|_| ()),
                }
            }
        };
        let in_time = time::timeout(GIVE_BACK_PATIENCE, given_back).await;
        in_time.unwrap_or_else(|_| Err(unavailable(format!("not done within {GIVE_BACK_PATIENCE:?}"))))
    }

    fn lease(&self, claim: &Claim, lease: Duration) -> ScriptInvocation<'_> {
        let mut request = self.scripts.renew.key(self.name(&claim.id));
        request
            .arg(claim.token.as_bytes())
            .arg(millis(lease))
            .arg(millis(LOST_KEEP));
        request
    }

    fn removal(&self, id: &CallId, token: &Token) -> ScriptInvocation<'_> {
        let mut request = self.scripts.abandon.key(self.name(id));
        request.arg(token.as_bytes());
        self.announce(&mut request, id);
        request
    }

    fn announce(&self, request: &mut ScriptInvocation<'_>, id: &CallId) {
        request.arg(self.channel()).arg(&Wakeups::hint(id));
    }

    async fn write(&self, what: &str, request: &ScriptInvocation<'_>) -> Result<Fenced, StoreError> {
        let applied: i64 = self.connections.run(what, request).await?;
        Ok(if applied == 1 {
            Fenced::Applied
        } else {
            Fenced::Superseded
        })
    }
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the scripts, which would be shown with all their text.
        f.debug_struct("Records")
            .field("connections", &self.connections)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

fn verdict(what: &str, call: &Call, (word, number, bytes): Judgement) -> Result<Verdict, StoreError> {
    let unreadable = || Fault::corrupt(what, "not a verdict").error;
    let duration = u64::try_from(number).ok().map(Duration::from_millis);
    let attempt = || u32::try_from(number).ok().and_then(Attempt::new).ok_or_else(unreadable);
    Ok(match word.as_str() {
        "claim" => Verdict::Run(call.claim(attempt()?)),
        "replay" => Verdict::Replay(Replay {
            outcome: bytes,
            expires_in: duration,
        }),
        "in-flight" => Verdict::InFlight {
            retry_after: duration.ok_or_else(unreadable)?,
        },
        "mismatch" => Verdict::Mismatch { expires_in: duration },
        "in-doubt" => {
            let token = <[u8; 16]>::try_from(&*bytes).map_err(|_| unreadable())?;
            Verdict::InDoubt(Claim {
                id: *call.id(),
                token: Token::from_bytes(token),
                attempt: attempt()?,
            })
        }
        _ => return Err(unreadable()),
    })
}
