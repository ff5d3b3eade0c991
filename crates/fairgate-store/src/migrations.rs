//! The schema as a series of steps. Each step has one SQL file per database. A step that was released never changes.

use fairgate_usage::sql::LIVE_PROJECTS;

use crate::error::StoreError;

/// One step of the schema.
pub(crate) struct Migration {
    /// Schema version after this step.
    pub(crate) version: i64,
    /// Statements to run on SQLite.
    pub(crate) sqlite: &'static str,
    /// Statements to run on PostgreSQL.
    pub(crate) postgres: &'static str,
}

const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        sqlite: include_str!("migrations/1.sqlite.sql"),
        postgres: include_str!("migrations/1.postgres.sql"),
    },
    Migration {
        version: 2,
        sqlite: include_str!("migrations/2.sqlite.sql"),
        postgres: include_str!("migrations/2.postgres.sql"),
    },
    Migration {
        version: 3,
        sqlite: include_str!("migrations/3.sqlite.sql"),
        postgres: include_str!("migrations/3.postgres.sql"),
    },
    Migration {
        version: 4,
        sqlite: include_str!("migrations/4.sqlite.sql"),
        postgres: include_str!("migrations/4.postgres.sql"),
    },
    Migration {
        version: 5,
        sqlite: include_str!("migrations/5.sqlite.sql"),
        postgres: include_str!("migrations/5.postgres.sql"),
    },
    Migration {
        version: 6,
        sqlite: include_str!("migrations/6.sqlite.sql"),
        postgres: include_str!("migrations/6.postgres.sql"),
    },
    Migration {
        version: 7,
        sqlite: include_str!("migrations/7.sqlite.sql"),
        postgres: include_str!("migrations/7.postgres.sql"),
    },
    Migration {
        version: 8,
        sqlite: include_str!("migrations/8.sqlite.sql"),
        postgres: include_str!("migrations/8.postgres.sql"),
    },
    Migration {
        version: 9,
        sqlite: include_str!("migrations/9.sqlite.sql"),
        postgres: include_str!("migrations/9.postgres.sql"),
    },
    Migration {
        version: 10,
        sqlite: include_str!("migrations/10.sqlite.sql"),
        postgres: include_str!("migrations/10.postgres.sql"),
    },
    Migration {
        version: 11,
        sqlite: include_str!("migrations/11.sqlite.sql"),
        postgres: include_str!("migrations/11.postgres.sql"),
    },
    Migration {
        version: 12,
        sqlite: include_str!("migrations/12.sqlite.sql"),
        postgres: include_str!("migrations/12.postgres.sql"),
    },
    Migration {
        version: 13,
        sqlite: include_str!("migrations/13.sqlite.sql"),
        postgres: include_str!("migrations/13.postgres.sql"),
    },
    Migration {
        version: 14,
        sqlite: include_str!("migrations/14.sqlite.sql"),
        postgres: include_str!("migrations/14.postgres.sql"),
    },
    Migration {
        version: 15,
        sqlite: include_str!("migrations/15.sqlite.sql"),
        postgres: include_str!("migrations/15.postgres.sql"),
    },
    Migration {
        version: 16,
        sqlite: include_str!("migrations/16.sqlite.sql"),
        postgres: include_str!("migrations/16.postgres.sql"),
    },
    Migration {
        version: 17,
        sqlite: include_str!("migrations/17.sqlite.sql"),
        postgres: include_str!("migrations/17.postgres.sql"),
    },
    Migration {
        version: 18,
        sqlite: include_str!("migrations/18.sqlite.sql"),
        postgres: include_str!("migrations/18.postgres.sql"),
    },
    Migration {
        version: 19,
        sqlite: include_str!("migrations/19.sqlite.sql"),
        postgres: include_str!("migrations/19.postgres.sql"),
    },
    Migration {
        version: 20,
        sqlite: include_str!("migrations/20.sqlite.sql"),
        postgres: include_str!("migrations/20.postgres.sql"),
    },
    Migration {
        version: 21,
        sqlite: include_str!("migrations/21.sqlite.sql"),
        postgres: include_str!("migrations/21.postgres.sql"),
    },
    Migration {
        version: 22,
        sqlite: include_str!("migrations/22.sqlite.sql"),
        postgres: include_str!("migrations/22.postgres.sql"),
    },
    Migration {
        version: 23,
        sqlite: include_str!("migrations/23.sqlite.sql"),
        postgres: include_str!("migrations/23.postgres.sql"),
    },
    Migration {
        version: 24,
        sqlite: include_str!("migrations/24.sqlite.sql"),
        postgres: include_str!("migrations/24.postgres.sql"),
    },
    Migration {
        version: 25,
        sqlite: include_str!("migrations/25.sqlite.sql"),
        postgres: include_str!("migrations/25.postgres.sql"),
    },
    Migration {
        version: 26,
        sqlite: include_str!("migrations/26.sqlite.sql"),
        postgres: include_str!("migrations/26.postgres.sql"),
    },
];

/// Version from which on new keys and projects are closed ([`crate::KeyRights`]). Step 10 writes
/// the rights of older keys and projects into their rows, so that they keep these rights.
const CLOSED_SINCE: i64 = 10;
/// Maximum number of keys, and of projects, that the log line about kept rights names.
const NAMES_LOGGED: usize = 50;
/// Selects the keys that are not revoked.
const LIVE_KEYS: &str = "SELECT id FROM tenant_keys WHERE revoked_at IS NULL ORDER BY id";

/// Returns two queries, for the ids of the keys and of the projects that kept their rights when a
/// database of version `found` was migrated. Returns `None` if the database was new, or if new keys
/// were already closed in it.
pub(crate) fn kept_rights_queries(found: i64) -> Option<[&'static str; 2]> {
    (1..CLOSED_SINCE).contains(&found).then_some([LIVE_KEYS, LIVE_PROJECTS])
}

/// Logs in one line which keys and projects have more rights than new ones. Logs nothing if there
/// are none.
pub(crate) fn log_kept_rights(keys: &[String], projects: &[String]) {
    if keys.is_empty() && projects.is_empty() {
        return;
    }
    tracing::warn!(
        keys = %listed(keys),
        projects = %listed(projects),
        "new keys and projects are closed from this version on; {} keys and {} projects from before keep what they may \
         do, which includes leases, ids of others, and all classes if they have no list of classes; see `fairgate key \
         list --wide` and `fairgate project list --wide`, and close them with `key set` and `project set`",
        keys.len(),
        projects.len(),
    );
}

fn listed(names: &[String]) -> String {
    let shown = names[..names.len().min(NAMES_LOGGED)].join(", ");
    match names.len().saturating_sub(NAMES_LOGGED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Creates the table of the schema version, which has one row for each step that was applied.
pub(crate) const VERSION_TABLE: &str =
    "CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)";
/// Selects the current schema version; 0 before the first step.
pub(crate) const READ_VERSION: &str = "SELECT COALESCE(MAX(version), 0) FROM schema_version";
/// Records that a step was applied.
pub(crate) const WRITE_VERSION: &str = "INSERT INTO schema_version (version) VALUES ($1)";

/// Returns the steps that a database at version `found` still needs. Fails if the database is newer than this build.
pub(crate) fn missing(found: i64) -> Result<&'static [Migration], StoreError> {
    let known = MIGRATIONS.last().map_or(0, |last| last.version);
    if found > known {
        return Err(StoreError::TooNew { found, known });
    }
    let first = MIGRATIONS.iter().position(|step| step.version > found);
    Ok(first.map_or(&[], |first| &MIGRATIONS[first..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_numbered_from_1_on() {
        assert!(
            MIGRATIONS.iter().map(|step| step.version).zip(1..).all(|(one, other)| one == other)
        );
    }

    /// The types of a column may differ between the databases. Its name, its position and whether
    /// it may be null must not.
    #[test]
    fn both_databases_have_the_same_tables() {
        let tables = |sql: &str| -> Vec<String> {
            let mut lines = Vec::new();
            for line in sql.lines().map(str::trim).filter(|line| !line.starts_with("--")) {
                let mut words = line.split_whitespace();
                let first = words.next().unwrap_or_default();
                let not_null = line.contains("NOT NULL");
                match first {
                    "CREATE" => lines.push(words.take(2).collect::<Vec<_>>().join(" ")),
                    name if name.starts_with(|c: char| c.is_ascii_lowercase()) => {
                        lines.push(format!("{name} {not_null}"));
                    }
                    _ => {}
                }
            }
            lines
        };
        for step in MIGRATIONS {
            let only_postgres =
                ["instance true", "TABLE instances", "id false", "lease_until true"];
            let mut postgres = tables(step.postgres);
            // Its processes share a database, so it has a table of them.
            if step.version == 1 {
                let start = postgres.iter().position(|line| line == only_postgres[0]).unwrap();
                assert_eq!(postgres.drain(start..start + 4).collect::<Vec<_>>(), only_postgres);
            }
            // SQLite says the same with an index.
            let mut sqlite = tables(step.sqlite);
            // It cannot add a column that counts, so it builds the table again; PostgreSQL adds the column and an index.
            if step.version == 26 {
                let end = sqlite.iter().position(|line| line == "TABLE ledger_exports").unwrap();
                sqlite.drain(..end);
                assert_eq!(postgres.remove(0), "UNIQUE INDEX");
            }
            sqlite.retain(|line| line != "UNIQUE INDEX");
            assert_eq!(sqlite, postgres);
        }
    }

    #[test]
    fn kept_rights_are_told_once_and_in_a_bounded_line() {
        assert!(kept_rights_queries(0).is_none(), "a new database has no keys");
        assert!((1..CLOSED_SINCE).all(|found| kept_rights_queries(found).is_some()));
        assert!(kept_rights_queries(CLOSED_SINCE).is_none());
        let names = |count: usize| -> Vec<String> { (0..count).map(|n| format!("k{n}")).collect() };
        assert_eq!(listed(&names(2)), "k0, k1");
        assert!(listed(&names(NAMES_LOGGED)).ends_with(", k49"));
        assert!(listed(&names(NAMES_LOGGED + 7)).ends_with(", k49 and 7 more"));
    }

    #[test]
    fn a_newer_database_is_refused() {
        let known = MIGRATIONS.last().unwrap().version;
        assert!(missing(known).unwrap().is_empty());
        assert_eq!(missing(0).unwrap().len(), MIGRATIONS.len());
        assert!(
            matches!(missing(known + 1), Err(StoreError::TooNew { found, .. }) if found == known + 1)
        );
    }
}
