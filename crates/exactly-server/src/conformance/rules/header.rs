//! Which headers come back.

use crate::conformance::rule::{Checked, Need, Rule};
use crate::conformance::trial::{Trial, fail};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "replay-safe-headers",
        statement: "Location, ETag, Content-Type and the service's own headers come back with the answer.",
        sources: "T +",
        needs: &[Need::Switches],
        check: |trial| Box::pin(safe(trial)),
    },
    Rule {
        id: "replay-no-cookie",
        statement: "Set-Cookie of the first caller does not come back.",
        sources: "T +",
        needs: &[Need::Switches],
        check: |trial| Box::pin(withheld(trial, "cookie", &["set-cookie"])),
    },
    Rule {
        id: "replay-no-caller-headers",
        statement: "Date, credentials and CORS headers of the first answer do not come back.",
        sources: "T +",
        needs: &[Need::Switches],
        check: |trial| {
            let names = &["date", "www-authenticate", "access-control-allow-origin"];
            Box::pin(withheld(trial, "caller", names))
        },
    },
];

async fn safe(trial: &Trial<'_>) -> Checked {
    let request = trial.switched(&[("with", "links")]);
    let first = trial.carry_out(&request).await?;
    let again = trial.replay(&request, &first).await?;
    for name in ["location", "etag", "content-type", "x-made"] {
        let (one, other) = (first.header(name), again.header(name));
        if one.is_none() {
            return fail(format!("the first answer came without {name}"));
        }
        if one != other {
            return fail(format!("{name} was {one:?} first and {other:?} then"));
        }
    }
    Ok(())
}

/// None of what the first answer said in these headers is said again.
async fn withheld(trial: &Trial<'_>, with: &str, names: &[&str]) -> Checked {
    let request = trial.switched(&[("with", with)]);
    let first = trial.carry_out(&request).await?;
    let again = trial.replay(&request, &first).await?;
    if !names.iter().any(|name| first.header(name).is_some()) {
        return fail(format!("the first answer came without {}", names.join(", ")));
    }
    for name in names {
        // Its value is not told: it may be somebody's session.
        if again
            .header_lines(name)
            .any(|value| first.header_lines(name).any(|line| line == value))
        {
            return fail(format!("{name} of the first answer came back"));
        }
    }
    Ok(())
}
