//! State of the engine behind an upstream, as the engine's own metrics show it: running and queued
//! requests, cache use, slots and restarts.

mod prometheus_text;
mod reading;
mod slots;

use std::sync::{Mutex, MutexGuard, PoisonError};

use fairgate_config::{OverloadConfig, UpstreamConfig};
use fairgate_core::units::Percentage;

pub(crate) use self::reading::{EngineReading, EngineReadingError};
pub(crate) use self::slots::{SlotChange, SlotReading};

use self::slots::SlotRule;

/// Number of failed readings in a row after which the last reading no longer counts for overload.
const STALE_AFTER: u32 = 3;

/// Receiver of engine events, for state that ends with the engine's process, such as the assumed
/// contents of its cache.
pub(crate) trait EngineHook: Send + Sync {
    /// Called when the worker's engine was restarted, or may have been restarted while it could not
    /// be reached. Its cache is then empty.
    fn restarted(&self, worker: &str);
    /// Called with the size of the worker's cache in tokens, over all its ranks, when the size is first known and when
    /// it changes.
    fn cache_holds(&self, worker: &str, tokens: u64);
}

/// The engine of one upstream, as its metrics show it.
pub(crate) struct UpstreamEngine {
    /// Configured slots of each rank, which apply unless the slots follow the metrics; `None` if unlimited.
    fixed: Option<u64>,
    inner: Mutex<UpstreamEngineState>,
}

struct UpstreamEngineState {
    rule: Option<SlotRule>,
    /// The last change of the slots, with the number of slots per rank before it; `None` before the
    /// first change.
    last_change: Option<(u64, SlotChange)>,
    overload: OverloadConfig,
    reading: Option<EngineReading>,
    failures: u32,
}

/// Changes between the previous reading and the latest one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EngineChanges {
    pub(crate) restarted: bool,
    /// Size of the engine's cache in tokens, if the size has changed or the engine was restarted.
    pub(crate) cache_tokens: Option<u64>,
    /// The change of the slots, with the numbers of slots per rank before and after it; `None` if
    /// they have not changed.
    pub(crate) slots: Option<(u64, u64, SlotChange)>,
}

/// The threshold that an engine exceeds. An overloaded engine gets no new requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OverloadReason {
    Waiting { requests: u64, most: u64 },
    Cache { used_milli: u64, most_milli: u64 },
}

impl std::fmt::Display for OverloadReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Waiting { requests, most } => {
                write!(f, "{requests} wait in the engine, more than {most}")
            }
            Self::Cache { used_milli, most_milli } => {
                let [used, most] = [*used_milli, *most_milli].map(Percentage::from_thousandths);
                write!(f, "{used} of its cache is in use, more than {most}")
            }
        }
    }
}

/// State of an engine, for the live view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EngineSnapshot {
    pub(crate) reading: Option<EngineReading>,
    /// Description of the last change of the slots.
    pub(crate) slots_reason: Option<String>,
    pub(crate) overloaded: Option<OverloadReason>,
    pub(crate) overload: OverloadConfig,
}

impl UpstreamEngine {
    pub(super) fn new(config: &UpstreamConfig) -> Self {
        let rule = config
            .auto_slots
            .map(|auto| SlotRule::new(config.slots.unwrap_or(auto.most), auto.most, ranks(config)));
        let overload = config.metrics.as_ref().map(|metrics| metrics.overload).unwrap_or_default();
        let inner =
            UpstreamEngineState { rule, last_change: None, overload, reading: None, failures: 0 };
        Self { fixed: config.slots, inner: Mutex::new(inner) }
    }

    /// Returns the slots of each rank; `None` if unlimited.
    pub(crate) fn slots(&self) -> Option<u64> {
        match &self.lock().rule {
            Some(rule) => Some(rule.slots()),
            None => self.fixed,
        }
    }

    /// Returns the reason why the engine is overloaded; `None` if it is not.
    pub(crate) fn overloaded(&self) -> Option<OverloadReason> {
        self.lock().overloaded()
    }

    /// Sets the thresholds above which the engine counts as overloaded. Returns true if this changed the result of
    /// [`UpstreamEngine::overloaded`].
    pub(crate) fn set_overload_thresholds(&self, overload: OverloadConfig) -> bool {
        let mut inner = self.lock();
        let before = inner.overloaded();
        inner.overload = overload;
        inner.overloaded() != before
    }

    pub(crate) fn snapshot(&self) -> EngineSnapshot {
        let inner = self.lock();
        let words = |(before, change): (u64, SlotChange)| {
            let now = inner.rule.map_or(before, |rule| rule.slots());
            format!("{before} → {now}: {change}")
        };
        EngineSnapshot {
            reading: inner.reading,
            slots_reason: inner.last_change.map(words),
            overloaded: inner.overloaded(),
            overload: inner.overload,
        }
    }

    /// Updates the state from a reading, taken while `in_flight` requests of the gateway were in flight on the engine.
    pub(super) fn learn(&self, reading: EngineReading, in_flight: u64) -> EngineChanges {
        let mut inner = self.lock();
        inner.failures = 0;
        let before = inner.reading.replace(reading);
        let restarted = before.is_some_and(|before| is_another_process(&before, &reading));
        let cache_tokens = reading.cache_tokens.filter(|tokens| {
            restarted || before.and_then(|before| before.cache_tokens) != Some(*tokens)
        });
        let EngineReading { running, waiting, .. } = reading;
        let look = SlotReading { in_flight, running, waiting };
        let slots = inner.rule.as_mut().and_then(|rule| {
            let before = rule.slots();
            let change = if restarted { rule.restart() } else { rule.adjust(look) };
            change.map(|change| (before, rule.slots(), change))
        });
        if let Some((before, _, change)) = slots {
            inner.last_change = Some((before, change));
        }
        EngineChanges { restarted, cache_tokens, slots }
    }

    /// Records a failed reading. After [`STALE_AFTER`] failures in a row, the last reading no
    /// longer counts for overload. It is kept nevertheless, so that a restart can be recognised at
    /// the next reading.
    pub(super) fn record_unreadable(&self) {
        let mut inner = self.lock();
        inner.failures = inner.failures.saturating_add(1);
    }

    fn lock(&self) -> MutexGuard<'_, UpstreamEngineState> {
        // Every change is a few assignments, so poison is harmless.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UpstreamEngineState {
    fn overloaded(&self) -> Option<OverloadReason> {
        let reading = self.reading.filter(|_| self.failures < STALE_AFTER)?;
        let OverloadConfig { waiting, cache_milli } = self.overload;
        let requests = reading.waiting;
        if let Some(most) = waiting.filter(|most| requests > *most) {
            return Some(OverloadReason::Waiting { requests, most });
        }
        let used_milli = reading.cache_used_milli?;
        let most_milli = cache_milli.filter(|most| used_milli > *most)?;
        Some(OverloadReason::Cache { used_milli, most_milli })
    }
}

/// Returns the number of data-parallel ranks of an upstream.
pub(crate) fn ranks(config: &UpstreamConfig) -> u64 {
    config.ranks.into()
}

/// Returns true if `now` was read from another process than `before`. This is so if the start time differs, the count
/// of input tokens fell, or the kind of engine differs.
fn is_another_process(before: &EngineReading, now: &EngineReading) -> bool {
    let says_so = before.started.zip(now.started).is_some_and(|(old, new)| old != new);
    let fell = before.input_tokens.zip(now.input_tokens).is_some_and(|(old, new)| new < old);
    says_so || fell || before.kind != now.kind
}

#[cfg(test)]
mod tests {
    use fairgate_config::{AutoSlots, Config};

    use super::reading::EngineKind;
    use super::*;

    const IDLE: EngineReading = EngineReading {
        kind: EngineKind::Vllm,
        running: 0,
        waiting: 0,
        cache_used_milli: Some(100),
        cache_tokens: Some(9168),
        started: Some(1000),
        input_tokens: Some(50),
    };

    fn engine() -> UpstreamEngine {
        let url = "http://127.0.0.1:1".parse().unwrap();
        let mut config = Config::embedded("d".into(), ([127, 0, 0, 1], 0).into(), url);
        config.upstreams[0].auto_slots = Some(AutoSlots { most: 32 });
        UpstreamEngine::new(&config.upstreams[0])
    }

    #[test]
    fn a_new_process_is_noticed_by_its_start_or_by_counts_that_fell() {
        let engine = engine();
        assert_eq!(
            engine.learn(IDLE, 0),
            EngineChanges { cache_tokens: Some(9168), ..EngineChanges::default() }
        );
        assert_eq!(engine.learn(IDLE, 0), EngineChanges::default());
        let later = EngineReading { started: Some(2000), ..IDLE };
        let restarted = EngineChanges { restarted: true, cache_tokens: Some(9168), slots: None };
        assert_eq!(engine.learn(later, 0), restarted);
        let unsaid = EngineReading { started: None, input_tokens: Some(60), ..IDLE };
        assert!(!engine.learn(unsaid, 0).restarted);
        let fell = EngineReading { input_tokens: Some(3), ..unsaid };
        assert!(engine.learn(fell, 0).restarted);
    }

    #[test]
    fn slots_follow_and_are_found_anew_after_a_restart() {
        let engine = engine();
        let full = EngineReading { running: 8, ..IDLE };
        engine.learn(full, 8);
        assert_eq!(engine.learn(full, 8).slots, Some((8, 10, SlotChange::More)));
        assert_eq!(engine.slots(), Some(10));
        let words = "8 → 10: all were busy and the engine's own queue was empty";
        assert_eq!(engine.snapshot().slots_reason.as_deref(), Some(words));
        let learned = engine.learn(EngineReading { started: Some(2), ..full }, 10);
        assert_eq!(learned.slots, Some((10, 8, SlotChange::Restarted)));
    }

    #[test]
    fn it_is_overloaded_above_its_thresholds_and_not_for_ever_after_it_went_silent() {
        let engine = engine();
        engine.learn(EngineReading { waiting: 5, cache_used_milli: Some(960), ..IDLE }, 0);
        assert_eq!(engine.overloaded(), None);
        assert!(
            engine.set_overload_thresholds(OverloadConfig { waiting: Some(4), cache_milli: None })
        );
        let waiting = engine.overloaded().unwrap();
        assert_eq!(waiting.to_string(), "5 wait in the engine, more than 4");
        assert!(
            engine.set_overload_thresholds(OverloadConfig {
                waiting: Some(5),
                cache_milli: Some(950)
            })
        );
        let cache = engine.overloaded().unwrap().to_string();
        assert_eq!(cache, "96.0 % of its cache is in use, more than 95.0 %");
        (0..STALE_AFTER).for_each(|_| engine.record_unreadable());
        assert_eq!(engine.overloaded(), None);
    }
}
