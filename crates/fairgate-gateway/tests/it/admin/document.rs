//! Tests of the OpenAPI document.

use serde_json::{Value, json};

use super::{Fixture, request};

#[tokio::test]
async fn the_document_is_there_and_names_every_path_that_answers() {
    let it = Fixture::new().await;
    let document =
        it.send(request(None, "GET", "/api/v1/openapi.json", json!(null))).await.expect(200);
    let paths = document["paths"].as_object().expect("paths");
    assert!(paths.len() >= 26, "{}", paths.len());
    let mut ids = std::collections::HashSet::new();
    for (path, item) in paths {
        for (method, operation) in item.as_object().expect("operations") {
            assert!(ids.insert(operation["operationId"].clone()), "{method} {path}");
            if path.starts_with("/v1/leases") {
                // On the clients' port: see `every_route_of_leases_is_described`.
                continue;
            }
            let path = path.replace("{name}", "x").replace("{id}", "x").replace("{pool}", "sim");
            let status =
                it.send(request(None, &method.to_uppercase(), &path, json!(null))).await.status;
            let responses = operation["responses"].as_object().expect("responses");
            assert!(responses.contains_key(status.as_str()), "{method} {path}: {status}");
        }
    }
}

#[test]
fn every_reference_has_its_schema() {
    let document = fairgate_control::admin::document();
    let mut references = Vec::new();
    collect(document, &mut references);
    assert!(references.len() > 50);
    for reference in references {
        let pointer = reference.strip_prefix('#').expect("a reference into the document");
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

fn collect(value: &Value, references: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            references.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|field| collect(field, references));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, references)),
        _ => {}
    }
}
