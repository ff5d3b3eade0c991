//! What requests are charged, by the core's own rule.

use fairgate_core::Pool;
use fairgate_core::event::{Event, PoolConfig, Submit};
use fairgate_core::units::{Micros, Tokens};
use fairgate_journal::parse_policy;

/// Works out what a submit is charged. Where that depends on what is cached on which worker, it asks a pool that
/// has the same workers and nothing else; policies do not come into it, so the cost is the same under all of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Costs {
    /// Without slots: whatever enters it waits, and can be looked at.
    shadow: Option<Pool>,
}

impl Costs {
    /// For a pool, with the workers it has now.
    pub(crate) fn of(pool: &Pool) -> Self {
        let mut costs = Self::default();
        for (_, worker) in pool.snapshot().workers.into_iter().flat_map(|workers| workers.list) {
            costs.follow(&Event::Worker(worker));
        }
        costs
    }

    /// Takes note of what an event says about workers.
    pub(crate) fn follow(&mut self, event: &Event) {
        if matches!(event, Event::Worker(_)) {
            let shadow = self.shadow.get_or_insert_with(shadow);
            let _ = shadow.apply(Micros(0), event.clone(), &mut Vec::new());
        }
    }

    /// What a request is charged that is submitted now.
    pub(crate) fn cost(&mut self, submit: &Submit) -> Tokens {
        let stated = submit.cost.or(submit.input).unwrap_or(Tokens(1)).max(Tokens(1));
        if submit.cost.is_some() || submit.cached.is_empty() {
            return stated;
        }
        self.shadow.as_mut().and_then(|shadow| asked(shadow, submit)).unwrap_or(stated)
    }
}

fn asked(shadow: &mut Pool, submit: &Submit) -> Option<Tokens> {
    let enter = Event::Submit(Box::new(submit.clone()));
    shadow.apply(Micros(0), enter, &mut Vec::new()).ok()?;
    let cost = shadow.snapshot().requests.first().map(|request| request.cost);
    let leave = Event::Cancel { id: submit.id.clone() };
    shadow.apply(Micros(0), leave, &mut Vec::new()).ok()?;
    cost
}

/// One class for all, so that it keeps nothing of those who passed through.
const ONE_QUEUE: &str = r#"{"drr":{"by":"class","classes":[{"name":"all","quantum":1}]}}"#;

fn shadow() -> Pool {
    let policy = parse_policy(ONE_QUEUE).expect("a constant that is a policy");
    Pool::new(PoolConfig::new(0, policy))
}

#[cfg(test)]
mod tests {
    use fairgate_core::event::WorkerChange;

    use super::*;

    #[test]
    fn the_cost_is_what_the_most_cached_eligible_worker_leaves() {
        let mut costs = Costs::default();
        let mut submit = Submit::new("r");
        assert_eq!(costs.cost(&submit), Tokens(1));
        submit.input = Some(Tokens(3000));
        submit.cached = vec![("w0".into(), Tokens(512)), ("w1".into(), Tokens(2048))];
        assert_eq!(costs.cost(&submit), Tokens(3000), "without workers");
        for name in ["w0", "w1"] {
            let worker = WorkerChange { name: name.into(), ..WorkerChange::default() };
            costs.follow(&Event::Worker(worker));
        }
        assert_eq!(costs.cost(&submit), Tokens(952));
        submit.allow = Some(vec!["w0".into()]);
        assert_eq!(costs.cost(&submit), Tokens(2488));
        assert_eq!(costs.cost(&submit), Tokens(2488), "asking leaves nothing behind");
        submit.cost = Some(Tokens(0));
        assert_eq!(costs.cost(&submit), Tokens(1));
    }
}
