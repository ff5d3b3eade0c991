//! Who asks, and what each is up to. The honest ones are here to be served whatever the others do.

use fairgate_testkit::workload::Rng;
use serde_json::{Value, json};

/// A tenant of the soak.
pub(super) struct Tenant {
    pub(super) name: &'static str,
    /// The weight of its group, which it has for itself.
    pub(super) weight: u64,
    pub(super) habit: Habit,
    /// How many clients it has, each with one request at a time.
    pub(super) clients: usize,
    /// Whether it has a budget, so that its requests reserve tokens.
    pub(super) budget: bool,
}

/// What a tenant's clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Habit {
    /// Ask and read, and leave now and then.
    Honest,
    /// Ask for what makes the worker fail: 5xx, resets, garbage, usage that cannot be.
    Poison,
    /// Ask for a 400 that comes after a slot was held for a while.
    FailLate,
    /// Leave at the `finish_reason`, before the usage comes.
    LeaveAtFinish,
    /// Read slowly or not at all over HTTP/1.1.
    ReadSlowly,
    /// Read byte by byte over HTTP/2 with a window of one byte.
    ReadByteByByte,
    /// Ask a model that uses many more tokens than it shows.
    HideUsage,
    /// Leave at any time, mostly while waiting.
    Leave,
}

pub(super) const TENANTS: [Tenant; 10] = [
    tenant("gold", 500, Habit::Honest, 16, false),
    tenant("silver", 100, Habit::Honest, 16, false),
    tenant("bronze", 50, Habit::Honest, 12, true),
    tenant("poisons", 100, Habit::Poison, 8, false),
    tenant("fails-late", 100, Habit::FailLate, 8, false),
    tenant("leaves-at-finish", 100, Habit::LeaveAtFinish, 8, true),
    tenant("reads-slowly", 100, Habit::ReadSlowly, 6, false),
    tenant("reads-byte-by-byte", 100, Habit::ReadByteByByte, 6, false),
    tenant("hides-usage", 100, Habit::HideUsage, 6, true),
    tenant("leaves", 100, Habit::Leave, 16, true),
];

const fn tenant(
    name: &'static str,
    weight: u64,
    habit: Habit,
    clients: usize,
    budget: bool,
) -> Tenant {
    Tenant { name, weight, habit, clients, budget }
}

/// Faults of a worker that a request's own content brings about.
const POISON: [&str; 16] = [
    "status=500",
    "status=500",
    "status=500",
    "status=503",
    "reset-before",
    "reset-mid",
    "close-mid",
    "close-at-end",
    "garbage",
    "invalid-json",
    "sse-garbage",
    "usage-missing",
    "usage-negative",
    "usage-huge",
    "usage-strings",
    "wrong-content-type",
];
/// The model that the simulated workers serve.
pub(super) const MODEL: &str = "sim";

/// A request's body.
pub(super) fn body(habit: Habit, rng: &mut Rng) -> String {
    let words = "word ".repeat(rng.count(1..=200));
    let (marker, stream) = match habit {
        Habit::Honest | Habit::Leave => (String::new(), rng.percent(60)),
        Habit::Poison => (format!("[sim:fault={}]", rng.one_of(&POISON)), rng.percent(50)),
        Habit::FailLate => ("[sim:fault=slow-status=400;after=300]".to_owned(), rng.percent(50)),
        // Hidden tokens are used up between the two.
        Habit::LeaveAtFinish => ("[sim:fault=hidden-tokens=200]".to_owned(), true),
        // Some answers are larger than what the kernel and the gateway hold for a client.
        Habit::ReadSlowly if rng.percent(40) => {
            ("[sim:fault=oversized-event=3000000]".to_owned(), true)
        }
        Habit::ReadSlowly => (String::new(), true),
        Habit::ReadByteByByte => ("[sim:tokens=3]".to_owned(), rng.percent(50)),
        Habit::HideUsage => ("[sim:fault=hidden-tokens=500]".to_owned(), rng.percent(50)),
    };
    let text = format!("{marker}{words}");
    let content = if habit == Habit::Poison { with_image(&text) } else { json!(text) };
    let body = json!({
        "model": MODEL,
        "stream": stream,
        "max_tokens": rng.range(1..=80),
        "messages": [{"role": "user", "content": content}],
    });
    body.to_string()
}

/// A text beside an image that no server can read.
pub(super) fn with_image(text: &str) -> Value {
    let image = json!({"url": "data:image/png;base64,iVBORw0KGgo="});
    json!([{"type": "text", "text": text}, {"type": "image_url", "image_url": image}])
}
