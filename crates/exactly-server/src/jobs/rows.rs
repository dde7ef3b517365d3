//! Rows of a file, and as many of them at once as the API takes.

use std::path::Path;

use serde_json::value::RawValue;

use crate::calls::{Refused, read_text};

/// One JSON text per line that is not empty; `what` it is of.
pub(crate) fn json_lines(path: &Path, what: &str) -> Result<Vec<Box<RawValue>>, Refused> {
    let text = read_text(path)?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let jobs = lines.map(|(number, line)| {
        RawValue::from_string(line.trim().to_owned()).map_err(|error| {
            let (path, number) = (path.display(), number + 1);
            Refused::Usage(format!("{path}, line {number}: is not JSON: {error}"))
        })
    });
    let jobs: Vec<_> = jobs.collect::<Result<_, _>>()?;
    if jobs.is_empty() {
        return Err(Refused::Usage(format!("{}: there is no {what} in it", path.display())));
    }
    Ok(jobs)
}

/// As many at once as the API takes: in number, and in bytes.
pub(crate) fn steps(rows: &[Box<RawValue>], rows_max: usize) -> Vec<&[Box<RawValue>]> {
    const BYTES_MAX: usize = 1 << 20;
    let mut steps = Vec::new();
    let mut rest = rows;
    while !rest.is_empty() {
        let mut bytes = 0_usize;
        let fitting = rest.iter().take(rows_max).take_while(|row| {
            bytes = bytes.saturating_add(row.get().len());
            bytes <= BYTES_MAX
        });
        // One that is too large by itself is refused by name.
        let (step, after) = rest.split_at(fitting.count().max(1));
        steps.push(step);
        rest = after;
    }
    steps
}

#[cfg(test)]
mod tests {
    use serde_json::value::to_raw_value;

    use super::*;

    #[test]
    fn no_step_is_larger_than_the_api_takes() {
        let of = |bytes: usize| to_raw_value(&"x".repeat(bytes - 2)).unwrap();
        let lens = |rows: &[Box<RawValue>]| steps(rows, 1000).iter().map(|step| step.len()).collect::<Vec<_>>();
        assert_eq!(lens(&vec![of(10); 2500]), [1000, 1000, 500]);
        assert_eq!(lens(&vec![of(400 << 10); 5]), [2, 2, 1]);
        assert_eq!(lens(&[of(2 << 20), of(10)]), [1, 1]);
        assert_eq!(lens(&[]), [0; 0]);
    }
}
