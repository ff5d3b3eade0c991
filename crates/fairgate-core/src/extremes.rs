//! The extreme points of a changing set: which flow maximises a·depth + b·age, without a scan.
//!
//! A maximum of a linear function over points lies on their convex hull. The points lie in blocks, the
//! blocks in a binary tree; each node of the tree holds the part of its points' hull that can win for some
//! a, b ≥ 0: a chain that falls from the oldest point to the deepest. A changed point rebuilds the chains
//! above it, each by merging two sorted chains, and a question is a binary search on the root's chain. For
//! points in general position chains are short and both cost about O(log² n).
//!
//! An adversary can put all points on one chain. A chain longer than about √n is therefore not kept: the
//! node is *wide* and a question goes on to its children. At most √n nodes of a level can be wide, so a
//! change costs O(√n · log n) and a question O(√n · log² n) at worst.
//!
//! Equal values are decided by the lower seq, also between points that are no corners: each corner knows the
//! best of the points that coincide with it, and each edge the best of the points strictly on it. A line that
//! touches the merged hull along an edge touches each child's hull along an edge or a corner, whole, so the
//! best of an edge is found from the children's.

use crate::arbiter::Local;
use crate::requests::Seq;
use alloc::vec::Vec;

/// A flow as the load function sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    /// The summed weight of what waits, in thousandths: below 2⁶².
    pub(crate) depth: u64,
    /// The tick at which its oldest waiting request came: below 2⁴⁴; lower is older.
    pub(crate) since: u64,
    pub(crate) seq: Seq,
    pub(crate) flow: Local,
}

/// Lower wins.
type Best = (Seq, Local);

/// A corner of a chain.
#[derive(Clone, Copy, Debug)]
struct Corner {
    depth: u64,
    since: u64,
    best: Best,
    /// The best of the points strictly between the corner before and this one.
    on_edge: Option<Best>,
}

/// What to maximise: `by_depth`·depth + `by_age`·(now − since), both factors 0 or more and not both 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Direction {
    pub(crate) by_depth: u128,
    pub(crate) by_age: u128,
    pub(crate) now: u64,
}

const BLOCK: usize = 8;

#[derive(Clone, Debug, Default)]
struct NodeState {
    stale: bool,
    /// Too long to keep: ask the children.
    wide: bool,
    chain: Vec<Corner>,
    /// The deepest and the oldest below.
    deepest: u64,
    oldest: u64,
    points: u32,
}

/// A set of points, at most one per flow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extremes {
    points: Vec<Option<Point>>,
    /// A complete binary tree; node 1 is the root, block `i` is node `blocks + i`.
    nodes: Vec<NodeState>,
    blocks: usize,
    scratch: Vec<Corner>,
}

impl Extremes {
    /// Sets or removes a flow's point.
    pub(crate) fn set(&mut self, flow: Local, point: Option<Point>) {
        let index = flow as usize;
        if index >= self.points.len() {
            if point.is_none() {
                return;
            }
            self.grow(index + 1);
        }
        if self.points[index] == point {
            return;
        }
        self.points[index] = point;
        let mut node = self.blocks + index / BLOCK;
        while node > 0 && !self.nodes[node].stale {
            self.nodes[node].stale = true;
            node /= 2;
        }
    }

    fn grow(&mut self, len: usize) {
        self.points.resize(len, None);
        let blocks = len.div_ceil(BLOCK).next_power_of_two();
        if blocks != self.blocks {
            self.blocks = blocks;
            self.nodes.clear();
            let stale = NodeState { stale: true, oldest: u64::MAX, ..NodeState::default() };
            self.nodes.resize(2 * blocks, stale);
        }
    }

    /// A flow's point.
    pub(crate) fn get(&self, flow: Local) -> Option<Point> {
        self.points.get(flow as usize).copied().flatten()
    }

    /// The largest depth and the lowest `since` of all points.
    pub(crate) fn extent(&mut self) -> Option<(u64, u64)> {
        if self.nodes.is_empty() {
            return None;
        }
        self.refresh(1);
        let root = &self.nodes[1];
        (root.points > 0).then_some((root.deepest, root.oldest))
    }

    /// The flow that maximises the direction; ties to the lower seq.
    pub(crate) fn furthest(&mut self, direction: Direction) -> Option<Local> {
        self.extent()?;
        let mut best: Option<(u128, Best)> = None;
        self.search(1, direction, &mut best);
        best.map(|(_, (_, flow))| flow)
    }

    fn search(&self, node: usize, direction: Direction, best: &mut Option<(u128, Best)>) {
        let state = &self.nodes[node];
        if state.points == 0 {
            return;
        }
        if state.wide {
            self.search(2 * node, direction, best);
            self.search(2 * node + 1, direction, best);
        } else if let Some(found) = direction.furthest_on(&state.chain) {
            let better =
                |held: &(u128, Best)| found.0 > held.0 || (found.0 == held.0 && found.1 < held.1);
            if best.as_ref().is_none_or(better) {
                *best = Some(found);
            }
        }
    }

    /// Brings a node up to date with the points below it.
    fn refresh(&mut self, node: usize) {
        if !self.nodes[node].stale {
            return;
        }
        if node >= self.blocks {
            self.refresh_block(node);
        } else {
            self.refresh(2 * node);
            self.refresh(2 * node + 1);
            self.refresh_join(node);
        }
        self.nodes[node].stale = false;
    }

    fn refresh_block(&mut self, node: usize) {
        let from = (node - self.blocks) * BLOCK;
        let to = (from + BLOCK).min(self.points.len());
        let mut corners = core::mem::take(&mut self.scratch);
        corners.clear();
        let block = if from < to { &self.points[from..to] } else { &[] };
        corners.extend(block.iter().flatten().map(|p| Corner {
            depth: p.depth,
            since: p.since,
            best: (p.seq, p.flow),
            on_edge: None,
        }));
        corners.sort_unstable_by_key(Corner::order);
        let state = &mut self.nodes[node];
        state.points = u32::try_from(corners.len()).expect("a block is small");
        state.deepest = corners.last().map_or(0, |c| c.depth);
        state.oldest = corners.iter().map(|c| c.since).min().unwrap_or(u64::MAX);
        state.chain.clear();
        corners.iter().for_each(|c| push(&mut state.chain, *c, None));
        drop_rising(&mut state.chain);
        self.scratch = corners;
    }

    fn refresh_join(&mut self, node: usize) {
        let limit = 32 + self.points.len().isqrt();
        let (above, below) = self.nodes.split_at_mut(2 * node);
        let (state, left, right) = (&mut above[node], &below[0], &below[1]);
        state.points = left.points + right.points;
        state.deepest = left.deepest.max(right.deepest);
        state.oldest = left.oldest.min(right.oldest);
        state.wide = left.wide || right.wide;
        state.chain.clear();
        if state.wide {
            return;
        }
        merge(&left.chain, &right.chain, &mut state.chain);
        if state.chain.len() > limit {
            state.wide = true;
            state.chain.clear();
        }
    }
}

impl Corner {
    /// From shallow to deep, at one depth from old to young: the order along a falling chain.
    fn order(&self) -> (u64, u64) {
        (self.depth, self.since)
    }

    fn is_at(&self, other: &Corner) -> bool {
        self.order() == other.order()
    }
}

/// Which way the path a → b → c turns at b: over 0 where b lies below the line from a to c (with age
/// upwards), 0 where it lies on it.
fn turn(a: &Corner, b: &Corner, c: &Corner) -> i128 {
    // Depths are below 2⁶² and ticks below 2⁴⁴, so differences fit.
    let depth = |from: &Corner, to: &Corner| to.depth.wrapping_sub(from.depth).cast_signed();
    let age = |from: &Corner, to: &Corner| from.since.wrapping_sub(to.since).cast_signed();
    let (depth_b, depth_c) = (depth(a, b), depth(a, c));
    let (age_b, age_c) = (age(a, b), age(a, c));
    // Small ones, as they nearly always are, need no wide product.
    let size = depth_b.unsigned_abs() | depth_c.unsigned_abs();
    if (size | age_b.unsigned_abs() | age_c.unsigned_abs()) < 1 << 31 {
        return i128::from(depth_b * age_c - age_b * depth_c);
    }
    i128::from(depth_b) * i128::from(age_c) - i128::from(age_b) * i128::from(depth_c)
}

fn better(a: Option<Best>, b: Option<Best>) -> Option<Best> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Merges two chains, each sorted along the chain, into the chain of both.
fn merge(left: &[Corner], right: &[Corner], chain: &mut Vec<Corner>) {
    let (mut l, mut r) = (0, 0);
    while l < left.len() || r < right.len() {
        let from_left = r == right.len() || (l < left.len() && left[l].order() <= right[r].order());
        let (corners, at) = if from_left { (left, &mut l) } else { (right, &mut r) };
        let before = at.checked_sub(1).map(|i| corners[i]);
        push(chain, corners[*at], before);
        *at += 1;
    }
    drop_rising(chain);
}

/// Appends a corner, dropping those that it puts below the chain. `before` is the corner that preceded it
/// in its own chain, from which its edge came.
fn push(chain: &mut Vec<Corner>, new: Corner, before: Option<Corner>) {
    // Whether the new corner's own edge, with the points on it, lies on the line from `from`.
    let edge_from = |from: &Corner| {
        let before = before.filter(|b| turn(from, b, &new) == 0)?;
        new.on_edge.filter(|_| before.order() >= from.order())
    };
    if let Some(last) = chain.last_mut()
        && last.is_at(&new)
    {
        last.best = last.best.min(new.best);
        if let [.., previous, last] = chain.as_mut_slice() {
            last.on_edge = better(last.on_edge, edge_from(previous));
        }
        return;
    }
    let mut on_edge = None;
    while let [.., a, b] = chain.as_slice() {
        match turn(a, b, &new) {
            below if below > 0 => on_edge = None,
            0 => on_edge = better(on_edge, better(b.on_edge, Some(b.best))),
            _ => break,
        }
        chain.pop();
    }
    let on_edge = match chain.last() {
        Some(last) => better(on_edge, edge_from(last)),
        None => None,
    };
    chain.push(Corner { on_edge, ..new });
}

/// Drops the corners before the oldest point: younger and shallower, they never win.
fn drop_rising(chain: &mut Vec<Corner>) {
    let rising = chain.windows(2).take_while(|pair| pair[1].since < pair[0].since).count();
    if rising > 0 {
        chain.drain(..rising);
        if let Some(first) = chain.first_mut() {
            first.on_edge = None;
        }
    }
}

impl Direction {
    /// The value of a point. Within the bounds of [`Point`] it stays below 2¹²⁸.
    pub(crate) fn value(&self, depth: u64, since: u64) -> u128 {
        self.by_depth * u128::from(depth) + self.by_age * u128::from(self.now - since)
    }

    /// Along a chain the value rises, stands on at most one edge, and falls.
    fn furthest_on(&self, chain: &[Corner]) -> Option<(u128, Best)> {
        let value = |corner: &Corner| self.value(corner.depth, corner.since);
        let (mut low, mut high) = (0, chain.len().checked_sub(1)?);
        while low < high {
            let middle = usize::midpoint(low, high);
            if value(&chain[middle]) < value(&chain[middle + 1]) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let (most, mut best) = (value(&chain[low]), chain[low].best);
        if let Some(next) = chain.get(low + 1).filter(|next| value(next) == most) {
            best = better(next.on_edge, Some(best.min(next.best)))?;
        }
        Some((most, best))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(points: &[Option<Point>], direction: Direction) -> Option<Local> {
        points
            .iter()
            .flatten()
            .max_by_key(|p| {
                let value = direction.value(p.depth, p.since);
                (value, core::cmp::Reverse((p.seq, p.flow)))
            })
            .map(|p| p.flow)
    }

    /// Small coordinates make ties, duplicates and collinear points common; the parabola makes wide nodes.
    #[test]
    fn agrees_with_a_scan() {
        let mut state = 42u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            (state >> 33) % below
        };
        for (flows, span) in [(1, 3), (5, 3), (40, 4), (40, 40), (700, 9), (700, 100_000), (900, 0)]
        {
            let mut extremes = Extremes::default();
            let mut points = alloc::vec![None; flows as usize];
            for seq in 0..6000 {
                let flow = next(flows);
                let (depth, since) = match span {
                    // Two flows far apart at each corner, so that wide nodes tie.
                    0 => (flow % (flows / 2) + 1, (flow % (flows / 2)).pow(2)),
                    _ => (1 + next(span), next(span)),
                };
                let point = (next(4) > 0).then_some(Point {
                    depth,
                    since,
                    seq: Seq(next(3) * seq),
                    flow: flow as Local,
                });
                points[flow as usize] = point;
                extremes.set(flow as Local, point);
                let by_depth = u128::from(next(4) * next(span.max(2)));
                let by_age = u128::from(next(4) * next(span.max(2)) + u64::from(by_depth == 0));
                let direction = Direction { by_depth, by_age, now: 1_000_000 };
                assert_eq!(extremes.furthest(direction), scan(&points, direction), "step {seq}");
                let deepest = points.iter().flatten().map(|p| p.depth).max();
                let oldest = points.iter().flatten().map(|p| p.since).min();
                assert_eq!(extremes.extent(), deepest.zip(oldest));
            }
        }
    }
}
