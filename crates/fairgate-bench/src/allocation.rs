//! An allocator that counts what is allocated, while it is asked to.
//!
//! It is the system's allocator with a count beside it; nothing is counted while times are measured.

#![allow(
    unsafe_code,
    reason = "GlobalAlloc is an unsafe trait; each method only passes on its arguments"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static COUNTS: AtomicBool = AtomicBool::new(false);
static ALLOCATED: AtomicU64 = AtomicU64::new(0);
static FREED: AtomicU64 = AtomicU64::new(0);

struct Counting;

/// Starts to count. What is freed from now on should have been allocated from now on.
pub(crate) fn start_counting() {
    COUNTS.store(true, Relaxed);
}

/// The bytes that were asked for since counting began and not given back.
pub(crate) fn live_bytes() -> u64 {
    ALLOCATED.load(Relaxed).saturating_sub(FREED.load(Relaxed))
}

fn count(counter: &AtomicU64, bytes: usize) {
    if COUNTS.load(Relaxed) {
        counter.fetch_add(bytes as u64, Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator with the arguments it came with.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(&ALLOCATED, layout.size());
        // SAFETY: the caller's promises are those that `System` asks for.
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
