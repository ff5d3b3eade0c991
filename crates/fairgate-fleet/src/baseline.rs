//! The baseline of a project or a tenant that becomes busy. It raises the newcomer to the level of
//! the busy one with the fewest spent tokens per weight. `project_baseline` gives the reason.

/// Weight and usage of one project, as the baseline compares them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProjectLevel {
    /// Weight of the project, in thousandths.
    pub(crate) weight: u64,
    /// Tokens that the project was charged in the window, without the baseline.
    pub(crate) spent: u64,
    /// Part of the project's baseline that has not faded yet, in tokens.
    pub(crate) baseline: u64,
}

/// Returns the baseline, in tokens, of a project with this weight and these spent tokens, compared with `others`.
/// Returns 0 if there are no others.
pub(crate) fn baseline(weight: u64, spent: u64, others: impl Iterator<Item = ProjectLevel>) -> u64 {
    let level = |other: &ProjectLevel| u128::from(other.spent) + u128::from(other.baseline);
    // Weights have at most 60 bits and levels 65, so the products fit into 128.
    let lowest = others.min_by(|one, other| {
        let left = level(one) * u128::from(other.weight);
        left.cmp(&(level(other) * u128::from(one.weight)))
    });
    let Some(lowest) = lowest else { return 0 };
    let joins_at = u128::from(weight) * level(&lowest) / u128::from(lowest.weight.max(1));
    u64::try_from(joins_at.saturating_sub(u128::from(spent))).unwrap_or(u64::MAX)
}
