//! Notes in the database about the groups, tenants and keys that a configuration file declares.

use fairgate_time::UnixMicros;

/// Kind of a declared object.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::EnumString, strum::IntoStaticStr,
)]
#[strum(serialize_all = "snake_case")]
pub enum DeclaredKind {
    /// A group of tenants.
    Group,
    /// A tenant of a group.
    Tenant,
    /// A key of a tenant.
    Key,
}

impl DeclaredKind {
    /// Returns the word for the kind: `group`, `tenant` or `key`.
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// Note in the database that a file declares an object, or once did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclarationRecord {
    /// Kind of the object.
    pub kind: DeclaredKind,
    /// Name of the group or tenant; of a key, its id.
    pub name: String,
    /// Path of the file that declares the object, or that was the last to declare it.
    pub file: String,
    /// Line of the declaration in the file.
    pub line: u64,
    /// True if the file that was applied last no longer declares the object.
    pub is_withdrawn: bool,
}

/// The file that was applied last, and the gateway that applied it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredSource {
    /// Name of the gateway that applied the file.
    pub gateway: String,
    /// Path of the file.
    pub file: String,
    /// Digest of the file's declarations, without paths and lines. Files with equal digests declare
    /// the same objects with the same settings.
    pub digest: String,
    /// Time at which the file was applied.
    pub applied_at: UnixMicros,
}
