//! Whether a running server can be reached and used.

use http::{Method, StatusCode};

use super::Check;
use crate::admin::problem::Problem;
use crate::calls::{Client, Refused};

/// What its admin address answers.
pub(super) async fn check(client: &Client, has_token: bool) -> Vec<Check> {
    let mut checks = Vec::new();
    match ask(client, "/healthz").await {
        Ok(StatusCode::OK) => checks.push(Check::ok("server", "is alive")),
        Ok(status) => {
            let found = format!("/healthz answered {status}");
            checks.push(Check::fail("server", found, "give exactly's admin address"));
            return checks;
        }
        Err(why) => {
            checks.push(Check::fail("server", why, "start `exactly serve`, or mend --admin"));
            return checks;
        }
    }
    match ask(client, "/readyz").await {
        Ok(StatusCode::OK) => checks.push(Check::ok("server's store", "answers the server")),
        Ok(status) => {
            let found = format!("/readyz answered {status}");
            checks.push(Check::fail(
                "server's store",
                found,
                "run `exactly doctor --store` with the server's store",
            ));
        }
        Err(why) => checks.push(Check::fail("server's store", why, "see the server's log")),
    }
    if !has_token {
        checks.push(Check::warn(
            "token",
            "none was given",
            "give EXACTLY_ADMIN_TOKEN or --token to check it",
        ));
        return checks;
    }
    match ask(client, "/v1/trail?limit=1").await {
        Ok(StatusCode::OK) => checks.push(Check::ok("token", "opens the API")),
        Ok(StatusCode::UNAUTHORIZED) => {
            let found = "the server does not take it";
            checks.push(Check::fail(
                "token",
                found,
                "give the token that the server was started with",
            ));
        }
        Ok(status) => checks.push(Check::fail(
            "token",
            format!("the API answered {status}"),
            "see the server's log",
        )),
        Err(why) => checks.push(Check::fail("token", why, "see the server's log")),
    }
    checks
}

/// The status, or what was said instead.
async fn ask(client: &Client, path: &str) -> Result<StatusCode, String> {
    match client.send(Method::GET, path, None).await {
        Ok(answered) if answered.status == StatusCode::SERVICE_UNAVAILABLE => {
            let problem: Option<Problem> = serde_json::from_slice(&answered.body).ok();
            problem.map_or(Ok(answered.status), |problem| Err(problem.detail))
        }
        Ok(answered) => Ok(answered.status),
        Err(Refused::Usage(why) | Refused::Failed(why)) => Err(why),
    }
}
