//! Tournament trees, which find the best of a changing set of numbers.
//!
//! Each inner node stores its *winner*, the best number below it, so the winner of the root is the best of all. After a
//! number has changed, the nodes above it are compared again, from its leaf up. The comparisons stop at the first node
//! at which the number was not the winner before the change and is not the winner after it. A change costs O(log n) at
//! most. It costs a constant if the number is the winner at no node, neither before nor after the change.

use alloc::vec::Vec;

const NONE: u32 = u32::MAX;

/// A set of numbers with its best number. The caller passes the comparison with every change.
#[derive(Clone, Debug, Default)]
pub(crate) struct TournamentTree {
    /// The winner of each inner node. Inner node `n` is above the nodes `2n` and `2n + 1`; node 1 is the root, and leaf
    /// `i` is node `len + i`.
    winners: Vec<u32>,
}

impl TournamentTree {
    /// Returns the best number; `None` if the set is empty.
    pub(crate) fn first(&self) -> Option<u32> {
        self.winners.get(1).copied().filter(|winner| *winner != NONE)
    }

    /// Updates the tree after a number has changed. `best` returns the better of two numbers. A number that is not in
    /// the set never wins, and `best` returns `None` if neither of the two is in the set.
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
            // Comparing a number with itself only tests if the number is in the set.
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

/// A key of a [`KeyRanking`]. The highest value of the type marks a number that is not ranked.
pub(crate) trait RankingKey: PartialOrd + Copy {
    /// The key of a number that is not ranked; higher than all other keys.
    const ABSENT: Self;

    /// Returns the height, which is the part of the key that is compared first. A higher key never has a lower height.
    fn height(self) -> u128;
}

impl RankingKey for u128 {
    const ABSENT: Self = u128::MAX;

    fn height(self) -> u128 {
        self
    }
}

impl RankingKey for (u128, u64) {
    const ABSENT: Self = (u128::MAX, u64::MAX);

    fn height(self) -> u128 {
        self.0
    }
}

/// A map from numbers to keys that always knows the number with the lowest key. Keys should be unique; if two numbers
/// have the same lowest key, either is returned.
///
/// Heights have 128 bits, but the heights that are compared lie close together. So the tree compares the *images* of
/// keys. The image of a key is its height above an origin, clamped to 64 bits. A higher key never has a lower image, so
/// images decide if they differ, and the keys themselves decide if the images are equal. The result therefore never
/// depends on the origin. The ranking counts the comparisons in which different heights had the same image. Once it has
/// counted more of them than it has numbers, it moves the origin. So moving the origin costs a constant per comparison
/// on average.
#[derive(Clone, Debug)]
pub(crate) struct KeyRanking<K> {
    /// The candidates that are compared with each other, [`WIDTH`] per group. Group 0 is the root; the winner of group
    /// `g` is a candidate in group `(g - 1) / WIDTH`. The numbers themselves are in the groups from `lowest_level` on.
    /// If no number below a candidate has a key, the candidate is any number without a key.
    groups: Vec<[RankingEntrant; WIDTH]>,
    /// Index of the first group that holds numbers themselves instead of winners of other groups.
    lowest_level: usize,
    /// The winner of group 0, which is the number with the lowest key.
    winner: RankingEntrant,
    /// The key of each number; [`RankingKey::ABSENT`] if the number is not ranked.
    keys: Vec<K>,
    origin: u128,
    /// Number of comparisons since the origin was set in which keys of different heights had the same image.
    blurred: usize,
}

/// A candidate in the tree: a number with the image of its key.
#[derive(Clone, Copy, Debug)]
struct RankingEntrant {
    image: u64,
    number: u32,
}

/// Number of candidates per group. Groups of four need half the levels of groups of two, and hardly more time per
/// level.
const WIDTH: usize = 4;

/// The image of absent keys, which no other key has.
const NO_IMAGE: u64 = u64::MAX;

const NO_ENTRANT: RankingEntrant = RankingEntrant { image: NO_IMAGE, number: NONE };

/// The image of the lowest key right after the origin is set, so that half of the range lies below it and half above.
const MIDDLE: u64 = 1 << 63;

/// Upper limit of the origin, so that the absent key is too far above the origin to have an ordinary image.
const HIGHEST_ORIGIN: u128 = u128::MAX - (1 << 64);

impl<K: RankingKey> KeyRanking<K> {
    pub(crate) fn new() -> Self {
        Self {
            groups: Vec::new(),
            lowest_level: 0,
            winner: NO_ENTRANT,
            keys: Vec::new(),
            origin: 0,
            blurred: 0,
        }
    }

    /// Returns the number with the lowest key, and that key; `None` if no number has a key.
    pub(crate) fn lowest(&self) -> Option<(u32, K)> {
        let RankingEntrant { image, number } = self.winner;
        (image != NO_IMAGE).then(|| (number, self.keys[number as usize]))
    }

    /// Sets the key of a number; [`RankingKey::ABSENT`] removes the number.
    pub(crate) fn set(&mut self, number: u32, key: K) {
        let mut champion = RankingEntrant { image: self.image(key), number };
        let Self { groups, keys, blurred, .. } = self;
        let Some(known) = keys.get_mut(number as usize) else { return self.grow(number, key) };
        if *known == key {
            return;
        }
        *known = key;
        let mut group = self.lowest_level + number as usize / WIDTH;
        let mut place = number as usize % WIDTH;
        // Compares the winner from below with the rest of its group, level by level. Stops at the first group in which
        // the changed number was not the winner before and is not the winner now.
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

    /// Returns the image of a key that is below the origin, too far above it, or absent.
    #[cold]
    fn image_of_far(&self, key: K) -> u64 {
        match (key == K::ABSENT, key.height() < self.origin) {
            (true, _) => NO_IMAGE,
            (false, true) => 0,
            (false, false) => NO_IMAGE - 1,
        }
    }

    /// Sets the key of a number for which the tree has no room yet, and makes room.
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
        self.groups = alloc::vec![[NO_ENTRANT; WIDTH]; above + level];
        self.put_origin();
    }

    /// Moves the origin so that the lowest key is in the middle of the range of images. Keys somewhat below and
    /// somewhat above it then have images of their own. Computes all images and comparisons again.
    #[cold]
    fn put_origin(&mut self) {
        let lowest = self.keys.iter().map(|key| key.height()).min().unwrap_or(0);
        self.origin = lowest.saturating_sub(u128::from(MIDDLE)).min(HIGHEST_ORIGIN);
        for (number, key) in (0..).zip(&self.keys) {
            let (group, place) = (number as usize / WIDTH, number as usize % WIDTH);
            let image = self.image(*key);
            self.groups[self.lowest_level + group][place] = RankingEntrant { image, number };
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

impl RankingEntrant {
    /// Returns the winner of the group that contains this candidate.
    #[inline]
    fn play<K: RankingKey>(self, group: &[Self; WIDTH], keys: &[K], blurred: &mut usize) -> Self {
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

    /// Returns true if this candidate's key is lower than that of another candidate with the same image.
    #[cold]
    fn wins_by_key<K: RankingKey>(self, other: Self, keys: &[K], blurred: &mut usize) -> bool {
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

    /// The heights are close together, as far apart as possible, or move away from the origin in either direction.
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
                let mut ranking = KeyRanking::new();
                let mut keys = alloc::vec![None; size as usize];
                for step in 0..4000 {
                    let number = next(size.min(1 + step));
                    let key = (next(3) > 0).then(|| (heights(next(50), step), number));
                    keys[number as usize] = key;
                    ranking.set(number as u32, key.unwrap_or(RankingKey::ABSENT));
                    let lowest = keys.iter().flatten().min().copied();
                    assert_eq!(ranking.lowest(), lowest.map(|key| (key.1 as u32, key)));
                }
            }
        }
    }

    /// If the images can no longer distinguish the heights, the origin is moved, and then the images distinguish them
    /// again.
    #[test]
    fn the_origin_follows() {
        let mut ranking = KeyRanking::new();
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

    /// Heights that are too far apart for any origin are still distinguished, and the origin is not moved at every
    /// change.
    #[test]
    fn an_origin_that_does_not_help_is_rarely_put() {
        let mut ranking = KeyRanking::new();
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
