//! Requests at a pool's gate, granted at a steady pace.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::event::Submit;
use fairgate_core::units::Tokens;
use fairgate_runtime::{Gate, Permit};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::testbed::{SLOTS, names};

/// Cost of every request, in tokens.
const COST: Tokens = Tokens(100);
/// Greatest time that the next grant may take.
const GRANT_TIME_MAX: Duration = Duration::from_secs(10);
const MINUTE: Duration = Duration::from_secs(60);

/// A request that has its slot.
struct GrantedRequest {
    permit: Permit,
    tenant: usize,
    at: Instant,
}

/// Requests of many tenants, of which as many are in flight as the pool has slots, and the others wait.
pub(super) struct GrantLoad {
    gate: Gate,
    submitted: u64,
    waiting: JoinSet<()>,
    sender: mpsc::UnboundedSender<GrantedRequest>,
    granted: mpsc::UnboundedReceiver<GrantedRequest>,
    in_flight: VecDeque<GrantedRequest>,
}

impl GrantLoad {
    /// Fills the pool until so many requests wait.
    pub(super) async fn begin(gate: Gate, tenants: usize, waiting: usize) -> Result<Self> {
        let (sender, granted) = mpsc::unbounded_channel();
        let (tasks, in_flight) = (JoinSet::new(), VecDeque::new());
        let mut load = Self { gate, submitted: 0, waiting: tasks, sender, granted, in_flight };
        let slots = usize::try_from(SLOTS)?;
        for number in 0..waiting + slots {
            load.submit(number % tenants);
        }
        for _ in 0..slots {
            load.next_grant().await?;
        }
        let filled = async {
            while load.gate.status().await?.waiting < waiting as u64 {
                sleep(Duration::from_millis(10)).await;
            }
            anyhow::Ok(())
        };
        timeout(MINUTE, filled).await.context("the pool did not fill")??;
        Ok(load)
    }

    fn submit(&mut self, tenant: usize) {
        let (name, group) = names(tenant);
        let attributes = Attributes::none()
            .with(Attribute::Group, &group)
            .with(Attribute::Tenant, &name)
            .with(Attribute::Key, &format!("key-of-{name}"));
        self.submitted += 1;
        let id = format!("request-{}", self.submitted);
        let submit = Submit { attributes, cost: Some(COST), ..Submit::new(&id) };
        let (gate, sender) = (self.gate.clone(), self.sender.clone());
        self.waiting.spawn(async move {
            // A request that the end of the run refuses has nobody to tell.
            let Ok(permit) = gate.admit(submit).await else { return };
            let _ = sender.send(GrantedRequest { permit, tenant, at: Instant::now() });
        });
    }

    async fn next_grant(&mut self) -> Result<Instant> {
        let granted = timeout(GRANT_TIME_MAX, self.granted.recv()).await;
        let granted = granted.context("no grant in 10 s")?.context("no request waits")?;
        let at = granted.at;
        self.in_flight.push_back(granted);
        while self.waiting.try_join_next().is_some() {}
        Ok(at)
    }

    /// Settles `rate` requests per second, and returns the times from each settlement to the next grant.
    pub(super) async fn run(&mut self, rate: u32, time: Duration) -> Result<Vec<Duration>> {
        let mut ticks = interval(Duration::from_secs(1) / rate);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut times, end) = (Vec::new(), Instant::now() + time);
        while Instant::now() < end {
            ticks.tick().await;
            let Some(request) = self.in_flight.pop_front() else { bail!("nothing is in flight") };
            let settled = Instant::now();
            request.permit.settle(COST);
            let granted = self.next_grant().await?;
            times.push(granted.saturating_duration_since(settled));
            self.submit(request.tenant);
        }
        ensure!(!times.is_empty(), "nothing was granted");
        Ok(times)
    }

    /// Takes back all requests that wait, and ends those in flight.
    pub(super) async fn end(mut self) -> Result<()> {
        self.waiting.shutdown().await;
        self.granted.close();
        while let Some(granted) = self.granted.recv().await {
            self.in_flight.push_back(granted);
        }
        self.in_flight.drain(..).for_each(|request| request.permit.settle(COST));
        let emptied = async {
            loop {
                let status = self.gate.status().await?;
                if status.waiting + status.in_flight == 0 {
                    return anyhow::Ok(());
                }
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(MINUTE, emptied).await.context("the pool did not empty")?
    }
}
