//! The end of a gateway, in this order: the listeners stop; agents get no more tasks; queued
//! requests are refused; requests in flight finish or are cut off; leases and rows are written;
//! pools save their state; the store is closed.

use std::time::Duration;

use fairgate_proxy::phase::GatewayPhase;
use futures_util::future::join_all;
use tokio::time::{Instant, sleep_until};

use crate::gateway::{Boxed, Gateway};

/// The longest wait for cut-off requests to be settled.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// The result of a drain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayDrainReport {
    /// Connections that were cut off at the deadline.
    pub connections_cut: u64,
    /// Requests over all pools that had not ended even after the cut.
    pub still_in_flight: u64,
    /// Errors while saving or closing.
    pub problems: Vec<String>,
}

impl Gateway {
    /// Ends the grace period of a running [`drain`](Self::drain) now. Requests in flight are cut off, and everything is
    /// settled and saved as if the grace period had run out.
    pub fn cut_short(&self) {
        self.data.phase.advance(GatewayPhase::Closing);
    }

    /// Ends the gateway: it stops listening, `/readyz` returns 503, queued requests are refused with 503, and requests
    /// in flight may finish within `grace`. Then connections are cut, the pools' state is saved, and the store is
    /// closed.
    pub fn drain(&self, grace: Duration) -> Boxed<'_, GatewayDrainReport> {
        Box::pin(self.drain_unboxed(grace))
    }

    async fn drain_unboxed(&self, grace: Duration) -> GatewayDrainReport {
        let deadline = Instant::now() + grace;
        self.data.phase.advance(GatewayPhase::Draining);
        // No agent gets a task from a gateway that is about to stop.
        self.control.fleet.stop();
        let pools = self.data.pools.all();
        // Requests that are cut off at the deadline must still reach their gate.
        let gates = join_all(pools.iter().map(|pool| pool.gate.drain(grace + LAST_WAIT)));
        let mut phase = self.data.phase.watch();
        let cut = async {
            let finished = async {
                let left = self.server.wait_empty(grace).await;
                if left > 0 {
                    sleep_until(deadline).await;
                }
                left
            };
            let hurried = async {
                let _ = phase.wait_for(|stage| *stage >= GatewayPhase::Closing).await;
            };
            let left = tokio::select! {
                left = finished => left,
                () = hurried => self.server.wait_empty(Duration::ZERO).await,
            };
            self.data.phase.advance(GatewayPhase::Closing);
            self.server.wait_empty(LAST_WAIT).await;
            self.data.wait_settled(LAST_WAIT).await;
            left
        };
        let (gates, connections_cut) = tokio::join!(gates, cut);
        let mut drained = GatewayDrainReport { connections_cut, ..GatewayDrainReport::default() };
        for (pool, gate) in pools.iter().zip(gates) {
            match gate {
                Ok(gate) => {
                    drained.still_in_flight += gate.still_in_flight;
                    let problem =
                        gate.state.error.map(|error| format!("pool {}: {error}", pool.name));
                    drained.problems.extend(problem);
                }
                Err(closed) => drained.problems.push(format!("pool {}: {closed}", pool.name)),
            }
        }
        if let Err(error) = self.data.write_response_ids().await {
            drained.problems.push(format!("response ids could not be written: {error}"));
        }
        if let Err(error) = self.data.write_price_sets().await {
            drained.problems.push(format!("price sets of workers could not be written: {error}"));
        }
        if let Err(error) = self.data.store.close().await {
            drained.problems.push(format!("store: {error}"));
        }
        drained
    }
}
