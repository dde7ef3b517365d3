//! The scripts and the pure state machine give the same answers to the same story.
//!
//! `MemoryStore` calls the state machine. Its clock is moved; Redis's is not ours to move, so there the records are.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use exactly::clock::{Clock as _, ManualClock, Timestamp, millis};
use exactly::store::Inspect as _;
use exactly::{Call, Claim, Fenced, Fingerprint, Keep, Key, MemoryStore, OnLost, Scope, Store, Verdict};
use exactly_redis::RedisStore;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, TestRunner};
use redis::aio::MultiplexedConnection;

use crate::{elapse, operator, prefix, shared_url, store_with};

const HOUR: Duration = Duration::from_hours(1);
/// The stories are told in hours, so that the time a test takes makes no difference.
const TOLERANCE: Duration = Duration::from_mins(10);

const FAR: Duration = Duration::from_millis(1 << 51);

#[derive(Clone, Debug)]
enum Step {
    Begin {
        key: usize,
        payload: usize,
        lease: Duration,
        on_lost: OnLost,
    },
    BeginAgain(Index),
    Peek(Index),
    Renew(Index, Duration),
    Complete(Index, &'static str, Keep),
    Abandon(Index),
    Lose(Index),
    Later(u32),
    SetBack(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let index = any::<Index>;
    let lease = || select(vec![Duration::ZERO, HOUR, 3 * HOUR, Duration::MAX]);
    let on_lost = select(vec![OnLost::Doubt, OnLost::Rerun]);
    let keep = select(vec![
        Keep::For(Duration::ZERO),
        Keep::For(HOUR),
        Keep::DAY,
        Keep::For(Duration::MAX),
        Keep::Forever,
    ]);
    let step = prop_oneof![
        5 => (0..2usize, 0..2usize, lease(), on_lost)
            .prop_map(|(key, payload, lease, on_lost)| Step::Begin { key, payload, lease, on_lost }),
        2 => index().prop_map(Step::BeginAgain),
        1 => index().prop_map(Step::Peek),
        2 => (index(), lease()).prop_map(|(claim, lease)| Step::Renew(claim, lease)),
        3 => (index(), select(vec!["", "yes", "no"]), keep)
            .prop_map(|(claim, outcome, keep)| Step::Complete(claim, outcome, keep)),
        1 => index().prop_map(Step::Abandon),
        1 => index().prop_map(Step::Lose),
        2 => select(vec![1, 2, 3, 24, 30]).prop_map(Step::Later),
        1 => select(vec![1, 2]).prop_map(Step::SetBack),
    ];
    prop::collection::vec(step, 1..40)
}

struct Story {
    redis: Arc<RedisStore>,
    operator: MultiplexedConnection,
    prefix: String,
    memory: MemoryStore,
    clock: Arc<ManualClock>,
    /// Fresh for every story, so that they can share a store.
    keys: [Key; 2],
    calls: Vec<Call>,
    claims: Vec<Claim>,
}

impl Story {
    fn new(redis: Arc<RedisStore>, operator: MultiplexedConnection, prefix: String) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_700_000_000_000)));
        let memory = MemoryStore::with_clock(Arc::clone(&clock));
        let key = || Key::new(format!("{:032x}", fastrand::u128(..))).expect("a good key");
        Self {
            redis,
            operator,
            prefix,
            memory,
            clock,
            keys: [key(), key()],
            calls: Vec::new(),
            claims: Vec::new(),
        }
    }

    async fn tell(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Begin {
                key,
                payload,
                lease,
                on_lost,
            } => {
                let scope = Scope::new("ann", "POST /refunds");
                let call = Call::new(
                    scope,
                    self.keys[key].clone(),
                    Fingerprint::of([u8::try_from(payload).unwrap()]),
                );
                self.calls.push(call.with_lease(lease).with_on_lost(on_lost));
                self.begin(self.calls.len() - 1).await?;
            }
            Step::BeginAgain(index) if !self.calls.is_empty() => self.begin(index.index(self.calls.len())).await?,
            Step::Peek(index) if !self.calls.is_empty() => {
                let call = index.get(&self.calls);
                let (ours, model) = (
                    self.redis.peek(call).await.unwrap(),
                    self.memory.peek(call).await.unwrap(),
                );
                prop_assert!(
                    match (&ours, &model) {
                        (Some(ours), Some(model)) => same(ours, model),
                        (ours, model) => ours.is_none() && model.is_none(),
                    },
                    "redis: {ours:?}, model: {model:?}"
                );
            }
            Step::Later(hours) => {
                self.clock.advance(HOUR * hours);
                elapse::elapse(&mut self.operator, &self.prefix, HOUR * hours).await;
                self.memory.sweep(u32::MAX).await.unwrap();
            }
            Step::SetBack(hours) => {
                let earlier = self.clock.now().as_millis() - millis(HOUR * hours);
                self.clock.set(Timestamp::from_millis(earlier));
                elapse::rewind(&mut self.operator, &self.prefix, HOUR * hours).await;
            }
            write if !self.claims.is_empty() => {
                let (ours, model) = self.write(write).await;
                prop_assert_eq!(ours, model);
                // Redis forgets at once what the model forgets when it is swept.
                self.memory.sweep(u32::MAX).await.unwrap();
            }
            _ => {}
        }
        self.compare_views().await
    }

    async fn begin(&mut self, index: usize) -> Result<(), TestCaseError> {
        let call = &self.calls[index];
        let (ours, model) = (
            self.redis.begin(call).await.unwrap(),
            self.memory.begin(call).await.unwrap(),
        );
        prop_assert!(same(&ours, &model), "redis: {ours:?}, model: {model:?}");
        if let Verdict::Run(claim) | Verdict::InDoubt(claim) = ours {
            self.claims.push(claim);
        }
        Ok(())
    }

    async fn write(&self, step: Step) -> (Fenced, Fenced) {
        let stores: [&dyn Store; 2] = [&*self.redis, &self.memory];
        let mut answers = Vec::new();
        for store in stores {
            let answer = match &step {
                Step::Renew(index, lease) => store.renew(index.get(&self.claims), *lease).await,
                Step::Complete(index, outcome, keep) => {
                    store
                        .complete(index.get(&self.claims), &Bytes::from_static(outcome.as_bytes()), *keep)
                        .await
                }
                Step::Abandon(index) => store.abandon(index.get(&self.claims)).await,
                Step::Lose(index) => store.lose(index.get(&self.claims)).await,
                other => unreachable!("{other:?} is no write"),
            };
            answers.push(answer.expect("the store answers"));
        }
        (answers[0], answers[1])
    }

    async fn compare_views(&self) -> Result<(), TestCaseError> {
        for call in &self.calls {
            let ours = self.redis.get(call.id()).await.unwrap();
            let model = self.memory.get(call.id()).await.unwrap();
            let essence = |view: exactly::store::CallView| (view.phase, view.claim, view.fingerprint, view.outcome_len);
            prop_assert_eq!(ours.map(essence), model.map(essence));
        }
        Ok(())
    }
}

fn same(ours: &Verdict, model: &Verdict) -> bool {
    match (ours, model) {
        (Verdict::Run(ours), Verdict::Run(model)) | (Verdict::InDoubt(ours), Verdict::InDoubt(model)) => ours == model,
        (Verdict::Replay(ours), Verdict::Replay(model)) => {
            ours.outcome == model.outcome && close(ours.expires_in, model.expires_in)
        }
        (Verdict::InFlight { retry_after: ours }, Verdict::InFlight { retry_after: model }) => {
            close(Some(*ours), Some(*model))
        }
        (Verdict::Mismatch { expires_in: ours }, Verdict::Mismatch { expires_in: model }) => close(*ours, *model),
        _ => false,
    }
}

fn close(ours: Option<Duration>, model: Option<Duration>) -> bool {
    match (ours, model) {
        // A store counts no further than this, so longer is as long.
        (Some(ours), Some(model)) if ours.min(model) > FAR => true,
        (Some(ours), Some(model)) => ours.abs_diff(model) < TOLERANCE,
        (ours, model) => ours == model,
    }
}

#[test]
fn redis_and_the_state_machine_tell_the_same_story() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let prefix = prefix();
    let redis = Arc::new(runtime.block_on(store_with(&prefix)));
    let operator = runtime.block_on(operator(&shared_url()));
    let config = Config {
        cases: 150,
        failure_persistence: None,
        ..Config::default()
    };
    let told = TestRunner::new(config).run(&steps(), |steps| {
        let mut story = Story::new(Arc::clone(&redis), operator.clone(), prefix.clone());
        runtime.block_on(async {
            for step in steps {
                story.tell(step).await?;
            }
            Ok(())
        })
    });
    if let Err(difference) = told {
        panic!("{difference}");
    }
}
