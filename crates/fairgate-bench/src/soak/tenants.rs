//! The tenants of the soak and their habits. Honest tenants must be served regardless of the other
//! tenants' behaviour.

use fairgate_testkit::workload::SeededRng;
use serde_json::{Value, json};

use crate::http::CHAT_PATH;

/// A tenant of the soak.
pub(super) struct SoakTenant {
    pub(super) name: &'static str,
    /// Weight of the tenant's group. The group has no other tenant.
    pub(super) weight: u64,
    pub(super) habit: ClientHabit,
    /// Number of the tenant's clients. Each client has one request at a time.
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
    /// Send embeddings with many input tokens, which take little time.
    HugeEmbeddings,
    /// Send requests with `max_tokens: 1` that hold a slot for one second and then fail.
    HoldSlots,
    /// Send PDF files under a budget that suffices for only a few files.
    SendFiles,
    /// Send requests that name responses, items and prompts of other tenants.
    NameForeignIds,
    /// Send requests to the hosted model, and read the answers.
    HonestHosted,
    /// Send requests to another model of the hosted account, and read the answers.
    HonestHostedOther,
    /// Send requests to the same model as [`HonestHostedOther`](Self::HonestHostedOther). The
    /// provider refuses them because of limits, credit or a credential.
    ProvokeProvider,
    /// Take leases, hold them for a moment and report their usage.
    HonestLease,
    /// Take leases that claim to cost one token, hold them, and report limits, failures or 0 tokens.
    MisreportLease,
}

impl ClientHabit {
    /// Returns whether the tenant is honest, and must be served regardless of the other tenants'
    /// behaviour.
    pub(super) fn is_honest(self) -> bool {
        let hosted = matches!(self, Self::HonestHosted | Self::HonestHostedOther);
        hosted || matches!(self, Self::Honest | Self::HonestLease)
    }

    /// Returns the habit of an honest client of the same pool. Attackers have this habit until the
    /// attack begins.
    pub(super) fn before_attack(self) -> Self {
        match self {
            Self::HonestHosted => Self::HonestHosted,
            Self::HonestHostedOther | Self::ProvokeProvider => Self::HonestHostedOther,
            Self::HonestLease | Self::MisreportLease => Self::HonestLease,
            _ => Self::Honest,
        }
    }

    /// Returns whether the clients use the leases of [`LEASE_POOL`].
    pub(super) fn takes_leases(self) -> bool {
        matches!(self, Self::HonestLease | Self::MisreportLease)
    }

    /// Returns the route that the clients call.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::HugeEmbeddings => "/v1/embeddings",
            Self::NameForeignIds => "/v1/responses",
            Self::HonestLease | Self::MisreportLease => "/v1/leases",
            _ => CHAT_PATH,
        }
    }
}

/// Tenants of `soak --attackers`. The weights are such that each honest tenant gets some hundred
/// answers in half a minute. With fewer answers, chance alone would change their number by a tenth.
pub(super) const ATTACKED_TENANTS: [SoakTenant; 14] = [
    tenant("gold", 400, ClientHabit::Honest, 16, false),
    tenant("silver", 300, ClientHabit::Honest, 16, false),
    tenant("bronze", 200, ClientHabit::Honest, 12, false),
    tenant("poisons", 100, ClientHabit::Poison, 8, false),
    tenant("leaves-at-finish", 100, ClientHabit::LeaveAtFinish, 8, true),
    tenant("leaves", 100, ClientHabit::Leave, 8, true),
    tenant("embeds", 100, ClientHabit::HugeEmbeddings, 8, false),
    tenant("holds-slots", 100, ClientHabit::HoldSlots, 8, false),
    tenant("sends-files", 100, ClientHabit::SendFiles, 8, true),
    tenant("names-ids", 100, ClientHabit::NameForeignIds, 4, false),
    tenant("hosted", 300, ClientHabit::HonestHosted, 12, false),
    tenant("provokes", 100, ClientHabit::ProvokeProvider, 8, false),
    tenant("leases", 300, ClientHabit::HonestLease, 12, false),
    tenant("misreports", 100, ClientHabit::MisreportLease, 8, false),
];

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

/// Faults that the content of a request can cause in a simulated worker.
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
/// Models of the hosted account. The honest tenant uses the first. Attackers cause refusals with
/// the second.
pub(super) const HOSTED_MODELS: [&str; 2] = ["hosted-a", "hosted-b"];
/// Pool whose slots are leased.
pub(super) const LEASE_POOL: &str = "leased";
/// Token budget per month of the tenant that sends files.
pub(super) const FILE_BUDGET_TOKENS: i64 = 5_000_000;

/// Refusals that requests cause at the simulated provider. Each request names one refusal.
const REFUSALS: [&str; 5] =
    ["status=402", "status=401", "status=403", "status=429;retry-after=30", "status=429"];

/// Builds the body of a random request of a tenant with this habit.
pub(super) fn body(habit: ClientHabit, rng: &mut SeededRng) -> String {
    match habit {
        ClientHabit::HugeEmbeddings => return embeddings(),
        ClientHabit::NameForeignIds => return foreign_ids(rng),
        ClientHabit::SendFiles => return with_pdf(rng),
        _ => {}
    }
    let words = "word ".repeat(rng.count(1..=200));
    let (marker, stream) = match habit {
        ClientHabit::Honest
        | ClientHabit::HonestHosted
        | ClientHabit::HonestHostedOther
        | ClientHabit::Leave => (String::new(), rng.percent(60)),
        ClientHabit::HoldSlots => ("[sim:fault=slow-status=400;after=1000]".to_owned(), false),
        ClientHabit::ProvokeProvider => {
            (format!("[sim:fault={}]", rng.one_of(&REFUSALS)), rng.percent(50))
        }
        ClientHabit::Poison => (format!("[sim:fault={}]", rng.one_of(&POISON)), rng.percent(50)),
        ClientHabit::FailLate => {
            ("[sim:fault=slow-status=400;after=300]".to_owned(), rng.percent(50))
        }
        // The hidden tokens are generated before the text. The usage follows after `finish_reason`.
        ClientHabit::LeaveAtFinish => ("[sim:fault=hidden-tokens=200]".to_owned(), true),
        // Some answers are larger than the buffers that the kernel and the gateway have for one
        // client.
        ClientHabit::ReadSlowly if rng.percent(40) => {
            ("[sim:fault=oversized-event=3000000]".to_owned(), true)
        }
        ClientHabit::ReadSlowly => (String::new(), true),
        ClientHabit::ReadByteByByte => ("[sim:tokens=3]".to_owned(), rng.percent(50)),
        ClientHabit::HideUsage => ("[sim:fault=hidden-tokens=500]".to_owned(), rng.percent(50)),
        ClientHabit::HugeEmbeddings
        | ClientHabit::NameForeignIds
        | ClientHabit::SendFiles
        | ClientHabit::HonestLease
        | ClientHabit::MisreportLease => (String::new(), false),
    };
    let text = format!("{marker}{words}");
    let content = if habit == ClientHabit::Poison { with_image(&text) } else { json!(text) };
    let model = match habit {
        ClientHabit::HonestHosted => HOSTED_MODELS[0],
        ClientHabit::HonestHostedOther | ClientHabit::ProvokeProvider => HOSTED_MODELS[1],
        _ => MODEL,
    };
    let max_tokens = if habit == ClientHabit::HoldSlots { 1 } else { rng.range(1..=80) };
    let body = json!({
        "model": model,
        "stream": stream,
        "max_tokens": max_tokens,
        "messages": [{"role": "user", "content": content}],
    });
    body.to_string()
}

/// Builds the body of a request for the embeddings of about 50 000 tokens.
fn embeddings() -> String {
    json!({"model": MODEL, "input": "word ".repeat(40_000)}).to_string()
}

/// Builds the body of a request that names a response, an item or a prompt of another tenant.
fn foreign_ids(rng: &mut SeededRng) -> String {
    let number = rng.range(0..=1_000_000);
    let item = json!([{"type": "item_reference", "id": format!("msg_{number}")}]);
    let body = match rng.range(0..=2) {
        0 => {
            json!({"model": MODEL, "input": "go on", "previous_response_id": format!("resp_{number}")})
        }
        1 => json!({"model": MODEL, "input": item}),
        _ => json!({"model": MODEL, "input": "go on", "prompt": {"id": format!("pmpt_{number}")}}),
    };
    body.to_string()
}

/// Builds the body of a request with a PDF of 1 to 40 pages without text.
fn with_pdf(rng: &mut SeededRng) -> String {
    let pages = rng.count(1..=40);
    let pdf = format!("%PDF-1.4\n{}%%EOF\n", "1 0 obj << /Type /Page >> endobj\n".repeat(pages));
    let data = format!("data:application/pdf;base64,{}", base64(pdf.as_bytes()));
    let file = json!({"type": "file", "file": {"filename": "a.pdf", "file_data": data}});
    let content = json!([{"type": "text", "text": "Summarise."}, file]);
    json!({"model": MODEL, "max_tokens": 16, "messages": [{"role": "user", "content": content}]})
        .to_string()
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for piece in bytes.chunks(3) {
        let group = (0..3).fold(0_usize, |sum, at| {
            sum << 8 | usize::from(piece.get(at).copied().unwrap_or_default())
        });
        for digit in 0..4 {
            let is_there = digit <= piece.len();
            text.push(if is_there {
                char::from(DIGITS[group >> (18 - 6 * digit) & 63])
            } else {
                '='
            });
        }
    }
    text
}

/// Builds the content of a message with a text and an image that no server can decode.
pub(super) fn with_image(text: &str) -> Value {
    let image = json!({"url": "data:image/png;base64,iVBORw0KGgo="});
    json!([{"type": "text", "text": text}, {"type": "image_url", "image_url": image}])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_valid_base64() {
        let pairs =
            [("", ""), ("M", "TQ=="), ("Ma", "TWE="), ("Man", "TWFu"), ("%PDF", "JVBERg==")];
        for (plain, encoded) in pairs {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }

    #[test]
    fn attackers_are_honest_before_the_attack_and_honest_tenants_always() {
        for tenant in &ATTACKED_TENANTS {
            let before = tenant.habit.before_attack();
            assert!(before.is_honest(), "{}", tenant.name);
            assert_eq!(tenant.habit.is_honest(), before == tenant.habit, "{}", tenant.name);
            assert_eq!(tenant.habit.takes_leases(), before.takes_leases(), "{}", tenant.name);
        }
    }
}
