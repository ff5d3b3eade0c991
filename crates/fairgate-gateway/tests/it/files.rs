//! Tests of files under budgets. The tokens of a file cannot be seen in a body.

use fairgate_money::{Currency, ModelPrices, PerMillion, Price, PriceRates};
use fairgate_store::{Budget, BudgetPeriod, BudgetTier, BudgetUnit, DirectoryLimits, MicroUnits};
use http::StatusCode;
use serde_json::{Value, json};

use crate::support::client::{Answer, post};
use crate::support::scripted::Scripted;
use crate::support::{Folder, House, config, house_in};

const MESSAGES: &str = "/v1/messages";
/// Tokens of a page at the provider of these tests.
const PAGE_TOKENS: u64 = 3000;

/// Returns a PDF with this number of pages, in base64.
fn pdf(pages: usize) -> String {
    let kids: String = (0..pages).map(|page| format!("{} 0 R ", page + 3)).collect();
    let mut file = format!("%PDF-1.4\n1 0 obj<</Type/Pages/Kids[{kids}]>>endobj\n");
    (0..pages).for_each(|page| file += &format!("{} 0 obj<</Type/Page>>endobj\n", page + 3));
    // Spaces between objects mean nothing, and make the text a whole number of letters.
    file += &" ".repeat(3 - file.len() % 3);
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let letters = file.as_bytes().chunks(3).flat_map(|three| {
        let bits = three.iter().fold(0_usize, |bits, &byte| bits << 8 | usize::from(byte));
        [18, 12, 6, 0].map(|shift| char::from(LETTERS[bits >> shift & 63]))
    });
    letters.collect()
}

fn question(source: Value) -> Value {
    json!({"model": "sim", "max_tokens": 10, "messages": [{"role": "user", "content": [
        {"type": "document", "source": source}, {"type": "text", "text": "How many rivers?"}]}]})
}

fn with_pdf(pages: usize) -> Value {
    question(json!({"type": "base64", "media_type": "application/pdf", "data": pdf(pages)}))
}

/// Starts a gateway whose tenant has this budget per day, at three dollars for a million tokens.
async fn house(upstream: &Scripted, budget: Budget) -> House {
    let folder = Folder::new();
    let mut configuration = config(&folder, &upstream.url());
    let rates = PriceRates {
        input: PerMillion::parse("3").unwrap(),
        cached_input: PerMillion::parse("3").unwrap(),
        output: PerMillion::parse("3").unwrap(),
        request: MicroUnits(0),
        ..PriceRates::default()
    };
    let currency = Currency::parse("USD").unwrap();
    configuration.prices = ModelPrices::new(vec![Price::new("sim", None, currency, rates, None)]);
    let limits = DirectoryLimits { budgets: vec![budget], ..DirectoryLimits::default() };
    house_in(folder, configuration, limits).await
}

fn dollars(amount: &str) -> Budget {
    Budget {
        period: BudgetPeriod::Day,
        unit: BudgetUnit::Money,
        tier: BudgetTier::Any,
        amount: MicroUnits::parse(amount).unwrap().0,
    }
}

fn usage(input: u64) -> String {
    json!({"content": [], "stop_reason": "end_turn", "usage": {"input_tokens": input, "output_tokens": 1}})
        .to_string()
}

/// Sends these bodies at once. The provider answers each with this number of input tokens.
async fn flood(house: &House, upstream: Scripted, bodies: Vec<Value>, input: u64) -> Vec<Answer> {
    let mut upstream = upstream;
    let addr = house.gateway.addr();
    let asked = bodies.into_iter().map(|body| {
        let question = post(MESSAGES, &body).key(&house.key);
        tokio::spawn(async move { question.ask(addr).await })
    });
    let asked: Vec<_> = asked.collect();
    let answering = tokio::spawn(async move {
        loop {
            upstream.call().await.answer(200, "application/json", usage(input));
        }
    });
    let mut answers = Vec::new();
    for one in asked {
        answers.push(one.await.unwrap());
    }
    answering.abort();
    answers
}

async fn spent(house: &House) -> MicroUnits {
    MicroUnits(house.rows().await.iter().map(|row| row.money.0).sum())
}

#[tokio::test(flavor = "multi_thread")]
async fn many_pdfs_at_once_do_not_exceed_a_budget() {
    let upstream = Scripted::start().await;
    let house = house(&upstream, dollars("0.30")).await;
    let bodies = (0..24).map(|_| with_pdf(100)).collect();
    let answers = flood(&house, upstream, bodies, 100 * PAGE_TOKENS).await;
    let spent = spent(&house).await;
    assert!(spent.0 <= 300_000, "{spent} were spent");
    assert!(answers.iter().all(|answer| answer.code() == "budget_exhausted"));
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn small_files_are_served_at_once_while_the_budget_lasts() {
    let upstream = Scripted::start().await;
    let house = house(&upstream, dollars("0.30")).await;
    let bodies = (0..24).map(|_| with_pdf(1)).collect();
    let answers = flood(&house, upstream, bodies, 1800).await;
    for answer in answers {
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    }
    assert_eq!(spent(&house).await.0, 24 * 1801 * 3);
    house.close().await;
}

#[tokio::test]
async fn at_the_end_of_a_budget_files_go_one_at_a_time() {
    let mut upstream = Scripted::start().await;
    // Room for two and a half of them.
    let house = house(&upstream, Budget::tokens(7700, BudgetPeriod::Day)).await;
    let addr = house.gateway.addr();
    let ask = |body: &Value| {
        let question = post(MESSAGES, body).key(&house.key);
        tokio::spawn(async move { question.ask(addr).await })
    };
    let first = ask(&with_pdf(1));
    let call = upstream.call().await;
    // It would fit, but both may take more than they show.
    let second = ask(&with_pdf(1)).await.unwrap();
    assert_eq!(
        (second.status, second.code().as_str()),
        (StatusCode::TOO_MANY_REQUESTS, "budget_reserved")
    );
    assert!(second.text().contains("one at a time"), "{}", second.text());
    assert_eq!(second.header("x-should-retry"), None);
    // Text goes on beside it.
    let text =
        json!({"model": "sim", "max_tokens": 10, "messages": [{"role": "user", "content": "x"}]});
    let text = ask(&text);
    upstream.call().await.answer(200, "application/json", usage(5));
    assert_eq!(text.await.unwrap().status, StatusCode::OK);
    call.answer(200, "application/json", usage(1800));
    assert_eq!(first.await.unwrap().status, StatusCode::OK);
    let second = ask(&with_pdf(1));
    upstream.call().await.answer(200, "application/json", usage(1800));
    assert_eq!(second.await.unwrap().status, StatusCode::OK);
    house.close().await;
}

#[tokio::test]
async fn text_that_is_padded_to_look_like_a_file_is_reserved_as_text() {
    let upstream = Scripted::start().await;
    let house = house(&upstream, Budget::tokens(50_000, BudgetPeriod::Day)).await;
    let padding = "A".repeat(256);
    let text = format!("{padding}{}{padding}", " words".repeat(40_000));
    let body = question(json!({"type": "text", "media_type": "text/plain", "data": text}));
    let refused = post(MESSAGES, &body).key(&house.key).ask(house.gateway.addr()).await;
    assert_eq!(refused.code(), "budget_exhausted");
    // So is a file of which nothing is known.
    let body = question(json!({"type": "url", "url": "https://example.org/a.pdf"}));
    let refused = post(MESSAGES, &body).key(&house.key).ask(house.gateway.addr()).await;
    assert_eq!(refused.code(), "budget_exhausted");
    assert!(refused.text().contains("up to 200"), "{}", refused.text());
    house.close().await;
}
