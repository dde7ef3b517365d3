//! Answers that point elsewhere.

use exactly::queue::FailureKind;
use exactly::webhook::delivery::{Attempt, Course, Verdict, verdict};

use super::hostile::Receiver;
use super::{local, send};

#[tokio::test]
async fn no_redirect_is_followed_whatever_it_points_to() {
    let elsewhere = Receiver::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let sender = local().build().unwrap();
    for status in (300..=308).chain([399]) {
        for to in [
            elsewhere.url(),
            "/hook".to_owned(),
            "http://169.254.169.254/latest/meta-data/".to_owned(),
            "file:///etc/passwd".to_owned(),
            "not a url at all".to_owned(),
        ] {
            let receiver = Receiver::answering(format!(
                "HTTP/1.1 {status} X\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n"
            ));
            let exchange = send(&sender, &receiver.url()).await;
            assert_eq!(exchange.answer.as_ref().unwrap().status.as_u16(), status);
            assert_eq!(receiver.seen.posts(), 1, "{status} to {to}");
            let Verdict::Retry { failure, .. } = verdict(&exchange, &Course::default(), &Attempt::default()) else {
                panic!("{status} is no success")
            };
            assert_eq!(failure.kind, FailureKind::Transient);
            assert!(failure.message.contains("redirects are not followed"), "{failure}");
        }
    }
    assert_eq!(elsewhere.seen.connections(), 0);
}
