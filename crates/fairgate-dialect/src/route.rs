//! Which API a path belongs to, and how an answer is framed.

/// An API dialect: decides the shape of errors and the header of credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// OpenAI's.
    OpenAi,
    /// Anthropic's.
    Anthropic,
}

/// A route that goes to an upstream.
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
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::ChatCompletions,
        Self::Completions,
        Self::Embeddings,
        Self::Responses,
        Self::Messages,
        Self::CountTokens,
    ];

    /// Its path.
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

    /// The route of a request's path, without its query; `None` where there is none of that name.
    pub fn from_path(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|route| route.path() == path)
    }

    /// Whose dialect it is.
    pub fn dialect(self) -> Dialect {
        match self {
            Self::Messages | Self::CountTokens => Dialect::Anthropic,
            _ => Dialect::OpenAi,
        }
    }

    /// Whether a model writes anything for it; embeddings and token counts have no output to pay for.
    pub fn generates(self) -> bool {
        !matches!(self, Self::Embeddings | Self::CountTokens)
    }

    /// Whether a stream of this route tells its usage only where `stream_options.include_usage` asks for it.
    pub(crate) fn usage_on_demand(self) -> bool {
        matches!(self, Self::ChatCompletions | Self::Completions)
    }
}

/// How an answer's body is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// One JSON document.
    Json,
    /// Server-sent events.
    Sse,
    /// Something else: only bytes are counted.
    Opaque,
}

impl Framing {
    /// The framing that a Content-Type header announces. Without one, or with one that is not a JSON document or an
    /// event stream, nothing is known about the body.
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
            (None, Framing::Opaque),
            (Some(""), Framing::Opaque),
            (Some("application/json"), Framing::Json),
            (Some("Application/JSON; charset=utf-8"), Framing::Json),
            (Some("application/problem+json"), Framing::Json),
            (Some("text/event-stream"), Framing::Sse),
            (Some(" text/event-stream;charset=UTF-8"), Framing::Sse),
            (Some("application/x-ndjson"), Framing::Opaque),
            (Some("text/html; note=application/json"), Framing::Opaque),
            (Some("json"), Framing::Opaque),
        ];
        for (value, framing) in cases {
            assert_eq!(Framing::of(value), framing, "{value:?}");
        }
    }
}
