//! A table that gives equal values one shared number. It is for values that many requests have in
//! common.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A table with reference counts. Equal values share a number while the number has at least one holder.
#[derive(Clone, Debug)]
pub(crate) struct Interner<T> {
    numbers: BTreeMap<T, u32>,
    values: Vec<(T, u64)>,
    free: Vec<u32>,
}

impl<T: Ord + Clone> Interner<T> {
    /// Creates an empty table.
    pub(crate) fn new() -> Self {
        Self { numbers: BTreeMap::new(), values: Vec::new(), free: Vec::new() }
    }

    /// Returns the number of a value and counts one more holder. A new value gets a free number.
    pub(crate) fn hold(&mut self, value: &T) -> u32 {
        if let Some(number) = self.numbers.get(value) {
            self.values[*number as usize].1 += 1;
            return *number;
        }
        let entry = (value.clone(), 1);
        let number = match self.free.pop() {
            Some(number) => {
                self.values[number as usize] = entry;
                number
            }
            None => {
                self.values.push(entry);
                u32::try_from(self.values.len() - 1).expect("fewer than 2^32 values")
            }
        };
        self.numbers.insert(value.clone(), number);
        number
    }

    /// Counts one more holder of a number.
    pub(crate) fn hold_again(&mut self, number: u32) {
        self.values[number as usize].1 += 1;
    }

    /// Counts one holder less of a number. The number becomes free when it has no holder left.
    pub(crate) fn release(&mut self, number: u32) {
        let (value, holders) = &mut self.values[number as usize];
        *holders -= 1;
        if *holders == 0 {
            self.numbers.remove(value);
            self.free.push(number);
        }
    }

    /// Returns the value of a number that is held.
    pub(crate) fn get(&self, number: u32) -> &T {
        &self.values[number as usize].0
    }
}
