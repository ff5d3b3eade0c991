//! Warns if another gateway on the same database has applied a file with other declarations. The
//! later of two reloads wins, and both gateways log a warning.

use std::sync::{Mutex, PoisonError};

use fairgate_store::{Declarations, DeclaredSource, Directory};

/// Remembers what this gateway has declared.
#[derive(Debug, Default)]
pub struct DeclarationWatch {
    last: Mutex<Option<LastDeclared>>,
}

#[derive(Debug)]
struct LastDeclared {
    gateway: String,
    digest: String,
    /// Digest of another gateway's declarations that the log already has a warning about.
    warned_of: Option<String>,
}

impl DeclarationWatch {
    /// Notes the declarations that this gateway has just applied. A file that declares nothing is not watched.
    pub fn note_applied(&self, declared: &Declarations) {
        let last = declared.is_stated.then(|| LastDeclared {
            gateway: declared.gateway.clone(),
            digest: declared.digest(),
            warned_of: None,
        });
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = last;
    }

    /// Logs a warning if another gateway has applied other declarations since.
    pub(super) fn look(&self, directory: &Directory) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((last, source)) = last.as_mut().zip(directory.declared_source.as_ref()) else {
            return;
        };
        let DeclaredSource { gateway, file, digest, applied_at } = source;
        if *gateway == last.gateway || *digest == last.digest {
            return;
        }
        if last.warned_of.as_ref() != Some(digest) {
            last.warned_of = Some(digest.clone());
            tracing::warn!(
                by = gateway,
                file,
                at = %fairgate_time::to_rfc3339(*applied_at),
                "another gateway has declared other groups, tenants or keys, and they apply here too: the later reload wins; \
                 give all gateways on one database the same groups, tenants and keys"
            );
        }
    }
}
