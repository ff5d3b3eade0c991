//! The tenants of a simulation.

use std::vec::Vec;

use fairgate_random::SeededRng;

use super::super::RequestWork;

/// The way in which a tenant reads its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TenantConduct {
    Honest,
    /// The client takes this long for each token.
    ReadsSlowly {
        gap_us: u64,
    },
    LeavesAfterFirstChunk,
    StopsHalfWay,
}

impl TenantConduct {
    /// Returns true if the client leaves after it got this many of the answer's tokens.
    pub(super) fn leaves(self, delivered: u64, output: u64) -> bool {
        match self {
            Self::Honest | Self::ReadsSlowly { .. } => false,
            Self::LeavesAfterFirstChunk => delivered < output,
            Self::StopsHalfWay => delivered >= output / 2 && delivered < output,
        }
    }
}

/// A tenant, with the shape of its requests: input, cached and output tokens.
#[derive(Clone, Debug)]
pub(super) struct SimulatedTenant {
    pub(super) weight: u64,
    pub(super) shape: RequestWork,
    /// Requests that are queued or in flight at once.
    pub(super) clients: usize,
    /// Requests that are queued or in flight now.
    pub(super) open: usize,
    /// One in this many requests streams; 0 if none does.
    pub(super) streams_every: usize,
    pub(super) chunk_tokens: u64,
    pub(super) conduct: TenantConduct,
}

impl SimulatedTenant {
    pub(super) fn new(input: u64, cached: u64, output: u64, clients: usize) -> Self {
        Self {
            weight: 100,
            shape: RequestWork { input, cached, output, choices: 1 },
            clients,
            open: 0,
            streams_every: 1,
            chunk_tokens: 1,
            conduct: TenantConduct::Honest,
        }
    }

    /// Draws a request: each size is up to a fifth larger or smaller than that of the shape.
    pub(super) fn next_request(&self, rng: &mut SeededRng) -> RequestWork {
        let RequestWork { input, cached, output, choices } = self.shape;
        let mut near = |size: u64| rng.range(size - size / 5..=size + size / 5);
        let (uncached, cached, output) = (near(input - cached), near(cached), near(output));
        RequestWork { input: uncached + cached, cached, output: output.max(2), choices }
    }

    /// Returns the work that a gateway expects of a request. The gateway counts the input and knows
    /// the usual output.
    pub(super) fn expected(&self, work: RequestWork) -> RequestWork {
        RequestWork { output: self.shape.output, ..work }
    }

    /// Returns true if the request of this number streams.
    pub(super) fn streams(&self, number: usize) -> bool {
        self.streams_every > 0 && number.is_multiple_of(self.streams_every)
    }
}

/// A prompt-heavy and a decode-heavy tenant that could each fill these slots.
pub(super) fn two_tenants(slots: u64) -> Vec<SimulatedTenant> {
    let clients = slots as usize + 4;
    [(4096, 0, 64), (128, 0, 512)].map(|(i, k, o)| SimulatedTenant::new(i, k, o, clients)).to_vec()
}

/// Tenants of six shapes.
pub(super) fn six_tenants(slots: u64) -> Vec<SimulatedTenant> {
    let shapes = [
        (4096, 0, 64),
        (128, 0, 512),
        (512, 0, 256),
        (2200, 2000, 64),
        (64, 0, 32),
        (6500, 0, 400),
    ];
    let clients = slots as usize + 4;
    shapes.map(|(i, k, o)| SimulatedTenant::new(i, k, o, clients)).to_vec()
}
