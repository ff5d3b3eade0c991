//! The extreme points of a changing set of points. They give the flow that maximises a·depth + b·age without a scan of
//! all flows.
//!
//! A linear function over points has its maximum on their convex hull. The points are stored in blocks, which are the
//! leaves of a binary tree. Each node of the tree holds the part of the hull of its points that can win for
//! non-negative a and b. That part is a chain that falls from the oldest point to the deepest. After a point has
//! changed, the next query rebuilds the chains of the nodes above it, each by merging two sorted chains. The query
//! itself is a binary search on the root's chain. For points in general position chains are short, and a change and a
//! query cost about O(log² n) each.
//!
//! In the worst case all points are on one chain. A chain longer than about √n is therefore not kept. The node is then
//! called *wide*, and a query continues at its children. At most √n nodes of a level can be wide, so a change costs
//! O(√n · log n) and a query O(√n · log² n) at worst.
//!
//! Of points with equal value, the one with the lowest seq is the best, also if it is not a corner of the hull. Each
//! corner therefore stores the best of the points that coincide with it, and each edge the best of the points strictly
//! between its ends. A line that touches the merged hull along an edge touches each child's hull along a whole edge or
//! at a corner. So the best point of an edge follows from the best points of the children's edges and corners.

use crate::arbiter::LocalFlow;
use crate::requests::SubmitSeq;
use alloc::vec::Vec;

/// A flow as a point, with the two numbers that the load function weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoadPoint {
    /// Summed weights of the flow's waiting requests, in thousandths; below 2⁶².
    pub(crate) depth: u64,
    /// The tick at which the flow's oldest waiting request was submitted; below 2⁴⁴. A lower tick means an older
    /// request.
    pub(crate) since: u64,
    pub(crate) seq: SubmitSeq,
    pub(crate) flow: LocalFlow,
}

/// The tie-break between points of equal value: the lower seq wins, then the lower flow.
type HullTieBreak = (SubmitSeq, LocalFlow);

/// A corner of a chain of the hull.
#[derive(Clone, Copy, Debug)]
struct HullCorner {
    depth: u64,
    since: u64,
    best: HullTieBreak,
    /// Tie-break of the winner among the points that lie between the previous corner and this one, on the edge that
    /// connects them; `None` if there are no such points.
    on_edge: Option<HullTieBreak>,
}

/// The linear function to maximise: `by_depth`·depth + `by_age`·(now − since). Neither factor is below 0, and at most
/// one is 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadDirection {
    pub(crate) by_depth: u128,
    pub(crate) by_age: u128,
    pub(crate) now: u64,
}

const BLOCK: usize = 8;

#[derive(Clone, Debug, Default)]
struct HullNode {
    stale: bool,
    /// True if the chain is too long to keep, so that a query continues at the node's children.
    wide: bool,
    chain: Vec<HullCorner>,
    /// The largest depth of the points below this node, in thousandths.
    deepest: u64,
    /// The lowest `since` of the points below this node; `u64::MAX` if there are none.
    oldest: u64,
    points: u32,
}

/// A set of points, at most one per flow.
#[derive(Clone, Debug, Default)]
pub(crate) struct HullTree {
    points: Vec<Option<LoadPoint>>,
    /// A complete binary tree. Node 1 is the root, and block `i` is node `blocks + i`.
    nodes: Vec<HullNode>,
    blocks: usize,
    scratch: Vec<HullCorner>,
}

impl HullTree {
    /// Sets the point of a flow; `None` removes the flow from the set.
    pub(crate) fn set(&mut self, flow: LocalFlow, point: Option<LoadPoint>) {
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
            let stale = HullNode { stale: true, oldest: u64::MAX, ..HullNode::default() };
            self.nodes.resize(2 * blocks, stale);
        }
    }

    /// Returns the point of a flow, or `None` if the flow is not in the set.
    pub(crate) fn get(&self, flow: LocalFlow) -> Option<LoadPoint> {
        self.points.get(flow as usize).copied().flatten()
    }

    /// Returns the largest depth and the lowest `since` of all points; `None` if the set is empty.
    pub(crate) fn extent(&mut self) -> Option<(u64, u64)> {
        if self.nodes.is_empty() {
            return None;
        }
        self.refresh(1);
        let root = &self.nodes[1];
        (root.points > 0).then_some((root.deepest, root.oldest))
    }

    /// Returns the flow whose point has the greatest value in this direction; `None` if the set is empty. Ties go to
    /// the lower seq.
    pub(crate) fn furthest(&mut self, direction: LoadDirection) -> Option<LocalFlow> {
        self.extent()?;
        let mut best: Option<(u128, HullTieBreak)> = None;
        self.search(1, direction, &mut best);
        best.map(|(_, (_, flow))| flow)
    }

    fn search(
        &self,
        node: usize,
        direction: LoadDirection,
        best: &mut Option<(u128, HullTieBreak)>,
    ) {
        let state = &self.nodes[node];
        if state.points == 0 {
            return;
        }
        if state.wide {
            self.search(2 * node, direction, best);
            self.search(2 * node + 1, direction, best);
        } else if let Some(found) = direction.furthest_on(&state.chain) {
            let better = |held: &(u128, HullTieBreak)| {
                found.0 > held.0 || (found.0 == held.0 && found.1 < held.1)
            };
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
        corners.extend(block.iter().flatten().map(|p| HullCorner {
            depth: p.depth,
            since: p.since,
            best: (p.seq, p.flow),
            on_edge: None,
        }));
        corners.sort_unstable_by_key(HullCorner::order);
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

impl HullCorner {
    /// Returns the sort key of a corner, which orders from shallow to deep, and from old to young at equal depth. This
    /// is the order along a falling chain.
    fn order(&self) -> (u64, u64) {
        (self.depth, self.since)
    }

    fn is_at(&self, other: &HullCorner) -> bool {
        self.order() == other.order()
    }
}

/// Returns a number whose sign tells how the path a → b → c turns at b. It is above 0 if b lies below the line from a
/// to c, where up means older, and 0 if b lies on that line.
fn turn(a: &HullCorner, b: &HullCorner, c: &HullCorner) -> i128 {
    // Depths are below 2⁶² and ticks below 2⁴⁴, so differences fit.
    let depth =
        |from: &HullCorner, to: &HullCorner| to.depth.wrapping_sub(from.depth).cast_signed();
    let age = |from: &HullCorner, to: &HullCorner| from.since.wrapping_sub(to.since).cast_signed();
    let (depth_b, depth_c) = (depth(a, b), depth(a, c));
    let (age_b, age_c) = (age(a, b), age(a, c));
    // Small differences, the usual case, need no wide product.
    let size = depth_b.unsigned_abs() | depth_c.unsigned_abs();
    if (size | age_b.unsigned_abs() | age_c.unsigned_abs()) < 1 << 31 {
        return i128::from(depth_b * age_c - age_b * depth_c);
    }
    i128::from(depth_b) * i128::from(age_c) - i128::from(age_b) * i128::from(depth_c)
}

fn better(a: Option<HullTieBreak>, b: Option<HullTieBreak>) -> Option<HullTieBreak> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Merges two chains into the chain of all their points. Both must be sorted by [`HullCorner::order`].
fn merge(left: &[HullCorner], right: &[HullCorner], chain: &mut Vec<HullCorner>) {
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

/// Appends a corner to a chain, and drops the corners that then lie below the chain. `before` is the corner that
/// precedes `new` in the chain from which `new` comes; `None` if `new` is the first corner there.
fn push(chain: &mut Vec<HullCorner>, new: HullCorner, before: Option<HullCorner>) {
    // Returns the best point on the new corner's own edge, if that edge lies on the line from `from`.
    let edge_from = |from: &HullCorner| {
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
    chain.push(HullCorner { on_edge, ..new });
}

/// Drops the corners before the oldest point. They are younger and shallower than that point and never win.
fn drop_rising(chain: &mut Vec<HullCorner>) {
    let rising = chain.windows(2).take_while(|pair| pair[1].since < pair[0].since).count();
    if rising > 0 {
        chain.drain(..rising);
        if let Some(first) = chain.first_mut() {
            first.on_edge = None;
        }
    }
}

impl LoadDirection {
    /// Returns the value of a point in this direction. Within the bounds of [`LoadPoint`] the value is below 2¹²⁸.
    pub(crate) fn value(&self, depth: u64, since: u64) -> u128 {
        self.by_depth * u128::from(depth) + self.by_age * u128::from(self.now - since)
    }

    /// Returns the greatest value on a chain, and the winning point with that value. Along a chain the value rises, is
    /// constant on at most one edge, and falls, so a binary search finds the maximum.
    fn furthest_on(&self, chain: &[HullCorner]) -> Option<(u128, HullTieBreak)> {
        let value = |corner: &HullCorner| self.value(corner.depth, corner.since);
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

    fn scan(points: &[Option<LoadPoint>], direction: LoadDirection) -> Option<LocalFlow> {
        points
            .iter()
            .flatten()
            .max_by_key(|p| {
                let value = direction.value(p.depth, p.since);
                (value, core::cmp::Reverse((p.seq, p.flow)))
            })
            .map(|p| p.flow)
    }

    /// With small coordinates, ties, duplicates and collinear points are common. Points on a parabola make nodes wide.
    #[test]
    fn agrees_with_a_scan() {
        let mut state = 42u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            (state >> 33) % below
        };
        for (flows, span) in [(1, 3), (5, 3), (40, 4), (40, 40), (700, 9), (700, 100_000), (900, 0)]
        {
            let mut extremes = HullTree::default();
            let mut points = alloc::vec![None; flows as usize];
            for seq in 0..6000 {
                let flow = next(flows);
                let (depth, since) = match span {
                    // Two flows far apart at each corner, so that wide nodes tie.
                    0 => (flow % (flows / 2) + 1, (flow % (flows / 2)).pow(2)),
                    _ => (1 + next(span), next(span)),
                };
                let point = (next(4) > 0).then_some(LoadPoint {
                    depth,
                    since,
                    seq: SubmitSeq(next(3) * seq),
                    flow: flow as LocalFlow,
                });
                points[flow as usize] = point;
                extremes.set(flow as LocalFlow, point);
                let by_depth = u128::from(next(4) * next(span.max(2)));
                let by_age = u128::from(next(4) * next(span.max(2)) + u64::from(by_depth == 0));
                let direction = LoadDirection { by_depth, by_age, now: 1_000_000 };
                assert_eq!(extremes.furthest(direction), scan(&points, direction), "step {seq}");
                let deepest = points.iter().flatten().map(|p| p.depth).max();
                let oldest = points.iter().flatten().map(|p| p.since).min();
                assert_eq!(extremes.extent(), deepest.zip(oldest));
            }
        }
    }
}
