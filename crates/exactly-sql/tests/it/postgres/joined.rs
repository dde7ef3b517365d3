//! A service in another language completes its call in its own transaction.

use std::fmt::Write as _;
use std::time::Duration;

use exactly::{Claim, Fenced, Inspect, Keep, OnLost, Operate, Store, StoreErrorKind, Verdict};
use exactly_sql::{Name, PgStore};
use sqlx::postgres::{PgConnectOptions, PgDatabaseError};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection};

use super::{Place, call, run, url};

const SUPERSEDED: &str = "XO001";
const COMPLETED: &str = "XO002";
const INVALID: &str = "22023";

/// The service: a connection of its own, a table of payments, and what the gateway's headers say.
pub(super) struct Service {
    pub(super) conn: PgConnection,
    pub(super) schema: String,
}

impl Service {
    pub(super) async fn of(place: &Place) -> Self {
        let sql = format!("create table if not exists {}.payments (key text)", place.schema);
        place.run(&sql).await;
        let conn = PgConnection::connect(&url()).await.unwrap();
        let schema = place.schema.clone();
        Self { conn, schema }
    }

    /// Opens the transaction and makes the effect.
    pub(super) async fn pay(&mut self, key: &str) {
        self.run("begin").await.unwrap();
        let sql = format!("insert into {}.payments values ('{key}')", self.schema);
        self.run(&sql).await.unwrap();
    }

    pub(super) async fn complete(&mut self, claim: &Claim) -> Result<(), sqlx::Error> {
        self.complete_with(claim, "status => 201, body => 'paid'").await
    }

    /// With the rest of the arguments as SQL.
    async fn complete_with(&mut self, claim: &Claim, rest: &str) -> Result<(), sqlx::Error> {
        let (call, token) = (claim.id, hex(claim.token.as_bytes()));
        let schema = &self.schema;
        let sql = format!("select {schema}.calls_complete(call => '{call}', token => '{token}', {rest})");
        self.run(&sql).await
    }

    pub(super) async fn run(&mut self, sql: &str) -> Result<(), sqlx::Error> {
        let sql = AssertSqlSafe(sql.to_owned());
        sqlx::raw_sql(sql).execute(&mut self.conn).await.map(drop)
    }

    pub(super) async fn payments(&self, place: &Place) -> i64 {
        let sql = format!("select count(*) from {}.payments", self.schema);
        let count = sqlx::query_scalar(AssertSqlSafe(sql));
        count.fetch_one(&place.pool).await.unwrap()
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

#[track_caller]
fn assert_raised(completed: Result<(), sqlx::Error>, code: &str) -> String {
    let error = completed.expect_err("the function raised nothing");
    let error = error.as_database_error().expect("the server answers");
    let error = error.downcast_ref::<PgDatabaseError>();
    assert_eq!(error.code(), code, "{error}");
    let (message, detail, hint) = (error.message(), error.detail(), error.hint());
    assert!(message.starts_with("complete call"), "{message}");
    format!("{message} {} {}", detail.unwrap_or_default(), hint.unwrap_or_default())
}

async fn outcome(store: &PgStore, key: &str) -> Vec<u8> {
    match store.begin(&call(key)).await.unwrap() {
        Verdict::Replay(replay) => replay.outcome.to_vec(),
        verdict => panic!("the call is done, but: {verdict:?}"),
    }
}

/// The bytes of a plain answer, as they are written by hand.
fn answer(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![1, 1];
    bytes.extend(status.to_be_bytes());
    bytes.extend(u16::try_from(headers.len()).unwrap().to_be_bytes());
    for text in headers.iter().flat_map(|(name, value)| [name, value]) {
        bytes.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
        bytes.extend(text.as_bytes());
    }
    bytes.extend(body);
    bytes
}

#[tokio::test]
async fn effect_and_answer_of_a_service_commit_together() {
    let place = Place::fresh();
    let store = place.open().await;
    let mut service = Service::of(&place).await;
    let claim = run(&store, &call("key")).await;
    service.pay("key").await;
    service.complete(&claim).await.unwrap();
    assert!(matches!(
        store.peek(&call("key")).await.unwrap(),
        Some(Verdict::InFlight { .. })
    ));
    service.run("commit").await.unwrap();
    assert_eq!(outcome(&store, "key").await, answer(201, &[], b"paid"));
    assert_eq!(service.payments(&place).await, 1);
    let view = store.get(&claim.id).await.unwrap().unwrap();
    let kept = view.until.unwrap().since(store.now().await.unwrap());
    assert!(
        kept > Duration::from_hours(23) && kept <= Duration::from_hours(24),
        "{kept:?}"
    );
    assert_eq!(store.abandon(&claim).await.unwrap(), Fenced::Superseded);
}

#[tokio::test]
async fn a_service_that_rolls_back_has_neither_effect_nor_answer() {
    let place = Place::fresh();
    let store = place.open().await;
    let mut service = Service::of(&place).await;
    let claim = run(&store, &call("key")).await;
    service.pay("key").await;
    service.complete(&claim).await.unwrap();
    service.run("rollback").await.unwrap();
    assert!(matches!(
        store.peek(&call("key")).await.unwrap(),
        Some(Verdict::InFlight { .. })
    ));
    assert_eq!(store.abandon(&claim).await.unwrap(), Fenced::Applied);
    assert_eq!(service.payments(&place).await, 0);
}

/// Given up, forgotten, taken over, settled by somebody else, or never begun: in every case the effect cannot commit.
#[tokio::test]
async fn a_service_whose_claim_is_superseded_cannot_commit() {
    let place = Place::fresh();
    let store = place.open().await;
    let mut service = Service::of(&place).await;

    let given_up = run(&store, &call("given up")).await;
    assert_eq!(store.abandon(&given_up).await.unwrap(), Fenced::Applied);
    let forgotten = run(&store, &call("forgotten")).await;
    let _ = store.complete(&forgotten, &"done".into(), Keep::DAY).await.unwrap();
    assert_eq!(store.forget(&forgotten).await.unwrap(), Fenced::Applied);
    let rerunnable = || call("taken over").with_on_lost(OnLost::Rerun);
    let taken_over = run(&store, &rerunnable()).await;
    let _ = store.lose(&taken_over).await.unwrap();
    let second = run(&store, &rerunnable()).await;
    let never_begun = call("never begun").claim(exactly::Attempt::FIRST);
    let mut other_token = run(&store, &call("other token")).await;
    other_token.token = exactly::Token::random();

    for (claim, says) in [
        (&given_up, "no such call"),
        (&forgotten, "no such call"),
        (&taken_over, "Attempt 2 owns the call"),
        (&never_begun, "no such call"),
        (&other_token, "Attempt 1 owns the call"),
    ] {
        service.pay("never").await;
        let raised = assert_raised(service.complete(claim).await, SUPERSEDED);
        assert!(raised.contains(says) && raised.contains("Roll back"), "{raised}");
        assert!(raised.contains(&claim.id.to_string()), "{raised}");
        // What a service does that does not look: the commit of a failed transaction is a rollback.
        service.run("commit").await.unwrap();
    }
    assert_eq!(service.payments(&place).await, 0);
    service.pay("second").await;
    service.complete(&second).await.unwrap();
    service.run("commit").await.unwrap();
    assert_eq!(service.payments(&place).await, 1);
}

/// After a lost commit the service runs its transaction again, and is told that the first one came through.
#[tokio::test]
async fn a_service_that_repeats_itself_is_told_that_it_has_committed() {
    let place = Place::fresh();
    let store = place.open().await;
    let mut service = Service::of(&place).await;
    let claim = run(&store, &call("key")).await;
    service.pay("key").await;
    service.complete(&claim).await.unwrap();
    service.run("commit").await.unwrap();
    service.pay("key").await;
    let raised = assert_raised(service.complete(&claim).await, COMPLETED);
    assert!(
        raised.contains("completed already") && raised.contains("lost commit"),
        "{raised}"
    );
    service.run("rollback").await.unwrap();
    assert_eq!(service.payments(&place).await, 1);

    // Done by the gateway with the same claim: the effect of this service is not the one that was answered.
    let claim = run(&store, &call("answered")).await;
    let _ = store.complete(&claim, &"404".into(), Keep::DAY).await.unwrap();
    service.pay("answered").await;
    assert_raised(service.complete(&claim).await, COMPLETED);
    service.run("rollback").await.unwrap();
    assert_eq!(service.payments(&place).await, 1);
}

/// A late completion counts as long as nobody took over, as it does for every other owner.
#[tokio::test]
async fn a_service_that_is_slower_than_the_lease_can_commit_while_nobody_took_over() {
    let place = Place::fresh();
    let store = place.open().await;
    let mut service = Service::of(&place).await;
    let claim = run(&store, &call("key").with_on_lost(OnLost::Rerun)).await;
    place.shift('-', Duration::from_hours(1)).await;
    service.pay("key").await;
    service.complete(&claim).await.unwrap();
    service.run("commit").await.unwrap();
    assert_eq!(outcome(&store, "key").await, answer(201, &[], b"paid"));
}

/// Whatever the isolation level, a transaction that saw its claim alive cannot commit after it is gone.
#[tokio::test]
async fn a_snapshot_of_a_claim_is_not_a_claim() {
    let place = Place::fresh();
    let store = place.open().await;
    let mut service = Service::of(&place).await;
    for level in ["repeatable read", "serializable"] {
        let claim = run(&store, &call("key")).await;
        service.run(&format!("begin isolation level {level}")).await.unwrap();
        let sql = format!("insert into {0}.payments select 'key' from {0}.calls", service.schema);
        service.run(&sql).await.unwrap();
        assert_eq!(store.abandon(&claim).await.unwrap(), Fenced::Applied);
        let error = service.complete(&claim).await.unwrap_err();
        let code = error.as_database_error().unwrap().code().unwrap().into_owned();
        assert!(code == "40001" || code == SUPERSEDED, "{error}");
        service.run("commit").await.unwrap();
    }
    assert_eq!(service.payments(&place).await, 0);
}

/// Lower-case, in the order given, each as often as given; without what is never replayed.
#[tokio::test]
async fn headers_are_stored_as_the_gateway_stores_them() {
    let place = Place::fresh();
    let store = place.open().await;
    let mut service = Service::of(&place).await;
    let never: Vec<String> = [
        "Connection",
        "TE",
        "Trailer",
        "Transfer-Encoding",
        "Upgrade",
        "Content-Length",
        "Keep-Alive",
        "Proxy-Connection",
        "Set-Cookie",
        "Set-Cookie2",
        "Authorization",
        "Proxy-Authenticate",
        "Proxy-Authorization",
        "WWW-Authenticate",
        "Authentication-Info",
        "Proxy-Authentication-Info",
        "Date",
        "Age",
        "Idempotency-Status",
        "Access-Control-Allow-Origin",
        "X-Hop",
    ]
    .map(|name| format!(r#""{name}": "x-hop, Close""#))
    .into();
    let never = format!("{{{}}}", never.join(", "));
    for (headers, stored) in [
        ("'{}'", &[][..]),
        ("null", &[]),
        ("'[]'", &[]),
        (
            r#"'{"Content-Type": "application/json"}'"#,
            &[("content-type", "application/json")],
        ),
        (
            r#"'[["X-B", "2"], ["x-a", "1"], ["X-B", "3"]]'"#,
            &[("x-b", "2"), ("x-a", "1"), ("x-b", "3")],
        ),
        (
            r#"'{"link": ["</a>", "</b>"], "retry-after": 5}'"#,
            &[("link", "</a>"), ("link", "</b>"), ("retry-after", "5")],
        ),
        (
            r#"'{"x-name": "Zoë\t日本", "x-empty": ""}'"#,
            &[("x-name", "Zoë\t日本"), ("x-empty", "")],
        ),
        (&format!("'{never}'"), &[]),
    ] {
        let key = &headers[..headers.len().min(200)];
        let claim = run(&store, &call(key)).await;
        let rest = format!("status => 200, headers => {headers}, body => '\\x00ff'::bytea");
        service.complete_with(&claim, &rest).await.unwrap();
        assert_eq!(outcome(&store, key).await, answer(200, stored, &[0, 255]), "{headers}");
    }
}

#[tokio::test]
async fn what_no_gateway_could_send_is_refused_with_its_reason() {
    let place = Place::fresh();
    let store = place.open().await;
    let mut service = Service::of(&place).await;
    let claim = run(&store, &call("key")).await;
    for (rest, says) in [
        ("status => null", "status is null"),
        ("status => 100", "status is 100"),
        ("status => 500", "status is 500"),
        ("status => 503", "status is 503"),
        ("status => 429", "nothing happened"),
        ("status => 200, headers => '3'", "neither an object nor a list"),
        ("status => 200, headers => '[3]'", "not a name and a value"),
        ("status => 200, headers => '[[\"a\"]]'", "not a name and a value"),
        ("status => 200, headers => '{\"a\": null}'", "not a name and a value"),
        (
            "status => 200, headers => '{\"a\": {\"b\": 1}}'",
            "not a name and a value",
        ),
        ("status => 200, headers => '{\"\": \"b\"}'", "no name of a header"),
        ("status => 200, headers => '{\"a b\": \"c\"}'", "no name of a header"),
        (
            "status => 200, headers => '{\"a\\r\\nb\": \"c\"}'",
            "no name of a header",
        ),
        ("status => 200, headers => '{\"é\": \"c\"}'", "no name of a header"),
        (
            "status => 200, headers => '{\"a\": \"b\\r\\nc: d\"}'",
            "header a has a control character",
        ),
        ("status => 200, headers => '{\"a\": \"\\u007f\"}'", "control character"),
        (
            "status => 200, keep => 'a week'",
            "neither a number of seconds nor forever",
        ),
        ("status => 200, keep => '-1'", "Exactly-Keep"),
    ] {
        let raised = assert_raised(service.complete_with(&claim, rest).await, INVALID);
        assert!(raised.contains(says), "{rest}: {raised}");
    }
    let too_long = "status => 200, body => convert_to(repeat('x', 16777217), 'UTF8')";
    let raised = assert_raised(service.complete_with(&claim, too_long).await, "54000");
    assert!(raised.contains("Pass null as body"), "{raised}");
    let many = "status => 200, headers => (select jsonb_object_agg('x' || n, n) from generate_series(1, 1001) n)";
    assert_raised(service.complete_with(&claim, many).await, "54000");
    let schema = &place.schema;
    for arguments in [
        "'ab', 'cd', 200",
        "null, null, 200",
        "repeat('g', 64), repeat('a', 32), 200",
        "repeat('a', 64), '', 200",
    ] {
        let completed = service
            .run(&format!("select {schema}.calls_complete({arguments})"))
            .await;
        assert!(assert_raised(completed, INVALID).contains("Exactly-"));
    }
    // Nothing of all that touched the record.
    service.complete(&claim).await.unwrap();
}

#[tokio::test]
async fn a_service_decides_what_is_kept_and_how_long() {
    let place = Place::fresh();
    let store = place.open().await;
    let mut service = Service::of(&place).await;
    for (keep, secs) in [
        ("'600'", Some(600)),
        ("'forever'", None),
        ("null", Some(86_400)),
        ("'0'", Some(0)),
    ] {
        let claim = run(&store, &call(keep)).await;
        let rest = format!("status => 204, keep => {keep}");
        service.complete_with(&claim, &rest).await.unwrap();
        let view = store.get(&claim.id).await.unwrap().unwrap();
        let now = store.now().await.unwrap();
        let left = view.until.map(|until| until.since(now).as_secs());
        let about = secs.map(|secs: u64| secs.saturating_sub(60)..=secs);
        assert!(left.is_none() == secs.is_none(), "{keep}: {left:?}");
        assert!(
            about.zip(left).is_none_or(|(about, left)| about.contains(&left)),
            "{keep}: {left:?}"
        );
    }
    let claim = run(&store, &call("secret")).await;
    service
        .complete_with(&claim, "status => 201, body => null")
        .await
        .unwrap();
    assert_eq!(outcome(&store, "secret").await, [1, 2, 0, 201]);
}

/// The function is all that the service's role needs and has: no look at any record, no change but its own.
#[tokio::test]
async fn the_right_to_call_the_function_is_enough() {
    let place = Place::fresh();
    let store = place.open().await;
    let (schema, role) = (&place.schema, format!("{}_service", place.schema));
    let mut operator = Service::of(&place).await;
    let sql = format!(
        "create role {role} login; create schema {role} authorization {role};
         grant insert on {schema}.payments to {role}; grant usage on schema {schema} to {role}"
    );
    operator.run(&sql).await.unwrap();
    let options: PgConnectOptions = url().parse().unwrap();
    let conn = options.username(&role).connect().await.unwrap();
    let mut service = Service {
        conn,
        schema: schema.clone(),
    };
    let claim = run(&store, &call("key")).await;
    let error = service.complete(&claim).await.unwrap_err();
    assert!(error.to_string().contains("permission denied for function"), "{error}");
    operator
        .run(&format!("grant execute on function {schema}.calls_complete to {role}"))
        .await
        .unwrap();

    // Whatever the role puts in the way is not looked at.
    let traps = format!(
        "create function {role}.decode(text, text) returns bytea language sql as 'select 1/0; select null::bytea';
         create function {role}.clock_timestamp() returns timestamptz language sql as 'select ''2000-01-01''::timestamptz';
         create table {role}.calls ();
         set search_path = {role}, pg_catalog; set standard_conforming_strings = off; set synchronous_commit = off"
    );
    service.run(&traps).await.unwrap();
    service.pay("key").await;
    service.complete(&claim).await.unwrap();
    // A commit that a power cut takes back would take back what the gateway has told.
    let durable: String = sqlx::query_scalar("show synchronous_commit")
        .fetch_one(&mut service.conn)
        .await
        .unwrap();
    assert_eq!(durable, "on");
    service.run("commit").await.unwrap();
    let durable: String = sqlx::query_scalar("show synchronous_commit")
        .fetch_one(&mut service.conn)
        .await
        .unwrap();
    assert_eq!(durable, "off");
    assert_eq!(outcome(&store, "key").await, answer(201, &[], b"paid"));
    for sql in [
        "select * from {}.calls",
        "update {}.calls set outcome = ''",
        "delete from {}.exactly_trail",
    ] {
        let error = service.run(&sql.replace("{}", schema)).await.unwrap_err();
        assert!(error.to_string().contains("permission denied"), "{error}");
    }
}

#[tokio::test]
async fn every_table_has_a_function_of_its_own() {
    let place = Place::fresh();
    let mut service = Service::of_schema(&place).await;
    for table in ["league_operations", "draft_operations", "order"] {
        let store = place.builder().table(table).start().await.unwrap();
        let claim = run(&store, &call("key")).await;
        let (schema, id, token) = (&place.schema, claim.id, hex(claim.token.as_bytes()));
        let sql = format!("select {schema}.{table}_complete('{id}', '{token}', 200)");
        service.run(&sql).await.unwrap();
        assert_eq!(outcome(&store, "key").await, answer(200, &[], b""));
    }
    let longest = "t".repeat(54);
    place.builder().table(&longest).start().await.unwrap();
    let error = place.builder().table(format!("{longest}t")).start().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused);
    assert!(error.to_string().contains("longer than 54"), "{error}");
    let script = PgStore::migrations_sql(&Name::new("s").unwrap(), &Name::new("t").unwrap());
    assert!(script.contains(r#"create or replace function "s"."t_complete"("#));
}

impl Service {
    /// On a place that has no table of calls yet.
    async fn of_schema(place: &Place) -> Self {
        place.run(&format!("create schema {}", place.schema)).await;
        Self::of(place).await
    }
}
