//! Shows which file declares a group, tenant or key.

use fairgate_api::admin::DeclaredInBody;
use fairgate_store::{DeclaredKind, Directory};

/// Returns the place in the file that declares an object; `None` if no file does.
pub(super) fn declared_in(
    directory: &Directory,
    kind: DeclaredKind,
    name: &str,
) -> Option<DeclaredInBody> {
    let record = directory.declaration(kind, name)?;
    Some(DeclaredInBody { file: record.file.clone(), line: record.line })
}
