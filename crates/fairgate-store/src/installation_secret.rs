//! Secrets that all gateways on one database share. The first gateway that needs a secret creates
//! it. After that, the secret never changes.

use std::fmt;

use crate::error::StoreError;
use crate::sql::SqlValue;
use crate::transaction::Transaction;

const READ: &str = "SELECT secret FROM installation_secrets WHERE name = $1";
const WRITE: &str = "INSERT INTO installation_secrets (name, secret) VALUES ($1, $2)";

/// A secret of the installation: 256 random bits, the same for all gateways on one database. `Debug` hides it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct InstallationSecret([u8; 32]);

impl InstallationSecret {
    /// Returns the bytes of the secret, as the key of a keyed hash.
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }

    /// Reads the secret of this name, or creates it. Transactions run one at a time, so two
    /// gateways that start at once get the same secret.
    pub(crate) fn read_or_make(
        transaction: &mut dyn Transaction,
        name: &'static str,
    ) -> Result<Self, StoreError> {
        let values = [SqlValue::Text(name.to_owned())];
        if let Some(text) = transaction.first(READ, &values, |row| row.text(0))? {
            let secret = blake3::Hash::from_hex(&text).map_err(|_| damaged(name))?;
            return Ok(Self(*secret.as_bytes()));
        }
        let mut secret = [0_u8; 32];
        getrandom::fill(&mut secret).map_err(|error| {
            StoreError::Database(format!("the system gives no random numbers: {error}"))
        })?;
        let text = blake3::Hash::from_bytes(secret).to_hex().to_string();
        let [name] = values;
        transaction.run(WRITE, &[name, SqlValue::Text(text)])?;
        Ok(Self(secret))
    }
}

fn damaged(name: &str) -> StoreError {
    StoreError::Database(format!(
        "the secret {name:?} in the table installation_secrets is not 64 hexadecimal digits: delete its row, and a \
         new one is made"
    ))
}

impl fmt::Debug for InstallationSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InstallationSecret(…)")
    }
}
