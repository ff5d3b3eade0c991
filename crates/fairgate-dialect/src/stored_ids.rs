//! Finds the ids in a request's body that refer to objects that the upstream stores for the gateway's
//! account: items of earlier responses, files, vector stores, containers, stored prompts and sounds.
//!
//! The upstream knows only one client, the gateway. So the upstream would accept an id of one tenant's object
//! from every other tenant. The gateway knows the owner of an item's id, because it sees the answers that
//! contain the item. It does not know the owner of any other id.
//!
//! The schemas of tools and the arguments of tool calls are not searched, because clients choose the names in them.
//! Keys are compared without regard to case, because some upstreams ignore case.

use std::borrow::Cow;

use crate::json_nodes::{JsonNodeKind, JsonNodes};
use crate::request_fields::{ID_BYTES_MAX, RequestFields};
use crate::route::Route;

/// Keys whose values are ids, wherever in the prompt a key is.
const ID_KEYS: [&str; 4] = ["file_id", "file_ids", "vector_store_ids", "container_id"];
/// Members of a body that are not searched for ids: schemas, and texts of the client's own.
const NOT_SEARCHED: [&str; 5] = ["functions", "response_format", "text", "metadata", "tool_choice"];
/// Members of a tool that are not searched for ids.
const NOT_SEARCHED_IN_TOOLS: [&str; 5] =
    ["parameters", "input_schema", "function", "format", "filters"];
/// Types of content whose `input` has the arguments of a tool call.
const TOOL_CALLS: [&str; 3] = ["tool_use", "server_tool_use", "mcp_tool_use"];
/// Greatest number of item ids in a request. A body with more ids is refused as not searchable.
const ITEMS_MAX: usize = 4096;

/// The ids in a request's body that refer to objects that the upstream stores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredIds {
    /// Ids of items of earlier responses, in the order of the body (Responses API only).
    pub items: Vec<String>,
    /// Name of the first field with an id whose owner is not known, such as `file_id`; `None` if there is no such
    /// field.
    pub account_field: Option<&'static str>,
}

/// Error for a body that has too many parts to search for ids, or an id that is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the body has too many parts to look for ids in it, or an id of more than {} bytes",
    ID_BYTES_MAX
)]
pub struct UnsearchableBodyError;

impl RequestFields {
    /// Finds the ids of objects that the upstream stores. Takes CPU time that grows with the body if the body has any
    /// key of such ids.
    pub fn stored_ids(
        &self,
        route: Route,
        body: &[u8],
    ) -> Result<StoredIds, UnsearchableBodyError> {
        let has_items = self.mentions_item_ids && route == Route::Responses;
        let mut search =
            IdSearch { body, nodes: JsonNodes::default(), route, found: StoredIds::default() };
        if self.mentions_account_ids || has_items {
            let root = search.nodes.read(body, 0).ok_or(UnsearchableBodyError)?;
            search.body(root)?;
        }
        Ok(search.found)
    }
}

struct IdSearch<'a> {
    body: &'a [u8],
    nodes: JsonNodes,
    route: Route,
    found: StoredIds,
}

impl<'a> IdSearch<'a> {
    fn body(&mut self, root: usize) -> Result<(), UnsearchableBodyError> {
        for (key, value) in self.members(root) {
            match &*key {
                "tools" => self.tools(value),
                "container" => self.container(value),
                "prompt" if self.route == Route::Responses && self.is_given(value) => {
                    self.found_account_field("prompt.id");
                }
                "input" if self.route == Route::Responses => {
                    self.items(value)?;
                    self.search(value);
                }
                name if NOT_SEARCHED.contains(&name) => {}
                _ => self.member(&key, value),
            }
        }
        Ok(())
    }

    /// Collects the ids of all items of a Responses request, whatever their types. An item needs no type to refer to an
    /// earlier item.
    fn items(&mut self, input: usize) -> Result<(), UnsearchableBodyError> {
        let items: Vec<usize> = match self.nodes.nodes[input].kind {
            JsonNodeKind::Array => self.nodes.items(input).collect(),
            JsonNodeKind::Object => vec![input],
            _ => return Ok(()),
        };
        for item in items {
            for (key, value) in self.members(item) {
                if key != "id" {
                    continue;
                }
                let Some(id) = self.text(value) else { continue };
                if id.len() > ID_BYTES_MAX || self.found.items.len() == ITEMS_MAX {
                    return Err(UnsearchableBodyError);
                }
                let id = id.into_owned();
                self.found.items.push(id);
            }
        }
        Ok(())
    }

    fn tools(&mut self, tools: usize) {
        if self.nodes.nodes[tools].kind != JsonNodeKind::Array {
            return self.search(tools);
        }
        let all: Vec<usize> = self.nodes.items(tools).collect();
        for tool in all {
            for (key, value) in self.members(tool) {
                match &*key {
                    "container" => self.container(value),
                    name if NOT_SEARCHED_IN_TOOLS.contains(&name) => {}
                    _ => self.member(&key, value),
                }
            }
        }
    }

    /// Searches the value of `container` for ids. A text is the id of a container. An object may have ids, or may only
    /// ask for a new container.
    fn container(&mut self, value: usize) {
        match self.nodes.nodes[value].kind {
            JsonNodeKind::Object => {
                for (key, inner) in self.members(value) {
                    let is_id = matches!(&*key, "id" | "skills");
                    if is_id && self.is_given(inner) {
                        self.found_account_field("container");
                    }
                    self.member(&key, inner);
                }
            }
            _ if self.is_given(value) => self.found_account_field("container"),
            _ => {}
        }
    }

    /// Searches one member, anywhere in a prompt, for ids.
    fn member(&mut self, key: &str, value: usize) {
        if let Some(&name) = ID_KEYS.iter().find(|name| **name == key) {
            if self.is_given(value) {
                self.found_account_field(name);
            }
            return;
        }
        if let Some(name) = [("audio", "audio.id"), ("voice", "voice.id")]
            .iter()
            .find_map(|(object, name)| (*object == key).then_some(*name))
            && self.members(value).iter().any(|(key, id)| key == "id" && self.is_given(*id))
        {
            self.found_account_field(name);
        }
        self.search(value);
    }

    fn search(&mut self, value: usize) {
        match self.nodes.nodes[value].kind {
            JsonNodeKind::Array => {
                let all: Vec<usize> = self.nodes.items(value).collect();
                all.into_iter().for_each(|item| self.search(item));
            }
            JsonNodeKind::Object => {
                let members = self.members(value);
                let is_call = members.iter().any(|(key, kind)| {
                    key == "type"
                        && self.text(*kind).is_some_and(|kind| TOOL_CALLS.contains(&&*kind))
                });
                for (key, inner) in members {
                    if !(is_call && key == "input") {
                        self.member(&key, inner);
                    }
                }
            }
            _ => {}
        }
    }

    fn found_account_field(&mut self, name: &'static str) {
        self.found.account_field.get_or_insert(name);
    }

    /// Returns true if a value is not null and not an empty list.
    fn is_given(&self, value: usize) -> bool {
        match self.nodes.nodes[value].kind {
            JsonNodeKind::Scalar => self.bytes(value).trim_ascii() != b"null",
            JsonNodeKind::Array => self.nodes.items(value).next().is_some(),
            _ => true,
        }
    }

    /// Returns the members of an object as (key in lower case, node of the value). Returns no members for any other
    /// value.
    fn members(&self, object: usize) -> Vec<(String, usize)> {
        if self.nodes.nodes[object].kind != JsonNodeKind::Object {
            return Vec::new();
        }
        let items: Vec<usize> = self.nodes.items(object).collect();
        let member = |pair: &[usize]| {
            let key = self.text(pair[0]).unwrap_or_default().to_ascii_lowercase();
            (key, pair[1])
        };
        items.chunks_exact(2).map(member).collect()
    }

    fn bytes(&self, node: usize) -> &'a [u8] {
        &self.body[self.nodes.nodes[node].bytes()]
    }

    /// Returns the text of a string; `None` for any other value.
    fn text(&self, node: usize) -> Option<Cow<'a, str>> {
        let range = self.nodes.nodes[node].bytes();
        match self.nodes.nodes[node].kind {
            JsonNodeKind::String { escaped: true } => {
                let quoted = self.body.get(range.start.checked_sub(1)?..range.end + 1)?;
                serde_json::from_slice::<String>(quoted).ok().map(Cow::Owned)
            }
            JsonNodeKind::String { escaped: false } | JsonNodeKind::File => {
                std::str::from_utf8(self.bytes(node)).ok().map(Cow::Borrowed)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(route: Route, body: &str) -> Result<StoredIds, UnsearchableBodyError> {
        RequestFields::read(route, body.as_bytes()).unwrap().stored_ids(route, body.as_bytes())
    }

    fn field(route: Route, members: &str) -> Option<&'static str> {
        found(route, &format!(r#"{{"model":"m",{members}}}"#)).unwrap().account_field
    }

    #[test]
    fn ids_of_items_are_found_in_every_spelling() {
        let items = |input: &str| {
            found(Route::Responses, &format!(r#"{{"model":"m","input":{input}}}"#)).unwrap().items
        };
        assert_eq!(items(r#"[{"type":"item_reference","id":"msg_1"}]"#), ["msg_1"]);
        assert_eq!(
            items(r#"[{"id":"rs_1"},{"role":"user","content":"x","id":"msg_2"}]"#),
            ["rs_1", "msg_2"]
        );
        assert_eq!(items(r#"[{"\u0069d":"a\u005f1","ID":"a_2"}]"#), ["a_1", "a_2"]);
        assert!(items(r#""text""#).is_empty());
        assert!(
            items(r#"[{"role":"user","content":[{"type":"input_text","text":"id"}]}]"#).is_empty()
        );
        assert!(items(r#"[{"type":"message","id":null,"content":"x"}]"#).is_empty());
        let long =
            format!(r#"{{"model":"m","input":[{{"id":"{}"}}]}}"#, "x".repeat(ID_BYTES_MAX + 1));
        assert_eq!(found(Route::Responses, &long), Err(UnsearchableBodyError));
        // Other APIs have ids of tool calls, which mean nothing to the upstream.
        let chat =
            r#"{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"call_1"}]}]}"#;
        assert_eq!(found(Route::ChatCompletions, chat).unwrap(), StoredIds::default());
    }

    #[test]
    fn ids_without_a_known_owner_are_found() {
        use Route::{ChatCompletions, Messages, Responses};
        for (route, members, name) in [
            (
                Responses,
                r#""input":[{"role":"user","content":[{"type":"input_file","file_id":"f"}]}]"#,
                "file_id",
            ),
            (
                Responses,
                r#""input":[{"role":"user","content":[{"type":"input_image","File_Id":"f"}]}]"#,
                "file_id",
            ),
            (
                Responses,
                r#""tools":[{"type":"file_search","vector_store_ids":["v"]}]"#,
                "vector_store_ids",
            ),
            (
                Responses,
                r#""tools":[{"type":"code_interpreter","container":"cntr_1"}]"#,
                "container",
            ),
            (
                Responses,
                r#""tools":[{"type":"code_interpreter","container":{"type":"auto","file_ids":["f"]}}]"#,
                "file_ids",
            ),
            (
                Responses,
                r#""tools":[{"type":"image_generation","input_image_mask":{"file_id":"f"}}]"#,
                "file_id",
            ),
            (Responses, r#""prompt":{"id":"pmpt_1"}"#, "prompt.id"),
            (
                ChatCompletions,
                r#""messages":[{"role":"user","content":[{"type":"file","file":{"file\u005fid":"f"}}]}]"#,
                "file_id",
            ),
            (
                ChatCompletions,
                r#""messages":[{"role":"assistant","audio":{"id":"audio_1"}}]"#,
                "audio.id",
            ),
            (
                Messages,
                r#""max_tokens":1,"messages":[{"role":"user","content":[{"type":"document","source":{"type":"file","file_id":"f"}}]}]"#,
                "file_id",
            ),
            (Messages, r#""max_tokens":1,"container":"container_1""#, "container"),
            (Messages, r#""max_tokens":1,"container":{"id":"container_1"}"#, "container"),
        ] {
            assert_eq!(field(route, members), Some(name), "{members}");
        }
    }

    #[test]
    fn names_of_a_clients_own_are_not_ids() {
        use Route::{ChatCompletions, Messages, Responses};
        for (route, members) in [
            (
                ChatCompletions,
                r#""tools":[{"type":"function","function":{"name":"f","parameters":{"properties":{"file_id":{"type":"string"}}}}}]"#,
            ),
            (
                Responses,
                r#""tools":[{"type":"function","name":"f","parameters":{"properties":{"container":{}}}}]"#,
            ),
            (
                Responses,
                r#""tools":[{"type":"code_interpreter","container":{"type":"auto"}}],"prompt":null"#,
            ),
            (Responses, r#""tools":[{"type":"file_search","vector_store_ids":[]}]"#),
            (
                Messages,
                r#""max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{"file_id":"mine"}}]}]"#,
            ),
            (
                ChatCompletions,
                r#""audio":{"voice":"alloy","format":"wav"},"metadata":{"file_id":"mine"}"#,
            ),
            (ChatCompletions, r#""messages":[{"role":"user","content":"\"file_id\": \"f\""}]"#),
        ] {
            assert_eq!(field(route, members), None, "{members}");
        }
        let prompt = r#"{"model":"m","prompt":"a text"}"#;
        assert_eq!(found(Route::Completions, prompt).unwrap(), StoredIds::default());
    }
}
