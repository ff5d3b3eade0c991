//! Clamps the fields of rows to the ranges that the databases accept. Rows are written in batches, and one row that the
//! database rejects would fail the whole batch.
//!
//! Texts from clients (models, agents, sessions) are cut at 256 bytes, and NUL characters, which
//! PostgreSQL cannot store, are replaced. Numbers are capped at 10¹². This is 10¹² tokens, a
//! million dollars in micro-units, or eleven days in microseconds. No request reaches it, and the
//! sum of nine million such numbers still fits into 64 bits.

use fairgate_usage::TaskClaim;

use crate::error::StoreError;
use crate::ledger::{AttemptOutcome, AttemptRow, HostedMaximum, Reservation, UsageSource};

/// Maximum value of any number in a row or reservation.
pub(crate) const NUMBER_MAX: u64 = 1_000_000_000_000;
/// Maximum number of bytes of a client's text that are kept.
const TEXT_MAX: usize = 256;
/// Maximum length of a request's id, in bytes.
const REQUEST_MAX: usize = 128;

fn clamp_text(text: &mut String) {
    if text.len() > TEXT_MAX {
        text.truncate(text.floor_char_boundary(TEXT_MAX));
    }
    if text.as_bytes().contains(&0) {
        *text = text.replace('\0', "\u{fffd}");
        // The replacement is three bytes long, so the text may be too long again.
        text.truncate(text.floor_char_boundary(TEXT_MAX));
    }
}

fn clamp_number(number: &mut u64) {
    *number = (*number).min(NUMBER_MAX);
}

fn clamp_claim(TaskClaim { project, task, epoch }: &mut TaskClaim) {
    [project, task].into_iter().for_each(clamp_text);
    clamp_number(epoch);
}

fn check_request(request: &str) -> Result<(), StoreError> {
    if request.is_empty() || request.len() > REQUEST_MAX || request.contains(char::is_control) {
        let problem = format!("must be 1 to {REQUEST_MAX} bytes without control characters");
        return Err(StoreError::Invalid { field: "request", problem });
    }
    Ok(())
}

impl AttemptRow {
    /// Clamps all fields so that every database accepts the row. Fails if the request id is invalid.
    pub(crate) fn clamp(&mut self) -> Result<(), StoreError> {
        check_request(&self.request)?;
        let Self { group, tenant, key, route, model, .. } = self;
        [group, tenant, key, route, model].into_iter().for_each(clamp_text);
        let Self { agent, session, pool, worker, code, price, price_set, class, .. } = self;
        [agent, session, pool, worker, code, price, price_set, class]
            .into_iter()
            .flatten()
            .for_each(clamp_text);
        self.claim.iter_mut().for_each(clamp_claim);
        clamp_number(&mut self.estimate);
        clamp_number(&mut self.input_tokens);
        clamp_number(&mut self.cached_tokens);
        clamp_number(&mut self.output_tokens);
        clamp_number(&mut self.charged);
        clamp_number(&mut self.occupied);
        clamp_number(&mut self.cache_written_tokens);
        clamp_number(&mut self.cache_written_1h_tokens);
        clamp_number(&mut self.estimate_uncached);
        clamp_number(&mut self.charged_uncached);
        clamp_number(&mut self.provider_tokens);
        clamp_number(&mut self.worker_us);
        clamp_number(&mut self.money.0);
        clamp_number(&mut self.waited_us);
        clamp_number(&mut self.total_us);
        self.first_token_us.iter_mut().for_each(clamp_number);
        Ok(())
    }
}

impl Reservation {
    /// Clamps all fields so that every database accepts the reservation. Fails if the request id is invalid.
    pub(crate) fn clamp(&mut self) -> Result<(), StoreError> {
        check_request(&self.request)?;
        let Self { group, tenant, key, model, .. } = self;
        [group, tenant, key, model].into_iter().for_each(clamp_text);
        self.claim.iter_mut().for_each(clamp_claim);
        clamp_number(&mut self.tokens);
        clamp_number(&mut self.provider_tokens);
        clamp_number(&mut self.money.0);
        if let Some(HostedMaximum { provider_tokens, money }) = &mut self.hosted {
            clamp_number(provider_tokens);
            clamp_number(&mut money.0);
        }
        Ok(())
    }

    /// Returns the granted reservation in the form in which it is stored. The amounts are the
    /// maximum over all workers to which the request may go.
    pub(crate) fn as_granted(&self, hosted: bool) -> Self {
        let holds = self.held_amounts(hosted).reserved;
        let unsigned = |number| u64::try_from(number).unwrap_or(0);
        Self {
            provider_tokens: unsigned(holds.tokens),
            money: fairgate_money::MicroUnits(unsigned(holds.money)),
            hosted: self.hosted.filter(|_| hosted),
            ..self.clone()
        }
    }

    /// Builds the row of a request that was in flight when its process died. `made` is the number
    /// of attempts of the request that already have rows. The request is charged the reserved
    /// amounts. It is not known whether the upstream did the work, and a crash must not let a
    /// budget be exceeded. For the same reason the row counts as hosted if the request could have
    /// gone to a hosted worker.
    pub(crate) fn to_lost_row(&self, made: u32) -> AttemptRow {
        AttemptRow {
            request: self.request.clone(),
            attempt: made.saturating_add(1),
            last: true,
            started_at: self.at,
            group: self.group.clone(),
            tenant: self.tenant.clone(),
            key: self.key.clone(),
            agent: None,
            session: None,
            route: "-".to_owned(),
            stream: false,
            model: self.model.clone(),
            pool: None,
            worker: None,
            estimate: self.tokens,
            input_tokens: 0,
            cached_tokens: 0,
            output_tokens: 0,
            charged: self.tokens,
            usage: UsageSource::Assumed,
            waited_us: 0,
            first_token_us: None,
            total_us: 0,
            status: 499,
            outcome: AttemptOutcome::Lost,
            code: Some("lost".to_owned()),
            brownout: false,
            occupied: self.tokens,
            provider_tokens: self.provider_tokens,
            money: self.money,
            price: None,
            tier: u32::from(self.hosted.is_some()),
            class: None,
            cache_written_tokens: 0,
            cache_written_1h_tokens: 0,
            estimate_uncached: self.tokens,
            charged_uncached: self.tokens,
            worker_us: 0,
            price_set: None,
            claim: self.claim.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use fairgate_money::MicroUnits;
    use fairgate_time::UnixMicros;

    use super::*;

    fn reservation(request: &str) -> Reservation {
        Reservation {
            request: request.to_owned(),
            group: "g".to_owned(),
            tenant: "t".to_owned(),
            key: "k".to_owned(),
            model: "m".to_owned(),
            tokens: u64::MAX,
            provider_tokens: 5,
            money: MicroUnits(u64::MAX),
            hosted: Some(HostedMaximum { provider_tokens: 6, money: MicroUnits(0) }),
            model_budgets: Vec::new(),
            claim: None,
            has_files: false,
            terms: Default::default(),
            at: UnixMicros(0),
        }
    }

    #[test]
    fn rows_fit() {
        let mut attempt = reservation("r").to_lost_row(1);
        attempt.model = format!("\0{}", "ä".repeat(200));
        attempt.agent = Some("x".repeat(1_000));
        attempt.clamp().unwrap();
        assert!(attempt.model.starts_with("\u{fffd}ä"));
        assert!(attempt.model.len() <= 256 && attempt.model.len() > 252);
        assert_eq!(attempt.agent.unwrap().len(), 256);
        assert_eq!((attempt.attempt, attempt.charged), (2, NUMBER_MAX));
        assert_eq!((attempt.money, attempt.tier), (MicroUnits(NUMBER_MAX), 1));
        let granted = reservation("r").as_granted(false);
        assert_eq!((granted.provider_tokens, granted.hosted), (5, None));
        assert_eq!(reservation("r").as_granted(true).provider_tokens, 6);
        assert_eq!(granted.to_lost_row(0).tier, 0);
    }

    #[test]
    fn a_request_needs_an_id() {
        for request in ["", "a\nb", &"x".repeat(129)] {
            assert!(reservation(request).clamp().is_err());
            assert!(reservation(request).to_lost_row(0).clamp().is_err());
        }
        assert!(reservation(&"x".repeat(128)).clamp().is_ok());
    }
}
