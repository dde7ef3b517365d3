//! What arrives.

use exactly::clock::{Clock as _, WallClock};
use exactly::queue::TaskState;
use exactly::webhook::{EndpointSecret, PublishError, Published, Secret, TypeFilter, Verifier};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{A_WHILE, Post, Receiver, endpoint, event};
use crate::counts::Counts;

/// Every endpoint that wants an event gets it once, signed by its own secret, in the envelope of the contract.
#[tokio::test]
async fn an_event_arrives_once_wherever_it_is_wanted() {
    let (post, wants, others) = (Post::start(), Receiver::start().await, Receiver::start().await);
    let all = post.add("all", &wants).await;
    let filter = |filter: &str| filter.parse::<TypeFilter>().unwrap();
    let mut some = endpoint("some", &wants.url());
    some.types = vec![filter("other.thing"), filter("invoice.*")];
    post.endpoints.add(&some).await.unwrap();
    let mut none = endpoint("none", &others.url());
    none.types = vec![filter("invoice"), filter("invoices.*"), filter("invoice.paid.late")];
    post.endpoints.add(&none).await.unwrap();

    post.publish("evt_1", "invoice.paid").await;
    let arrived = wants.has(2).await;
    sleep(A_WHILE).await;
    assert_eq!((wants.arrived().len(), others.arrived().len()), (2, 0));
    assert_eq!(post.deliveries().await, 2);
    for endpoint in [all, some] {
        let verifier = Verifier::standard([endpoint.secrets[0].secret.parse().unwrap()]);
        let genuine = arrived
            .iter()
            .filter(|it| verifier.verify(&it.headers, &it.body, WallClock.now()).is_ok());
        assert_eq!(genuine.count(), 1, "{}", endpoint.id);
    }
    for it in &arrived {
        let mut body: Value = serde_json::from_slice(&it.body).unwrap();
        let timestamp = body["timestamp"].take();
        assert!(timestamp.as_str().unwrap().ends_with('Z'), "{timestamp}");
        let data = json!({ "total": 12.50, "note": "ä\n" });
        let expected = json!({
            "eventId": "evt_1", "eventType": "invoice.paid", "source": "shop", "timestamp": null, "data": data
        });
        assert_eq!(body, expected);
        assert_eq!(it.headers["content-type"], "application/json");
        assert_eq!(it.headers["webhook-id"], "evt_1");
    }
    let done = post.becomes("evt_1", "all", TaskState::Done).await;
    let outcome: Value = serde_json::from_slice(&done.outcome.unwrap()).unwrap();
    assert_eq!(outcome["status"], 200);
    assert_eq!(outcome["response"], "received and noted");
}

/// Publishing again is the same event, and another content under its id is none.
#[tokio::test]
async fn an_event_is_published_once() {
    let (post, receiver) = (Post::start(), Receiver::start().await);
    post.add("a", &receiver).await;
    post.publish("evt_1", "invoice.paid").await;
    receiver.has(1).await;
    let again = post.outbox.publish(&event("evt_1", "invoice.paid")).await.unwrap();
    assert_eq!(again, Published::Before);
    let other = post.outbox.publish(&event("evt_1", "invoice.void")).await.unwrap_err();
    assert!(
        matches!(&other, PublishError::OtherContent(id) if id.as_str() == "evt_1"),
        "{other}"
    );
    sleep(A_WHILE).await;
    assert_eq!(receiver.arrived().len(), 1);
}

/// What is replaced still signs for a while, and headers of one's own come along.
#[tokio::test]
async fn both_secrets_sign_while_one_replaces_the_other() {
    let (post, receiver) = (Post::start(), Receiver::start().await);
    let first = post.add("a", &receiver).await.secrets[0].secret.clone();
    let second = Secret::random().expose();
    let far = WallClock.now().as_millis() + 3_600_000;
    let rotated = |until_ms| {
        let (first, second) = (first.clone(), second.clone());
        move |endpoint: &mut exactly::webhook::Endpoint| {
            let secret = |secret: &String, until_ms| EndpointSecret {
                secret: secret.clone(),
                until_ms,
            };
            endpoint.secrets = vec![secret(&second, None), secret(&first, Some(until_ms))];
            endpoint.headers.insert("x-tenant".to_owned(), "7".to_owned());
        }
    };
    post.endpoints.change(&super::id("a"), rotated(far)).await.unwrap();
    post.publish("evt_1", "a.b").await;
    let during = receiver.has(1).await.remove(0);
    // Its end is over by now.
    post.endpoints.change(&super::id("a"), rotated(1)).await.unwrap();
    sleep(std::time::Duration::from_millis(1100)).await;
    post.publish("evt_2", "a.b").await;
    let after = receiver.has(2).await.remove(1);
    for (secret, valid) in [(&first, [true, false]), (&second, [true, true])] {
        let verifier = Verifier::standard([secret.parse().unwrap()]);
        let genuine = [&during, &after].map(|it| verifier.verify(&it.headers, &it.body, WallClock.now()).is_ok());
        assert_eq!(genuine, valid);
    }
    assert_eq!(after.headers["x-tenant"], "7");
}

/// What the share of attempts that succeed is computed from.
#[tokio::test]
async fn every_attempt_is_counted_by_how_it_ended() {
    let counts = Counts::default();
    let _here = metrics::set_default_local_recorder(&counts);
    let (post, receiver) = (Post::start(), Receiver::start().await);
    post.add("a", &receiver).await;
    receiver.answer([500, 404]);
    for event in ["evt_1", "evt_2", "evt_3"] {
        post.publish(event, "a.b").await;
    }
    for event in ["evt_1", "evt_2", "evt_3"] {
        post.becomes(event, "a", TaskState::Done).await;
    }
    assert_eq!(counts.of("webhook_delivery_success result=delivered"), 3);
    assert_eq!(counts.of("webhook_delivery_success result=failed"), 2);
}
