//! Redis forgets what may be forgotten by itself, and nothing else.

use std::time::Duration;

use bytes::Bytes;
use exactly::store::Inspect as _;
use exactly::store::record::LOST_KEEP;
use exactly::{Keep, OnLost, Store, Verdict};
use exactly_redis::RedisStore;
use redis::aio::MultiplexedConnection;

use crate::{ask, call, claimed, operator, prefix, shared_url, store, store_with};

const HOUR: Duration = Duration::from_hours(1);

struct Rig {
    prefix: String,
    store: RedisStore,
    operator: MultiplexedConnection,
}

impl Rig {
    async fn new() -> Self {
        let prefix = prefix();
        let store = store_with(&prefix).await;
        Self {
            prefix,
            store,
            operator: operator(&shared_url()).await,
        }
    }

    /// When Redis forgets the record by itself.
    async fn expires_in(&mut self, call: &exactly::Call) -> Option<Duration> {
        let name = format!("{}:{}", self.prefix, call.id());
        let ms: i64 = ask(&mut self.operator, &format!("PTTL {name}")).await;
        assert_ne!(ms, -2, "there is no record");
        u64::try_from(ms).ok().map(Duration::from_millis)
    }
}

fn about(left: Duration, expected: Duration) -> bool {
    left <= expected && left.abs_diff(expected) < Duration::from_mins(1)
}

#[tokio::test]
async fn a_record_that_may_be_in_doubt_never_expires() {
    let mut rig = Rig::new().await;
    let call = call("1");
    let claim = claimed(&rig.store, &call).await;
    assert_eq!(rig.expires_in(&call).await, None, "after begin");
    let _ = rig.store.renew(&claim, HOUR).await.unwrap();
    assert_eq!(rig.expires_in(&call).await, None, "after renew");
    let _ = rig.store.lose(&claim).await.unwrap();
    assert_eq!(rig.expires_in(&call).await, None, "in doubt");
}

#[tokio::test]
async fn a_claim_that_takes_over_a_rerunnable_record_holds_it_as_its_own_call_says() {
    let mut rig = Rig::new().await;
    let rerunnable = call("1").with_on_lost(OnLost::Rerun);
    let claim = claimed(&rig.store, &rerunnable).await;
    let _ = rig.store.lose(&claim).await.unwrap();
    let doubtful = call("1");
    assert_eq!(claimed(&rig.store, &doubtful).await.attempt.get(), 2);
    assert_eq!(rig.expires_in(&doubtful).await, None);
}

#[tokio::test]
async fn a_rerunnable_record_outlives_its_lease() {
    let mut rig = Rig::new().await;
    let call = call("1").with_on_lost(OnLost::Rerun).with_lease(HOUR);
    let claim = claimed(&rig.store, &call).await;
    assert!(about(rig.expires_in(&call).await.unwrap(), HOUR + LOST_KEEP));
    let _ = rig.store.renew(&claim, HOUR * 2).await.unwrap();
    assert!(about(rig.expires_in(&call).await.unwrap(), HOUR * 2 + LOST_KEEP));
    let _ = rig.store.lose(&claim).await.unwrap();
    assert!(about(rig.expires_in(&call).await.unwrap(), LOST_KEEP));
}

#[tokio::test]
async fn an_outcome_is_kept_for_as_long_as_asked() {
    let mut rig = Rig::new().await;
    for on_lost in [OnLost::Doubt, OnLost::Rerun] {
        let call = |key: &str| call(&format!("{key} {on_lost:?}")).with_on_lost(on_lost);
        let hour = call("hour");
        let claim = claimed(&rig.store, &hour).await;
        let _ = rig
            .store
            .complete(&claim, &Bytes::new(), Keep::For(HOUR))
            .await
            .unwrap();
        assert!(about(rig.expires_in(&hour).await.unwrap(), HOUR));

        let forever = call("forever");
        let claim = claimed(&rig.store, &forever).await;
        let _ = rig.store.complete(&claim, &Bytes::new(), Keep::Forever).await.unwrap();
        assert_eq!(rig.expires_in(&forever).await, None);

        let nothing = call("nothing");
        let claim = claimed(&rig.store, &nothing).await;
        let _ = rig
            .store
            .complete(&claim, &Bytes::new(), Keep::For(Duration::ZERO))
            .await
            .unwrap();
        assert!(rig.store.get(nothing.id()).await.unwrap().is_none());
        let _ = claimed(&rig.store, &call("nothing")).await;
    }
    assert_eq!(rig.store.sweep(100).await.unwrap(), 0, "Redis sweeps");
}

#[tokio::test]
async fn the_longest_durations_are_exact() {
    let longest = Duration::from_millis(1 << 52);
    let store = store().await;
    let call = call("1").with_lease(Duration::MAX).with_on_lost(OnLost::Rerun);
    let claim = claimed(&store, &call).await;
    let view = store.get(call.id()).await.unwrap().unwrap();
    assert_eq!(
        view.until,
        Some(view.created_at.after(longest)),
        "not a millisecond is rounded"
    );
    assert!(matches!(
        store.begin(&crate::call("1")).await.unwrap(),
        Verdict::InFlight { retry_after } if about(retry_after, longest)
    ));
    let _ = store
        .complete(&claim, &"done".into(), Keep::For(Duration::MAX))
        .await
        .unwrap();
    assert!(matches!(
        store.begin(&crate::call("1")).await.unwrap(),
        Verdict::Replay(replay) if about(replay.expires_in.unwrap(), longest)
    ));
}

#[tokio::test]
async fn outcomes_come_back_byte_for_byte() {
    let store = store().await;
    let all_bytes: Vec<u8> = (0..=u8::MAX).collect();
    for (key, outcome) in [
        ("empty", Bytes::new()),
        ("all", all_bytes.into()),
        ("large", vec![0; 3 << 20].into()),
    ] {
        let claim = claimed(&store, &call(key)).await;
        let _ = store.complete(&claim, &outcome, Keep::DAY).await.unwrap();
        let Verdict::Replay(replay) = store.begin(&call(key)).await.unwrap() else {
            panic!("{key} is not replayed")
        };
        assert!(replay.outcome == outcome, "{key} changed");
        assert_eq!(
            store.complete(&claim, &outcome, Keep::DAY).await.unwrap(),
            exactly::Fenced::Applied
        );
        let other = store.complete(&claim, &"other".into(), Keep::DAY).await.unwrap();
        assert_eq!(other, exactly::Fenced::Superseded);
    }
}
