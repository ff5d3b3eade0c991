//! A transaction wrapper that counts SQL statements.

use fairgate_store::{DatabaseKind, RowColumns, SqlValue, StoreError, Transaction};

/// Transaction that counts the SQL statements that it runs.
pub(crate) struct CountingTransaction<'a> {
    tx: &'a mut dyn Transaction,
    pub(crate) statements: u64,
}

impl<'a> CountingTransaction<'a> {
    pub(crate) fn new(tx: &'a mut dyn Transaction) -> Self {
        Self { tx, statements: 0 }
    }
}

impl Transaction for CountingTransaction<'_> {
    fn each(
        &mut self,
        sql: &str,
        values: &[SqlValue],
        row: &mut dyn FnMut(&dyn RowColumns) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.statements += 1;
        self.tx.each(sql, values, row)
    }

    fn run(&mut self, sql: &str, values: &[SqlValue]) -> Result<u64, StoreError> {
        self.statements += 1;
        self.tx.run(sql, values)
    }

    fn database(&self) -> DatabaseKind {
        self.tx.database()
    }
}
