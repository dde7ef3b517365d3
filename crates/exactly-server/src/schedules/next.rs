//! `exactly schedules next`: the next times at which a pattern fires. Nothing is asked but the clock, and that only if no
//! instant is given.

use std::process::ExitCode;

use exactly::clock::{Clock as _, WallClock};
use exactly::schedule::{CronExpr, Interval, Pattern, PatternError, TimeOfDay, Zone};
use jiff::Timestamp;

use super::show;
use crate::cli::{Ended, say};

/// A day of minutes for two months, or a daily time for 270 years.
const COUNT_MAX: i64 = 100_000;

/// What is meant, where, and from when on.
#[derive(Debug, clap::Args)]
pub(super) struct Next {
    #[command(flatten)]
    meant: Meant,
    /// Count the equal times from this instant on, and not from the start of 1970.
    #[arg(long, value_name = "INSTANT", requires = "every", conflicts_with_all = ["daily", "cron"], value_parser = whole_second)]
    anchor: Option<Timestamp>,
    /// The time zone, such as Europe/Berlin; UTC with --every if there is none.
    #[arg(long, required_unless_present = "every")]
    zone: Option<Zone>,
    /// Only what is later than this instant, such as 2027-03-14T00:00:00Z; now, if there is none.
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    after: Option<Timestamp>,
    /// At most so many, up to 100000.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=COUNT_MAX))]
    count: u32,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// One of these.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Meant {
    /// Every day at this local time.
    #[arg(long, value_name = "HH:MM")]
    daily: Option<TimeOfDay>,
    /// At these local times: minute, hour, day of the month, month, day of the week.
    #[arg(long, value_name = "EXPR")]
    cron: Option<CronExpr>,
    /// After equal times, whatever the clocks do: 90s, 15m, 6h, 7d.
    #[arg(long, value_name = "DURATION", value_parser = interval)]
    every: Option<Interval>,
}

impl Next {
    pub(super) fn run(self) -> Ended {
        let pattern = self.pattern()?;
        let zone = self.zone.map_or_else(|| "UTC".parse(), Ok)?;
        let after = self.after.map_or_else(now, Ok)?;
        let found: Vec<_> = pattern.after(&zone, after).take(usize::try_from(self.count)?).collect();
        say(if self.json {
            show::json(&zone, &found)? + "\n"
        } else {
            show::table(&pattern, &zone, &found)
        })?;
        Ok(ExitCode::SUCCESS)
    }

    fn pattern(&self) -> Result<Pattern, PatternError> {
        Ok(match &self.meant {
            Meant { daily: Some(time), .. } => Pattern::Daily(*time),
            Meant {
                cron: Some(expression), ..
            } => Pattern::Cron(expression.clone()),
            Meant { every, .. } => {
                let every = every.expect("one of the three is required");
                Pattern::Every(self.anchor.map_or(Ok(every), |anchor| every.anchored(anchor))?)
            }
        })
    }
}

fn now() -> Result<Timestamp, jiff::Error> {
    let millis = WallClock.now().as_millis();
    Timestamp::from_millisecond(i64::try_from(millis).unwrap_or(i64::MAX))
}

/// A length alone: where to count from has a flag of its own.
fn interval(text: &str) -> Result<Interval, String> {
    if text.contains(char::is_whitespace) {
        return Err("accepted are 1s to 366d, such as 90s, 15m, 6h or 7d; --anchor says from when on".to_owned());
    }
    text.parse().map_err(|error: PatternError| error.to_string())
}

fn instant(text: &str) -> Result<Timestamp, String> {
    text.parse()
        .map_err(|_| "accepted is an instant such as 2027-03-14T07:00:00Z".to_owned())
}

fn whole_second(text: &str) -> Result<Timestamp, String> {
    let at = instant(text)?;
    if at.subsec_nanosecond() == 0 {
        Ok(at)
    } else {
        Err("accepted are whole seconds; leave out the fraction".to_owned())
    }
}
