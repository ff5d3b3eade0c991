//! Tests with recorded answers of upstreams and their usage.

use fairgate_dialect::{BodyFraming, CacheWrites, MeasuredUsage, Route, TokenUsage};

pub(crate) struct Recorded {
    pub(crate) name: &'static str,
    pub(crate) route: Route,
    pub(crate) framing: BodyFraming,
    pub(crate) text: &'static str,
    pub(crate) measured: MeasuredUsage,
}

const fn used(
    input: u64,
    cached: u64,
    output: u64,
    reported: bool,
    complete: bool,
) -> MeasuredUsage {
    let usage = TokenUsage { input, cached, output };
    let writes = CacheWrites { total: 0, one_hour: 0 };
    MeasuredUsage { usage, writes, reported, complete }
}

const fn sse(
    name: &'static str,
    route: Route,
    text: &'static str,
    measured: MeasuredUsage,
) -> Recorded {
    Recorded { name, route, framing: BodyFraming::Sse, text, measured }
}

const fn json(
    name: &'static str,
    route: Route,
    text: &'static str,
    measured: MeasuredUsage,
) -> Recorded {
    Recorded { name, route, framing: BodyFraming::Json, text, measured }
}

/// Input tokens that are counted if the upstream does not report them: the estimate of these tests.
const ESTIMATE: u64 = 1000;

pub(crate) const CHAT: &str = concat!(
    "data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null},\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}\n\n",
    "data: {\"id\":\"c1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hello\"},\"finish_reason\":null}],\"usage\":null}\n\n",
    "data: {\"id\":\"c1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" \\\"w\\u00f6rld\\\"\"},\"finish_reason\":null}],\"usage\":null}\n\n",
    "data: {\"id\":\"c1\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":null}\n\n",
    "data: {\"id\":\"c1\",\"choices\":[],\"usage\":{\"prompt_tokens\":19,\"completion_tokens\":10,\"total_tokens\":29,\"prompt_tokens_details\":{\"cached_tokens\":7,\"audio_tokens\":0},\"completion_tokens_details\":{\"reasoning_tokens\":0}}}\n\n",
    "data: [DONE]\n\n",
);

pub(crate) const ALL: [Recorded; 19] = [
    sse("chat", Route::ChatCompletions, CHAT, used(19, 7, 10, true, true)),
    sse(
        "chat that was not asked for usage, with CRLF and comments",
        Route::ChatCompletions,
        "\u{feff}: hello\r\n\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"12345678\"}}]}\r\n\r\n: ping\r\n\r\ndata:{\"choices\":[{\"delta\":{\"reasoning_content\":\"1\"}}]}\r\n\r\nid: 7\r\nretry: 10\r\ndata: [DONE]\r\n\r\n",
        used(ESTIMATE, 0, 3, false, true),
    ),
    sse(
        "tool calls over lines that end with CR, data over several lines",
        Route::ChatCompletions,
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"call_1\",\"type\":\"function\",\"function\":{\"name\":\"find\",\"arguments\":\"\"}}]}}]}\r\rdata: {\"choices\":\rdata: [{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\\\"q\\\":1}\"}}]}}]}\r\rdata: [DONE]\r\r",
        used(ESTIMATE, 0, 3, false, true),
    ),
    sse(
        "usage with every chunk",
        Route::ChatCompletions,
        "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}],\"usage\":{\"prompt_tokens\":30,\"total_tokens\":30,\"completion_tokens\":0}}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"one\"}}],\"usage\":{\"prompt_tokens\":30,\"completion_tokens\":1}}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\" two and more\"}}],\"usage\":{\"prompt_tokens\":30,\"completion_tokens\":4}}\n\ndata: [DONE]\n\n",
        used(30, 0, 4, true, true),
    ),
    sse(
        "usage with every chunk but the last, cut off",
        Route::ChatCompletions,
        "data: {\"choices\":[{\"delta\":{\"content\":\"one\"}}],\"usage\":{\"prompt_tokens\":30,\"completion_tokens\":20}}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"12345678\"}}]}\n\ndata: {\"choi",
        used(30, 0, 22, false, false),
    ),
    sse(
        "absurd usage",
        Route::ChatCompletions,
        "data: {\"choices\":[{\"delta\":{\"content\":\"12345678\"}}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":-3}}\n\ndata: [DONE]\n\n",
        used(ESTIMATE, 0, 2, false, true),
    ),
    sse(
        "an error in the stream",
        Route::ChatCompletions,
        "data: {\"choices\":[{\"delta\":{\"content\":\"12345678\"}}]}\n\ndata: {\"error\":{\"message\":\"out of memory\",\"code\":500}}\n\ndata: [DONE]\n\n",
        used(ESTIMATE, 0, 2, false, false),
    ),
    sse(
        "no last line feed",
        Route::Completions,
        "data: {\"choices\":[{\"text\":\"12345678\"}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":3}}\n\ndata: [DONE]",
        used(5, 0, 3, true, true),
    ),
    sse(
        "no json",
        Route::ChatCompletions,
        "data: 12345678\n\ndata: {]\n\ndata: [DONE]\n\n",
        used(ESTIMATE, 0, 3, false, true),
    ),
    sse(
        "messages",
        Route::Messages,
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[],\"usage\":{\"input_tokens\":25,\"cache_creation_input_tokens\":10,\"cache_read_input_tokens\":100,\"output_tokens\":1}}}\n\nevent: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}\n\nevent: ping\ndata: {\"type\": \"ping\"}\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"Well then\"}}\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"signature_delta\",\"signature\":\"ZmFpcg==\"}}\n\nevent: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":null},\"usage\":{\"input_tokens\":0,\"output_tokens\":15}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        MeasuredUsage {
            writes: CacheWrites { total: 10, one_hour: 0 },
            ..used(135, 100, 15, true, true)
        },
    ),
    sse(
        "messages, cut off in a tool's input",
        Route::Messages,
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"content\":[],\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\nevent: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"find\",\"input\":{}}}\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"query\\\": \"}}\n\n",
        used(25, 0, 5, false, false),
    ),
    sse(
        "messages, overloaded",
        Route::Messages,
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\nevent: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n",
        used(25, 0, 1, true, false),
    ),
    sse(
        "responses",
        Route::Responses,
        "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\",\"status\":\"in_progress\",\"error\":null,\"usage\":null},\"sequence_number\":0}\n\nevent: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"Hello\",\"sequence_number\":1}\n\nevent: response.output_text.done\ndata: {\"type\":\"response.output_text.done\",\"text\":\"Hello\"}\n\nevent: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"output\":[{\"content\":[{\"text\":\"Hello\"}]}],\"usage\":{\"input_tokens\":11,\"input_tokens_details\":{\"cached_tokens\":2},\"output_tokens\":3,\"total_tokens\":14}}}\n\n",
        used(11, 2, 3, true, true),
    ),
    sse(
        "responses that failed",
        Route::Responses,
        "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"Hello\"}\n\nevent: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"server_error\"},\"usage\":null}}\n\n",
        used(ESTIMATE, 0, 2, false, false),
    ),
    json(
        "a chat's answer",
        Route::ChatCompletions,
        " {\"id\":\"c\",\"choices\":[{\"message\":{\"role\":\"assistant\",\"content\":\"Hi\\n\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2,\"prompt_tokens_details\":null}}\n",
        used(9, 0, 2, true, true),
    ),
    json(
        "an answer with a tool's input and no usage",
        Route::Messages,
        "{\"type\":\"message\",\"content\":[{\"type\":\"text\",\"text\":\"1234\"},{\"type\":\"tool_use\",\"id\":\"x\",\"name\":\"find\",\"input\":{\"query\":[\"abc\"]}}],\"usage\":null}",
        used(ESTIMATE, 0, 4, false, true),
    ),
    json(
        "a response",
        Route::Responses,
        "{\"error\":null,\"usage\":{\"input_tokens\":8,\"output_tokens\":6,\"input_tokens_details\":{\"cached_tokens\":4}},\"output\":[{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":\"Hello\"}]}]}",
        used(8, 4, 6, true, true),
    ),
    json(
        "embeddings",
        Route::Embeddings,
        "{\"object\":\"list\",\"data\":[{\"object\":\"embedding\",\"index\":0,\"embedding\":[-0.5,1.25e-3,0.0]}],\"usage\":{\"prompt_tokens\":8,\"total_tokens\":8}}",
        used(8, 0, 0, true, true),
    ),
    json("a count", Route::CountTokens, "{\"input_tokens\":2095}", used(2095, 0, 0, true, true)),
];
