//! Those who order: impatiently, twice, and not always what they ordered before.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use futures_util::future::join;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::history::{Exchange, Said, Wish};
use crate::line::Line;
use crate::register::Register;

/// How long a customer waits for an answer before hanging up.
const PATIENCE: Duration = Duration::from_millis(600);

/// How long everybody waits once nobody is killed any more.
const CALM_PATIENCE: Duration = Duration::from_secs(15);

/// The most keys that one customer has open; then it waits for one of them.
const OPEN_MAX: usize = 8;

/// One in so many, each.
const DECLINED: u32 = 15;
const DOUBLE_CLICKED: u32 = 4;
const HUNG_UP: u32 = 15;
const REPEATED: u32 = 5;
const TAMPERED: u32 = 10;
const STUBBORN: u32 = 10;

/// Works through keys of its own.
#[derive(Debug)]
pub(crate) struct Customer {
    name: String,
    register: Arc<Register>,
    /// Two to every server, so that both halves of a double click can go to the same one.
    lines: [Vec<Line>; 2],
    rng: Rng,
    made: u32,
    /// Keys without a final answer.
    open: VecDeque<Errand>,
}

#[derive(Debug)]
struct Errand {
    key: String,
    wish: Wish,
    not_before: Instant,
}

impl Customer {
    pub(crate) fn new(name: String, register: Arc<Register>, ports: &[u16], rng: Rng) -> Self {
        let lines = || ports.iter().map(|port| Line::to(*port)).collect();
        Self {
            name,
            register,
            lines: [lines(), lines()],
            rng,
            made: 0,
            open: VecDeque::new(),
        }
    }

    /// Orders until it is told to stop.
    pub(crate) async fn shop(mut self, mut over: watch::Receiver<bool>) {
        while !*over.borrow_and_update() {
            let errand = self.next_errand().await;
            if let Some(said) = self.click(&errand).await {
                self.after_last_word(&errand, &said).await;
            } else {
                let pause = Duration::from_millis(self.rng.u64(10..150));
                self.open.push_back(Errand {
                    not_before: Instant::now() + pause,
                    ..errand
                });
            }
        }
    }

    async fn next_errand(&mut self) -> Errand {
        let now = Instant::now();
        let ripe = self.open.iter().position(|errand| errand.not_before <= now);
        if let Some(errand) = ripe.and_then(|index| self.open.remove(index)) {
            return errand;
        }
        if self.open.len() >= OPEN_MAX
            && let Some(errand) = self.open.pop_front()
        {
            tokio::time::sleep_until(errand.not_before).await;
            return errand;
        }
        self.made += 1;
        let key = format!("{}-{:04}", self.name, self.made);
        let wish = Wish {
            amount: self.rng.u32(1..1000),
            declined: self.one_in(DECLINED),
        };
        self.register.open(&key, wish);
        Errand {
            key,
            wish,
            not_before: now,
        }
    }

    /// Sends the order once or twice, and returns the last word if there is one.
    async fn click(&mut self, errand: &Errand) -> Option<Said> {
        let double = self.one_in(DOUBLE_CLICKED);
        let patience = if self.one_in(HUNG_UP) {
            Duration::from_millis(self.rng.u64(0..8))
        } else {
            PATIENCE
        };
        let Self {
            lines: [left, right],
            rng,
            register,
            ..
        } = self;
        let first = pick(left, rng);
        let first = ask(register, first, errand, false, patience);
        if !double {
            return last_word(first.await);
        }
        let second = ask(register, pick(right, rng), errand, false, patience);
        let (first, second) = join(first, second).await;
        last_word(first).or_else(|| last_word(second))
    }

    async fn after_last_word(&mut self, errand: &Errand, said: &Said) {
        if self.one_in(REPEATED) {
            // A doubt may be asked about again too, and must not turn into a second execution.
            let line = pick(&mut self.lines[0], &mut self.rng);
            ask(&self.register, line, errand, false, PATIENCE).await;
        }
        // Only once the key is known to be taken: a tampered order that comes first is an order like any other.
        if self.one_in(TAMPERED) && matches!(said, Said::Done(_) | Said::InDoubt(_) | Said::Settled) {
            let other = Errand {
                key: errand.key.clone(),
                wish: Wish {
                    amount: errand.wish.tampered_amount(),
                    declined: false,
                },
                not_before: errand.not_before,
            };
            let line = pick(&mut self.lines[0], &mut self.rng);
            ask(&self.register, line, &other, true, PATIENCE).await;
        }
    }

    fn one_in(&mut self, many: u32) -> bool {
        self.rng.u32(..many) == 0
    }
}

/// Asks about every key in `orders` until there is a last word, on servers that nobody kills.
pub(crate) async fn ask_for_last_words(
    register: &Arc<Register>,
    ports: &[u16],
    orders: Vec<(String, Wish)>,
    askers: usize,
    within: Duration,
) {
    let deadline = Instant::now() + within;
    let share = orders.len().div_ceil(askers).max(1);
    let asking = orders.chunks(share).enumerate().map(|(index, orders)| {
        let orders = orders.to_vec();
        let register = Arc::clone(register);
        let mut line = Line::to(ports[index % ports.len()]);
        tokio::spawn(async move {
            for (key, wish) in orders {
                let errand = Errand {
                    key,
                    wish,
                    not_before: Instant::now(),
                };
                while last_word(ask(&register, &mut line, &errand, false, CALM_PATIENCE).await).is_none() {
                    if Instant::now() > deadline {
                        return;
                    }
                    sleep(Duration::from_millis(50)).await;
                }
            }
        })
    });
    for asker in asking.collect::<Vec<_>>() {
        let _ = asker.await;
    }
}

/// A server, preferably one that answered lately: with one of them frozen, all customers would soon wait for it.
fn pick<'a>(lines: &'a mut [Line], rng: &mut Rng) -> &'a mut Line {
    let mut index = rng.usize(..lines.len());
    if lines[index].is_suspect() && rng.u32(..STUBBORN) > 0 {
        index = (index + 1) % lines.len();
    }
    &mut lines[index]
}

/// One request, written down.
async fn ask(register: &Register, line: &mut Line, errand: &Errand, tampered: bool, patience: Duration) -> Said {
    let sent = register.moment();
    let said = line.order(&errand.key, errand.wish, patience).await;
    let exchange = Exchange {
        sent,
        received: register.moment(),
        tampered,
        said: said.clone(),
    };
    register.exchanged(&errand.key, exchange);
    said
}

/// What needs no asking again.
fn last_word(said: Said) -> Option<Said> {
    match said {
        Said::Done(_) | Said::Settled | Said::InDoubt(_) | Said::Mismatch | Said::Strange(_) => Some(said),
        Said::InProgress | Said::Freed | Said::Unavailable | Said::Lost => None,
    }
}
