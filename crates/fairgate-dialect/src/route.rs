//! Maps paths to APIs, and content types to framings.

/// The dialect of an API. It decides the format of errors and the header for credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// The format of OpenAI's API.
    OpenAi,
    /// The format of Anthropic's API.
    Anthropic,
}

/// A route that is forwarded to an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the paths say it")]
pub enum Route {
    ChatCompletions,
    Completions,
    Embeddings,
    Responses,
    Messages,
    CountTokens,
}

impl Route {
    /// All routes, in an order that does not change.
    pub const ALL: [Self; 6] = [
        Self::ChatCompletions,
        Self::Completions,
        Self::Embeddings,
        Self::Responses,
        Self::Messages,
        Self::CountTokens,
    ];

    /// Returns the path, such as `/v1/chat/completions`.
    pub fn path(self) -> &'static str {
        match self {
            Self::ChatCompletions => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
            Self::Embeddings => "/v1/embeddings",
            Self::Responses => "/v1/responses",
            Self::Messages => "/v1/messages",
            Self::CountTokens => "/v1/messages/count_tokens",
        }
    }

    /// Returns the route of a path without a query; `None` if no route has this path.
    pub fn from_path(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|route| route.path() == path)
    }

    /// Returns the dialect of the route's API.
    pub fn dialect(self) -> Dialect {
        match self {
            Self::Messages | Self::CountTokens => Dialect::Anthropic,
            _ => Dialect::OpenAi,
        }
    }

    /// Returns true if a model writes output for this route; false for embeddings and token counts.
    pub fn generates(self) -> bool {
        !matches!(self, Self::Embeddings | Self::CountTokens)
    }

    /// Returns true if a stream of this route reports usage only on request, by
    /// `stream_options.include_usage`.
    pub(crate) fn usage_on_demand(self) -> bool {
        matches!(self, Self::ChatCompletions | Self::Completions)
    }
}

/// The framing of an answer's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    /// A body that is one JSON document.
    Json,
    /// A stream of server-sent events.
    Sse,
    /// Any other body, of which only the bytes are counted.
    Opaque,
}

impl BodyFraming {
    /// Returns the framing that a Content-Type header announces. Returns [`BodyFraming::Opaque`] if there is no such
    /// header, or if the type is neither JSON nor an event stream.
    pub fn of(content_type: Option<&str>) -> Self {
        let Some(value) = content_type else { return Self::Opaque };
        let essence = value.split(';').next().unwrap_or(value).trim();
        if essence.eq_ignore_ascii_case("text/event-stream") {
            return Self::Sse;
        }
        let Some((_, subtype)) = essence.split_once('/') else { return Self::Opaque };
        let suffix = subtype.rsplit('+').next().unwrap_or(subtype);
        if suffix.eq_ignore_ascii_case("json") { Self::Json } else { Self::Opaque }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_routes_belong_together() {
        for route in Route::ALL {
            assert_eq!(Route::from_path(route.path()), Some(route));
        }
        for path in ["", "/", "/v1/models", "/v1/messages/", "/v1/Messages", "v1/messages"] {
            assert_eq!(Route::from_path(path), None, "{path}");
        }
    }

    #[test]
    fn framing_follows_the_media_type_and_not_its_parameters() {
        let cases = [
            (None, BodyFraming::Opaque),
            (Some(""), BodyFraming::Opaque),
            (Some("application/json"), BodyFraming::Json),
            (Some("Application/JSON; charset=utf-8"), BodyFraming::Json),
            (Some("application/problem+json"), BodyFraming::Json),
            (Some("text/event-stream"), BodyFraming::Sse),
            (Some(" text/event-stream;charset=UTF-8"), BodyFraming::Sse),
            (Some("application/x-ndjson"), BodyFraming::Opaque),
            (Some("text/html; note=application/json"), BodyFraming::Opaque),
            (Some("json"), BodyFraming::Opaque),
        ];
        for (value, framing) in cases {
            assert_eq!(BodyFraming::of(value), framing, "{value:?}");
        }
    }
}
