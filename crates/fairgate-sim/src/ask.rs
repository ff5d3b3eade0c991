//! What a request asks for, read once from its JSON and checked.

use hyper::StatusCode;
use serde_json::{Map, Value};

use crate::dialect::{Dialect, Refusal};
use crate::options::SimOptions;
use crate::prompt::Prompt;
use crate::tool::{self, ToolCall};

const CHOICES_MAX: u64 = 128;
const EMBEDDING_INPUTS_MAX: usize = 2048;
const EMBEDDING_DIMENSIONS: u64 = 64;
const EMBEDDING_DIMENSIONS_MAX: u64 = 4096;

/// The routes that a model answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Chat,
    Completions,
    Embeddings,
    Responses,
    Messages,
    CountTokens,
}

impl Route {
    /// The route of a path, and the path as it is known here.
    pub(crate) fn of(path: &str) -> Option<(Self, &'static str)> {
        const PATHS: [(Route, &str); 6] = [
            (Route::Chat, "/v1/chat/completions"),
            (Route::Completions, "/v1/completions"),
            (Route::Embeddings, "/v1/embeddings"),
            (Route::Responses, "/v1/responses"),
            (Route::Messages, "/v1/messages"),
            (Route::CountTokens, "/v1/messages/count_tokens"),
        ];
        PATHS.into_iter().find(|(_, known)| *known == path)
    }

    pub(crate) fn dialect(self) -> Dialect {
        match self {
            Self::Messages | Self::CountTokens => Dialect::Anthropic,
            Self::Chat | Self::Completions | Self::Embeddings | Self::Responses => Dialect::OpenAi,
        }
    }

    /// How the ids of its answers begin.
    pub(crate) fn id_prefix(self) -> &'static str {
        match self {
            Self::Chat => "chatcmpl-",
            Self::Completions => "cmpl-",
            Self::Embeddings => "embd-",
            Self::Responses => "resp_",
            Self::Messages => "msg_",
            Self::CountTokens => "count_",
        }
    }
}

/// A request that can be answered.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) model: String,
    pub(crate) stream: bool,
    /// Whether a stream's last chunk shall tell the usage.
    pub(crate) include_usage: bool,
    /// The most output tokens for each choice.
    pub(crate) output_tokens_max: Option<u64>,
    /// Never empty. More than one only for completions and embeddings.
    pub(crate) prompts: Vec<Prompt>,
    /// How many answers each prompt wants.
    pub(crate) choices_per_prompt: u64,
    pub(crate) tool_call: Option<ToolCall>,
    pub(crate) embedding: EmbeddingForm,
}

/// What the numbers of an embedding look like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EmbeddingForm {
    pub(crate) dimensions: u64,
    pub(crate) base64: bool,
}

impl Ask {
    pub(crate) fn read(route: Route, body: &[u8], options: &SimOptions) -> Result<Self, Refusal> {
        let value: Value = serde_json::from_slice(body).map_err(|error| {
            Refusal::new(StatusCode::BAD_REQUEST, format!("The body is not valid JSON: {error}."))
        })?;
        let Value::Object(fields) = value else {
            return Err(Refusal::new(StatusCode::BAD_REQUEST, "The body must be a JSON object."));
        };
        let reader = Reader { route, fields: &fields, options };
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

    /// How many answers it wants in all.
    pub(crate) fn choices(&self) -> u64 {
        let prompts = u64::try_from(self.prompts.len()).unwrap_or(u64::MAX);
        prompts.saturating_mul(self.choices_per_prompt)
    }

    pub(crate) fn input_tokens(&self, options: &SimOptions) -> u64 {
        self.prompts.iter().fold(0, |sum, prompt| sum.saturating_add(prompt.tokens(options)))
    }
}

struct Reader<'a> {
    route: Route,
    fields: &'a Map<String, Value>,
    options: &'a SimOptions,
}

impl Reader<'_> {
    fn present(&self, name: &str) -> Option<&Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    fn flag(&self, fields: &Map<String, Value>, name: &'static str) -> Result<bool, Refusal> {
        match fields.get(name) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(Refusal::field(name, format!("`{name}` must be true or false."))),
        }
    }

    fn model(&self) -> Result<String, Refusal> {
        let Some(Value::String(model)) = self.fields.get("model") else {
            return Err(Refusal::field("model", "`model` is required and must be a string."));
        };
        if self.options.models.contains(model) {
            return Ok(model.clone());
        }
        let name: String = model.chars().take(200).collect();
        let message =
            format!("The model `{name}` does not exist. GET /v1/models lists those that do.");
        let refusal = Refusal::field("model", message).code("model_not_found");
        Err(refusal.status(StatusCode::NOT_FOUND))
    }

    fn include_usage(&self) -> Result<bool, Refusal> {
        match self.present("stream_options") {
            None => Ok(false),
            Some(Value::Object(options)) => self.flag(options, "include_usage"),
            Some(_) => Err(Refusal::field("stream_options", "`stream_options` must be an object.")),
        }
    }

    fn whole(&self, name: &'static str, most: u64) -> Result<Option<u64>, Refusal> {
        let Some(value) = self.present(name) else { return Ok(None) };
        match value.as_u64().filter(|number| (1..=most).contains(number)) {
            Some(number) => Ok(Some(number)),
            None if most == u64::MAX => {
                Err(Refusal::field(name, format!("`{name}` must be a whole number of at least 1.")))
            }
            None => {
                let message = format!("`{name}` must be a whole number from 1 to {most}.");
                Err(Refusal::field(name, message))
            }
        }
    }

    fn output_tokens_max(&self) -> Result<Option<u64>, Refusal> {
        match self.route {
            Route::Chat => {
                let newer = self.whole("max_completion_tokens", u64::MAX)?;
                Ok(newer.or(self.whole("max_tokens", u64::MAX)?))
            }
            Route::Completions => self.whole("max_tokens", u64::MAX),
            Route::Responses => self.whole("max_output_tokens", u64::MAX),
            Route::Messages => match self.whole("max_tokens", u64::MAX)? {
                Some(most) => Ok(Some(most)),
                None => Err(Refusal::field("max_tokens", "max_tokens: Field required")),
            },
            Route::Embeddings | Route::CountTokens => Ok(None),
        }
    }

    fn choices_per_prompt(&self, prompts: usize) -> Result<u64, Refusal> {
        let wanted = match self.route {
            Route::Chat | Route::Completions => self.whole("n", CHOICES_MAX)?.unwrap_or(1),
            _ => return Ok(1),
        };
        let prompts = u64::try_from(prompts).unwrap_or(u64::MAX);
        if wanted.saturating_mul(prompts) > CHOICES_MAX {
            let message = format!("`n` times the prompts must be at most {CHOICES_MAX} choices.");
            return Err(Refusal::field("n", message));
        }
        Ok(wanted)
    }

    fn embedding(&self) -> Result<EmbeddingForm, Refusal> {
        let base64 = match self.present("encoding_format").map(Value::as_str) {
            None | Some(Some("float")) => false,
            Some(Some("base64")) => true,
            Some(_) => {
                let message = "`encoding_format` must be float or base64.";
                return Err(Refusal::field("encoding_format", message));
            }
        };
        let dimensions = match self.route {
            Route::Embeddings => self.whole("dimensions", EMBEDDING_DIMENSIONS_MAX)?,
            _ => None,
        };
        Ok(EmbeddingForm { dimensions: dimensions.unwrap_or(EMBEDDING_DIMENSIONS), base64 })
    }

    fn prompts(&self, model: &str) -> Result<Vec<Prompt>, Refusal> {
        match self.route {
            // What stays the same from turn to turn comes first, so that prefixes can be shared.
            Route::Chat => self.conversation(model, &["tools", "messages"]),
            Route::Messages | Route::CountTokens => {
                self.conversation(model, &["tools", "system", "messages"])
            }
            Route::Responses => {
                let input = self.present("input");
                if !input.is_some_and(|input| input.is_string() || input.is_array()) {
                    let message = "`input` is required and must be a string or an array of items.";
                    return Err(Refusal::field("input", message));
                }
                Ok(vec![self.one(model, &["instructions", "tools", "input"])])
            }
            Route::Completions => self.several(model, "prompt", 128),
            Route::Embeddings => self.several(model, "input", EMBEDDING_INPUTS_MAX),
        }
    }

    fn conversation(&self, model: &str, names: &[&str]) -> Result<Vec<Prompt>, Refusal> {
        let messages = self.present("messages").and_then(Value::as_array);
        if !messages.is_some_and(|all| !all.is_empty() && all.iter().all(Value::is_object)) {
            let message = "`messages` is required and must be an array of at least one object.";
            return Err(Refusal::field("messages", message));
        }
        Ok(vec![self.one(model, names)])
    }

    fn one(&self, model: &str, names: &[&str]) -> Prompt {
        let mut prompt = Prompt::new(model, self.options);
        names.iter().filter_map(|name| self.present(name)).for_each(|value| prompt.read(value));
        prompt
    }

    /// A string, token ids, or an array of either.
    fn several(
        &self,
        model: &str,
        name: &'static str,
        most: usize,
    ) -> Result<Vec<Prompt>, Refusal> {
        let wrong = || {
            let message = format!(
                "`{name}` is required and must be a string, an array of token ids, or an array of at most {most} of \
                 either."
            );
            Refusal::field(name, message)
        };
        let read = |value: &Value| {
            let mut prompt = Prompt::new(model, self.options);
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

    fn read(route: Route, body: &Value) -> Result<Ask, Refusal> {
        Ask::read(route, body.to_string().as_bytes(), &SimOptions::default())
    }

    fn message() -> Value {
        json!([{"role": "user", "content": "Hello"}])
    }

    #[test]
    fn each_route_has_its_own_limit_of_output_tokens() {
        let cap = |route, body: Value| read(route, &body).unwrap().output_tokens_max;
        let chat = json!({"model": "sim", "messages": message(), "max_tokens": 9, "max_completion_tokens": 5});
        assert_eq!(cap(Route::Chat, chat), Some(5));
        assert_eq!(cap(Route::Chat, json!({"model": "sim", "messages": message()})), None);
        let responses = json!({"model": "sim", "input": "Hello", "max_output_tokens": 6});
        assert_eq!(cap(Route::Responses, responses), Some(6));
        let completions = json!({"model": "sim", "prompt": "Hello", "max_tokens": 7});
        assert_eq!(cap(Route::Completions, completions), Some(7));
        assert!(read(Route::Messages, &json!({"model": "sim", "messages": message()})).is_err());
    }

    #[test]
    fn prompts_come_alone_or_in_arrays() {
        let count = |prompt: Value| {
            let ask = read(Route::Completions, &json!({"model": "sim", "prompt": prompt}))?;
            Ok::<_, Refusal>((ask.prompts.len(), ask.input_tokens(&SimOptions::default())))
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
            format!("{:?}", read(Route::Chat, &body).unwrap_err())
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
            let told = chat(name, value.clone());
            assert!(told.contains(&format!("param: Some(\"{name}\")")), "{name} {value}: {told}");
        }
        assert!(Ask::read(Route::Chat, b"{", &SimOptions::default()).is_err());
        assert!(Ask::read(Route::Chat, b"[]", &SimOptions::default()).is_err());
    }
}
