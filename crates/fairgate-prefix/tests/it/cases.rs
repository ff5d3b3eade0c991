//! Tests of the effect of each single call.

use fairgate_prefix::{PrefixIndex, PrefixWorker};

use crate::{TOKENS, chain, report};

fn cached(index: &PrefixIndex, worker: PrefixWorker, symbols: &[u8]) -> u64 {
    index.overlap(&chain(symbols)).tokens(worker) / TOKENS
}

/// Sends a prompt to a worker. The answer reports `blocks` of the prompt's blocks as cached.
fn answered(index: &mut PrefixIndex, worker: PrefixWorker, symbols: &[u8], blocks: u64) {
    let chain = chain(symbols);
    let route = index.routed(worker, &chain).unwrap();
    index.observed(&route, &chain, report(&chain, blocks));
}

#[test]
fn a_worker_is_expected_to_hold_what_was_sent_to_it() {
    let mut index = PrefixIndex::new(1000);
    let (one, two) = (index.add(10_000), index.add(10_000));
    let _ = index.routed(one, &chain(&[1, 2, 3]));
    let prompt = chain(&[1, 2, 9]);
    let overlap = index.overlap(&prompt);
    assert_eq!((overlap.tokens(one), overlap.tokens(two)), (2 * TOKENS, 0));
    assert_eq!(overlap.iter().collect::<Vec<_>>(), [(one, 2 * TOKENS)]);
    assert_eq!(overlap.most(), 2 * TOKENS);
}

#[test]
fn the_least_recent_leaves_first_and_a_prefix_never_before_what_extends_it() {
    let mut index = PrefixIndex::new(1000);
    let worker = index.add(3 * TOKENS);
    let _ = index.routed(worker, &chain(&[1, 2]));
    let _ = index.routed(worker, &chain(&[5, 6]));
    assert_eq!([cached(&index, worker, &[1, 2]), cached(&index, worker, &[5, 6])], [1, 2]);
    let _ = index.routed(worker, &chain(&[11, 12, 13, 14, 15]));
    assert_eq!(cached(&index, worker, &[11, 12, 13, 14, 15]), 3);
    assert_eq!(index.held_blocks(worker), 3);
}

#[test]
fn what_an_engine_evicted_is_forgotten_with_all_that_was_older() {
    let mut index = PrefixIndex::new(1000);
    let worker = index.add(100_000);
    let (old, between, young) = ([1; 10], [2; 10], [3; 10]);
    for symbols in [old, between, young] {
        answered(&mut index, worker, &symbols, 0);
    }
    answered(&mut index, worker, &between, 0);
    assert_eq!(cached(&index, worker, &old), 0, "it was used before what the engine has lost");
    assert_eq!(cached(&index, worker, &between), 10, "the engine has just read it");
    assert_eq!(cached(&index, worker, &young), 10, "it was used later");
}

#[test]
fn a_prompt_still_being_read_contradicts_nothing() {
    let mut index = PrefixIndex::new(1000);
    let worker = index.add(100_000);
    answered(&mut index, worker, &[1; 10], 0);
    let prompt = chain(&[2; 10]);
    let (first, second) =
        (index.routed(worker, &prompt).unwrap(), index.routed(worker, &prompt).unwrap());
    for route in [first, second] {
        index.observed(&route, &prompt, report(&prompt, 0));
    }
    assert_eq!(cached(&index, worker, &[1; 10]), 10);
}

#[test]
fn a_report_that_is_a_little_short_contradicts_nothing() {
    let mut index = PrefixIndex::new(1000);
    let worker = index.add(100_000);
    answered(&mut index, worker, &[1; 10], 0);
    answered(&mut index, worker, &[2; 10], 0);
    answered(&mut index, worker, &[2; 10], 6);
    assert_eq!(cached(&index, worker, &[1; 10]), 10);
    answered(&mut index, worker, &[2; 10], 5);
    assert_eq!(cached(&index, worker, &[1; 10]), 0);
}

#[test]
fn a_restart_empties_a_worker_and_outdates_what_was_sent_before() {
    let mut index = PrefixIndex::new(1000);
    let (worker, other) = (index.add(100_000), index.add(100_000));
    let prompt = chain(&[1, 2, 3]);
    let route = index.routed(worker, &prompt).unwrap();
    let _ = index.routed(other, &prompt);
    index.forget(worker);
    index.observed(&route, &prompt, report(&prompt, 0));
    assert_eq!([cached(&index, worker, &[1, 2, 3]), cached(&index, other, &[1, 2, 3])], [0, 3]);
    let _ = index.routed(worker, &prompt);
    assert_eq!(cached(&index, worker, &[1, 2, 3]), 3);
}

#[test]
fn who_left_is_not_taken_for_who_came_in_its_place() {
    let mut index = PrefixIndex::new(1000);
    let gone = index.add(100_000);
    let prompt = chain(&[1, 2, 3]);
    let route = index.routed(gone, &prompt).unwrap();
    index.remove(gone);
    let new = index.add(100_000);
    index.observed(&route, &prompt, report(&prompt, 0));
    assert!(index.routed(gone, &prompt).is_none());
    assert_eq!([cached(&index, gone, &[1, 2, 3]), cached(&index, new, &[1, 2, 3])], [0, 0]);
    let _ = index.routed(new, &prompt);
    assert_eq!([cached(&index, gone, &[1, 2, 3]), cached(&index, new, &[1, 2, 3])], [0, 3]);
}

#[test]
fn the_bound_is_divided_in_proportion_to_the_caches() {
    let mut index = PrefixIndex::new(40);
    let large = index.add(300 * TOKENS);
    let fill = |index: &mut PrefixIndex, worker, first: u8| {
        for symbol in 0..30 {
            let _ = index.routed(worker, &chain(&[first + symbol; 10]));
        }
        index.held_blocks(worker)
    };
    assert_eq!(fill(&mut index, large, 0), 40);
    let small = index.add(100 * TOKENS);
    assert_eq!(index.held_blocks(large), 30, "the oldest leave at once");
    assert_eq!((fill(&mut index, small, 100), fill(&mut index, large, 200)), (10, 30));
    index.resize(large, 100 * TOKENS);
    assert_eq!((fill(&mut index, small, 100), fill(&mut index, large, 200)), (20, 20));
    index.remove(large);
    assert_eq!((fill(&mut index, small, 100), index.blocks()), (40, 40));
}

#[test]
fn more_than_64_workers_are_told_apart() {
    let mut index = PrefixIndex::new(100_000);
    let workers: Vec<PrefixWorker> = (0..200).map(|_| index.add(10_000)).collect();
    for (number, &worker) in workers.iter().enumerate() {
        let _ = index.routed(worker, &chain(&[7; 5][..number % 6]));
    }
    let prompt = chain(&[7; 5]);
    let overlap = index.overlap(&prompt);
    for (number, &worker) in workers.iter().enumerate() {
        assert_eq!(overlap.tokens(worker), number as u64 % 6 * TOKENS, "worker {number}");
    }
    assert!(
        overlap
            .iter()
            .map(|(worker, _)| worker)
            .is_sorted_by_key(|worker| workers.iter().position(|w| *w == worker))
    );
}

#[test]
fn a_report_that_ends_just_short_of_a_shared_prompt_costs_no_other_prefix() {
    let mut index = PrefixIndex::new(1000);
    let worker = index.add(100_000);
    let with_system = |own: u8| [&[1; 20][..], &[own; 30]].concat();
    answered(&mut index, worker, &with_system(2), 0);
    answered(&mut index, worker, &[9; 10], 0);
    answered(&mut index, worker, &with_system(3), 20);
    // What the first had of its own is evicted; by the estimate, the report ends within the system prompt.
    answered(&mut index, worker, &with_system(2), 19);
    assert_eq!(cached(&index, worker, &[9; 10]), 10, "it was used after what the engine has lost");
    assert_eq!(cached(&index, worker, &with_system(3)), 50);
}

#[test]
fn a_cache_that_turns_out_smaller_is_believed_to_be_smaller() {
    let mut index = PrefixIndex::new(100_000);
    let worker = index.add(128 * TOKENS);
    let prompts: Vec<[u8; 10]> = (0..12).map(|symbol| [symbol; 10]).collect();
    prompts.iter().for_each(|prompt| answered(&mut index, worker, prompt, 0));
    assert_eq!((index.held_blocks(worker), index.learned_cache_tokens(worker)), (120, None));
    // What was used 6 prompts ago is gone.
    for prompt in &prompts[5..8] {
        answered(&mut index, worker, prompt, 0);
    }
    let learned = index.learned_cache_tokens(worker).unwrap();
    assert!((48 * TOKENS..=72 * TOKENS).contains(&learned), "{}", learned / TOKENS);
    assert!(index.held_blocks(worker) as u64 * TOKENS <= learned);
    index.forget(worker);
    assert_eq!(index.learned_cache_tokens(worker), Some(learned), "a restart does not change it");
    index.resize(worker, 128 * TOKENS);
    assert_eq!(index.learned_cache_tokens(worker), Some(learned), "no news");
    assert_eq!(index.stated_cache_tokens(worker), Some(128 * TOKENS));
    index.resize(worker, 100 * TOKENS);
    assert_eq!(index.stated_cache_tokens(worker), Some(100 * TOKENS));
    assert_eq!(index.learned_cache_tokens(worker), None, "another cache");
    index.remove(worker);
    assert_eq!(index.learned_cache_tokens(worker), None);
}
