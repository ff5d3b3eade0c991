//! The bound of got − due in a share node. The terms are those of [`crate::meter`], section "Flows that come late".

use super::{Score, ShareFlowState, ShareState, signed, signed_difference};
use crate::arbiter::LocalFlow;
use crate::meter::FixedTokens;
use crate::units::Weight;

/// The score of a flow that takes part in the division of service, and its difference between got and due. Scores are
/// in 2⁻³² tokens per weight, relative to virtual time.
#[derive(Clone, Copy, Debug)]
struct ScoreOfPart {
    weight: Weight,
    /// The score with which the flow would compete if it were ready now.
    score: i128,
    /// The greatest distance of the score above virtual time that the discipline allows, and the greatest below.
    most_above: Score,
    most_below: Score,
    /// Got − due, in 2⁻³² tokens.
    difference: FixedTokens,
}

impl ScoreOfPart {
    /// Multiplies an amount per weight by the flow's weight.
    fn tokens(&self, per_weight: i128) -> FixedTokens {
        per_weight.saturating_mul(i128::from(self.weight.get()))
    }
}

/// Sums over the flows of a node that take part in the division of service, weighted, in 2⁻³² tokens.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ScoreSums {
    weight: i128,
    score: FixedTokens,
    most_above: FixedTokens,
    most_below: FixedTokens,
    difference: FixedTokens,
}

impl ScoreSums {
    /// Returns the weighted mean that belongs to a sum, in 2⁻³² tokens per weight.
    fn mean(&self, sum: FixedTokens) -> i128 {
        sum.checked_div(self.weight).unwrap_or(0)
    }
}

impl ShareState {
    /// Returns the sums that [`ShareState::due_bound`] needs. This visits every flow of the node.
    pub(crate) fn score_sums(&self) -> ScoreSums {
        let mut sums = ScoreSums::default();
        if self.partition.is_some() {
            return sums;
        }
        let count = LocalFlow::try_from(self.flows.len()).expect("flows fit in 32 bits");
        for flow in 0..count {
            let state = &self.flows[flow as usize];
            if !state.waits && !state.meter.is_used() {
                continue;
            }
            let Some(part) = self.score_of_part(&self.flow_now(flow)) else { continue };
            let add = |sum: &mut i128, tokens: i128| *sum = sum.saturating_add(tokens);
            sums.weight += i128::from(part.weight.get());
            add(&mut sums.score, part.tokens(part.score));
            add(&mut sums.most_above, part.tokens(signed(part.most_above)));
            add(&mut sums.most_below, part.tokens(signed(part.most_below)));
            add(&mut sums.difference, part.difference);
        }
        sums
    }

    /// Returns the greatest difference between got and due that the discipline allows a flow, in tokens. In a
    /// partitioned node, where slots decide too, it is the bound of flows that are always ready.
    pub(crate) fn due_bound(&self, flow: LocalFlow, sums: &ScoreSums) -> u128 {
        let state = self.flow_now(flow);
        let part = self.score_of_part(&state).filter(|_| self.partition.is_none());
        let Some(part) = part else { return state.meter.bound(&self.meter, state.weight) };

        let level = sums.mean(sums.score.saturating_sub(sums.difference));
        let start = part.tokens(part.score - level).saturating_sub(part.difference);

        let from_mean = part.score - sums.mean(sums.score);
        let near = state.meter.reach(&self.meter, state.weight);
        let catching_up = match part.tokens(from_mean).unsigned_abs() {
            distance if distance <= near => 0,
            _ => {
                let allowed = match from_mean > 0 {
                    true => signed(part.most_above).saturating_add(sums.mean(sums.most_below)),
                    false => signed(part.most_below).saturating_add(sums.mean(sums.most_above)),
                };
                part.tokens(allowed).unsigned_abs().saturating_sub(near)
            }
        };
        let more = start.unsigned_abs().saturating_add(catching_up);
        state.meter.bound_beyond(&self.meter, state.weight, more)
    }

    /// Returns `None` for a flow that takes no part: nothing waits in it, and it was due what it got. `state` is the
    /// flow's present state.
    fn score_of_part(&self, state: &ShareFlowState) -> Option<ScoreOfPart> {
        let difference = state.meter.difference(&self.meter, state.weight);
        if !state.waits && difference <= 0 {
            return None;
        }
        let below = self.virtual_time.saturating_sub(state.score());
        let lift = match (state.waits, state.stopped) {
            (true, None) => 0,
            (true, Some(stopped)) => below.min(self.virtual_time - stopped),
            (false, _) => below,
        };
        let bound = self.bound_of(state);
        let pending = state.score() - state.settled();
        let passed = if state.new { below } else { 0 };
        Some(ScoreOfPart {
            weight: state.weight,
            score: signed_difference(state.score().saturating_add(lift), self.virtual_time),
            most_above: pending.saturating_add(bound.ended),
            most_below: bound.fallen.max(passed),
            difference,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbiter::{Arbiter as _, ArbiterContext, EndedRequest, FlowHead, FlowUpdate};
    use crate::requests::{RequestHandle, RequestTable, SubmitSeq};
    use crate::units::{Micros, Ticks, Tokens};

    const COST: Tokens = Tokens(100);

    /// A share node whose three flows are always ready.
    struct Node {
        share: ShareState,
        requests: RequestTable,
        in_flight: [u64; 3],
    }

    fn context(requests: &RequestTable) -> ArbiterContext<'_> {
        ArbiterContext { requests, now: Micros(0), ticks: Ticks(0), capacity: u64::MAX }
    }

    impl Node {
        fn new() -> Self {
            let share = ShareState::new(false);
            let mut node = Self { share, requests: RequestTable::new(), in_flight: [0; 3] };
            for weight in [1, 10, 100] {
                let weight = Weight::new(weight).expect("over 0");
                let flow = node.share.add(&"flow".into(), weight, None);
                node.look(flow);
            }
            node
        }

        fn look(&mut self, flow: LocalFlow) {
            let head = FlowHead { request: RequestHandle(0), seq: SubmitSeq(0), cost: COST };
            let view = FlowUpdate {
                head: Some(head),
                waiting: 9,
                in_flight: 0,
                oldest: None,
                oldest_open: true,
                is_kept: false,
                may_join: false,
            };
            self.share.look(flow, view, context(&self.requests));
        }

        fn lowest(&mut self) -> LocalFlow {
            self.share.pick(context(&self.requests)).expect("all are ready").flow
        }

        fn grant(&mut self, flow: LocalFlow) {
            self.share.charge(flow, COST);
            self.in_flight[flow as usize] += 1;
            self.look(flow);
        }

        fn end(&mut self, flow: LocalFlow) {
            let ended = EndedRequest { cost: COST, used: Tokens(120), generation: 0 };
            self.share.settle(flow, ended);
            self.in_flight[flow as usize] -= 1;
            self.look(flow);
        }

        /// Returns for each flow the distance between got and due, the bound, and the bound of flows that are always
        /// ready.
        fn bounds(&self) -> [(u128, u128, u128); 3] {
            let sums = self.share.score_sums();
            [0, 1, 2].map(|flow| {
                let state = self.share.flow_now(flow);
                let due = state.meter.due(&self.share.meter, state.weight);
                (
                    state.meter.got().abs_diff(due),
                    self.share.due_bound(flow, &sums),
                    state.meter.bound(&self.share.meter, state.weight),
                )
            })
        }
    }

    #[test]
    fn if_no_flow_comes_late_the_bound_is_that_of_flows_that_are_always_ready() {
        let mut node = Node::new();
        for turn in 0..2000 {
            let lowest = node.lowest();
            node.grant(lowest);
            for flow in 0..3 {
                if node.in_flight[flow as usize] > 2 {
                    node.end(flow);
                }
            }
            for (difference, bound, always_ready) in node.bounds() {
                // Scores are rounded, which may add one token.
                assert!(bound.abs_diff(always_ready) <= 1, "turn {turn}: {bound}, {always_ready}");
                assert!(difference <= bound, "turn {turn}: {difference} is beyond {bound}");
            }
        }
    }

    #[test]
    fn a_node_that_does_not_serve_the_lowest_score_leaves_the_bound() {
        let mut node = Node::new();
        for _ in 0..100 {
            // Equal requests in turn, whatever the scores.
            for flow in 0..3 {
                node.grant(flow);
                node.end(flow);
            }
        }
        for (difference, bound, _) in node.bounds() {
            assert!(difference > bound, "{difference} is within {bound}");
        }
    }
}
