use super::*;
use crate::Route;

fn ask(route: Route, rest: &str) -> RequestFields {
    let body = format!(r#"{{"model":"m"{rest}}}"#);
    RequestFields::read(route, body.as_bytes()).unwrap()
}

fn chat(rest: &str) -> RequestFields {
    ask(Route::ChatCompletions, rest)
}

fn usage(input: u64, output: u64) -> TokenUsage {
    TokenUsage { input, cached: 0, output }
}

#[test]
fn nothing_learned_means_four_bytes_a_token_and_the_default_output() {
    let estimator = TokenEstimator::new(300, 100);
    let ask = chat("");
    let expected = estimator.estimate("t", "m", &ask, None);
    let (input, input_max) = (ask.input_bytes.div_ceil(4), ask.input_bytes.div_ceil(2));
    assert_eq!(
        expected,
        TokenEstimate { input, input_max, output: 300, output_max: None, has_files: false }
    );
    let exact = estimator.estimate("t", "m", &ask, Some(80));
    assert_eq!((exact.input, exact.input_max), (80, 122));
}

#[test]
fn the_caller_bounds_its_output_for_each_choice() {
    let estimator = TokenEstimator::new(300, 100);
    let expected = estimator.estimate("t", "m", &chat(r#","max_tokens":20,"n":3"#), None);
    assert_eq!((expected.output, expected.output_max), (60, Some(60)));
    let expected = estimator.estimate("t", "m", &chat(r#","max_tokens":5000,"n":3"#), None);
    assert_eq!((expected.output, expected.output_max), (900, Some(15_000)));
}

#[test]
fn embeddings_and_counts_have_no_output() {
    let estimator = TokenEstimator::new(300, 100);
    for route in [Route::Embeddings, Route::CountTokens] {
        let ask = ask(route, "");
        estimator.learn("t", "m", &ask, usage(10, 0));
        let expected = estimator.estimate("t", "m", &ask, None);
        assert_eq!((expected.output, expected.output_max), (0, Some(0)), "{route:?}");
    }
    assert_eq!(
        estimator.estimate("t", "m", &chat(""), None).output,
        300,
        "nothing learned of answers"
    );
}

#[test]
fn input_follows_what_the_model_reports_for_all_tenants() {
    let estimator = TokenEstimator::new(300, 100);
    let ask = chat(&format!(r#","prompt":"{}""#, "x".repeat(8000)));
    for _ in 0..100 {
        estimator.learn("a", "m", &ask, usage(ask.input_bytes / 2, 10));
    }
    let input = estimator.estimate("b", "m", &ask, None).input;
    let truth = ask.input_bytes / 2;
    assert!(input.abs_diff(truth) <= truth / 50, "{input} of {truth}");
    assert_eq!(estimator.estimate("b", "other", &ask, None).input, ask.input_bytes.div_ceil(4));
}

/// A tenant that sends URLs of images, each with few bytes and many tokens, does not change the estimates of other
/// tenants.
#[test]
fn one_tenants_images_do_not_make_anothers_text_dear() {
    let estimator = TokenEstimator::new(300, 100);
    let text = chat(&format!(r#","prompt":"{}""#, "words ".repeat(1000)));
    estimator.learn("text", "m", &text, usage(text.input_bytes / 4, 10));
    for _ in 0..1000 {
        estimator.learn("images", "m", &chat(""), usage(1500, 10));
    }
    let input = |tenant: &str| estimator.estimate(tenant, "m", &text, None).input;
    assert!(input("text").abs_diff(text.input_bytes / 4) <= 30, "{}", input("text"));
    assert!(input("new") <= text.input_bytes / 2 + 1, "{}", input("new"));
    assert!(input("images") > text.input_bytes);
}

#[test]
fn output_follows_the_tenants_own_answers() {
    let estimator = TokenEstimator::new(300, 100);
    let ask = chat("");
    for _ in 0..60 {
        estimator.learn("a", "m", &ask, usage(10, 40));
    }
    let output = estimator.estimate("a", "m", &ask, None).output;
    assert!((40..=41).contains(&output), "{output}");
    assert_eq!(estimator.estimate("b", "m", &ask, None).output, 300);
    assert_eq!(estimator.estimate("a", "n", &ask, None).output, 300);
}

#[test]
fn another_default_is_for_those_of_whom_nothing_is_known() {
    let estimator = TokenEstimator::new(300, 100);
    let ask = chat("");
    estimator.learn("a", "m", &ask, usage(10, 300));
    estimator.set_output_default(50);
    let output = |tenant| estimator.estimate(tenant, "m", &ask, None).output;
    assert_eq!((output("a"), output("b")), (300, 50));
}

#[test]
fn absurd_lessons_stay_within_bounds() {
    let estimator = TokenEstimator::new(u64::MAX, 2);
    let ask = chat("");
    for input in [u64::MAX, 0, 1, u64::MAX] {
        for _ in 0..200 {
            estimator.learn("a", "m", &ask, usage(input, u64::MAX));
        }
        let TokenEstimate { input, output, .. } = estimator.estimate("a", "m", &ask, None);
        assert!((1..=ask.input_bytes * 4).contains(&input), "{input} tokens");
        assert!(output <= TOKENS_MAX, "{output} tokens");
    }
}

#[test]
fn many_names_take_bounded_memory() {
    let estimator = TokenEstimator::new(300, 64);
    let ask = chat("");
    for i in 0..10_000 {
        estimator.learn(&format!("tenant {i}"), &format!("model {i}"), &ask, usage(5, 5));
    }
    let memory = estimator.memory();
    assert!(memory.inputs.len() <= 64 && memory.outputs.len() <= 64);
}
