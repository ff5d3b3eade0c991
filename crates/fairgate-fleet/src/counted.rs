//! A transaction whose statements are counted.

use fairgate_store::{Columns, Database, StoreError, Transaction, Value};

/// A transaction, and how many statements were made in it.
pub(crate) struct Counted<'a> {
    tx: &'a mut dyn Transaction,
    pub(crate) statements: u64,
}

impl<'a> Counted<'a> {
    pub(crate) fn new(tx: &'a mut dyn Transaction) -> Self {
        Self { tx, statements: 0 }
    }
}

impl Transaction for Counted<'_> {
    fn each(
        &mut self,
        sql: &str,
        values: &[Value],
        row: &mut dyn FnMut(&dyn Columns) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.statements += 1;
        self.tx.each(sql, values, row)
    }

    fn run(&mut self, sql: &str, values: &[Value]) -> Result<u64, StoreError> {
        self.statements += 1;
        self.tx.run(sql, values)
    }

    fn database(&self) -> Database {
        self.tx.database()
    }
}
