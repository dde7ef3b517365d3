//! What an attempt at a job means for it, as a plain function.
//!
//! How far the exchange came decides first, then what the server says of itself, then the status. A job that may not be
//! repeated is held as soon as nobody knows whether it was carried out; any other is sent again with the same key, which is
//! what makes that safe.

use std::time::Duration;

use exactly::queue::FailureKind;
use exactly::retry::{Code, Ended, Fate, Heard};

/// What to do about a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It happened.
    Done,
    /// It may work later, but not before so long.
    Again(FailureKind, Duration),
    /// It would fail again.
    Bury,
    /// Nobody knows whether it happened, and it must not be sent again before somebody does.
    Hold,
}

/// Judges how an attempt ended. `in_time`: it did not end because its time was up.
pub(super) fn of(ended: &Ended, in_time: bool, repeatable: bool) -> Verdict {
    let failed = if in_time {
        FailureKind::Transient
    } else {
        FailureKind::Timeout
    };
    match ended {
        Ended::NotSent => Verdict::Again(failed, Duration::ZERO),
        Ended::Sent if repeatable => Verdict::Again(failed, Duration::ZERO),
        Ended::CutOff(heard) if repeatable => Verdict::Again(failed, heard.retry_after.unwrap_or_default()),
        Ended::Sent | Ended::CutOff(_) => Verdict::Hold,
        Ended::Answered(heard) => answered(heard, repeatable),
    }
}

fn answered(heard: &Heard, repeatable: bool) -> Verdict {
    let is_happened = matches!(heard.code, Some(Code::ProviderDuplicate | Code::ReplayUnavailable));
    if is_happened || (200..=299).contains(&heard.status) {
        return Verdict::Done;
    }
    // A server that has the outcome still on its way says that asking again tells.
    if heard.code == Some(Code::OutcomeUnknown) && heard.retryable != Some(true) {
        return Verdict::Hold;
    }
    let by_status = matches!(heard.status, 408 | 425 | 429 | 500..=599);
    let by_code = heard.code.map(|code| code.repeat() == exactly::retry::Repeat::Helps);
    let helps = heard.retryable.or(by_code).unwrap_or(by_status);
    match (helps, heard.fate()) {
        // A 500, or a gateway that does not know: with no leave to repeat it, only a person can go on.
        (_, Fate::Unknown) if !repeatable => Verdict::Hold,
        (true, _) => Verdict::Again(FailureKind::Transient, heard.retry_after.unwrap_or_default()),
        (false, _) => Verdict::Bury,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(seconds: u64) -> Verdict {
        Verdict::Again(FailureKind::Transient, Duration::from_secs(seconds))
    }

    fn coded(status: u16, code: &str) -> Heard {
        Heard {
            code: Code::of(code),
            ..Heard::status(status)
        }
    }

    #[test]
    fn an_answer_is_judged_by_what_it_says_and_then_by_its_status() {
        for (heard, judged) in [
            (Heard::status(200), Verdict::Done),
            (Heard::status(204), Verdict::Done),
            (Heard::status(302), Verdict::Bury),
            (Heard::status(303), Verdict::Bury),
            (Heard::status(307), Verdict::Bury),
            (Heard::status(400), Verdict::Bury),
            (Heard::status(404), Verdict::Bury),
            (Heard::status(409), Verdict::Bury),
            (Heard::status(422), Verdict::Bury),
            (Heard::status(408), again(0)),
            (Heard::status(425), again(0)),
            (Heard::status(429), again(0)),
            (Heard::status(500), again(0)),
            (Heard::status(501), again(0)),
            (Heard::status(503), again(0)),
            (Heard::status(599), again(0)),
            (coded(409, "OUTCOME.unknown"), Verdict::Hold),
            (coded(409, "CONFLICT.idempotency.in_progress"), again(0)),
            (coded(409, "CONFLICT.idempotency.payload_mismatch"), Verdict::Bury),
            (coded(409, "PROVIDER.duplicate"), Verdict::Done),
            (coded(409, "OUTCOME.replay_unavailable"), Verdict::Done),
        ] {
            assert_eq!(of(&Ended::Answered(heard.clone()), true, true), judged, "{heard:?}");
        }
    }

    #[test]
    fn the_servers_word_counts_more_than_its_status() {
        let said = |status, retryable| {
            let heard = Heard {
                retryable: Some(retryable),
                ..Heard::status(status)
            };
            of(&Ended::Answered(heard), true, true)
        };
        assert_eq!(said(500, false), Verdict::Bury);
        let on_its_way = Heard {
            retryable: Some(true),
            ..coded(409, "OUTCOME.unknown")
        };
        assert_eq!(of(&Ended::Answered(on_its_way.clone()), true, true), again(0));
        assert_eq!(of(&Ended::Answered(on_its_way), true, false), Verdict::Hold);
        assert_eq!(said(422, true), again(0));
    }

    #[test]
    fn nothing_is_tried_earlier_than_asked() {
        let heard = Heard {
            retry_after: Some(Duration::from_secs(700)),
            ..Heard::status(429)
        };
        assert_eq!(of(&Ended::Answered(heard), true, true), again(700));
    }

    #[test]
    fn what_was_cut_off_is_sent_again_unless_it_may_not_be() {
        let cut = [
            Ended::Sent,
            Ended::CutOff(Heard::status(200)),
            Ended::CutOff(Heard::status(500)),
        ];
        for ended in &cut {
            assert_eq!(of(ended, true, true), again(0), "{ended:?}");
            assert_eq!(of(ended, true, false), Verdict::Hold, "{ended:?}");
        }
        let late = Verdict::Again(FailureKind::Timeout, Duration::ZERO);
        assert_eq!(of(&Ended::Sent, false, true), late);
        // It did not leave, so there is nothing that anybody could not know.
        assert_eq!(of(&Ended::NotSent, true, false), again(0));
    }

    #[test]
    fn what_may_not_be_repeated_is_held_when_the_answer_leaves_it_open() {
        for (status, judged) in [
            (500, Verdict::Hold),
            (502, Verdict::Hold),
            (504, Verdict::Hold),
            (503, again(0)),
            (429, again(0)),
            (408, again(0)),
            (404, Verdict::Bury),
            (201, Verdict::Done),
        ] {
            let ended = Ended::Answered(Heard::status(status));
            assert_eq!(of(&ended, true, false), judged, "{status}");
        }
    }
}
