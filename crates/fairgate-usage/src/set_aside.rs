//! Tokens that are set aside for held tasks and for requests in flight. They are a part of a budget that nothing else
//! may use.
//!
//! A claim reserves tokens when an agent gets the task, and the requests of the claim draw from these tokens. So
//! `max(reserved − used, tokens reserved for its requests in flight)` tokens are set aside for a held task. Nothing is
//! reserved twice, and a task that needs more tokens than expected needs room in the budget only for the additional
//! tokens. For a request in flight whose claim is over, the tokens that are reserved for the request itself are set
//! aside.

/// Returns the tokens that are set aside for a held task. Its claim reserved `reserved` tokens and used `used` so far,
/// and `in_flight` tokens are reserved for the requests in flight of the claim.
pub fn set_aside(reserved: i64, used: i64, in_flight: i64) -> i64 {
    in_flight.max(reserved.saturating_sub(used))
}

/// Expands to an SQL subquery with the columns `project` and `tokens`, whose rows are the tokens that are set aside for
/// the held tasks `t` and the requests in flight `r` that match the conditions. Agrees with [`set_aside`].
macro_rules! set_aside_rows {
    ($condition_on_t:literal, $condition_on_r:literal) => {
        concat!(
            "(SELECT t.project AS project, CASE WHEN COALESCE(c.tokens, 0) > t.reserved - t.used \
             THEN COALESCE(c.tokens, 0) ELSE t.reserved - t.used END AS tokens FROM fleet_tasks t \
             LEFT JOIN (SELECT task, epoch, SUM(provider_tokens) AS tokens FROM reservations \
             WHERE task IS NOT NULL GROUP BY task, epoch) c ON c.task = t.id AND c.epoch = t.epoch \
             WHERE t.state IN ",
            $crate::held_states!(),
            $condition_on_t,
            " UNION ALL SELECT r.project AS project, r.provider_tokens AS tokens FROM reservations r \
             WHERE r.task IS NOT NULL",
            $condition_on_r,
            " AND NOT EXISTS (SELECT 1 FROM fleet_tasks t WHERE t.id = r.task AND t.epoch = r.epoch AND t.state IN ",
            $crate::held_states!(),
            "))"
        )
    };
}

/// Expands to an SQL expression for the sum of the tokens that are set aside, with conditions as in [`set_aside_rows`].
macro_rules! set_aside_sum {
    ($condition_on_t:literal, $condition_on_r:literal) => {
        concat!(
            "CAST(COALESCE((SELECT SUM(s.tokens) FROM ",
            $crate::set_aside::set_aside_rows!($condition_on_t, $condition_on_r),
            " s), 0) AS BIGINT)"
        )
    };
}

pub(crate) use {set_aside_rows, set_aside_sum};

/// Selects the tokens that are set aside for each project, as id and sum. Projects without such tokens are left out.
pub const SET_ASIDE_BY_PROJECT: &str = concat!(
    "SELECT s.project, CAST(SUM(s.tokens) AS BIGINT) FROM ",
    set_aside_rows!("", ""),
    " s WHERE s.project IS NOT NULL GROUP BY s.project"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_keeps_the_rest_of_its_reservation_or_its_requests_in_flight() {
        for (reserved, used, in_flight, expected) in [
            (100, 0, 0, 100),
            (100, 30, 0, 70),
            (100, 30, 70, 70),
            (100, 30, 71, 71),
            (100, 130, 5, 5),
            // Nothing in flight never counts less than 0 tokens in flight.
            (100, 130, 0, 0),
            // A corrected guess may make the usage negative.
            (100, -20, 0, 120),
            (0, i64::MIN, 0, i64::MAX),
        ] {
            assert_eq!(set_aside(reserved, used, in_flight), expected);
        }
    }
}
