//! Format of OpenAI's embeddings. The numbers are derived from the input's hash, and are sent as floats or packed in
//! base64.

use fairgate_random::number_at;
use serde_json::{Value, json};

use crate::answer::SimUsage;
use crate::request::{EmbeddingFormat, SimRequest};

/// Builds the whole answer for all inputs of a request.
pub(crate) fn embeddings(request: &SimRequest, usage: &SimUsage) -> Value {
    let data: Vec<_> = request
        .prompts
        .iter()
        .enumerate()
        .map(|(index, prompt)| {
            let embedding = embedding(prompt.hash(), request.embedding);
            json!({"object": "embedding", "index": index, "embedding": embedding})
        })
        .collect();
    let whole = json!({"object": "list", "model": request.model, "data": data});
    super::with_usage(whole, usage.openai(false))
}

fn embedding(seed: u64, form: EmbeddingFormat) -> Value {
    let numbers = (0..form.dimensions).map(|index| coordinate(number_at(seed, index)));
    if form.base64 {
        let packed: Vec<u8> = numbers.flat_map(f32::to_le_bytes).collect();
        json!(base64(&packed))
    } else {
        numbers.collect::<Vec<_>>().into()
    }
}

/// Maps a pseudo-random number to a coordinate of at least -1 and less than 1.
fn coordinate(random: u64) -> f32 {
    let [low, high, ..] = random.to_le_bytes();
    f32::from(i16::from_le_bytes([low, high])) / 32768.0
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| group.get(at).copied().map_or(0, usize::from);
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let value = bits >> (18 - 6 * digit) & 63;
            text.push(if digit > group.len() { '=' } else { char::from(DIGITS[value]) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_as_in_its_rfc() {
        let known =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        for (plain, packed) in known {
            assert_eq!(base64(plain.as_bytes()), packed);
        }
    }

    #[test]
    fn both_forms_hold_the_same_numbers() {
        let form = |base64| EmbeddingFormat { dimensions: 3, base64 };
        let floats = embedding(9, form(false));
        let mut packed = Vec::new();
        for number in floats.as_array().unwrap() {
            let number: f32 = number.to_string().parse().unwrap();
            assert!((-1.0..1.0).contains(&number));
            packed.extend(number.to_le_bytes());
        }
        assert_eq!(embedding(9, form(true)), json!(base64(&packed)));
    }
}
