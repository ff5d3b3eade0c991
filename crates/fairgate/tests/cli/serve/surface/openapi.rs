//! The OpenAPI document without its sentences and without the names of its schemas, one line for each fact.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// Fields of a schema that say nothing about which values are valid, or whose content has lines of its own.
const LEFT_OUT: [&str; 12] = [
    "$ref",
    "additionalProperties",
    "allOf",
    "anyOf",
    "description",
    "example",
    "examples",
    "items",
    "oneOf",
    "properties",
    "required",
    "title",
];

/// Returns the lines of all operations. The bodies of errors come last, as nearly all operations share them.
pub(super) fn lines(document: &Value) -> Vec<String> {
    let mut surface = OpenApiSurface { document, lines: Vec::new(), errors: BTreeMap::new() };
    for (path, operations) in object(&document["paths"]) {
        for (method, operation) in object(operations) {
            surface.operation(&format!("{} {path}", method.to_uppercase()), operation);
        }
    }
    let mut lines = surface.lines;
    for (number, (body, uses)) in surface.errors.into_iter().enumerate() {
        lines.push(format!("error body {} of {uses} responses", number + 1));
        lines.extend(body);
    }
    lines
}

struct OpenApiSurface<'a> {
    document: &'a Value,
    lines: Vec<String>,
    /// Bodies of responses with status 400 or higher, and how many responses have them.
    errors: BTreeMap<Vec<String>, usize>,
}

impl OpenApiSurface<'_> {
    fn operation(&mut self, name: &str, operation: &Value) {
        let security = operation.get("security").unwrap_or(&self.document["security"]);
        self.lines.push(format!("{name} security={security}"));
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        let mut parameters: Vec<&Value> = parameters.collect();
        parameters.sort_by_key(|parameter| (text(parameter, "in"), text(parameter, "name")));
        for parameter in parameters {
            let mark = if parameter["required"] == true { "" } else { "?" };
            let name = format!("  {} {}{mark}", text(parameter, "in"), text(parameter, "name"));
            self.lines.extend(self.schema(&name, &parameter["schema"]));
        }
        let body = &operation["requestBody"];
        for (kind, content) in object(&body["content"]) {
            let mark = if body["required"] == true { "" } else { "?" };
            self.lines.extend(self.schema(&format!("  body{mark} {kind} "), &content["schema"]));
        }
        for (status, response) in object(&operation["responses"]) {
            self.response(status, response);
        }
    }

    fn response(&mut self, status: &str, response: &Value) {
        let headers = object(&response["headers"]).map(|(name, _)| name.as_str());
        let headers: Vec<&str> = headers.collect();
        self.lines.push(format!("  {status} headers={headers:?}"));
        for (kind, content) in object(&response["content"]) {
            let is_error = status.starts_with(['4', '5']);
            let body = self.schema(&format!("    {kind} "), &content["schema"]);
            if is_error {
                *self.errors.entry(body).or_default() += 1;
            } else {
                self.lines.extend(body);
            }
        }
    }

    /// Returns the lines of a schema. Each begins with the path of a value.
    fn schema(&self, name: &str, schema: &Value) -> Vec<String> {
        let mut lines = Vec::new();
        self.add_schema(name, schema, &mut Vec::new(), &mut lines);
        lines
    }

    fn add_schema<'a>(
        &'a self,
        name: &str,
        schema: &'a Value,
        inside: &mut Vec<&'a str>,
        lines: &mut Vec<String>,
    ) {
        if let Some(reference) = schema["$ref"].as_str() {
            if inside.contains(&reference) {
                lines.push(format!("{name}: as the value around it"));
                return;
            }
            inside.push(reference);
            let target = reference.strip_prefix('#').and_then(|to| self.document.pointer(to));
            let target = target.unwrap_or_else(|| panic!("{reference} is in the document"));
            self.add_schema(name, target, inside, lines);
            inside.pop();
            return;
        }
        if let Value::Bool(allowed) = schema {
            lines.push(format!("{name}: {allowed}"));
            return;
        }
        let facts = object(schema).filter(|(field, _)| !LEFT_OUT.contains(&field.as_str()));
        let facts: Vec<String> = facts.map(|(field, fact)| format!("{field}={fact}")).collect();
        lines.push(format!("{name}: {}", facts.join(" ")).trim_end().to_owned());
        let required = schema["required"].as_array().into_iter().flatten();
        let required: BTreeSet<&str> = required.filter_map(Value::as_str).collect();
        for (field, inner) in object(&schema["properties"]) {
            let mark = if required.contains(field.as_str()) { "" } else { "?" };
            self.add_schema(&format!("{name}.{field}{mark}"), inner, inside, lines);
        }
        for (field, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
            if let Some(inner) = schema.get(field) {
                self.add_schema(&format!("{name}{mark}"), inner, inside, lines);
            }
        }
        for choice in ["allOf", "anyOf", "oneOf"] {
            let choices = schema[choice].as_array().into_iter().flatten();
            for (number, inner) in choices.enumerate() {
                self.add_schema(&format!("{name}<{choice} {number}>"), inner, inside, lines);
            }
        }
    }
}

fn object(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}
