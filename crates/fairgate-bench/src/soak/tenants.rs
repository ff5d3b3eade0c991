//! The tenants of the soak and their habits. Honest tenants must be served whatever the other
//! tenants do.

use fairgate_testkit::workload::SeededRng;
use serde_json::{Value, json};

/// A tenant of the soak.
pub(super) struct SoakTenant {
    pub(super) name: &'static str,
    /// Weight of the tenant's group, in which there is no other tenant.
    pub(super) weight: u64,
    pub(super) habit: ClientHabit,
    /// Number of the tenant's clients, each with one request at a time.
    pub(super) clients: usize,
    /// True if the tenant has a budget, so that each of its requests reserves tokens.
    pub(super) budget: bool,
}

/// Behaviour of a tenant's clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientHabit {
    /// Send requests and read the answers, but sometimes leave early.
    Honest,
    /// Send prompts that make the worker fail with 5xx, resets, garbage or impossible usage.
    Poison,
    /// Send prompts that fail with 400 after the request has held a slot for a while.
    FailLate,
    /// Leave at the `finish_reason`, before the usage arrives.
    LeaveAtFinish,
    /// Read slowly or not at all over HTTP/1.1.
    ReadSlowly,
    /// Read byte by byte over HTTP/2 with a window of one byte.
    ReadByteByByte,
    /// Send prompts for which the model uses many more tokens than its answer shows.
    HideUsage,
    /// Leave at any time, mostly while the request is queued.
    Leave,
}

pub(super) const TENANTS: [SoakTenant; 10] = [
    tenant("gold", 500, ClientHabit::Honest, 16, false),
    tenant("silver", 100, ClientHabit::Honest, 16, false),
    tenant("bronze", 50, ClientHabit::Honest, 12, true),
    tenant("poisons", 100, ClientHabit::Poison, 8, false),
    tenant("fails-late", 100, ClientHabit::FailLate, 8, false),
    tenant("leaves-at-finish", 100, ClientHabit::LeaveAtFinish, 8, true),
    tenant("reads-slowly", 100, ClientHabit::ReadSlowly, 6, false),
    tenant("reads-byte-by-byte", 100, ClientHabit::ReadByteByByte, 6, false),
    tenant("hides-usage", 100, ClientHabit::HideUsage, 6, true),
    tenant("leaves", 100, ClientHabit::Leave, 16, true),
];

const fn tenant(
    name: &'static str,
    weight: u64,
    habit: ClientHabit,
    clients: usize,
    budget: bool,
) -> SoakTenant {
    SoakTenant { name, weight, habit, clients, budget }
}

/// Faults of a simulated worker that the content of a request causes.
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
/// Model that the simulated workers serve.
pub(super) const MODEL: &str = "sim";

/// Builds the body of a request, as a tenant with this habit would send it.
pub(super) fn body(habit: ClientHabit, rng: &mut SeededRng) -> String {
    let words = "word ".repeat(rng.count(1..=200));
    let (marker, stream) = match habit {
        ClientHabit::Honest | ClientHabit::Leave => (String::new(), rng.percent(60)),
        ClientHabit::Poison => (format!("[sim:fault={}]", rng.one_of(&POISON)), rng.percent(50)),
        ClientHabit::FailLate => {
            ("[sim:fault=slow-status=400;after=300]".to_owned(), rng.percent(50))
        }
        // The hidden tokens are generated before the text; the usage follows after `finish_reason`.
        ClientHabit::LeaveAtFinish => ("[sim:fault=hidden-tokens=200]".to_owned(), true),
        // Some answers are larger than the buffers of kernel and gateway for one client.
        ClientHabit::ReadSlowly if rng.percent(40) => {
            ("[sim:fault=oversized-event=3000000]".to_owned(), true)
        }
        ClientHabit::ReadSlowly => (String::new(), true),
        ClientHabit::ReadByteByByte => ("[sim:tokens=3]".to_owned(), rng.percent(50)),
        ClientHabit::HideUsage => ("[sim:fault=hidden-tokens=500]".to_owned(), rng.percent(50)),
    };
    let text = format!("{marker}{words}");
    let content = if habit == ClientHabit::Poison { with_image(&text) } else { json!(text) };
    let body = json!({
        "model": MODEL,
        "stream": stream,
        "max_tokens": rng.range(1..=80),
        "messages": [{"role": "user", "content": content}],
    });
    body.to_string()
}

/// Builds the content of a message with a text and an image that no server can decode.
pub(super) fn with_image(text: &str) -> Value {
    let image = json!({"url": "data:image/png;base64,iVBORw0KGgo="});
    json!([{"type": "text", "text": text}, {"type": "image_url", "image_url": image}])
}
