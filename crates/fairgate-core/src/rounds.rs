//! The rounds that each ready class of a ring still needs, kept in a segment tree with lazy subtraction.
//!
//! Deficit round robin needs three operations on its ring. It must find the first class, starting from a given index,
//! that needs at most a given number of rounds. It must find the smallest number of rounds that any class needs. And it
//! must give rounds to every ready class in a range of indexes. Each operation is O(log classes) here. A subtraction
//! that covers a whole subtree is noted at the root of the subtree (`given`) and not pushed down, so the value of a
//! leaf is its stored value minus the rounds that its ancestors gave.
//!
//! Values are 64 bits wide. Rounds stay below [`MAX_ROUNDS`], and rounds given are pushed down to the leaves before
//! their sum could reach that limit.

use alloc::vec;
use alloc::vec::Vec;

/// The stored value of an index whose class is not ready.
const NONE: u64 = u64::MAX;

/// Upper limit of the rounds in this tree, exclusive. A class that needs more rounds cannot use the tree.
pub(crate) const MAX_ROUNDS: u64 = 1 << 62;

#[derive(Clone, Debug)]
pub(crate) struct RoundsTree {
    /// Number of leaves, a power of two; node 1 is the root, leaf `i` is node `leaves + i`.
    leaves: usize,
    /// For each node, the least value of the leaves below it, minus the rounds noted at the node and at the nodes
    /// between it and that leaf.
    least: Vec<u64>,
    given: Vec<u64>,
    /// Upper bound of the rounds noted at all ancestors of one leaf together.
    given_most: u64,
}

impl RoundsTree {
    /// Creates a tree for this many indexes, none of which has a value.
    pub(crate) fn new(positions: usize) -> Self {
        let leaves = positions.next_power_of_two();
        Self { leaves, least: vec![NONE; 2 * leaves], given: vec![0; leaves], given_most: 0 }
    }

    /// Returns the rounds that the class at an index needs; `None` if the index has no value.
    pub(crate) fn get(&self, position: u32) -> Option<u64> {
        let leaf = self.leaves + position as usize;
        (self.least[leaf] != NONE).then(|| self.least[leaf] - self.given_above(leaf))
    }

    fn given_above(&self, node: usize) -> u64 {
        let mut above = node / 2;
        let mut given = 0;
        while above > 0 {
            given += self.given[above];
            above /= 2;
        }
        given
    }

    /// Sets the rounds that the class at an index needs, which must be below [`MAX_ROUNDS`]; `None` removes the value.
    pub(crate) fn set(&mut self, position: u32, rounds: Option<u64>) {
        let leaf = self.leaves + position as usize;
        let value = match rounds {
            Some(rounds) => rounds + self.given_above(leaf),
            None => NONE,
        };
        if self.least[leaf] != value {
            self.least[leaf] = value;
            let mut above = leaf / 2;
            while above > 0 && self.refresh(above) {
                above /= 2;
            }
        }
    }

    /// Computes the value of a node from the two nodes below it. Returns true if the value has changed.
    #[inline]
    fn refresh(&mut self, node: usize) -> bool {
        let least = self.least[2 * node].min(self.least[2 * node + 1]);
        let value = match least {
            NONE => {
                self.given[node] = 0;
                NONE
            }
            least => least - self.given[node],
        };
        core::mem::replace(&mut self.least[node], value) != value
    }

    fn refresh_above(&mut self, node: usize) {
        let mut above = node / 2;
        while above > 0 {
            self.refresh(above);
            above /= 2;
        }
    }

    /// Returns the smallest number of rounds that any class needs; `None` if no index has a value.
    pub(crate) fn least(&self) -> Option<u64> {
        (self.least[1] != NONE).then(|| self.least[1])
    }

    /// Gives rounds to every index in `from..to` that has a value. Each of these must need at least that many rounds.
    pub(crate) fn give(&mut self, from: u32, to: u32, rounds: u64) {
        if from >= to || rounds == 0 {
            return;
        }
        if self.given_most >= MAX_ROUNDS - rounds {
            self.push_down();
        }
        self.given_most += rounds;
        let (mut left, mut right) = (self.leaves + from as usize, self.leaves + to as usize);
        let (first, last) = (left, right - 1);
        while left < right {
            if left % 2 == 1 {
                self.give_node(left, rounds);
                left += 1;
            }
            if right % 2 == 1 {
                right -= 1;
                self.give_node(right, rounds);
            }
            left /= 2;
            right /= 2;
        }
        self.refresh_above(first);
        if first != last {
            self.refresh_above(last);
        }
    }

    fn give_node(&mut self, node: usize, rounds: u64) {
        if self.least[node] != NONE {
            self.least[node] -= rounds;
            if node < self.leaves {
                self.given[node] += rounds;
            }
        }
    }

    /// Pushes the rounds given down to the leaves, so that the stored values are small again.
    fn push_down(&mut self) {
        for node in 1..self.leaves {
            let given = core::mem::take(&mut self.given[node]);
            for child in [2 * node, 2 * node + 1] {
                self.give_node(child, given);
            }
        }
        self.given_most = 0;
    }

    /// Returns the first index, starting at `from`, whose class needs at most `rounds`; `None` if there is none up to
    /// the end.
    pub(crate) fn first_within(&self, from: u32, rounds: u64) -> Option<u32> {
        let mut node = self.leaves + from as usize;
        // `most` includes the rounds that the ancestors of `node` gave, so that it can be compared with stored values.
        let mut most = rounds + self.given_above(node);
        while self.least[node] > most {
            // Goes on to the next subtree: up from a right child, then across.
            while node % 2 == 1 {
                node /= 2;
                if node == 0 {
                    return None;
                }
                most -= self.given[node];
            }
            node += 1;
        }
        // Goes down to the first leaf of this subtree that needs at most `rounds`.
        while node < self.leaves {
            most += self.given[node];
            node *= 2;
            if self.least[node] > most {
                node += 1;
            }
        }
        u32::try_from(node - self.leaves).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the tree with a plain list, over a fixed pseudo-random sequence of operations.
    #[test]
    fn agrees_with_a_plain_list() {
        for positions in [1u32, 2, 3, 7, 64, 100] {
            let mut tree = RoundsTree::new(positions as usize);
            let mut list: Vec<Option<u64>> = alloc::vec![None; positions as usize];
            let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ u64::from(positions);
            let mut next = |below: u32| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
                ((state >> 33) % u64::from(below)) as u32
            };
            for _ in 0..3000 {
                let (a, b) = (next(positions), next(positions) + 1);
                match next(4) {
                    0 => {
                        let value = (next(3) > 0).then(|| u64::from(next(50)));
                        tree.set(a, value);
                        list[a as usize] = value;
                    }
                    1 if a < b => {
                        if next(50) == 0 {
                            tree.push_down();
                        }
                        let span = &mut list[a as usize..b as usize];
                        let room = span.iter().flatten().min().copied().unwrap_or(5);
                        let rounds = room.min(u64::from(next(4)));
                        span.iter_mut().flatten().for_each(|v| *v -= rounds);
                        tree.give(a, b, rounds);
                    }
                    2 => {
                        let limit = u64::from(next(30));
                        let is_within = |i: &u32| list[*i as usize].is_some_and(|v| v <= limit);
                        assert_eq!(tree.first_within(a, limit), (a..positions).find(is_within));
                    }
                    _ => {
                        assert_eq!(tree.get(a), list[a as usize]);
                        assert_eq!(tree.least(), list.iter().flatten().min().copied());
                    }
                }
            }
        }
    }
}
