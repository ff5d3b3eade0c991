//! The list of models in the format of either dialect.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::route::Dialect;

/// Returns the body of `GET /v1/models`, with the models in the given order. Both dialects require a creation date for
/// each model. The date is always the beginning of 1970, because a gateway does not know the real date.
pub fn models_body<'a>(dialect: Dialect, names: impl IntoIterator<Item = &'a str>) -> Bytes {
    let models: Vec<Value> = names.into_iter().map(|name| model(dialect, name)).collect();
    let body = match dialect {
        Dialect::OpenAi => json!({ "object": "list", "data": models }),
        Dialect::Anthropic => {
            let id = |model: Option<&Value>| model.map_or(Value::Null, |model| model["id"].clone());
            let (first, last) = (id(models.first()), id(models.last()));
            json!({ "data": models, "first_id": first, "last_id": last, "has_more": false })
        }
    };
    Bytes::from(body.to_string())
}

/// Returns the body of `GET /v1/models/{name}`, with 1970 as creation date.
pub fn model_body(dialect: Dialect, name: &str) -> Bytes {
    Bytes::from(model(dialect, name).to_string())
}

fn model(dialect: Dialect, name: &str) -> Value {
    match dialect {
        Dialect::OpenAi => {
            json!({ "id": name, "object": "model", "created": 0, "owned_by": "fairgate" })
        }
        Dialect::Anthropic => {
            json!({ "type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z" })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_the_shape_of_their_dialect() {
        let openai: Value =
            serde_json::from_slice(&models_body(Dialect::OpenAi, ["a", "b"])).unwrap();
        assert_eq!(openai["object"], "list");
        assert_eq!(
            openai["data"][1],
            json!({"id":"b","object":"model","created":0,"owned_by":"fairgate"})
        );
        let anthropic: Value =
            serde_json::from_slice(&models_body(Dialect::Anthropic, ["a", "b"])).unwrap();
        assert_eq!(anthropic["data"][0]["display_name"], "a");
        assert_eq!((&anthropic["first_id"], &anthropic["last_id"]), (&json!("a"), &json!("b")));
        assert_eq!(anthropic["has_more"], false);
        let one: Value = serde_json::from_slice(&model_body(Dialect::OpenAi, "b")).unwrap();
        assert_eq!(one, openai["data"][1]);
    }

    #[test]
    fn an_empty_list_is_a_list() {
        let anthropic: Value =
            serde_json::from_slice(&models_body(Dialect::Anthropic, [])).unwrap();
        assert_eq!(anthropic, json!({"data":[],"first_id":null,"last_id":null,"has_more":false}));
    }
}
