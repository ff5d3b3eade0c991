//! The bound of got − due in a share node. The terms are those of [`crate::meter`], section "Flows that come late".

use super::{Score, ShareState, signed, signed_difference};
use crate::arbiter::LocalFlow;
use crate::meter::FixedTokens;
use crate::units::Weight;

const SCALE_BITS: u32 = 32;

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
        for part in (0..count).filter_map(|flow| self.score_of_part(flow)) {
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
        let always_ready = state.meter.bound(&self.meter, state.weight);
        let part = self.score_of_part(flow).filter(|_| self.partition.is_none());
        let Some(part) = part else { return always_ready };
        let tokens = |fixed: FixedTokens| fixed.unsigned_abs() >> SCALE_BITS;

        let level = sums.mean(sums.score.saturating_sub(sums.difference));
        let start = part.tokens(part.score - level).saturating_sub(part.difference);

        let from_mean = part.score - sums.mean(sums.score);
        let near = state.meter.reach(&self.meter, state.weight);
        let catching_up = match tokens(part.tokens(from_mean)) {
            distance if distance <= near => 0,
            _ => {
                let allowed = match from_mean > 0 {
                    true => signed(part.most_above).saturating_add(sums.mean(sums.most_below)),
                    false => signed(part.most_below).saturating_add(sums.mean(sums.most_above)),
                };
                tokens(part.tokens(allowed)).saturating_sub(near)
            }
        };
        always_ready.saturating_add(tokens(start)).saturating_add(catching_up)
    }

    /// Returns `None` for a flow that takes no part: nothing waits in it, and it was due what it got.
    fn score_of_part(&self, flow: LocalFlow) -> Option<ScoreOfPart> {
        let state = &self.flows[flow as usize];
        if !state.waits && !state.meter.is_used() {
            return None;
        }
        let state = self.flow_now(flow);
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
        let bound = self.bound_now(flow);
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
