//! What can go wrong with the store.

/// Why the store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The address names no store that there is.
    #[error("store {url:?}: {problem}")]
    Url {
        /// The address, without its password.
        url: String,
        /// What is wrong with it, and what would be right.
        problem: String,
    },
    /// There is nothing of that name.
    #[error("there is no {what} {name:?}")]
    NotFound {
        /// `group`, `tenant` or `key`.
        what: &'static str,
        /// Its name or id.
        name: String,
    },
    /// There is one of that name already.
    #[error("there is a {what} {name:?} already")]
    Exists {
        /// `group`, `tenant` or `key`.
        what: &'static str,
        /// Its name or id.
        name: String,
    },
    /// It is in use: a group that has tenants.
    #[error("{what} {name:?} is in use: {by}")]
    InUse {
        /// `group` or `tenant`.
        what: &'static str,
        /// Its name.
        name: String,
        /// By what.
        by: String,
    },
    /// A field has a value that it may not have.
    #[error("field {field:?}: {problem}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The database was written by a newer Fairgate.
    #[error("the database has schema {found}, and this Fairgate knows {known}: upgrade Fairgate")]
    TooNew {
        /// The schema of the database.
        found: i64,
        /// The newest schema that this build knows.
        known: i64,
    },
    /// Another process has this SQLite file.
    #[error(
        "{file} is in use by another fairgate process: one process per SQLite file; several need PostgreSQL"
    )]
    Locked {
        /// The file.
        file: String,
    },
    /// Another process has this folder for rows on their way to PostgreSQL.
    #[error(
        "the folder {folder} is in use by another fairgate process: each process needs a folder of its own for rows on \
         their way to PostgreSQL; set `store.spool` to another folder"
    )]
    SpoolLocked {
        /// The folder.
        folder: String,
    },
    /// A row is in no file and in no database: a killed process would lose it.
    #[error("the row cannot be kept: {0}")]
    Unrecorded(String),
    /// The database's disk takes nothing more. Nothing was changed.
    #[error("the disk of the database takes nothing more: {0}")]
    Full(String),
    /// The database said no.
    #[error("database: {0}")]
    Database(String),
    /// The store has been closed, or its task is gone.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    /// The same, for another one who waits for what has failed.
    pub fn repeated(&self) -> Self {
        match self {
            Self::Full(problem) => Self::Full(problem.clone()),
            Self::Database(problem) => Self::Database(problem.clone()),
            Self::Closed => Self::Closed,
            other => Self::Database(other.to_string()),
        }
    }
}
