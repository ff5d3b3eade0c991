//! Values under small numbers, stored in chunks. Growing copies no value, and numbers that are far apart cost memory
//! only for their own chunks.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// Number of values per chunk. The number is small, so that a snapshot cannot demand much memory with few requests
/// whose numbers are far apart.
const CHUNK: usize = 64;

#[derive(Clone, Debug)]
pub(crate) struct Slab<T> {
    /// The chunks, each of a fixed size, so that an index within a chunk needs no check. A chunk that was never used is
    /// `None`.
    chunks: Vec<Option<Box<[Option<T>; CHUNK]>>>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { chunks: Vec::new() }
    }
}

fn locate(number: u32) -> (usize, usize) {
    (number as usize / CHUNK, number as usize % CHUNK)
}

impl<T> Slab<T> {
    /// Returns the entry for a number; `None` if the number's chunk does not exist. The entry itself is `None` if no
    /// value is stored under the number.
    pub(crate) fn place(&mut self, number: u32) -> Option<&mut Option<T>> {
        let (chunk, index) = locate(number);
        Some(&mut self.chunks.get_mut(chunk)?.as_mut()?[index])
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        let (chunk, index) = locate(number);
        self.chunks.get(chunk)?.as_ref()?[index].as_ref()
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.place(number)?.as_mut()
    }

    /// Stores a value under a number, replacing any earlier value, and returns a reference to the stored value.
    pub(crate) fn put(&mut self, number: u32, value: T) -> &mut T {
        let (chunk, index) = locate(number);
        if self.chunks.get(chunk).is_none_or(Option::is_none) {
            self.add_chunk(chunk);
        }
        let chunk = self.chunks[chunk].as_mut().expect("a chunk that is there");
        chunk[index].insert(value)
    }

    /// Creates an empty chunk at an index, and extends the list of chunks up to that index.
    #[cold]
    fn add_chunk(&mut self, chunk: usize) {
        if self.chunks.len() <= chunk {
            self.chunks.resize_with(chunk + 1, || None);
        }
        let empty: Vec<Option<T>> = core::iter::repeat_with(|| None).take(CHUNK).collect();
        let empty = empty.try_into().unwrap_or_else(|_| unreachable!("it is as long as a chunk"));
        self.chunks[chunk] = Some(empty);
    }

    pub(crate) fn take(&mut self, number: u32) -> Option<T> {
        self.place(number)?.take()
    }

    /// Drops the value under a number without moving it first. Does nothing if there is no value.
    pub(crate) fn clear(&mut self, number: u32) {
        if let Some(place) = self.place(number) {
            *place = None;
        }
    }

    /// Returns every value with its number, sorted by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let chunks = self.chunks.iter().enumerate();
        let all = chunks.filter_map(|(at, chunk)| Some((at, chunk.as_ref()?))).flat_map(
            |(at, values)| values.iter().enumerate().map(move |(i, value)| (at * CHUNK + i, value)),
        );
        all.filter_map(|(number, value)| Some((u32::try_from(number).ok()?, value.as_ref()?)))
    }
}
