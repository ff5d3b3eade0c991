//! What a row can hold. Rows are written in batches, so none may be one that a database refuses.
//!
//! Texts that come from callers (models, agents, sessions) are cut at 256 bytes, and the NUL that PostgreSQL cannot store is
//! replaced. Numbers end at 10¹², a million million tokens, a million dollars in micro-units or eleven days in microseconds:
//! more than any request uses, and small enough that nine million such rows still sum up in 64 bits.

use crate::error::StoreError;
use crate::fleet::TaskClaim;
use crate::ledger::{Attempt, HostedMost, Outcome, Reservation, UsageSource};

/// The most that one number of a row can be.
pub(crate) const NUMBER_MAX: u64 = 1_000_000_000_000;
/// How many bytes of a text are kept.
const TEXT_MAX: usize = 256;
/// How long a request's id may be, in bytes.
const REQUEST_MAX: usize = 128;

fn fit_text(text: &mut String) {
    if text.len() > TEXT_MAX {
        text.truncate(text.floor_char_boundary(TEXT_MAX));
    }
    if text.as_bytes().contains(&0) {
        *text = text.replace('\0', "\u{fffd}");
        // The replacement is three bytes long.
        text.truncate(text.floor_char_boundary(TEXT_MAX));
    }
}

fn fit_number(number: &mut u64) {
    *number = (*number).min(NUMBER_MAX);
}

fn fit_claim(TaskClaim { project, task, epoch }: &mut TaskClaim) {
    [project, task].into_iter().for_each(fit_text);
    fit_number(epoch);
}

fn check_request(request: &str) -> Result<(), StoreError> {
    if request.is_empty() || request.len() > REQUEST_MAX || request.contains(char::is_control) {
        let problem = format!("must be 1 to {REQUEST_MAX} bytes without control characters");
        return Err(StoreError::Invalid { field: "request", problem });
    }
    Ok(())
}

impl Attempt {
    /// Makes it one that every database takes; an error where it has no usable id.
    pub(crate) fn fit(&mut self) -> Result<(), StoreError> {
        check_request(&self.request)?;
        let Self { group, tenant, key, route, model, .. } = self;
        [group, tenant, key, route, model].into_iter().for_each(fit_text);
        let Self { agent, session, pool, worker, code, price, class, .. } = self;
        [agent, session, pool, worker, code, price, class].into_iter().flatten().for_each(fit_text);
        self.claim.iter_mut().for_each(fit_claim);
        fit_number(&mut self.estimate);
        fit_number(&mut self.input_tokens);
        fit_number(&mut self.cached_tokens);
        fit_number(&mut self.output_tokens);
        fit_number(&mut self.charged);
        fit_number(&mut self.occupied);
        fit_number(&mut self.provider_tokens);
        fit_number(&mut self.money.0);
        fit_number(&mut self.waited_us);
        fit_number(&mut self.total_us);
        self.first_token_us.iter_mut().for_each(fit_number);
        Ok(())
    }
}

impl Reservation {
    /// Makes it one that every database takes; an error where it has no usable id.
    pub(crate) fn fit(&mut self) -> Result<(), StoreError> {
        check_request(&self.request)?;
        let Self { group, tenant, key, model, .. } = self;
        [group, tenant, key, model].into_iter().for_each(fit_text);
        self.claim.iter_mut().for_each(fit_claim);
        fit_number(&mut self.tokens);
        fit_number(&mut self.provider_tokens);
        fit_number(&mut self.money.0);
        if let Some(HostedMost { provider_tokens, money }) = &mut self.hosted {
            fit_number(provider_tokens);
            fit_number(&mut money.0);
        }
        Ok(())
    }

    /// As it is kept once it is granted: its amounts are the most on any worker that it may go to.
    pub(crate) fn granted(&self, hosted: bool) -> Self {
        let holds = self.holds(hosted).reserved;
        let unsigned = |number| u64::try_from(number).unwrap_or(0);
        Self {
            provider_tokens: unsigned(holds.tokens),
            money: fairgate_money::MicroUnits(unsigned(holds.money)),
            hosted: self.hosted.filter(|_| hosted),
            ..self.clone()
        }
    }

    /// The row of a request whose process died with it in flight, after `made` attempts that are rows already. It is
    /// charged what it had reserved: whether the upstream did the work is not known, and a budget must not be overrun by
    /// dying. For the same reason it counts as hosted where it could have gone to a hosted worker.
    pub(crate) fn lost(&self, made: u32) -> Attempt {
        Attempt {
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
            outcome: Outcome::Lost,
            code: Some("lost".to_owned()),
            brownout: false,
            occupied: self.tokens,
            provider_tokens: self.provider_tokens,
            money: self.money,
            price: None,
            tier: u32::from(self.hosted.is_some()),
            class: None,
            claim: self.claim.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use fairgate_money::{MicroUnits, UnixMicros};

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
            hosted: Some(HostedMost { provider_tokens: 6, money: MicroUnits(0) }),
            model_budgets: Vec::new(),
            claim: None,
            fleet: Default::default(),
            at: UnixMicros(0),
        }
    }

    #[test]
    fn rows_fit() {
        let mut attempt = reservation("r").lost(1);
        attempt.model = format!("\0{}", "ä".repeat(200));
        attempt.agent = Some("x".repeat(1_000));
        attempt.fit().unwrap();
        assert!(attempt.model.starts_with("\u{fffd}ä"));
        assert!(attempt.model.len() <= 256 && attempt.model.len() > 252);
        assert_eq!(attempt.agent.unwrap().len(), 256);
        assert_eq!((attempt.attempt, attempt.charged), (2, NUMBER_MAX));
        assert_eq!((attempt.money, attempt.tier), (MicroUnits(NUMBER_MAX), 1));
        let granted = reservation("r").granted(false);
        assert_eq!((granted.provider_tokens, granted.hosted), (5, None));
        assert_eq!(reservation("r").granted(true).provider_tokens, 6);
        assert_eq!(granted.lost(0).tier, 0);
    }

    #[test]
    fn a_request_needs_an_id() {
        for request in ["", "a\nb", &"x".repeat(129)] {
            assert!(reservation(request).fit().is_err());
            assert!(reservation(request).lost(0).fit().is_err());
        }
        assert!(reservation(&"x".repeat(128)).fit().is_ok());
    }
}
