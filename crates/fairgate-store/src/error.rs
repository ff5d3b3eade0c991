//! Errors of the store.

/// Reason why an operation of the store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The URL is not that of a supported database.
    #[error("store {url:?}: {problem}")]
    Url {
        /// The URL, without its password.
        url: String,
        /// Description of the problem and of a valid URL.
        problem: String,
    },
    /// No object of this kind has this name.
    #[error("there is no {what} {name:?}")]
    NotFound {
        /// Kind of the object: `group`, `tenant` or `key`.
        what: &'static str,
        /// Name or id of the object.
        name: String,
    },
    /// An object of this kind with this name exists already.
    #[error("there is a {what} {name:?} already")]
    Exists {
        /// Kind of the object: `group`, `tenant` or `key`.
        what: &'static str,
        /// Name or id of the object.
        name: String,
    },
    /// The object cannot be removed because it is in use: a group has tenants, or a tenant has
    /// projects.
    #[error("{what} {name:?} is in use: {by}")]
    InUse {
        /// Kind of the object: `group` or `tenant`.
        what: &'static str,
        /// Name of the object.
        name: String,
        /// Description of the users of the object, and of what the caller can do.
        by: String,
    },
    /// A configuration file declares the object, so only the file may change it.
    #[error("{what} {name:?} is declared in {file}, line {line}: change it there and reload")]
    Declared {
        /// Kind of the object: `group`, `tenant` or `key`.
        what: &'static str,
        /// Name or id of the object.
        name: String,
        /// Path of the file, as the gateway that applied it knows it.
        file: String,
        /// Line of the declaration in the file.
        line: u64,
    },
    /// The change cannot be undone because the same fields were changed again since. Nothing was
    /// changed.
    #[error(
        "{subject:?} is not as change {entry} left it: somebody has changed it since; look at the audit trail and set it \
         by hand"
    )]
    ChangedSince {
        /// Name or id of the changed object.
        subject: String,
        /// Id of the audit entry of the change.
        entry: i64,
    },
    /// The change has no inverse in the directory, or its audit entry was written by another version.
    #[error(
        "change {entry} cannot be undone: it is of another kind, or was written by another version"
    )]
    NotUndoable {
        /// Id of the audit entry of the change.
        entry: i64,
    },
    /// A field has an invalid value.
    #[error("field {field:?}: {problem}")]
    Invalid {
        /// Name of the field.
        field: &'static str,
        /// Description of the problem with the field's value.
        problem: String,
    },
    /// The database was written by a newer Fairgate.
    #[error("the database has schema {found}, and this Fairgate knows {known}: upgrade Fairgate")]
    TooNew {
        /// Schema version of the database.
        found: i64,
        /// Newest schema version that this build knows.
        known: i64,
    },
    /// Another process has this SQLite file open.
    #[error(
        "{file} is in use by another fairgate process: one process per SQLite file; several need PostgreSQL"
    )]
    Locked {
        /// Path of the database file.
        file: String,
    },
    /// Another process uses this spool folder.
    #[error(
        "the folder {folder} is in use by another fairgate process: each process needs a folder of its own for rows on \
         their way to PostgreSQL; set `store.spool` to another folder"
    )]
    SpoolLocked {
        /// Path of the folder.
        folder: String,
    },
    /// A row could be stored neither in a file nor in the database. The row is lost if the process is killed.
    #[error("the row cannot be kept: {0}")]
    Unrecorded(String),
    /// The disk of the database is full. The operation changed nothing.
    #[error("the disk of the database takes nothing more: {0}")]
    Full(String),
    /// The database reported an error.
    #[error("database: {0}")]
    Database(String),
    /// The store has been closed, or its background task or thread has ended.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    /// Returns an equal error, for a further caller that waits for the same failed operation.
    pub fn repeated(&self) -> Self {
        match self {
            Self::Full(problem) => Self::Full(problem.clone()),
            Self::Database(problem) => Self::Database(problem.clone()),
            Self::Closed => Self::Closed,
            other => Self::Database(other.to_string()),
        }
    }
}
