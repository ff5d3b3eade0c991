//! The best of a changing set of numbers: a tournament tree.
//!
//! Each inner node knows which of the two below it is better. A changed number is played again from its leaf up, and no
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
pub(crate) trait Key: PartialEq + Copy {
    /// The key of numbers that take no part.
    const ABSENT: Self;

    /// Whether this one is lower.
    fn is_below(self, other: Self) -> bool;
}

impl Key for u128 {
    const ABSENT: Self = u128::MAX;

    fn is_below(self, other: Self) -> bool {
        self < other
    }
}

impl Key for (u128, u64) {
    const ABSENT: Self = (u128::MAX, u64::MAX);

    /// As tuples compare, in fewer instructions.
    fn is_below(self, other: Self) -> bool {
        self.0 < other.0 || (self.0 == other.0 && self.1 < other.1)
    }
}

/// Keys by number, of which the lowest is at hand. Keys of numbers that take part are unique, or it does not matter who
/// of the equal is found.
#[derive(Clone, Debug)]
pub(crate) struct Ranking<K> {
    /// As in [`Tournament`], with the leaves behind the inner nodes: who won at each node, with its key. Where nobody
    /// below a node has a key, some number without one stands there.
    nodes: Vec<(K, u32)>,
}

impl<K: Key> Ranking<K> {
    pub(crate) fn new() -> Self {
        Self { nodes: Vec::new() }
    }

    /// The number with the lowest key, and that key.
    pub(crate) fn lowest(&self) -> Option<(u32, K)> {
        let (key, winner) = *self.nodes.get(1)?;
        (key != K::ABSENT).then_some((winner, key))
    }

    /// Sets a number's key, or takes it away.
    pub(crate) fn set(&mut self, number: u32, key: K) {
        let mut node = self.nodes.len() / 2 + number as usize;
        if node >= self.nodes.len() {
            if key == K::ABSENT {
                return;
            }
            self.grow(number as usize + 1);
            node = self.nodes.len() / 2 + number as usize;
        }
        if self.nodes[node].0 == key {
            return;
        }
        self.nodes[node].0 = key;
        // Who comes up from below plays the neighbour, until the changed number neither won nor wins.
        let mut champion = (key, number);
        while node > 1 {
            let neighbour = self.nodes[node ^ 1];
            if neighbour.0.is_below(champion.0) {
                champion = neighbour;
            }
            node /= 2;
            let before = core::mem::replace(&mut self.nodes[node], champion);
            if before.1 != number && champion.1 != number {
                return;
            }
        }
    }

    fn grow(&mut self, len: usize) {
        // At least one inner node, so that there is a root.
        let leaves = len.next_power_of_two().max(2);
        let known = self.nodes.split_off(self.nodes.len() / 2);
        self.nodes.clear();
        self.nodes.resize(leaves, (K::ABSENT, NONE));
        self.nodes.extend(known);
        let next = u32::try_from(self.nodes.len() - leaves).unwrap_or(NONE);
        self.nodes.extend((next..).map(|number| (K::ABSENT, number)).take(leaves - next as usize));
        for node in (1..leaves).rev() {
            let (left, right) = (self.nodes[2 * node], self.nodes[2 * node + 1]);
            self.nodes[node] = if right.0.is_below(left.0) { right } else { left };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_a_scan() {
        let mut state = 3u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            (state >> 33) % below
        };
        for size in [1u64, 2, 3, 60, 700] {
            let mut ranking = Ranking::new();
            let mut keys = alloc::vec![None; size as usize];
            for step in 0..4000 {
                let number = next(size.min(1 + step));
                let key = (next(3) > 0).then(|| (u128::from(next(50)), number));
                keys[number as usize] = key;
                ranking.set(number as u32, key.unwrap_or(Key::ABSENT));
                let lowest = keys.iter().flatten().min().copied();
                assert_eq!(ranking.lowest(), lowest.map(|key| (key.1 as u32, key)));
            }
        }
    }
}
