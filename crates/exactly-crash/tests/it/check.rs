use std::collections::BTreeMap;

use Guarantee::{AtMostOnce, Transactional};
use exactly_crash::check::{Counts, Fault, check};
use exactly_crash::history::{
    Answer, Effect, Exchange, Guarantee, History, KeyHistory, Ledger, Said, Settlement, Wish,
};

const KEY: &str = "k";
const AMOUNT: u32 = 7;

/// One key's story, told in the order in which it happened.
struct Story {
    guarantee: Guarantee,
    now: u64,
    seen: KeyHistory,
    ledger: Ledger,
}

fn story(guarantee: Guarantee) -> Story {
    let wish = Wish {
        amount: AMOUNT,
        declined: false,
    };
    let seen = KeyHistory {
        wish,
        exchanges: Vec::new(),
        settlements: Vec::new(),
    };
    Story {
        guarantee,
        now: 0,
        seen,
        ledger: Ledger::default(),
    }
}

impl Story {
    /// The customer asks, and is told this before anything else happens.
    fn told(mut self, said: Said) -> Self {
        let sent = self.tick();
        self.exchange(sent, false, said)
    }

    /// The same for a request that had been under way since `sent`.
    fn told_late(self, sent: u64, said: Said) -> Self {
        self.exchange(sent, false, said)
    }

    /// Somebody asks for something else under the same key.
    fn tampered(mut self, said: Said) -> Self {
        let sent = self.tick();
        self.exchange(sent, true, said)
    }

    fn declined(mut self) -> Self {
        self.seen.wish.declined = true;
        self
    }

    fn effect(self, nonce: &str) -> Self {
        self.effect_of(KEY, nonce, AMOUNT)
    }

    fn effect_of(mut self, key: &str, nonce: &str, amount: u32) -> Self {
        self.ledger.effects.push(Effect {
            key: key.to_owned(),
            nonce: nonce.to_owned(),
            amount,
        });
        self
    }

    fn starts(mut self, times: u32) -> Self {
        self.ledger.starts.insert(KEY.to_owned(), times);
        self
    }

    fn frees(mut self, times: u32) -> Self {
        self.ledger.frees.insert(KEY.to_owned(), times);
        self
    }

    fn settled(mut self, settlement: Settlement) -> Self {
        self.seen.settlements.push(settlement);
        self
    }

    fn exchange(mut self, sent: u64, tampered: bool, said: Said) -> Self {
        let received = self.tick();
        self.seen.exchanges.push(Exchange {
            sent,
            received,
            tampered,
            said,
        });
        self
    }

    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    fn check(self) -> (Vec<Fault>, Counts) {
        let history = History {
            keys: BTreeMap::from([(KEY.to_owned(), self.seen)]),
        };
        let findings = check(self.guarantee, &history, &self.ledger);
        let faults = findings.violations.into_iter().map(|violation| violation.fault);
        (faults.collect(), findings.counts)
    }

    #[track_caller]
    fn expect_fine(self) -> Counts {
        let (faults, counts) = self.check();
        assert_eq!(faults, []);
        counts
    }

    #[track_caller]
    fn expect_faults(self, expected: &[Fault]) -> Counts {
        let (faults, counts) = self.check();
        assert_eq!(faults, expected);
        counts
    }
}

fn answer(nonce: &str, replayed: bool) -> Said {
    Said::Done(Answer {
        status: 201,
        body: format!("nonce {nonce}").into(),
        nonce: nonce.to_owned(),
        replayed,
    })
}

fn stored(nonce: &str) -> Said {
    answer(nonce, false)
}

fn replayed(nonce: &str) -> Said {
    answer(nonce, true)
}

#[test]
fn one_effect_that_every_answer_tells_of_expect_fine() {
    for guarantee in [Transactional, AtMostOnce] {
        let story = story(guarantee).effect("a").starts(1);
        let counts = story
            .told(Said::Lost)
            .told(stored("a"))
            .told(replayed("a"))
            .expect_fine();
        let expected = Counts {
            keys: 1,
            requests: 3,
            replays: 1,
            acknowledged: 1,
            effects: 1,
            ..Counts::default()
        };
        assert_eq!(counts, expected);
    }
}

#[test]
fn what_went_wrong_on_the_way_does_not_matter() {
    let story = story(Transactional).effect("b");
    let story = story.told(Said::Lost).told(Said::Freed).told(Said::InProgress);
    story
        .told(Said::Unavailable)
        .told(stored("b"))
        .told(Said::Lost)
        .expect_fine();
}

#[test]
fn a_second_effect_is_found_whatever_was_answered() {
    for guarantee in [Transactional, AtMostOnce] {
        let twice = || story(guarantee).effect("a").effect("b").starts(1);
        let counts = twice().told(stored("a")).expect_faults(&[Fault::Duplicate(2)]);
        assert_eq!(counts.duplicates, 1);
    }
    let story = story(AtMostOnce).effect("a").effect("b").starts(1);
    story.told(Said::InDoubt(None)).expect_faults(&[Fault::Duplicate(2)]);
}

#[test]
fn an_acknowledged_effect_that_is_not_there_is_lost() {
    for guarantee in [Transactional, AtMostOnce] {
        let counts = story(guarantee).told(stored("a")).expect_faults(&[Fault::Lost]);
        assert_eq!(counts.lost, 1);
    }
}

#[test]
fn an_answer_of_another_execution_is_found() {
    story(Transactional)
        .effect("b")
        .told(stored("a"))
        .expect_faults(&[Fault::OtherExecution]);
}

#[test]
fn two_final_answers_are_one_too_many() {
    let story = story(Transactional).effect("a");
    let story = story.told(stored("a")).told_late(1, stored("b"));
    story.expect_faults(&[Fault::AnswersDiffer]);
}

#[test]
fn a_replay_that_differs_in_one_byte_is_another_answer() {
    let other = Said::Done(Answer {
        status: 201,
        body: "nonce A".into(),
        nonce: "a".to_owned(),
        replayed: true,
    });
    let story = story(Transactional).effect("a").told(stored("a"));
    story.told(other).expect_faults(&[Fault::AnswersDiffer]);
}

#[test]
fn an_effect_that_was_declined_or_never_asked_for_is_found() {
    let refusal = || story(Transactional).declined().told(stored("a"));
    refusal().expect_fine();
    refusal().effect("a").expect_faults(&[Fault::NotWished]);
    let wrong_amount = story(Transactional).effect_of(KEY, "a", AMOUNT + 1);
    wrong_amount.told(stored("a")).expect_faults(&[Fault::NotWished]);
    let stranger = story(Transactional).effect("a").effect_of("other", "b", AMOUNT);
    stranger.told(stored("a")).expect_faults(&[Fault::NotWished]);
}

#[test]
fn once_answered_never_forgotten() {
    for said in [Said::InProgress, Said::Freed, Said::InDoubt(None)] {
        let answered = story(AtMostOnce).effect("a").starts(1).told(stored("a"));
        let story = answered.told(said.clone()).told(replayed("a"));
        story.expect_faults(&[Fault::Forgotten(said)]);
    }
}

#[test]
fn a_request_that_the_answer_overtook_may_have_been_told_otherwise() {
    let story = story(AtMostOnce).effect("a").starts(1).told(Said::Lost);
    story
        .told(stored("a"))
        .told_late(2, Said::InProgress)
        .told(replayed("a"))
        .expect_fine();
}

#[test]
fn the_first_answer_comes_once() {
    let story = story(Transactional).effect("a").told(stored("a"));
    story.told(stored("a")).expect_faults(&[Fault::AnsweredAnew]);
}

#[test]
fn a_tampered_request_must_be_refused_and_an_own_one_must_not() {
    let answered = || story(Transactional).effect("a").told(stored("a"));
    let counts = answered().tampered(Said::Mismatch).tampered(Said::Lost).expect_fine();
    assert_eq!(counts.refused, 1);
    let accepted = Fault::TamperedAccepted(replayed("a"));
    answered().tampered(replayed("a")).expect_faults(&[accepted]);
    let refused = answered().told(Said::Mismatch).told(replayed("a"));
    refused.expect_faults(&[Fault::OwnRefused]);
}

#[test]
fn doubt_is_an_answer_only_outside_of_transactions() {
    let doubted = |guarantee| story(guarantee).told(Said::InDoubt(None));
    for effects in 0..=1 {
        let story = if effects == 1 {
            doubted(AtMostOnce).effect("a")
        } else {
            doubted(AtMostOnce)
        };
        let counts = story.starts(1).expect_fine();
        assert_eq!((counts.in_doubt, counts.acknowledged), (1, 0));
    }
    doubted(Transactional).expect_faults(&[Fault::DoubtInTransaction, Fault::NoLastWord]);
}

#[test]
fn a_doubt_may_be_settled_by_its_late_owner() {
    let story = story(AtMostOnce).effect("a").starts(1);
    let counts = story.told(Said::InDoubt(None)).told(replayed("a")).expect_fine();
    assert_eq!((counts.doubted, counts.in_doubt, counts.settled_late), (1, 0, 1));
}

#[test]
fn a_doubt_must_not_be_run_again() {
    // The first execution died before its effect, so the ledger of effects alone would look fine.
    let rerun = Fault::Rerun { starts: 2, allowed: 1 };
    let again = || {
        story(AtMostOnce)
            .effect("b")
            .starts(2)
            .told(Said::InDoubt(None))
            .told(stored("b"))
    };
    again().expect_faults(&[rerun]);
    again().frees(1).expect_fine();
    again().settled(Settlement::DidNotHappen).expect_fine();
}

/// Somebody else's order is let in if the key was free, which the handler's own book says, and not because of a doubt.
#[test]
fn a_tampered_request_may_be_the_first_after_a_doubt_that_ended_with_nothing() {
    let let_in = || {
        let story = story(AtMostOnce).starts(2).told(Said::InDoubt(None));
        story.tampered(stored("b")).effect_of(KEY, "b", AMOUNT + 1000)
    };
    let refused = || let_in().told(Said::Mismatch);
    refused().frees(1).expect_fine();
    refused().expect_faults(&[
        Fault::NotWished,
        Fault::TamperedAccepted(stored("b")),
        Fault::OwnRefused,
        Fault::Rerun { starts: 2, allowed: 1 },
        Fault::NoLastWord,
    ]);
    // Twice is twice, whoever asked.
    let twice = refused().effect_of(KEY, "a", AMOUNT + 1000).frees(1);
    twice.expect_faults(&[Fault::Duplicate(2)]);
    // Its answer may be lost on the way.
    let story = story(AtMostOnce).starts(2).frees(1).told(Said::InDoubt(None));
    let lost = story.tampered(Said::Lost).effect_of(KEY, "b", AMOUNT + 1000);
    lost.told(Said::Mismatch).expect_fine();
}

#[test]
fn what_an_operator_settled_stays_settled() {
    let settled = || {
        let story = story(AtMostOnce).effect("a").starts(1).told(Said::InDoubt(None));
        story.settled(Settlement::Happened)
    };
    let counts = settled().told(Said::Settled).expect_fine();
    assert_eq!((counts.settled, counts.acknowledged, counts.in_doubt), (1, 1, 0));
    let overwritten = settled().told(replayed("a"));
    overwritten.expect_faults(&[Fault::SettlementOverwritten]);
}

#[test]
fn a_settlement_that_nobody_made_is_no_last_word() {
    let story = story(AtMostOnce).effect("a").starts(1).told(Said::InDoubt(None));
    story.told(Said::Settled).expect_faults(&[Fault::NoLastWord]);
}

#[test]
fn a_key_without_a_last_word_is_found() {
    for said in [Said::Lost, Said::InProgress, Said::Freed, Said::Unavailable] {
        story(Transactional).told(said).expect_faults(&[Fault::NoLastWord]);
    }
}

#[test]
fn an_answer_that_no_client_should_see_is_found() {
    let strange = "500".to_owned();
    let story = story(Transactional).effect("a").told(Said::Strange(strange.clone()));
    story.told(stored("a")).expect_faults(&[Fault::Strange(strange)]);
}
