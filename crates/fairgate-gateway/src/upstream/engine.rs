//! What is known of the engine behind a backend from its own metrics: what runs and waits in it, how full its cache is, how
//! many slots it can fill, and whether it was started anew.

mod exposition;
mod reading;
mod slots;

use std::sync::{Mutex, MutexGuard, PoisonError};

use fairgate_config::{OverloadConfig, UpstreamConfig};

pub(crate) use self::reading::{Reading, Unreadable};
pub(crate) use self::slots::{Look, SlotChange};

use self::slots::SlotRule;

/// After how many readings in a row that failed what was read before counts no more.
const STALE_AFTER: u32 = 3;

/// Whoever believes something of an engine that ends with its process, such as what is in its cache.
pub(crate) trait EngineHook: Send + Sync {
    /// The worker's engine was started anew, or may have been, since it was down: nothing is in its cache.
    fn restarted(&self, worker: &str);
    /// The worker's cache holds so many tokens, over all its ranks. Told when it is first known and when it changes.
    fn cache_holds(&self, worker: &str, tokens: u64);
}

/// The engine of one backend.
pub(crate) struct Engine {
    /// Slots that are fixed; any number where absent.
    fixed: Option<u64>,
    inner: Mutex<Inner>,
}

struct Inner {
    rule: Option<SlotRule>,
    /// How the slots changed last, and from how many.
    last_change: Option<(u64, SlotChange)>,
    overload: OverloadConfig,
    reading: Option<Reading>,
    failures: u32,
}

/// What a reading came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Learned {
    pub(crate) restarted: bool,
    /// How many tokens its cache holds, where that is news.
    pub(crate) cache_tokens: Option<u64>,
    /// How the slots changed, with how many there were and are.
    pub(crate) slots: Option<(u64, u64, SlotChange)>,
}

/// Why an engine takes nothing new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overloaded {
    Waiting { requests: u64, most: u64 },
    Cache { used_milli: u64, most_milli: u64 },
}

impl std::fmt::Display for Overloaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Waiting { requests, most } => {
                write!(f, "{requests} wait in the engine, more than {most}")
            }
            Self::Cache { used_milli, most_milli } => {
                let percent = |milli: &u64| format!("{}.{} %", milli / 10, milli % 10);
                write!(
                    f,
                    "{} of its cache is in use, more than {}",
                    percent(used_milli),
                    percent(most_milli)
                )
            }
        }
    }
}

/// How an engine is doing, for those who look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EngineSight {
    pub(crate) reading: Option<Reading>,
    /// Why the slots changed last, in words.
    pub(crate) slots_reason: Option<String>,
    pub(crate) overloaded: Option<Overloaded>,
    pub(crate) overload: OverloadConfig,
}

impl Engine {
    pub(super) fn new(config: &UpstreamConfig) -> Self {
        let rule = config
            .auto_slots
            .map(|auto| SlotRule::new(config.slots.unwrap_or(auto.most), auto.most, ranks(config)));
        let overload = config.metrics.as_ref().map(|metrics| metrics.overload).unwrap_or_default();
        let inner = Inner { rule, last_change: None, overload, reading: None, failures: 0 };
        Self { fixed: config.slots, inner: Mutex::new(inner) }
    }

    /// How many requests each rank takes at once; any number where absent.
    pub(crate) fn slots(&self) -> Option<u64> {
        match &self.lock().rule {
            Some(rule) => Some(rule.slots()),
            None => self.fixed,
        }
    }

    /// Why it takes nothing new.
    pub(crate) fn overloaded(&self) -> Option<Overloaded> {
        self.lock().overloaded()
    }

    /// From now on it counts as overloaded by these thresholds. Says whether that changed something.
    pub(crate) fn judge_by(&self, overload: OverloadConfig) -> bool {
        let mut inner = self.lock();
        let before = inner.overloaded();
        inner.overload = overload;
        inner.overloaded() != before
    }

    pub(crate) fn sight(&self) -> EngineSight {
        let inner = self.lock();
        let words = |(before, change): (u64, SlotChange)| {
            let now = inner.rule.map_or(before, |rule| rule.slots());
            format!("{before} → {now}: {change}")
        };
        EngineSight {
            reading: inner.reading,
            slots_reason: inner.last_change.map(words),
            overloaded: inner.overloaded(),
            overload: inner.overload,
        }
    }

    /// Learns from a reading, while so many of the gateway's requests are in flight on it.
    pub(super) fn learn(&self, reading: Reading, in_flight: u64) -> Learned {
        let mut inner = self.lock();
        inner.failures = 0;
        let before = inner.reading.replace(reading);
        let restarted = before.is_some_and(|before| is_another_process(&before, &reading));
        let cache_tokens = reading.cache_tokens.filter(|tokens| {
            restarted || before.and_then(|before| before.cache_tokens) != Some(*tokens)
        });
        let Reading { running, waiting, .. } = reading;
        let look = Look { in_flight, running, waiting };
        let slots = inner.rule.as_mut().and_then(|rule| {
            let before = rule.slots();
            let change = if restarted { rule.restart() } else { rule.look(look) };
            change.map(|change| (before, rule.slots(), change))
        });
        if let Some((before, _, change)) = slots {
            inner.last_change = Some((before, change));
        }
        Learned { restarted, cache_tokens, slots }
    }

    /// It could not be read. What was read counts for a few times more, and then no longer. Restarts are still noticed by
    /// what the next reading says.
    pub(super) fn unreadable(&self) {
        let mut inner = self.lock();
        inner.failures = inner.failures.saturating_add(1);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Every change is a few assignments.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn overloaded(&self) -> Option<Overloaded> {
        let reading = self.reading.filter(|_| self.failures < STALE_AFTER)?;
        let OverloadConfig { waiting, cache_milli } = self.overload;
        let requests = reading.waiting;
        if let Some(most) = waiting.filter(|most| requests > *most) {
            return Some(Overloaded::Waiting { requests, most });
        }
        let used_milli = reading.cache_used_milli?;
        let most_milli = cache_milli.filter(|most| used_milli > *most)?;
        Some(Overloaded::Cache { used_milli, most_milli })
    }
}

/// The data-parallel ranks of a backend.
pub(crate) fn ranks(config: &UpstreamConfig) -> u64 {
    config.ranks.into()
}

/// Whether the second reading is of another process than the first: it says so, or it has counted less.
fn is_another_process(before: &Reading, now: &Reading) -> bool {
    let says_so = before.started.zip(now.started).is_some_and(|(old, new)| old != new);
    let fell = before.input_tokens.zip(now.input_tokens).is_some_and(|(old, new)| new < old);
    says_so || fell || before.kind != now.kind
}

#[cfg(test)]
mod tests {
    use fairgate_config::{AutoSlots, Config};

    use super::reading::EngineKind;
    use super::*;

    const IDLE: Reading = Reading {
        kind: EngineKind::Vllm,
        running: 0,
        waiting: 0,
        cache_used_milli: Some(100),
        cache_tokens: Some(9168),
        started: Some(1000),
        input_tokens: Some(50),
    };

    fn engine() -> Engine {
        let url = "http://127.0.0.1:1".parse().unwrap();
        let mut config = Config::embedded("d".into(), ([127, 0, 0, 1], 0).into(), url);
        config.upstreams[0].auto_slots = Some(AutoSlots { most: 32 });
        Engine::new(&config.upstreams[0])
    }

    #[test]
    fn a_new_process_is_noticed_by_its_start_or_by_counts_that_fell() {
        let engine = engine();
        assert_eq!(
            engine.learn(IDLE, 0),
            Learned { cache_tokens: Some(9168), ..Learned::default() }
        );
        assert_eq!(engine.learn(IDLE, 0), Learned::default());
        let later = Reading { started: Some(2000), ..IDLE };
        let restarted = Learned { restarted: true, cache_tokens: Some(9168), slots: None };
        assert_eq!(engine.learn(later, 0), restarted);
        let unsaid = Reading { started: None, input_tokens: Some(60), ..IDLE };
        assert!(!engine.learn(unsaid, 0).restarted);
        let fell = Reading { input_tokens: Some(3), ..unsaid };
        assert!(engine.learn(fell, 0).restarted);
    }

    #[test]
    fn slots_follow_and_are_found_anew_after_a_restart() {
        let engine = engine();
        let full = Reading { running: 8, ..IDLE };
        engine.learn(full, 8);
        assert_eq!(engine.learn(full, 8).slots, Some((8, 10, SlotChange::More)));
        assert_eq!(engine.slots(), Some(10));
        let words = "8 → 10: all were busy and the engine's own queue was empty";
        assert_eq!(engine.sight().slots_reason.as_deref(), Some(words));
        let learned = engine.learn(Reading { started: Some(2), ..full }, 10);
        assert_eq!(learned.slots, Some((10, 8, SlotChange::Restarted)));
    }

    #[test]
    fn it_is_overloaded_above_its_thresholds_and_not_for_ever_after_it_went_silent() {
        let engine = engine();
        engine.learn(Reading { waiting: 5, cache_used_milli: Some(960), ..IDLE }, 0);
        assert_eq!(engine.overloaded(), None);
        assert!(engine.judge_by(OverloadConfig { waiting: Some(4), cache_milli: None }));
        let waiting = engine.overloaded().unwrap();
        assert_eq!(waiting.to_string(), "5 wait in the engine, more than 4");
        assert!(engine.judge_by(OverloadConfig { waiting: Some(5), cache_milli: Some(950) }));
        let cache = engine.overloaded().unwrap().to_string();
        assert_eq!(cache, "96.0 % of its cache is in use, more than 95.0 %");
        (0..STALE_AFTER).for_each(|_| engine.unreadable());
        assert_eq!(engine.overloaded(), None);
    }
}
