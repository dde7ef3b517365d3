//! Cron expressions: what is accepted, what it means, what is refused and how that is told.

use exactly::schedule::CronExpr;
use proptest::prelude::*;

use super::{at, pattern, zone};

/// An expression, and what has to be said about it.
const REFUSED: &[(&str, &str)] = &[
    (
        "",
        "has 0 fields, accepted are five (minute, hour, day-of-month, month, day-of-week)",
    ),
    ("0 9 * *", "has 4 fields"),
    ("0 0 9 * * *", "has 6 fields, accepted are five"),
    ("0 0 9 * * *", "seconds and years are not accepted"),
    ("0 0 9 * * * 2027", "seconds and years are not accepted"),
    (
        "60 * * * *",
        "cron field minute: \"60\" is out of range, accepted are 0 to 59",
    ),
    (
        "* 24 * * *",
        "cron field hour: \"24\" is out of range, accepted are 0 to 23",
    ),
    (
        "* * 0 * *",
        "cron field day-of-month: \"0\" is out of range, accepted are 1 to 31",
    ),
    ("* * 32 * *", "accepted are 1 to 31"),
    (
        "* * * 13 *",
        "cron field month: \"13\" is out of range, accepted are 1 to 12 and JAN to DEC",
    ),
    (
        "* * * * 8",
        "cron field day-of-week: \"8\" is out of range, accepted are 0 to 7 and SUN to SAT",
    ),
    ("* * * MON *", "cron field month: \"MON\" is not a value"),
    ("* * * * JAN", "cron field day-of-week: \"JAN\" is not a value"),
    ("* * * JANUARY *", "is not a value"),
    (
        "* * L * *",
        "cron field day-of-month: \"L\" is not a value; L, W, # and ? are not supported",
    ),
    ("* * 15W * *", "L, W, # and ? are not supported"),
    ("* * * * 5L", "L, W, # and ? are not supported"),
    ("* * * * MON#2", "L, W, # and ? are not supported"),
    ("* * ? * MON", "L, W, # and ? are not supported"),
    (
        "*/0 * * * *",
        "cron field minute: \"0\" is not a step, accepted are 1 to 59",
    ),
    ("*/90 * * * *", "\"90\" is not a step, accepted are 1 to 59"),
    ("*/ * * * *", "is not a step"),
    ("*/5/5 * * * *", "is not a step"),
    ("5/10 * * * *", "has a step without a range; write it as 5-59/10"),
    (
        "30-10 * * * *",
        "cron field minute: \"30-10\" runs backwards; write it as two ranges",
    ),
    ("* 22-6 * * *", "runs backwards"),
    ("* * * * SAT-MON", "runs backwards"),
    ("1,*,2 * * * *", "has * in a list"),
    ("1,,2 * * * *", "\"\" is not a value"),
    (", * * * *", "is not a value"),
    ("-5 * * * *", "is not a value"),
    ("+5 * * * *", "is not a value"),
    ("005 * * * *", "is not a value"),
    ("1.5 * * * *", "is not a value"),
    ("٣ * * * *", "is not a value"),
    (
        "@reboot",
        "accepted are @hourly, @daily, @weekly, @monthly, @yearly and five fields",
    ),
    ("@", "accepted are @hourly"),
    ("0 0 30 2 *", "never fires, because none of its months has such a day"),
    ("0 0 31 4,6,9,11 *", "never fires"),
    ("0 0 30-31 FEB *", "never fires"),
    ("0 0 31 2,4 */2", "never fires"),
];

fn parsed(text: &str) -> CronExpr {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn expressions_that_mean_the_same_are_equal() {
    for (one, other) in [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "@daily"),
        ("@Weekly", "0 0 * * SUN"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 JAN *"),
        ("@annually", "@yearly"),
        ("*/15 * * * *", "0,15,30,45 * * * *"),
        ("0-59/15 * * * *", "0,15,30,45 * * * *"),
        ("0 8-18/2 * * *", "0 8,10,12,14,16,18 * * *"),
        ("0 0 * * 7", "0 0 * * 0"),
        ("0 0 * * 5-7", "0 0 * * 0,5,6"),
        ("0 0 * * fri-sun", "0 0 * * 5-7"),
        ("0 0 * * SUN-TUE", "0 0 * * 0-2"),
        ("0 0 * jan-Mar mon,WED", "0 0 * 1-3 1,3"),
        ("0 0 * * */7", "0 0 */1 * */7"),
        ("00 09 * * *", "0 9 * * *"),
        (" 0\t9  * * * ", "0 9 * * *"),
    ] {
        assert_eq!(parsed(one), parsed(other), "{one} and {other}");
    }
    // A star is not only what it matches: it says which rule combines the day fields.
    assert_ne!(parsed("0 0 */2 * 1"), parsed("0 0 1-31/2 * 1"));
}

#[test]
fn either_day_field_is_enough_if_both_are_restricted() {
    for (text, days) in [
        // June 2027 begins on a Tuesday; its Mondays are 7, 14, 21 and 28.
        ("0 9 10 * MON", vec![7, 10, 14, 21, 28]),
        ("0 9 7,10 * *", vec![7, 10]),
        ("0 9 * * MON", vec![7, 14, 21, 28]),
        // With a star in front both are needed.
        ("0 9 */2 * MON", vec![7, 21]),
        ("0 9 * * */7", vec![6, 13, 20, 27]),
        ("0 9 29-31 * 1-5/4", vec![4, 7, 11, 14, 18, 21, 25, 28, 29, 30]),
    ] {
        let (pattern, utc) = (pattern(&format!("cron {text}")), zone("UTC"));
        let june = pattern.after(&utc, at("2027-05-31T23:59:59Z"));
        let found: Vec<i8> = june
            .take_while(|found| found.local_date.month() == 6)
            .map(|found| found.local_date.day())
            .collect();
        assert_eq!(found, days, "{text}");
    }
}

#[test]
fn what_is_refused_is_told_with_what_is_accepted() {
    for (text, why) in REFUSED {
        let told = text.parse::<CronExpr>().unwrap_err().to_string();
        assert!(told.contains(*why), "{text:?}: {told}");
    }
    let long = format!("{} * * * *", "1,".repeat(200));
    let told = long.parse::<CronExpr>().unwrap_err().to_string();
    assert!(told.contains("at most 255 are accepted"), "{told}");
}

#[test]
fn what_fires_once_in_a_while_is_accepted() {
    for text in [
        "0 0 29 2 *",
        "0 0 31 1,4 *",
        // Never the 30th, but every Monday in February.
        "0 0 30 2 MON",
        "59 23 31 12 7",
    ] {
        parsed(text);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,40}") {
        let _ = text.parse::<CronExpr>();
    }

    #[test]
    fn what_is_read_is_written_so_that_it_is_read_again(
        text in prop::collection::vec("[*]|[*]/[0-9]{1,2}|[0-9]{1,2}(-[0-9]{1,2})?(/[1-9])?|[0-9]{1,2},[0-9]{1,2}|JAN|mon|[A-Z#?]{1,3}", 5)
    ) {
        let text = text.join("  ");
        if let Ok(expression) = text.parse::<CronExpr>() {
            let written = expression.to_string();
            prop_assert_eq!(&parsed(&written), &expression);
            prop_assert_eq!(parsed(&written).to_string(), written);
        }
    }
}
