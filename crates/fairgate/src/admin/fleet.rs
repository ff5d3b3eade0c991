//! Commands with which operators manage the fleet's projects, tasks, agents and workspaces, and see an overview.

mod agent;
mod bar;
mod graph;
mod overview;
mod project;
mod prompt;
mod task;
mod task_add;
mod task_log;
mod task_show;
mod tasks_file;
mod webhook;
mod workspace;

use fairgate_control::admin::moment;
use fairgate_store::UnixMicros;
use fairgate_time::wall_clock;

use super::audit::to_the_second;
use crate::text_format::safe_name;

pub(crate) use agent::AgentCommand;
pub(crate) use overview::{FleetArgs, fleet_text};
pub(crate) use project::ProjectCommand;
pub(crate) use task::TaskCommand;
pub(crate) use webhook::WebhookCommand;
pub(crate) use workspace::WorkspaceCommand;

/// Formats a time as RFC 3339, without fractions of a second.
fn at(moment: UnixMicros) -> String {
    to_the_second(&fairgate_time::to_rfc3339(moment))
}

/// Parses a future time, which is a time such as `2026-11-15T08:00:00Z`, a number of seconds since 1970, or a span from
/// now such as `90s`, `15m`, `2h` or `7d`.
fn ahead(text: &str, now: UnixMicros) -> Option<UnixMicros> {
    let typed = moment::parse_typed_time(text, now)?;
    let is_span = text.ends_with(['s', 'm', 'h', 'd', 'w']);
    Some(if is_span { UnixMicros(now.0.saturating_add(now.0 - typed.0)) } else { typed })
}

/// Parses a command-line argument that is a future time.
fn ahead_argument(text: &str) -> Result<UnixMicros, String> {
    ahead(text, wall_clock::now()).ok_or_else(|| {
        "a moment such as 2026-11-15T08:00:00Z, or how far ahead it is, such as 30m or 2h"
            .to_owned()
    })
}

/// Formats a name, cut to a length that fits into a table; `-` if there is none.
fn name_or_dash(name: Option<&str>) -> String {
    name.map_or_else(|| "-".to_owned(), safe_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_ahead() {
        let now = UnixMicros(1_000_000_000);
        let ahead = |text| ahead(text, now).map(|at| at.0);
        assert_eq!(ahead("90s"), Some(1_090_000_000));
        assert_eq!(ahead("2h"), Some(1_000_000_000 + 7_200_000_000));
        assert_eq!(ahead("1970-01-01T00:00:05Z"), Some(5_000_000));
        assert_eq!(ahead("soon"), None);
    }
}
