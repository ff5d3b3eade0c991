//! The routes that a simulated model answers.

use crate::error_response::ApiDialect;

/// Routes that a model answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SimRoute {
    Chat,
    Completions,
    Embeddings,
    Responses,
    Messages,
    CountTokens,
}

impl SimRoute {
    /// Returns the route of a path, and the path as a static string.
    pub(crate) fn of(path: &str) -> Option<(Self, &'static str)> {
        const PATHS: [(SimRoute, &str); 6] = [
            (SimRoute::Chat, "/v1/chat/completions"),
            (SimRoute::Completions, "/v1/completions"),
            (SimRoute::Embeddings, "/v1/embeddings"),
            (SimRoute::Responses, "/v1/responses"),
            (SimRoute::Messages, "/v1/messages"),
            (SimRoute::CountTokens, "/v1/messages/count_tokens"),
        ];
        PATHS.into_iter().find(|(_, known)| *known == path)
    }

    pub(crate) fn dialect(self) -> ApiDialect {
        match self {
            Self::Messages | Self::CountTokens => ApiDialect::Anthropic,
            Self::Chat | Self::Completions | Self::Embeddings | Self::Responses => {
                ApiDialect::OpenAi
            }
        }
    }

    /// Returns the prefix of the ids of answers on this route, such as `chatcmpl-`.
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
