//! Calls to models under task keys, made as the gateway makes them: whose key it is, a reservation, and rows.

use fairgate_money::UnixMicros;
use fairgate_store::{
    Attempt, FleetTerms, KeyHash, MicroUnits, Outcome, Refused, Reservation, TaskClaim,
    UsageSource, Window,
};

use super::shadow::Flight;
use super::world::World;
use crate::model::Claim;

/// The most that one call may use, as it says itself, in tokens.
const CALL_MAX: u64 = 400;

impl World {
    /// An agent, or what is left of one, makes a call. Says whether it was let through.
    pub(super) async fn begin_call(&mut self, claim: &Claim) -> bool {
        let Some(key) = &claim.key else { return true };
        let now = self.now();
        let is_held = self.shadow.hold(&claim.task, claim.epoch).is_some();
        // The gateway believes for a moment whose a key is.
        let is_remembered = self.dice.one_in(4);
        if !is_remembered {
            let found = self.fleet().task_key(KeyHash::of(key.as_bytes())).await.unwrap();
            assert_eq!(found.is_some(), is_held, "seed {}: a key opens or not", self.seed);
            let Some(found) = found else {
                self.seen.zombies_refused += 1;
                return false;
            };
            let found = (found.project, found.task, found.epoch);
            assert_eq!(found, (claim.project.clone(), claim.task.clone(), claim.epoch));
        }
        self.next_request += 1;
        let request = format!("r{}", self.next_request);
        let tokens = self.dice.within(1, CALL_MAX);
        let flight = Flight {
            project: claim.project.clone(),
            task: claim.task.clone(),
            epoch: claim.epoch,
            tokens,
            at: now,
            attempts: 0,
        };
        let is_granted = self.reserve(&request, flight).await;
        if is_granted && self.dice.one_in(8) {
            // The same request reserves anew, as one does that is sent elsewhere.
            let mut again = self.shadow.flights[&request].clone();
            again.tokens = self.dice.within(1, CALL_MAX);
            self.reserve(&request, again).await;
        }
        is_granted
    }

    /// Reserves for a request; the answer must be what the books say.
    async fn reserve(&mut self, request: &str, flight: Flight) -> bool {
        let now = self.now();
        let before = self.shadow.flights.remove(request);
        let in_force = self.shadow.is_in_force(&flight.task, flight.epoch, now);
        let asked = reservation(request, &flight, self.terms(), now);
        match self.store.reserve(asked).await.unwrap() {
            Ok(granted) => {
                assert!(in_force, "seed {}: a claim that is over spends", self.seed);
                assert!(!granted.hosted);
                let kept = Flight { at: now, ..flight };
                self.shadow.flights.insert(request.to_owned(), kept);
                self.seen.calls += 1;
                return true;
            }
            Err(Refused::LeaseLost(lost)) => {
                assert!(!in_force, "seed {}: {}", self.seed, lost.why);
                self.seen.zombies_refused += 1;
            }
            Err(Refused::Fleet(exhausted)) => {
                assert!(in_force, "seed {}", self.seed);
                let growth = self.shadow.growth(&flight.task, flight.epoch, flight.tokens);
                let aside = self.shadow.set_aside();
                let (limit, reserved, used) = match &exhausted.project {
                    Some(project) => {
                        assert_eq!(*project, flight.project);
                        let reserved = aside.get(project.as_str()).copied().unwrap_or(0);
                        (self.shadow.projects[project].budget, reserved, self.used_bounds(project))
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
                self.seen.calls_over_budget += 1;
            }
            Err(Refused::Budget(exhausted)) => panic!("seed {}: {exhausted:?}", self.seed),
        }
        if let Some(before) = before {
            // What it held stays held.
            self.shadow.flights.insert(request.to_owned(), before);
        }
        false
    }

    fn terms(&self) -> FleetTerms {
        FleetTerms { window: Window::new(self.options.window), budget: self.options.budget }
    }

    /// Some of the calls in flight come to something, whether their agents are still there or not.
    pub(super) async fn end_some_calls(&mut self, one_in: u64) {
        let requests: Vec<String> = self.shadow.flights.keys().cloned().collect();
        for request in requests {
            if self.dice.one_in(one_in) {
                self.end_call(&request).await;
            }
        }
    }

    /// A call ends: it used what it reserved, less, or more.
    async fn end_call(&mut self, request: &str) {
        if self.dice.one_in(6) {
            // A worker failed, and another one is tried.
            let mut flight = self.shadow.flights[request].clone();
            flight.attempts += 1;
            let tokens = self.dice.below(60);
            self.record(request, &flight, flight.attempts, tokens, false).await;
            self.shadow.charge_call(&flight, tokens.cast_signed(), tokens, 0, self.now());
            self.shadow.flights.insert(request.to_owned(), flight);
            if self.dice.one_in(2) {
                return;
            }
        }
        let flight = self.shadow.flights.remove(request).unwrap();
        let tokens = self.real_use(&flight);
        self.record(request, &flight, flight.attempts + 1, tokens, true).await;
        let beyond = tokens.saturating_sub(flight.tokens);
        self.seen.calls_beyond += u64::from(beyond > 0);
        self.seen.late_settles += u64::from(self.shadow.hold(&flight.task, flight.epoch).is_none());
        self.shadow.charge_call(&flight, tokens.cast_signed(), beyond, 1, self.now());
    }

    fn real_use(&mut self, flight: &Flight) -> u64 {
        match self.dice.below(8) {
            0 => 0,
            1 | 2 => flight.tokens + self.dice.within(1, flight.tokens),
            _ => self.dice.within(1, flight.tokens),
        }
    }

    /// Writes a row, and now and then once more.
    async fn record(
        &mut self,
        request: &str,
        flight: &Flight,
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

    /// The server died: what was in flight is charged what was reserved for it.
    pub(super) fn lose_calls(&mut self) -> u64 {
        let now = self.now();
        let flights = std::mem::take(&mut self.shadow.flights);
        for (request, flight) in &flights {
            self.shadow.charge_call(flight, flight.tokens.cast_signed(), 0, 1, now);
            self.shadow.lost.insert(request.clone(), flight.clone());
        }
        self.seen.calls_lost += flights.len() as u64;
        flights.len() as u64
    }

    /// Calls that were taken for lost were not: their rows come late, and count instead of the guess.
    pub(super) async fn find_some_lost(&mut self) {
        let requests: Vec<String> = self.shadow.lost.keys().cloned().collect();
        for request in requests {
            if !self.dice.one_in(3) {
                continue;
            }
            let flight = self.shadow.lost.remove(&request).unwrap();
            let tokens = self.real_use(&flight);
            self.record(&request, &flight, flight.attempts + 1, tokens, true).await;
            let more = tokens.cast_signed() - flight.tokens.cast_signed();
            let beyond = tokens.saturating_sub(flight.tokens);
            self.shadow.charge_call(&flight, more, beyond, 0, self.now());
            self.seen.guesses_taken_back += 1;
        }
    }
}

pub(super) fn reservation(
    request: &str,
    flight: &Flight,
    fleet: FleetTerms,
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
        money: MicroUnits(0),
        hosted: None,
        model_budgets: Vec::new(),
        claim: Some(claim_of(flight)),
        fleet,
        at: UnixMicros(now),
    }
}

fn claim_of(flight: &Flight) -> TaskClaim {
    TaskClaim { project: flight.project.clone(), task: flight.task.clone(), epoch: flight.epoch }
}

pub(super) fn row(
    request: &str,
    flight: &Flight,
    attempt: u32,
    tokens: u64,
    last: bool,
) -> Attempt {
    Attempt {
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
        outcome: if last { Outcome::Completed } else { Outcome::Retried },
        code: None,
        brownout: false,
        occupied: 0,
        provider_tokens: tokens,
        money: MicroUnits(0),
        price: None,
        tier: 0,
        class: None,
        claim: Some(claim_of(flight)),
    }
}
