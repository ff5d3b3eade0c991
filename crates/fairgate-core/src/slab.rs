//! Values under small numbers, in chunks: growing copies nothing, and numbers far apart cost only their own chunks.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// Small, so that a snapshot cannot ask for much memory with few requests whose numbers are far apart.
const CHUNK: usize = 64;

#[derive(Clone, Debug)]
pub(crate) struct Slab<T> {
    /// A fixed size, so that a place within a chunk needs no check.
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
    fn place(&mut self, number: u32) -> Option<&mut Option<T>> {
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

    /// Puts a value under a number; returns it where it lies now.
    pub(crate) fn put(&mut self, number: u32, value: T) -> &mut T {
        let (chunk, index) = locate(number);
        if self.chunks.len() <= chunk {
            self.chunks.resize_with(chunk + 1, || None);
        }
        let chunk = self.chunks[chunk].get_or_insert_with(|| {
            let empty: Vec<Option<T>> = core::iter::repeat_with(|| None).take(CHUNK).collect();
            empty.try_into().unwrap_or_else(|_| unreachable!("it is as long as a chunk"))
        });
        chunk[index].insert(value)
    }

    pub(crate) fn take(&mut self, number: u32) -> Option<T> {
        self.place(number)?.take()
    }

    /// Drops a value where it lies.
    pub(crate) fn clear(&mut self, number: u32) {
        if let Some(place) = self.place(number) {
            *place = None;
        }
    }

    /// Every value with its number, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let chunks = self.chunks.iter().enumerate();
        let all = chunks.filter_map(|(at, chunk)| Some((at, chunk.as_ref()?))).flat_map(
            |(at, values)| values.iter().enumerate().map(move |(i, value)| (at * CHUNK + i, value)),
        );
        all.filter_map(|(number, value)| Some((u32::try_from(number).ok()?, value.as_ref()?)))
    }
}
