//! Minimising of journals that make a test fail.

use fairgate_core::event::PoolConfig;

use super::Events;

/// Returns a small journal that still fails. Leaves out smaller and smaller chunks of events, until
/// the journal would pass without any single one of its events. `fails` must return true for the
/// whole journal.
pub fn minimise(
    config: &PoolConfig,
    events: &Events,
    fails: impl Fn(&PoolConfig, &Events) -> bool,
) -> Events {
    let mut smallest = events.clone();
    let mut chunk = smallest.len().div_ceil(2).max(1);
    loop {
        let before = smallest.len();
        leave_out_chunks(&mut smallest, chunk, |events| fails(config, events));
        let spared_some = smallest.len() < before;
        if chunk > 1 {
            chunk = chunk.div_ceil(2);
        } else if !spared_some {
            return smallest;
        }
    }
}

/// Leaves out each chunk of this length if the journal still fails without it, beginning with the
/// last chunk.
fn leave_out_chunks(events: &mut Events, chunk: usize, fails: impl Fn(&Events) -> bool) {
    let mut end = events.len();
    while end > 0 {
        let start = end.saturating_sub(chunk);
        let mut shorter = events.clone();
        shorter.drain(start..end);
        if fails(&shorter) {
            *events = shorter;
        }
        end = start;
    }
}

#[cfg(test)]
mod tests {
    use fairgate_core::event::Event;

    use super::minimise;
    use crate::workload::{WorkloadShape, generate};

    #[test]
    fn only_what_matters_is_left() {
        let holds = |events: &super::Events| {
            events.iter().filter(|(_, event)| matches!(event, Event::Hold { .. })).count()
        };
        let mut journals = (1..).map(|seed| generate(&WorkloadShape::small(), seed));
        let (config, events) = journals.find(|(_, events)| holds(events) >= 2).expect("some");
        let smallest = minimise(&config, &events, |_, events| holds(events) >= 2);
        assert_eq!(smallest.len(), 2);
    }
}
