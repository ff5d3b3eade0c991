//! The statement that sums up ledger rows.

use fairgate_time::DAY_US;

use super::{SqlStatement, SqlValue};
use crate::calendar::HOUR_US;
use crate::ledger::{ChargeColumn, UsageGrouping, UsageQuery};

/// Maximum number of rows in the result of a usage query. Clients choose the names of agents, so
/// there may be many groups.
const USAGE_ROWS_MAX: i64 = 10_000;

/// Returns the SQL expression of a grouping column, as a text that is not null.
fn expression(by: UsageGrouping) -> String {
    match by {
        UsageGrouping::Group => "group_name".to_owned(),
        UsageGrouping::Tenant => "tenant".to_owned(),
        UsageGrouping::Key => "key_id".to_owned(),
        UsageGrouping::Model => "model".to_owned(),
        UsageGrouping::Outcome => "outcome".to_owned(),
        UsageGrouping::Pool => "COALESCE(pool, '-')".to_owned(),
        UsageGrouping::Worker => "COALESCE(worker, '-')".to_owned(),
        UsageGrouping::Agent => "COALESCE(agent, '-')".to_owned(),
        UsageGrouping::Day => format!("CAST(started_at / {DAY_US} AS TEXT)"),
        UsageGrouping::Hour => format!("CAST(started_at / {HOUR_US} AS TEXT)"),
        UsageGrouping::Tier => "CAST(tier AS TEXT)".to_owned(),
        UsageGrouping::Class => "COALESCE(class, '-')".to_owned(),
        UsageGrouping::Project => "COALESCE(project, '-')".to_owned(),
    }
}

/// Builds the statement; [`crate::rows::usage`] reads the columns of its result.
///
/// For quantiles, the inner query numbers the last attempts of each group by their waits, from the
/// shortest one, and the outer query takes the quantiles by these numbers. Numbering sorts all
/// selected rows, which takes several times as long as summing them up. It is left out if the query
/// needs no quantiles.
pub(crate) fn usage(query: &UsageQuery) -> SqlStatement {
    let name = expression(query.by);
    let split = query.split.map_or("CAST('' AS TEXT)".to_owned(), expression);
    let charged = match query.charge {
        ChargeColumn::Real => "charged",
        // Rows of an earlier version have 0 there.
        ChargeColumn::Uncached => {
            "CASE WHEN charged_uncached = 0 THEN charged ELSE charged_uncached END"
        }
    };
    let quantile = |percent: u32| match query.quantiles {
        true => format!(
            "MIN(CASE WHEN last_attempt AND place * 100 >= attempts * {percent} THEN waited_us END)"
        ),
        false => "CAST(NULL AS BIGINT)".to_owned(),
    };
    let (median, late) = (quantile(50), quantile(95));
    let places = match query.quantiles {
        true => format!(
            ", ROW_NUMBER() OVER (PARTITION BY {name}, {split}, last_attempt ORDER BY waited_us) AS place, \
             COUNT(*) OVER (PARTITION BY {name}, {split}, last_attempt) AS attempts"
        ),
        false => String::new(),
    };
    let mut statement = SqlStatement::new(
        &format!(
            "SELECT name, split, \
             COUNT(CASE WHEN last_attempt THEN 1 END), \
             COUNT(CASE WHEN last_attempt AND outcome <> 'completed' THEN 1 END), \
             CAST(SUM(input_tokens) AS BIGINT), \
             CAST(SUM(cached_tokens) AS BIGINT), \
             CAST(SUM(output_tokens) AS BIGINT), \
             CAST(SUM(charges) AS BIGINT), \
             CAST(SUM(CASE WHEN last_attempt THEN waited_us ELSE 0 END) AS BIGINT), \
             MAX(waited_us), \
             CAST(COALESCE(SUM(first_token_us), 0) AS BIGINT), \
             COUNT(first_token_us), \
             CAST(SUM(provider_tokens) AS BIGINT), \
             CAST(SUM(money) AS BIGINT), \
             {median}, {late}, \
             CAST(SUM(SUM(charges)) OVER () AS BIGINT), \
             CAST(COUNT(*) OVER () AS BIGINT), \
             CAST(SUM(worker_us) AS BIGINT), \
             CAST(SUM(SUM(worker_us)) OVER () AS BIGINT) \
             FROM (SELECT {name} AS name, {split} AS split, {charged} AS charges, last_attempt, outcome, started_at, \
             input_tokens, cached_tokens, output_tokens, waited_us, first_token_us, provider_tokens, worker_us, money{places} \
             FROM attempts"
        ),
        Vec::new(),
    );
    statement.filter("started_at >=", Some(SqlValue::Int(query.since.0)));
    statement.filter("started_at <", query.until.map(|at| SqlValue::Int(at.0)));
    statement.filter("tenant =", query.tenant.clone().map(SqlValue::Text));
    statement.filter("model =", query.model.clone().map(SqlValue::Text));
    let is_time = |by| matches!(by, UsageGrouping::Day | UsageGrouping::Hour);
    statement.sql.push_str(match (is_time(query.by), query.split.is_some_and(is_time)) {
        // All rows of a day or hour have nearly the same time, so they are ordered by their charge.
        (true, _) => ") AS ranked GROUP BY 1, 2 ORDER BY CAST(name AS BIGINT), 8 DESC, 2",
        (false, true) => ") AS ranked GROUP BY 1, 2 ORDER BY 1, CAST(split AS BIGINT)",
        (false, false) => ") AS ranked GROUP BY 1, 2 ORDER BY 8 DESC, 1, 2",
    });
    statement.limit(USAGE_ROWS_MAX);
    statement
}
