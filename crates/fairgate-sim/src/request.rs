//! Parses and checks the fields of a request's JSON body that the simulated model uses.

use hyper::StatusCode;
use serde_json::{Map, Value};

use crate::error_response::SimErrorResponse;
use crate::options::SimOptions;
use crate::prompt::ParsedPrompt;
use crate::route::SimRoute;
use crate::tool::{self, ToolCall};

const CHOICES_MAX: u64 = 128;
const EMBEDDING_INPUTS_MAX: usize = 2048;
const EMBEDDING_DIMENSIONS: u64 = 64;
const EMBEDDING_DIMENSIONS_MAX: u64 = 4096;

/// A request that passed all checks.
#[derive(Debug)]
pub(crate) struct SimRequest {
    pub(crate) model: String,
    pub(crate) stream: bool,
    /// True if the request asks for a last chunk with the usage (`stream_options.include_usage`).
    pub(crate) include_usage: bool,
    /// Greatest number of output tokens of each choice; `None` if the request sets no limit.
    pub(crate) output_tokens_max: Option<u64>,
    /// Prompts of the request, at least one. Only completions and embeddings may have more than one.
    pub(crate) prompts: Vec<ParsedPrompt>,
    /// Number of choices for each prompt (`n`).
    pub(crate) choices_per_prompt: u64,
    pub(crate) tool_call: Option<ToolCall>,
    pub(crate) embedding: EmbeddingFormat,
}

/// The number of dimensions and the encoding that a request for embeddings asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EmbeddingFormat {
    pub(crate) dimensions: u64,
    pub(crate) base64: bool,
}

impl SimRequest {
    pub(crate) fn read(
        route: SimRoute,
        body: &[u8],
        options: &SimOptions,
    ) -> Result<Self, SimErrorResponse> {
        let value: Value = serde_json::from_slice(body).map_err(|error| {
            SimErrorResponse::new(
                StatusCode::BAD_REQUEST,
                format!("The body is not valid JSON: {error}."),
            )
        })?;
        let Value::Object(fields) = value else {
            return Err(SimErrorResponse::new(
                StatusCode::BAD_REQUEST,
                "The body must be a JSON object.",
            ));
        };
        let reader = RequestReader { route, fields: &fields, options };
        let model = reader.model()?;
        let prompts = reader.prompts(&model)?;
        let choices_per_prompt = reader.choices_per_prompt(prompts.len())?;
        Ok(Self {
            stream: reader.flag(reader.fields, "stream")?,
            include_usage: reader.include_usage()?,
            output_tokens_max: reader.output_tokens_max()?,
            tool_call: tool::wanted(route, &fields)?,
            embedding: reader.embedding()?,
            model,
            prompts,
            choices_per_prompt,
        })
    }

    /// Returns the number of choices for all prompts together.
    pub(crate) fn choices(&self) -> u64 {
        let prompts = u64::try_from(self.prompts.len()).unwrap_or(u64::MAX);
        prompts.saturating_mul(self.choices_per_prompt)
    }

    pub(crate) fn input_tokens(&self, options: &SimOptions) -> u64 {
        self.prompts.iter().fold(0, |sum, prompt| sum.saturating_add(prompt.tokens(options)))
    }
}

struct RequestReader<'a> {
    route: SimRoute,
    fields: &'a Map<String, Value>,
    options: &'a SimOptions,
}

impl RequestReader<'_> {
    fn present(&self, name: &str) -> Option<&Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    fn flag(
        &self,
        fields: &Map<String, Value>,
        name: &'static str,
    ) -> Result<bool, SimErrorResponse> {
        match fields.get(name) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => {
                Err(SimErrorResponse::field(name, format!("`{name}` must be true or false.")))
            }
        }
    }

    fn model(&self) -> Result<String, SimErrorResponse> {
        let Some(Value::String(model)) = self.fields.get("model") else {
            return Err(SimErrorResponse::field(
                "model",
                "`model` is required and must be a string.",
            ));
        };
        if self.options.models.contains(model) {
            return Ok(model.clone());
        }
        let name: String = model.chars().take(200).collect();
        let message =
            format!("The model `{name}` does not exist. GET /v1/models lists those that do.");
        let refusal = SimErrorResponse::field("model", message).code("model_not_found");
        Err(refusal.status(StatusCode::NOT_FOUND))
    }

    fn include_usage(&self) -> Result<bool, SimErrorResponse> {
        match self.present("stream_options") {
            None => Ok(false),
            Some(Value::Object(options)) => self.flag(options, "include_usage"),
            Some(_) => Err(SimErrorResponse::field(
                "stream_options",
                "`stream_options` must be an object.",
            )),
        }
    }

    fn whole(&self, name: &'static str, most: u64) -> Result<Option<u64>, SimErrorResponse> {
        let Some(value) = self.present(name) else { return Ok(None) };
        match value.as_u64().filter(|number| (1..=most).contains(number)) {
            Some(number) => Ok(Some(number)),
            None if most == u64::MAX => Err(SimErrorResponse::field(
                name,
                format!("`{name}` must be a whole number of at least 1."),
            )),
            None => {
                let message = format!("`{name}` must be a whole number from 1 to {most}.");
                Err(SimErrorResponse::field(name, message))
            }
        }
    }

    fn output_tokens_max(&self) -> Result<Option<u64>, SimErrorResponse> {
        match self.route {
            SimRoute::Chat => {
                let newer = self.whole("max_completion_tokens", u64::MAX)?;
                Ok(newer.or(self.whole("max_tokens", u64::MAX)?))
            }
            SimRoute::Completions => self.whole("max_tokens", u64::MAX),
            SimRoute::Responses => self.whole("max_output_tokens", u64::MAX),
            SimRoute::Messages => match self.whole("max_tokens", u64::MAX)? {
                Some(most) => Ok(Some(most)),
                None => Err(SimErrorResponse::field("max_tokens", "max_tokens: Field required")),
            },
            SimRoute::Embeddings | SimRoute::CountTokens => Ok(None),
        }
    }

    fn choices_per_prompt(&self, prompts: usize) -> Result<u64, SimErrorResponse> {
        let wanted = match self.route {
            SimRoute::Chat | SimRoute::Completions => self.whole("n", CHOICES_MAX)?.unwrap_or(1),
            _ => return Ok(1),
        };
        let prompts = u64::try_from(prompts).unwrap_or(u64::MAX);
        if wanted.saturating_mul(prompts) > CHOICES_MAX {
            let message = format!("`n` times the prompts must be at most {CHOICES_MAX} choices.");
            return Err(SimErrorResponse::field("n", message));
        }
        Ok(wanted)
    }

    fn embedding(&self) -> Result<EmbeddingFormat, SimErrorResponse> {
        let base64 = match self.present("encoding_format").map(Value::as_str) {
            None | Some(Some("float")) => false,
            Some(Some("base64")) => true,
            Some(_) => {
                let message = "`encoding_format` must be float or base64.";
                return Err(SimErrorResponse::field("encoding_format", message));
            }
        };
        let dimensions = match self.route {
            SimRoute::Embeddings => self.whole("dimensions", EMBEDDING_DIMENSIONS_MAX)?,
            _ => None,
        };
        Ok(EmbeddingFormat { dimensions: dimensions.unwrap_or(EMBEDDING_DIMENSIONS), base64 })
    }

    fn prompts(&self, model: &str) -> Result<Vec<ParsedPrompt>, SimErrorResponse> {
        match self.route {
            // The fields that stay the same from turn to turn come first, so that turns share a
            // long prefix.
            SimRoute::Chat => self.conversation(model, &["tools", "messages"]),
            SimRoute::Messages | SimRoute::CountTokens => {
                self.conversation(model, &["tools", "system", "messages"])
            }
            SimRoute::Responses => {
                let input = self.present("input");
                if !input.is_some_and(|input| input.is_string() || input.is_array()) {
                    let message = "`input` is required and must be a string or an array of items.";
                    return Err(SimErrorResponse::field("input", message));
                }
                Ok(vec![self.one(model, &["instructions", "tools", "input"])])
            }
            SimRoute::Completions => self.several(model, "prompt", 128),
            SimRoute::Embeddings => self.several(model, "input", EMBEDDING_INPUTS_MAX),
        }
    }

    fn conversation(
        &self,
        model: &str,
        names: &[&str],
    ) -> Result<Vec<ParsedPrompt>, SimErrorResponse> {
        let messages = self.present("messages").and_then(Value::as_array);
        if !messages.is_some_and(|all| !all.is_empty() && all.iter().all(Value::is_object)) {
            let message = "`messages` is required and must be an array of at least one object.";
            return Err(SimErrorResponse::field("messages", message));
        }
        Ok(vec![self.one(model, names)])
    }

    fn one(&self, model: &str, names: &[&str]) -> ParsedPrompt {
        let mut prompt = ParsedPrompt::new(model, self.options);
        names.iter().filter_map(|name| self.present(name)).for_each(|value| prompt.read(value));
        prompt
    }

    /// Reads one or several prompts. One prompt is a string or an array of token ids; several prompts are an array of
    /// strings or an array of arrays of token ids.
    fn several(
        &self,
        model: &str,
        name: &'static str,
        most: usize,
    ) -> Result<Vec<ParsedPrompt>, SimErrorResponse> {
        let wrong = || {
            let message = format!(
                "`{name}` is required and must be a string, an array of token ids, or an array of at most {most} of \
                 either."
            );
            SimErrorResponse::field(name, message)
        };
        let read = |value: &Value| {
            let mut prompt = ParsedPrompt::new(model, self.options);
            match value {
                Value::String(_) => prompt.read(value),
                Value::Array(ids) if !ids.is_empty() && ids.iter().all(Value::is_u64) => {
                    prompt.read_token_ids(ids);
                }
                _ => return Err(wrong()),
            }
            Ok(prompt)
        };
        match self.present(name).ok_or_else(wrong)? {
            Value::Array(items) if !items.is_empty() && !items[0].is_u64() => {
                if items.len() > most {
                    return Err(wrong());
                }
                items.iter().map(read).collect()
            }
            one => Ok(vec![read(one)?]),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(route: SimRoute, body: &Value) -> Result<SimRequest, SimErrorResponse> {
        SimRequest::read(route, body.to_string().as_bytes(), &SimOptions::default())
    }

    fn message() -> Value {
        json!([{"role": "user", "content": "Hello"}])
    }

    #[test]
    fn each_route_has_its_own_limit_of_output_tokens() {
        let cap = |route, body: Value| read(route, &body).unwrap().output_tokens_max;
        let chat = json!({"model": "sim", "messages": message(), "max_tokens": 9, "max_completion_tokens": 5});
        assert_eq!(cap(SimRoute::Chat, chat), Some(5));
        assert_eq!(cap(SimRoute::Chat, json!({"model": "sim", "messages": message()})), None);
        let responses = json!({"model": "sim", "input": "Hello", "max_output_tokens": 6});
        assert_eq!(cap(SimRoute::Responses, responses), Some(6));
        let completions = json!({"model": "sim", "prompt": "Hello", "max_tokens": 7});
        assert_eq!(cap(SimRoute::Completions, completions), Some(7));
        assert!(read(SimRoute::Messages, &json!({"model": "sim", "messages": message()})).is_err());
    }

    #[test]
    fn prompts_come_alone_or_in_arrays() {
        let count = |prompt: Value| {
            let request = read(SimRoute::Completions, &json!({"model": "sim", "prompt": prompt}))?;
            Ok::<_, SimErrorResponse>((
                request.prompts.len(),
                request.input_tokens(&SimOptions::default()),
            ))
        };
        assert_eq!(count(json!("12345678")).unwrap(), (1, 2));
        assert_eq!(count(json!([1, 2, 3])).unwrap(), (1, 3));
        assert_eq!(count(json!(["1234", [7, 8]])).unwrap(), (2, 3));
        for bad in [json!([]), json!(5), json!([1, "x"]), json!([[]]), json!(null)] {
            assert!(count(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_cannot_be_answered_names_its_field() {
        let chat = |name: &str, value: Value| {
            let mut body = json!({"model": "sim", "messages": message()});
            body[name] = value;
            format!("{:?}", read(SimRoute::Chat, &body).unwrap_err())
        };
        let bad = [
            ("stream", json!("yes")),
            ("n", json!(0)),
            ("n", json!(129)),
            ("max_tokens", json!(-1)),
            ("max_tokens", json!("5")),
            ("messages", json!([])),
            ("messages", json!("Hello")),
            ("stream_options", json!(true)),
            ("model", json!("other")),
            ("model", json!(7)),
        ];
        for (name, value) in bad {
            let refusal_text = chat(name, value.clone());
            assert!(
                refusal_text.contains(&format!("param: Some(\"{name}\")")),
                "{name} {value}: {refusal_text}"
            );
        }
        assert!(SimRequest::read(SimRoute::Chat, b"{", &SimOptions::default()).is_err());
        assert!(SimRequest::read(SimRoute::Chat, b"[]", &SimOptions::default()).is_err());
    }
}
