//! The best of a changing set of numbers: a tournament tree.
//!
//! Each inner node knows which of those below it is best. A changed number is played again from its leaf up, and no
//! further than where it neither won before nor wins now; the best is read at the root. A change costs O(log n) at
//! most, and for a number that was not the best of its neighbours and is not now, a constant.

use alloc::vec::Vec;

const NONE: u32 = u32::MAX;

/// Numbers of which the best is at hand. What makes one better is told with every change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tournament {
    /// Inner node `n` stands above `2n` and `2n + 1`; node 1 is the root, leaf `i` is node `len + i`.
    winners: Vec<u32>,
}

impl Tournament {
    /// The best.
    pub(crate) fn first(&self) -> Option<u32> {
        self.winners.get(1).copied().filter(|winner| *winner != NONE)
    }

    /// A number has changed. `best` says who of two numbers, of which either may take no part, is better; it gives
    /// `None` where neither takes part.
    pub(crate) fn changed(&mut self, number: u32, best: impl Fn(u32, u32) -> Option<u32>) {
        if number as usize >= self.winners.len() {
            self.grow(number as usize + 1, &best);
            return;
        }
        let mut node = (self.winners.len() + number as usize) / 2;
        while node > 0 {
            let winner = self.play(node, &best);
            let before = core::mem::replace(&mut self.winners[node], winner);
            if before != number && winner != number {
                return;
            }
            node /= 2;
        }
    }

    fn play(&self, node: usize, best: impl Fn(u32, u32) -> Option<u32>) -> u32 {
        let (left, right) = (self.entrant(2 * node), self.entrant(2 * node + 1));
        match (left, right) {
            (NONE, NONE) => NONE,
            // A number is as good as itself: whether it takes part is all that is asked.
            (NONE, one) | (one, NONE) => best(one, one).unwrap_or(NONE),
            (left, right) => best(left, right).unwrap_or(NONE),
        }
    }

    fn entrant(&self, node: usize) -> u32 {
        match self.winners.get(node) {
            Some(winner) => *winner,
            // Leaves are numbers, which fit.
            None => u32::try_from(node - self.winners.len()).unwrap_or(NONE),
        }
    }

    fn grow(&mut self, len: usize, best: impl Fn(u32, u32) -> Option<u32>) {
        // At least one inner node, so that there is a root.
        let leaves = len.next_power_of_two().max(2);
        self.winners.clear();
        self.winners.resize(leaves, NONE);
        for node in (1..leaves).rev() {
            self.winners[node] = self.play(node, &best);
        }
    }
}

/// A key with a highest value, which no number that takes part has.
pub(crate) trait Key: PartialOrd + Copy {
    /// The key of numbers that take no part.
    const ABSENT: Self;

    /// What decides first between two keys: a higher key is nowhere lower.
    fn height(self) -> u128;
}

impl Key for u128 {
    const ABSENT: Self = u128::MAX;

    fn height(self) -> u128 {
        self
    }
}

impl Key for (u128, u64) {
    const ABSENT: Self = (u128::MAX, u64::MAX);

    fn height(self) -> u128 {
        self.0
    }
}

/// Keys by number, of which the lowest is at hand. Keys of numbers that take part are unique, or it does not matter who
/// of the equal is found.
///
/// Keys are wide, and those that meet lie close together. So they play by their *images*: how far a height is above an
/// origin, clamped to 64 bits. A higher key never has a lower image, so images that differ decide; where they are equal
/// the keys themselves do, and nothing depends on where the origin is. It is put anew when it has cost as many such
/// second looks as there are places, so that putting it costs nothing that counts.
#[derive(Clone, Debug)]
pub(crate) struct Ranking<K> {
    /// Those who play each other, [`WIDTH`] in a group. Group 0 is the last to play; who wins in group `g` stands in group
    /// `(g - 1) / WIDTH`. The numbers themselves stand in the groups from `lowest_level` on. Where nobody below has a key,
    /// some number without one stands there.
    groups: Vec<[Entrant; WIDTH]>,
    lowest_level: usize,
    /// Who wins in group 0.
    winner: Entrant,
    /// The keys by number.
    keys: Vec<K>,
    origin: u128,
    /// How often keys of different heights had the same image since the origin was put.
    blurred: usize,
}

/// A number with its key's image.
#[derive(Clone, Copy, Debug)]
struct Entrant {
    image: u64,
    number: u32,
}

/// Four at once take half the levels of two, and hardly more time in each.
const WIDTH: usize = 4;

/// The image of absent keys, which no other has.
const NO_IMAGE: u64 = u64::MAX;

const NOBODY: Entrant = Entrant { image: NO_IMAGE, number: NONE };

/// The lowest key's image when the origin is put: as much room below as above.
const MIDDLE: u64 = 1 << 63;

/// The origin is not above this, so that absent keys are too far above it for an image.
const HIGHEST_ORIGIN: u128 = u128::MAX - (1 << 64);

impl<K: Key> Ranking<K> {
    pub(crate) fn new() -> Self {
        Self {
            groups: Vec::new(),
            lowest_level: 0,
            winner: NOBODY,
            keys: Vec::new(),
            origin: 0,
            blurred: 0,
        }
    }

    /// The number with the lowest key, and that key.
    pub(crate) fn lowest(&self) -> Option<(u32, K)> {
        let Entrant { image, number } = self.winner;
        (image != NO_IMAGE).then(|| (number, self.keys[number as usize]))
    }

    /// Sets a number's key, or takes it away.
    pub(crate) fn set(&mut self, number: u32, key: K) {
        let mut champion = Entrant { image: self.image(key), number };
        let Self { groups, keys, blurred, .. } = self;
        let Some(known) = keys.get_mut(number as usize) else { return self.grow(number, key) };
        if *known == key {
            return;
        }
        *known = key;
        let mut group = self.lowest_level + number as usize / WIDTH;
        let mut place = number as usize % WIDTH;
        // Who comes up from below plays its group, until the changed number neither won nor wins.
        loop {
            let entrants = &mut groups[group];
            let before = core::mem::replace(&mut entrants[place], champion);
            if champion.number != number && before.number != number {
                break;
            }
            champion = champion.play(entrants, keys, blurred);
            if group == 0 {
                self.winner = champion;
                break;
            }
            (group, place) = ((group - 1) / WIDTH, (group - 1) % WIDTH);
        }
        if self.blurred > self.keys.len() {
            self.put_origin();
        }
    }

    fn image(&self, key: K) -> u64 {
        match u64::try_from(key.height().wrapping_sub(self.origin)) {
            Ok(image) if image < NO_IMAGE => image,
            _ => self.image_of_far(key),
        }
    }

    /// The image of a key that is below the origin, too far above it, or absent.
    #[cold]
    fn image_of_far(&self, key: K) -> u64 {
        match (key == K::ABSENT, key.height() < self.origin) {
            (true, _) => NO_IMAGE,
            (false, true) => 0,
            (false, false) => NO_IMAGE - 1,
        }
    }

    /// Sets the key of a number that has none yet.
    #[cold]
    fn grow(&mut self, number: u32, key: K) {
        if key == K::ABSENT {
            return;
        }
        self.keys.resize(number as usize + 1, K::ABSENT);
        if self.lowest_level + number as usize / WIDTH < self.groups.len() {
            return self.set(number, key);
        }
        self.keys[number as usize] = key;
        let (mut above, mut level) = (0, 1);
        while level * WIDTH < self.keys.len() {
            above += level;
            level *= WIDTH;
        }
        self.lowest_level = above;
        self.groups = alloc::vec![[NOBODY; WIDTH]; above + level];
        self.put_origin();
    }

    /// Puts the origin where the lowest key has room on both sides, and plays everything again.
    #[cold]
    fn put_origin(&mut self) {
        let lowest = self.keys.iter().map(|key| key.height()).min().unwrap_or(0);
        self.origin = lowest.saturating_sub(u128::from(MIDDLE)).min(HIGHEST_ORIGIN);
        for (number, key) in (0..).zip(&self.keys) {
            let (group, place) = (number as usize / WIDTH, number as usize % WIDTH);
            let image = self.image(*key);
            self.groups[self.lowest_level + group][place] = Entrant { image, number };
        }
        for group in (0..self.groups.len()).rev() {
            let entrants = &self.groups[group];
            let winner = entrants[0].play(entrants, &self.keys, &mut self.blurred);
            match group {
                0 => self.winner = winner,
                _ => self.groups[(group - 1) / WIDTH][(group - 1) % WIDTH] = winner,
            }
        }
        self.blurred = 0;
    }
}

impl Entrant {
    /// Who wins in a group that this one is of.
    #[inline]
    fn play<K: Key>(self, group: &[Self; WIDTH], keys: &[K], blurred: &mut usize) -> Self {
        let mut best = self;
        for entrant in group {
            let wins = match entrant.image == best.image {
                false => entrant.image < best.image,
                true => entrant.number != best.number && entrant.wins_by_key(best, keys, blurred),
            };
            if wins {
                best = *entrant;
            }
        }
        best
    }

    /// Whether its key is lower than that of another with the same image.
    #[cold]
    fn wins_by_key<K: Key>(self, other: Self, keys: &[K], blurred: &mut usize) -> bool {
        let key = |entrant: Self| keys.get(entrant.number as usize).copied().unwrap_or(K::ABSENT);
        let (own, others) = (key(self), key(other));
        if own.height() != others.height() {
            *blurred += 1;
        }
        own < others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Heights that lie together, that are as far apart as can be, and that wander away from the origin, both ways.
    #[test]
    fn agrees_with_a_scan() {
        let mut state = 3u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            (state >> 33) % below
        };
        let near: fn(u64, u64) -> u128 = |height, _| u128::from(height);
        let apart: fn(u64, u64) -> u128 = |height, _| match height {
            0..25 => u128::from(height),
            _ => u128::MAX - u128::from(height),
        };
        let rising: fn(u64, u64) -> u128 =
            |height, step| (u128::from(step) << 60) + u128::from(height);
        let falling: fn(u64, u64) -> u128 =
            |height, step| u128::MAX - (u128::from(step) << 60) - u128::from(height);
        for heights in [near, apart, rising, falling] {
            for size in [1u64, 2, 3, 60, 700] {
                let mut ranking = Ranking::new();
                let mut keys = alloc::vec![None; size as usize];
                for step in 0..4000 {
                    let number = next(size.min(1 + step));
                    let key = (next(3) > 0).then(|| (heights(next(50), step), number));
                    keys[number as usize] = key;
                    ranking.set(number as u32, key.unwrap_or(Key::ABSENT));
                    let lowest = keys.iter().flatten().min().copied();
                    assert_eq!(ranking.lowest(), lowest.map(|key| (key.1 as u32, key)));
                }
            }
        }
    }

    /// Where all heights have gone beyond what images tell apart, the origin follows them, and then they do again.
    #[test]
    fn the_origin_follows() {
        let mut ranking = Ranking::new();
        let far = 1u128 << 100;
        (0..8).for_each(|number| ranking.set(number, u128::from(number)));
        (0..8).for_each(|number| ranking.set(number, far + u128::from(number)));
        for step in 1..20u32 {
            (0..8).for_each(|number| ranking.set(number, far + u128::from(8 * step + number)));
        }
        assert!(ranking.origin > far - (1 << 64), "{}", ranking.origin);
        assert_eq!(ranking.lowest(), Some((0, far + 8 * 19)));
        let blurred = ranking.blurred;
        (0..8).for_each(|number| ranking.set(number, far + u128::from(200 - number)));
        assert_eq!((ranking.lowest(), ranking.blurred), (Some((7, far + 193)), blurred));
    }

    /// Heights that no origin brings together are told apart all the same, and the origin is not put at every change.
    #[test]
    fn an_origin_that_does_not_help_is_rarely_put() {
        let mut ranking = Ranking::new();
        let mut puts = 0;
        (0..64).for_each(|number| ranking.set(number, u128::from(number)));
        for step in 0..1000u32 {
            let (number, before) = (1 + step % 63, ranking.blurred);
            ranking.set(number, (1 << 100) + u128::from(step));
            puts += u32::from(ranking.blurred < before);
            assert_eq!(ranking.lowest(), Some((0, 0)));
        }
        assert!((1..100).contains(&puts), "{puts}");
    }
}
