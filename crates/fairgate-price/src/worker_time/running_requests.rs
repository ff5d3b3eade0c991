//! The requests in flight that a meter follows.

use alloc::vec::Vec;

use super::cost::RequestWork;
use super::source_deviations::SourceBits;
use super::window_log::EngineSteps;
use super::work_sources::WorkSource;

/// Greatest number of requests that a meter follows. While more are in flight, nothing is learned.
pub(super) const RUNNING_MAX: usize = 1024;

/// The handle of a request in flight that a meter follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeteredRequest {
    index: u32,
    generation: u32,
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunningRequest {
    pub(super) source: WorkSource,
    /// Bit of the source in the windows in which the request is served.
    pub(super) bit: SourceBits,
    /// The work that is expected of the request.
    pub(super) expected: RequestWork,
    pub(super) choices: f64,
    pub(super) tokens_per_chunk: f64,
    /// Number of chunks with output so far.
    pub(super) chunks: u32,
    /// True if the gateway sees the request's chunks while the engine makes them.
    pub(super) streams: bool,
    pub(super) granted_us: u64,
    pub(super) granted_steps: EngineSteps,
    /// Number of the window that was open at the grant.
    pub(super) granted_window: u32,
    /// The step count and the window number at the request's first token; `None` before that token.
    pub(super) first: Option<(EngineSteps, u32)>,
}

#[derive(Clone, Debug)]
struct RequestSlot {
    generation: u32,
    request: Option<RunningRequest>,
}

/// All requests in flight at a worker.
#[derive(Clone, Debug, Default)]
pub(super) struct RunningRequests {
    slots: Vec<RequestSlot>,
    free: Vec<u32>,
}

impl RunningRequests {
    /// Adds a request. Returns `None` if [`RUNNING_MAX`] requests are in flight already.
    pub(super) fn insert(&mut self, request: RunningRequest) -> Option<MeteredRequest> {
        if let Some(index) = self.free.pop() {
            let slot = self.slots.get_mut(index as usize)?;
            slot.request = Some(request);
            return Some(MeteredRequest { index, generation: slot.generation });
        }
        let index = u32::try_from(self.slots.len()).ok()?;
        if self.slots.len() >= RUNNING_MAX {
            return None;
        }
        self.slots.push(RequestSlot { generation: 0, request: Some(request) });
        Some(MeteredRequest { index, generation: 0 })
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: MeteredRequest) -> Option<&mut RunningRequest> {
        let slot = self.slots.get_mut(id.index as usize)?;
        slot.request.as_mut().filter(|_| slot.generation == id.generation)
    }

    pub(super) fn remove(&mut self, id: MeteredRequest) -> Option<RunningRequest> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation != id.generation {
            return None;
        }
        let request = slot.request.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.index);
        Some(request)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &RunningRequest> {
        self.slots.iter().filter_map(|slot| slot.request.as_ref())
    }

    /// Returns the number of bytes that the requests take.
    pub(super) fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<RequestSlot>() + self.free.capacity() * size_of::<u32>()
    }
}
