//! An allocator that counts allocated bytes on request.
//!
//! The system's allocator does the work, and this allocator only counts. Benchmarks that measure
//! times leave the counting off.

#![allow(
    unsafe_code,
    reason = "GlobalAlloc is an unsafe trait; each method only passes on its arguments"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

static COUNTS: AtomicBool = AtomicBool::new(false);
static ALLOCATED: AtomicU64 = AtomicU64::new(0);
static FREED: AtomicU64 = AtomicU64::new(0);

struct CountingAllocator;

/// Starts to count allocated and freed bytes. Only memory allocated after this call should be freed
/// after it, because freeing older memory would make the count too low.
pub(crate) fn start_counting() {
    COUNTS.store(true, Relaxed);
}

/// Returns the number of bytes that were allocated since counting began and not freed.
pub(crate) fn live_bytes() -> u64 {
    ALLOCATED.load(Relaxed).saturating_sub(FREED.load(Relaxed))
}

fn count(counter: &AtomicU64, bytes: usize) {
    if COUNTS.load(Relaxed) {
        counter.fetch_add(bytes as u64, Relaxed);
    }
}

// SAFETY: every call passes its own arguments to the system's allocator.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(&ALLOCATED, layout.size());
        // SAFETY: the caller's promises are those that `System` requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(&ALLOCATED, layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(&FREED, layout.size());
        count(&ALLOCATED, new_size);
        // SAFETY: as above.
        unsafe { System.realloc(ptr, layout, new_size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(&FREED, layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }
}
