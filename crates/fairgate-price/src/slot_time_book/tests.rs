use alloc::format;
use alloc::vec::Vec;

use fairgate_random::SeededRng;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const START: Duration = Duration::ZERO;

/// Returns the gateway's default rate, 51.2 tokens per second.
fn default() -> TokenRate {
    TokenRate::new(512, 10 * SECOND)
}

/// Returns the price of a second at the start.
fn second(book: &SlotTimeBook, payer: &str) -> u64 {
    book.price(payer, default(), START).cost(SECOND)
}

/// Creates a book in which each tenant has completed work. A tenant is given by its name, its rate
/// in tokens per second and its time in milliseconds.
fn book(tenants: &[(&str, u64, u64)]) -> SlotTimeBook {
    let mut book = SlotTimeBook::default();
    for &(tenant, rate, millis) in tenants {
        let held = Duration::from_millis(millis);
        book.record_completed(tenant, rate * millis / 1000, held, START);
    }
    book
}

#[test]
fn before_anything_has_completed_a_second_costs_the_default() {
    let book = SlotTimeBook::default();
    assert_eq!(book.price("a", default(), START).cost(10 * SECOND), 512);
    assert_eq!(book.price("a", default(), START).cost(Duration::ZERO), 0);
}

#[test]
fn the_others_set_the_price() {
    let mut book = book(&[("cheap", 10, 100_000)]);
    // Alone, there is no other price than its own.
    assert_eq!(second(&book, "cheap"), 10);
    book.record_completed("a", 1000, 10 * SECOND, START);
    assert_eq!(second(&book, "cheap"), 100);
    assert_eq!(second(&book, "a"), 10);
    // By slot-seconds.
    book.record_completed("b", 9000, 30 * SECOND, START);
    assert_eq!(second(&book, "cheap"), 250);
}

#[test]
fn one_tenant_with_many_tokens_in_half_a_second_counts_for_four_medians() {
    // 50 times 300 000 tokens in half a second, beside 100 seconds of chat at 100 tokens a second.
    let mut attacked = book(&[("honest", 100, 100_000), ("victim", 80, 50_000)]);
    let before = second(&attacked, "victim");
    for _ in 0..50 {
        attacked.record_completed("loud", 300_000, Duration::from_millis(10), START);
    }
    // The rates are 51.2, 80, 100 and 30 million, so the median is 100.
    let after = second(&attacked, "victim");
    assert!(after <= before + 2, "{before} before, {after} after");
}

#[test]
fn the_only_other_tenant_cannot_set_the_price() {
    let loud = ("loud", 30_000_000, 500);
    // The rates are 51.2, 80 and 30 million.
    assert_eq!(second(&book(&[loud, ("victim", 80, 50_000)]), "victim"), 320);
    // The victim is slower than the default.
    assert_eq!(second(&book(&[loud, ("victim", 10, 50_000)]), "victim"), 205);
    // The victim has completed nothing: 4 × 16 × 51.2.
    assert_eq!(second(&book(&[loud]), "victim"), 3277);
}

#[test]
fn two_tenants_that_lie_are_held_by_the_rate_of_their_victim() {
    let lies = [("loud", 30_000_000, 500), ("louder", 60_000_000, 500)];
    let with = |victim| second(&book(&[lies[0], lies[1], victim]), "victim");
    assert_eq!(with(("victim", 80, 50_000)), 64 * 80);
    // With one more honest tenant the median is honest, and what they say counts for little time.
    let honest = [("honest", 100, 100_000), ("victim", 80, 50_000)];
    let price = second(&book(&[lies[0], lies[1], honest[0], honest[1]]), "victim");
    assert!((100..110).contains(&price), "{price}");
}

#[test]
fn who_only_fails_pays_what_the_other_tenant_pays_however_little_it_asked_for() {
    // 830 tokens a second are 16 times the default.
    let mut book = book(&[("honest", 830, 60_000)]);
    assert_eq!(second(&book, "fails"), 830);
    for _ in 0..100 {
        let charge = book.price("fails", default(), START).cost(20 * SECOND);
        book.record_paid_by_time("fails", charge, 20 * SECOND, START);
    }
    assert_eq!(second(&book, "fails"), 830);
    // What it paid is the price of the others' time too.
    assert_eq!(second(&book, "honest"), 830);
}

#[test]
fn tenants_that_report_nothing_do_not_lower_the_price_for_each_other() {
    for liars in [1, 2, 5] {
        let mut book = book(&[("honest", 500, 20_000)]);
        let mut paid = 0;
        for round in 0..200 {
            let now = START + round * SECOND;
            for liar in 0..liars {
                let liar = format!("liar{liar}");
                let charge = book.price(&liar, default(), now).cost(4 * SECOND);
                book.record_reported(&liar, 0, charge, 4 * SECOND, default(), now);
                paid = charge;
            }
            book.record_reported("honest", 2000, 2000, 4 * SECOND, default(), now);
        }
        assert!((1990..=2010).contains(&paid), "{liars} liars pay {paid} for 4 s at 500 a second");
    }
}

#[test]
fn a_tenant_that_is_priced_high_by_another_prices_the_other_alike() {
    // The attacker reports much once, and nothing afterwards.
    let mut book = SlotTimeBook::default();
    book.record_reported("attacker", 1_000_000_000, 1_000_000_000, SECOND, default(), START);
    let mut last = [0, 0];
    for round in 0..100 {
        let now = START + round * SECOND;
        for (at, (tenant, reported)) in [("victim", 100), ("attacker", 0)].into_iter().enumerate() {
            let charge = book.price(tenant, default(), now).cost(SECOND).max(reported);
            book.record_reported(tenant, reported, charge, SECOND, default(), now);
            last[at] = charge;
        }
    }
    let [victim, attacker] = last;
    assert!(attacker * 10 >= victim * 9, "the victim pays {victim}, the attacker {attacker}");
}

#[test]
fn long_and_cheap_work_is_at_most_half_of_the_price() {
    let cheap = [("c1", 1, 3_000_000), ("c2", 1, 3_000_000)];
    let honest = [("a", 100, 10_000), ("b", 100, 10_000), ("d", 100, 10_000)];
    let tenants: Vec<_> = cheap.into_iter().chain(honest).collect();
    let price = second(&book(&tenants), "payer");
    assert!((50..=51).contains(&price), "{price}");
}

#[test]
fn the_past_fades() {
    let mut book = book(&[("a", 1000, 10_000)]);
    let later = Duration::from_secs(6000);
    book.record_completed("a", 100, 10 * SECOND, later);
    assert_eq!(book.price("b", default(), later).cost(SECOND), 11);
    // A clock that goes back changes nothing.
    assert_eq!(book.price("b", default(), START).cost(SECOND), 11);
}

#[test]
fn who_fails_is_expected_to_pay_for_its_time() {
    let mut book = SlotTimeBook::default();
    assert_eq!(book.expected("a", 50), 50);
    (0..40).for_each(|_| book.record_paid_by_time("a", 250, SECOND, START));
    let expected = book.expected("a", 50);
    assert!((240..=260).contains(&expected), "{expected}");
    assert_eq!((book.expected("a", 1000), book.expected("b", 50)), (1000, 50));
    (0..60).for_each(|_| book.record_completed("a", 50, SECOND, START));
    assert_eq!(book.expected("a", 50), 50);
}

#[test]
fn it_remembers_so_many_tenants_and_no_more() {
    let mut book = book(&[("large", 7, 1_000_000)]);
    for i in 0..2 * TENANTS_MAX {
        book.record_completed(&format!("t{i}"), 7, SECOND, START);
    }
    assert_eq!(book.tenants.len(), TENANTS_MAX);
    assert!(book.tenants.contains_key("large"));
}

/// One tenant reports and does arbitrary things beside honest tenants. The price of each honest
/// tenant stays between an eighth of the lowest honest rate and 4 times the highest, and nothing
/// overflows.
#[test]
fn one_tenant_among_honest_ones_moves_no_price_out_of_their_range() {
    for seed in 0..300 {
        let mut rng = SeededRng::new(seed);
        let mut book = SlotTimeBook::default();
        let honest: Vec<(_, u64)> =
            (0..rng.range(2..=6)).map(|i| (format!("h{i}"), rng.range(52..=2000))).collect();
        let mut now = START;
        for (tenant, rate) in &honest {
            book.record_completed(tenant, *rate, SECOND, now);
        }
        for _ in 0..200 {
            now += Duration::from_millis(rng.range(0..=5000));
            let (tenant, rate) = &honest[rng.index(honest.len())];
            let held = Duration::from_millis(rng.range(500..=4000));
            let tokens = rate * u64::try_from(held.as_millis()).unwrap() / 1000;
            match rng.range(0..=3) {
                0 => {
                    let charge = book.price(tenant, default(), now).cost(held);
                    book.record_paid_by_time(tenant, charge, held, now);
                }
                _ => book.record_completed(tenant, tokens, held, now),
            }
            let tokens = rng.next_u64();
            let tokens = rng.one_of(&[0, 1, tokens, 300_000]);
            let held = [Duration::ZERO, Duration::MAX, Duration::from_micros(rng.below(1 << 34))];
            let held = rng.one_of(&held);
            match rng.range(0..=2) {
                0 => book.record_completed("liar", tokens, held, now),
                1 => book.record_paid_by_time("liar", tokens, held, now),
                _ => book.record_reported("liar", tokens, tokens, held, default(), now),
            }
            let rates = honest.iter().map(|(_, rate)| *rate);
            let (least, most) = (rates.clone().min().unwrap(), rates.max().unwrap());
            let price = book.price(&honest[0].0, default(), now).cost(SECOND);
            let range = least / 8..=4 * most + 4;
            assert!(range.contains(&price), "seed {seed}: {price} not in {range:?}, {honest:?}");
        }
    }
}
