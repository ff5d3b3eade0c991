//! Model calls with task keys, in the steps of the gateway: key lookup, reservation, and rows of
//! the ledger.

use fairgate_api::agents::Claim;
use fairgate_store::{
    AttemptOutcome, AttemptRow, KeyHash, MicroUnits, Reservation, ReservationRefused, TaskClaim,
    UsageSource, UsageTerms, UsageWindow,
};
use fairgate_time::UnixMicros;

use super::expected_state::ExpectedCall;
use super::simulated_fleet::FleetSimulation;

/// Maximum reservation of one call, in tokens.
const CALL_MAX: u64 = 400;

impl FleetSimulation {
    /// Starts a model call of an agent, which may have lost its claim. Returns true if the call was
    /// granted.
    pub(super) async fn begin_call(&mut self, claim: &Claim) -> bool {
        let Some(key) = &claim.key else { return true };
        let now = self.now();
        let is_held = self.expected.hold(&claim.task, claim.epoch).is_some();
        // The gateway caches for a short time to which claim a key belongs.
        let is_remembered = self.dice.one_in(4);
        if !is_remembered {
            let found = self.fleet().task_key(KeyHash::of(key.as_bytes())).await.unwrap();
            assert_eq!(found.is_some(), is_held, "seed {}: a key opens or not", self.seed);
            let Some(found) = found else {
                self.counts.zombies_refused += 1;
                return false;
            };
            let found = (found.project, found.task, found.epoch);
            assert_eq!(found, (claim.project.clone(), claim.task.clone(), claim.epoch));
        }
        self.next_request += 1;
        let request = format!("r{}", self.next_request);
        let tokens = self.dice.within(1, CALL_MAX);
        let flight = ExpectedCall {
            project: claim.project.clone(),
            task: claim.task.clone(),
            epoch: claim.epoch,
            tokens,
            at: now,
            attempts: 0,
        };
        let is_granted = self.reserve(&request, flight).await;
        if is_granted && self.dice.one_in(8) {
            // The same request makes a second reservation, as for a retry at another worker.
            let mut again = self.expected.flights[&request].clone();
            again.tokens = self.dice.within(1, CALL_MAX);
            self.reserve(&request, again).await;
        }
        is_granted
    }

    /// Reserves tokens for a request, and checks that the answer agrees with the expected state.
    async fn reserve(&mut self, request: &str, flight: ExpectedCall) -> bool {
        let now = self.now();
        let before = self.expected.flights.remove(request);
        let in_force = self.expected.is_in_force(&flight.task, flight.epoch, now);
        let asked = reservation(request, &flight, self.terms(), now);
        match self.store.reserve(asked).await.unwrap() {
            Ok(granted) => {
                assert!(in_force, "seed {}: a claim that is over spends", self.seed);
                assert!(!granted.hosted);
                let kept = ExpectedCall { at: now, ..flight };
                self.expected.flights.insert(request.to_owned(), kept);
                self.counts.calls += 1;
                return true;
            }
            Err(ReservationRefused::LeaseLost(lost)) => {
                assert!(!in_force, "seed {}: {}", self.seed, lost.why);
                self.counts.zombies_refused += 1;
            }
            Err(ReservationRefused::Window(exhausted)) => {
                assert!(in_force, "seed {}", self.seed);
                let growth = self.expected.growth(&flight.task, flight.epoch, flight.tokens);
                let aside = self.expected.set_aside();
                let (limit, reserved, used) = match &exhausted.project {
                    Some(project) => {
                        assert_eq!(*project, flight.project);
                        let reserved = aside.get(project.as_str()).copied().unwrap_or(0);
                        (
                            self.expected.projects[project].budget,
                            reserved,
                            self.used_bounds(project),
                        )
                    }
                    None => (self.options.budget, aside.values().sum(), self.used_bounds_of_all()),
                };
                assert_eq!(
                    (Some(exhausted.limit), exhausted.reserved, exhausted.wanted),
                    (limit, reserved, growth),
                    "seed {}: refused for other reasons than true ones",
                    self.seed
                );
                assert!(used.contains(&exhausted.used), "seed {}: {used:?}", self.seed);
                assert!(exhausted.used + exhausted.reserved + exhausted.wanted > exhausted.limit);
                self.counts.calls_over_budget += 1;
            }
            Err(ReservationRefused::Budget(exhausted)) => {
                panic!("seed {}: {exhausted:?}", self.seed)
            }
            Err(ReservationRefused::TaskCap(reached)) => {
                panic!("seed {}: no task has a cap: {reached:?}", self.seed)
            }
        }
        if let Some(before) = before {
            // The earlier reservation is kept.
            self.expected.flights.insert(request.to_owned(), before);
        }
        false
    }

    fn terms(&self) -> UsageTerms {
        UsageTerms { window: UsageWindow::new(self.options.window), budget: self.options.budget }
    }

    /// Ends some of the calls in flight, including those of agents that no longer exist.
    pub(super) async fn end_some_calls(&mut self, one_in: u64) {
        let requests: Vec<String> = self.expected.flights.keys().cloned().collect();
        for request in requests {
            if self.dice.one_in(one_in) {
                self.end_call(&request).await;
            }
        }
    }

    /// Ends a call that used as many tokens as it reserved, or fewer, or more.
    async fn end_call(&mut self, request: &str) {
        if self.dice.one_in(6) {
            // A worker failed, and the call is retried at another worker.
            let mut flight = self.expected.flights[request].clone();
            flight.attempts += 1;
            let tokens = self.dice.below(60);
            self.record(request, &flight, flight.attempts, tokens, false).await;
            self.expected.charge_call(&flight, tokens.cast_signed(), tokens, 0, self.now());
            self.expected.flights.insert(request.to_owned(), flight);
            if self.dice.one_in(2) {
                return;
            }
        }
        let flight = self.expected.flights.remove(request).unwrap();
        let tokens = self.real_use(&flight);
        self.record(request, &flight, flight.attempts + 1, tokens, true).await;
        let beyond = tokens.saturating_sub(flight.tokens);
        self.counts.calls_beyond += u64::from(beyond > 0);
        self.counts.late_settles +=
            u64::from(self.expected.hold(&flight.task, flight.epoch).is_none());
        self.expected.charge_call(&flight, tokens.cast_signed(), beyond, 1, self.now());
    }

    fn real_use(&mut self, flight: &ExpectedCall) -> u64 {
        match self.dice.below(8) {
            0 => 0,
            1 | 2 => flight.tokens + self.dice.within(1, flight.tokens),
            _ => self.dice.within(1, flight.tokens),
        }
    }

    /// Writes a row of the ledger, and sometimes a second time.
    async fn record(
        &mut self,
        request: &str,
        flight: &ExpectedCall,
        attempt: u32,
        tokens: u64,
        last: bool,
    ) {
        let row = row(request, flight, attempt, tokens, last);
        let times = if self.dice.one_in(5) { 2 } else { 1 };
        for _ in 0..times {
            self.store.record(row.clone()).await.unwrap();
        }
    }

    /// Handles the death of all servers: calls in flight are charged their reservations. Returns
    /// their number.
    pub(super) fn lose_calls(&mut self) -> u64 {
        let now = self.now();
        let flights = std::mem::take(&mut self.expected.flights);
        for (request, flight) in &flights {
            self.expected.charge_call(flight, flight.tokens.cast_signed(), 0, 1, now);
            self.expected.lost.insert(request.clone(), flight.clone());
        }
        self.counts.calls_lost += flights.len() as u64;
        flights.len() as u64
    }

    /// Delivers late rows of calls that were counted as lost. The rows replace the guesses.
    pub(super) async fn find_some_lost(&mut self) {
        let requests: Vec<String> = self.expected.lost.keys().cloned().collect();
        for request in requests {
            if !self.dice.one_in(3) {
                continue;
            }
            let flight = self.expected.lost.remove(&request).unwrap();
            let tokens = self.real_use(&flight);
            self.record(&request, &flight, flight.attempts + 1, tokens, true).await;
            let more = tokens.cast_signed() - flight.tokens.cast_signed();
            let beyond = tokens.saturating_sub(flight.tokens);
            self.expected.charge_call(&flight, more, beyond, 0, self.now());
            self.counts.guesses_taken_back += 1;
        }
    }
}

pub(super) fn reservation(
    request: &str,
    flight: &ExpectedCall,
    terms: UsageTerms,
    now: i64,
) -> Reservation {
    Reservation {
        request: request.to_owned(),
        group: "g".into(),
        tenant: "t".into(),
        key: format!("project:{}", flight.project),
        model: "m".into(),
        tokens: flight.tokens,
        provider_tokens: flight.tokens,
        has_files: false,
        money: MicroUnits(0),
        hosted: None,
        model_budgets: Vec::new(),
        claim: Some(claim_of(flight)),
        terms,
        at: UnixMicros(now),
    }
}

fn claim_of(flight: &ExpectedCall) -> TaskClaim {
    TaskClaim { project: flight.project.clone(), task: flight.task.clone(), epoch: flight.epoch }
}

pub(super) fn row(
    request: &str,
    flight: &ExpectedCall,
    attempt: u32,
    tokens: u64,
    last: bool,
) -> AttemptRow {
    AttemptRow {
        request: request.to_owned(),
        attempt,
        last,
        started_at: UnixMicros(flight.at),
        group: "g".into(),
        tenant: "t".into(),
        key: format!("project:{}", flight.project),
        agent: None,
        session: None,
        route: "/v1/chat/completions".into(),
        stream: false,
        model: "m".into(),
        pool: Some("p".into()),
        worker: Some("w".into()),
        estimate: flight.tokens,
        input_tokens: tokens / 2,
        cached_tokens: 0,
        output_tokens: tokens - tokens / 2,
        charged: tokens,
        usage: UsageSource::Reported,
        waited_us: 0,
        first_token_us: None,
        total_us: 1,
        status: if last { 200 } else { 502 },
        outcome: if last { AttemptOutcome::Completed } else { AttemptOutcome::Retried },
        code: None,
        brownout: false,
        occupied: 0,
        provider_tokens: tokens,
        money: MicroUnits(0),
        price: None,
        tier: 0,
        class: None,
        cache_written_tokens: 0,
        cache_written_1h_tokens: 0,
        estimate_uncached: 0,
        charged_uncached: 0,
        worker_us: 0,
        price_set: None,
        claim: Some(claim_of(flight)),
    }
}
