use super::*;
use crate::Route;

const RATES: FileTokenRates = FileTokenRates {
    pdf_page_tokens: 3000,
    pdf_bytes_per_token: 40,
    image_pixels_per_token: 400,
    image_tokens_min: 1200,
    image_tokens_max: 15_000,
    audio_bytes_per_token: 100,
    unreadable_tokens: 200_000,
};

/// The header of a PNG of 1024 × 768 pixels, in base64.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAABAAAAAMACAYA";
/// A PDF of two pages without content, in base64.
const PDF: &str = "JVBERi0xLjcKMSAwIG9iajw8L1R5cGUvUGFnZXMvS2lkc1szIDAgUiA0IDAgUl0+PmVuZG9iagozIDAgb2JqPDwvVHlwZS9QYWdlPj5lbmRvYmoKNCAwIG9iajw8L1R5cGUvUGFnZT4+ZW5kb2JqCg";

fn files(route: Route, parts: &str) -> RequestFiles {
    let name = if route == Route::Responses { "input" } else { "messages" };
    let body = format!(r#"{{"model":"m","{name}":[{{"role":"user","content":[{parts}]}}]}}"#);
    let fields = RequestFields::read(route, body.as_bytes()).unwrap();
    let files = fields.files(body.as_bytes(), &RATES);
    let hidden = body.len() as u64 - files.text_bytes;
    RequestFiles { text_bytes: hidden, ..files }
}

/// Returns the number of tokens of the file in a part. Panics unless there is exactly one file.
fn tokens(route: Route, part: &str) -> u64 {
    let found = files(route, part);
    assert_eq!(found.count, 1, "{part}");
    found.tokens
}

#[test]
fn a_file_counts_by_what_it_is_in_every_dialect() {
    use Route::{ChatCompletions, Messages, Responses};
    let image = 1024 * 768 / 400 + 1;
    let chat =
        format!(r#"{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{PNG}"}}}}"#);
    assert_eq!(tokens(ChatCompletions, &chat), image);
    let item = format!(
        r#"{{"type":"input_image","image_url":"data:image/png;base64,{PNG}","detail":"high"}}"#
    );
    assert_eq!(tokens(Responses, &item), image);
    let block = format!(
        r#"{{"type":"image","source":{{"data":"{PNG}","media_type":"image/png","type":"base64"}}}}"#
    );
    assert_eq!(tokens(Messages, &block), image);
    let result = format!(r#"{{"type":"tool_result","content":[{block}]}}"#);
    assert_eq!(tokens(Messages, &result), image);

    let chat = format!(
        r#"{{"type":"file","file":{{"filename":"a.pdf","file_data":"data:application/pdf;base64,{PDF}"}}}}"#
    );
    assert_eq!(tokens(ChatCompletions, &chat), 6000);
    let item =
        format!(r#"{{"type":"input_file","file_data":"data:application/pdf;base64,{PDF}"}}"#);
    assert_eq!(tokens(Responses, &item), 6000);
    let block = format!(
        r#"{{"type":"document","source":{{"type":"base64","media_type":"application/pdf","data":"{PDF}"}}}}"#
    );
    assert_eq!(tokens(Messages, &block), 6000);
    assert_eq!(files(Messages, &block).text_bytes, PDF.len() as u64);
    // Its bytes show a PDF, whatever the part says.
    let liar =
        format!(r#"{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{PDF}"}}}}"#);
    assert_eq!(tokens(ChatCompletions, &liar), 6000);

    let sound = "A".repeat(4000);
    let audio =
        format!(r#"{{"type":"input_audio","input_audio":{{"data":"{sound}","format":"wav"}}}}"#);
    assert_eq!(tokens(ChatCompletions, &audio), 30);
    let text = format!(r#"{{"type":"input_file","file_data":"data:text/plain;base64,{sound}"}}"#);
    assert_eq!(tokens(Responses, &text), 1500);
}

/// A page of 100 000 letters has about 25 000 tokens, and not the 3 000 tokens of a usual page.
#[test]
fn a_dense_page_counts_by_its_text() {
    let text = "dense ".repeat(100_000 / 6);
    let file = format!(
        "%PDF-1.7\n3 0 obj<</Type/Page/Contents 4 0 R>>endobj\n4 0 obj\n<</Length 0>>\nstream\nBT ({text}) Tj ET\nendstream\nendobj"
    );
    let part = format!(
        r#"{{"type":"input_file","file_data":"data:application/pdf;base64,{}"}}"#,
        String::from_utf8(base64::encode(file.as_bytes())).unwrap()
    );
    assert_eq!(tokens(Route::Responses, &part), 49_998);
}

#[test]
fn a_file_that_cannot_be_read_counts_as_all_that_the_model_can_read() {
    use Route::{ChatCompletions, Messages, Responses};
    let cases = [
        (Responses, r#"{"type":"input_file","file_id":"file-1"}"#, 200_000),
        (Responses, r#"{"type":"input_file","file_url":"https://example.org/a.pdf"}"#, 200_000),
        (Responses, r#"{"type":"input_image","file_id":"file-1"}"#, 15_000),
        (ChatCompletions, r#"{"type":"file","file":{"file_id":"file-1"}}"#, 200_000),
        (
            ChatCompletions,
            r#"{"type":"image_url","image_url":{"url":"https://example.org/a.png"}}"#,
            15_000,
        ),
        (
            ChatCompletions,
            r#"{"type":"video_url","video_url":{"url":"https://example.org/a"}}"#,
            200_000,
        ),
        (
            ChatCompletions,
            r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}"#,
            15_000,
        ),
        (ChatCompletions, r#"{"type":"file","\u0066ile":{"file\u005fid":"file-1"}}"#, 200_000),
        (
            ChatCompletions,
            r#"{"type":"file","file":{"file_data":"data:application/zip;base64,UEsDBA"}}"#,
            200_000,
        ),
        (
            Messages,
            r#"{"type":"document","source":{"type":"url","url":"https://example.org/a.pdf"}}"#,
            200_000,
        ),
        (Messages, r#"{"type":"document","source":{"type":"file","file_id":"file_1"}}"#, 200_000),
        (Messages, r#"{"source":{"type":"file","file_id":"file_1"},"type":"image"}"#, 15_000),
    ];
    for (route, part, expected) in cases {
        assert_eq!(tokens(route, part), expected, "{part}");
    }
}

#[test]
fn text_is_no_file() {
    let padded = format!("{}{}{}", "A".repeat(256), " words".repeat(1000), "A".repeat(256));
    let document = format!(
        r#"{{"type":"document","source":{{"type":"text","media_type":"text/plain","data":"{padded}"}}}}"#
    );
    assert_eq!(files(Route::Messages, &document), RequestFiles::default());
    let letters = "A".repeat(5000);
    let document = document.replace(&padded, &letters);
    assert_eq!(files(Route::Messages, &document), RequestFiles::default());
    // It is no base64: nobody knows what the upstream makes of it, and it is text as well.
    let image = format!(r#"{{"type":"image_url","image_url":{{"url":"{padded}"}}}}"#);
    assert_eq!(files(Route::ChatCompletions, &image).text_bytes, 0);
    let call = r#"{"type":"tool_use","id":"t","name":"f","input":{"file_id":"x","image_url":"https://a"}}"#;
    assert_eq!(files(Route::Messages, call), RequestFiles::default());
    let body = br#"{"model":"m","messages":[],"tools":[{"file_id":"x","source":{"type":"url","url":"u"}}]}"#;
    let fields = RequestFields::read(Route::ChatCompletions, body).unwrap();
    assert_eq!(fields.files(body, &RATES).count, 0);
}

#[test]
fn what_is_padded_with_letters_of_base64_is_expected_as_text() {
    let padded = format!("{}{}{}", "A".repeat(256), " words".repeat(10_000), "A".repeat(256));
    let body = format!(r#"{{"model":"m","messages":[{{"source":{{"data":"{padded}"}}}}]}}"#);
    let fields = RequestFields::read(Route::Messages, body.as_bytes()).unwrap();
    assert_eq!(fields.input_bytes, body.len() as u64);
}
