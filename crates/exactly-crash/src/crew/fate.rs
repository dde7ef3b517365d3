//! What becomes of each process: drawn from a seed before anything runs.

use std::time::Duration;

use fastrand::Rng;

use super::LEASE;

/// How a part of a process's life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Killed, so long after it was started or woken.
    Kill(Duration),
    /// Frozen, so long after it was started or woken, and for how long.
    Freeze(Duration, Duration),
}

/// What becomes of each process: together `kills` kills, and a freeze for every second one.
pub(crate) fn fates(crew: usize, kills: u32, rng: &mut Rng) -> Vec<Vec<Fate>> {
    let mut fates = vec![Vec::new(); crew];
    let ms = |rng: &mut Rng, range| Duration::from_millis(rng.u64(range));
    for kill in 0..kills {
        let one = rng.usize(..crew);
        if kill % 2 == 0 {
            let after = ms(rng, 100..1500);
            // Long enough for the lease to end, for somebody to notice, and at times for what stays locked to stand out.
            fates[one].push(Fate::Freeze(after, LEASE + ms(rng, 300..5500)));
        }
        // Some while they start.
        fates[one].push(Fate::Kill(ms(rng, 20..2000)));
    }
    fates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_killed_as_asked_for_and_every_second_one_is_frozen_before() {
        let fates: Vec<Fate> = fates(6, 41, &mut Rng::with_seed(3)).concat();
        let kills = fates.iter().filter(|fate| matches!(fate, Fate::Kill(_))).count();
        assert_eq!((kills, fates.len() - kills), (41, 21));
        let frozen = fates.iter().filter_map(|fate| match fate {
            Fate::Freeze(_, time) => Some(*time),
            Fate::Kill(_) => None,
        });
        assert!(frozen.min() > Some(LEASE));
    }
}
