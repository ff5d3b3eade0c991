//! Requirements of `bench fleet`. All requirements but one are bars on ratios of numbers of the
//! same run.

use super::testbed::BenchDatabase;
use super::{FleetRun, millis};

/// Greatest median of the mean time of a round of the large fleet on SQLite, in microseconds.
const ROUND_MAX_US: f64 = 20_000.0;
/// Greatest number of database statements in one round, however many projects or tasks the fleet
/// has.
const STATEMENTS_MAX: f64 = 24.0;
/// Greatest ratio of the time of a round of the large fleet to that of the small fleet.
const GROWTH_MAX: f64 = 1.2;
/// Greatest ratio of the large fleet's time of a round to that of the other build, on SQLite and on
/// PostgreSQL.
const BEFORE_MAX: (f64, f64) = (0.75, 0.7);
/// Smallest ratio of the claims per second on PostgreSQL to the one-row transactions per second that
/// 8 connections of the same server commit.
const CLAIMS_MIN: f64 = 0.5;

/// One requirement, the measured value in words, and whether the requirement is met.
pub(super) struct FleetBar {
    pub(super) what: String,
    pub(super) measured: String,
    pub(super) holds: bool,
}

/// Judges the runs. `commits` is the number of one-row transactions per second on PostgreSQL.
pub(super) fn bars(runs: &[FleetRun], commits: Option<f64>) -> Vec<FleetBar> {
    let mut bars = Vec::new();
    for place in [BenchDatabase::Sqlite, BenchDatabase::Postgres] {
        let here: Vec<_> = runs.iter().filter(|run| run.place == place).collect();
        let this: Vec<_> = here.iter().filter(|run| !run.is_before).collect();
        let [few, many] = this[..] else { continue };
        let before = here.iter().find(|run| run.is_before && run.projects == many.projects);
        database_bars(&mut bars, few, many, before.copied());
        if let (BenchDatabase::Postgres, Some(commits)) = (place, commits) {
            let ratio = many.claims_per_s() / commits;
            bars.push(FleetBar {
                what: format!(
                    "PostgreSQL: claims at least {CLAIMS_MIN}× the one-row transactions of 8 connections"
                ),
                measured: format!("{ratio:.2}×"),
                holds: ratio >= CLAIMS_MIN,
            });
        }
    }
    bars
}

fn database_bars(
    bars: &mut Vec<FleetBar>,
    few: &FleetRun,
    many: &FleetRun,
    before: Option<&FleetRun>,
) {
    let (name, projects) = (many.place.name(), many.projects);
    let is_sqlite = many.place == BenchDatabase::Sqlite;
    let round = many.round_us();
    if is_sqlite {
        bars.push(FleetBar {
            what: format!("{name}: a round with {projects} projects under 20 ms"),
            measured: millis(round),
            holds: round < ROUND_MAX_US,
        });
    }
    let growth = round / few.round_us();
    bars.push(FleetBar {
        what: format!(
            "{name}: {projects} projects at most {GROWTH_MAX}× the round with {}",
            few.projects
        ),
        measured: format!("{growth:.2}×"),
        holds: growth <= GROWTH_MAX,
    });
    if let Some(before) = before {
        let most = if is_sqlite { BEFORE_MAX.0 } else { BEFORE_MAX.1 };
        let ratio = round / before.round_us();
        bars.push(FleetBar {
            what: format!(
                "{name}: a round with {projects} projects at most {most}× that of the other build"
            ),
            measured: format!("{ratio:.2}×"),
            holds: ratio <= most,
        });
    }
    let [a, b] = [few, many].map(|run| run.median(|it| it.statements_most));
    bars.push(FleetBar {
        what: format!("{name}: at most {STATEMENTS_MAX} statements a round, however many projects"),
        measured: format!("at most {a} with {}, {b} with {projects}", few.projects),
        holds: a.max(b) <= STATEMENTS_MAX,
    });
}
