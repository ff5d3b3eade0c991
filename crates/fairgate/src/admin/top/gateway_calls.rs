//! The calls of `fairgate top` to the gateway.

use anyhow::Result;
use fairgate_api::admin::{
    LiveView, PoolBody, PoolList, RequestBody, RequestDetail, RequestList, TenantBody,
};
use http::Method;
use serde_json::json;

use super::super::client::AdminClient;
use super::super::fleet::fleet_text;
use super::super::{escaped, understood};
use super::model::{PoolFlowName, TopTab};
use crate::text_format::safe_name;

/// A call to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GatewayCall {
    /// Fetches the content of a tab.
    Look(TopTab),
    /// Changes a flow or a worker.
    Change(TopChange),
    /// Fetches the story of the request with this id.
    ExplainRequest(String),
    /// Fetches the story of a tenant's oldest waiting request. It is shown below `lines`, the story
    /// of the tenant's flow.
    ExplainTenant { pool: String, tenant: String, lines: Vec<String> },
}

/// A change of a flow or a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TopChange {
    /// Holds a flow, or resumes it.
    Hold { flow: PoolFlowName, held: bool },
    /// Sets the weight of a flow.
    Weight { flow: PoolFlowName, weight: u64 },
    /// Sets the maximum number of a flow's requests in flight; `None` removes it.
    Cap { flow: PoolFlowName, slots: Option<u64> },
    /// Drains a worker, or ends its drain.
    Drain { pool: String, worker: String, drained: bool },
}

/// Reply to a call.
#[derive(Debug)]
pub(crate) enum GatewayReply {
    Looked(Result<Box<TopLook>, String>),
    /// Result of a change, in one line.
    Changed(Result<String, String>),
    /// Title of a story, and its lines.
    Explained(String, Result<Vec<String>, String>),
}

/// Data that the gateway returned. Parts that the tab did not request are absent.
#[derive(Clone, Debug, Default)]
pub(crate) struct TopLook {
    pub(super) live: Option<LiveView>,
    pub(super) pools: Vec<PoolBody>,
    pub(super) requests: Option<Vec<RequestBody>>,
    pub(super) fleet: Option<Vec<String>>,
}

/// Makes a call and returns the reply.
pub(crate) fn call(client: &AdminClient, asked: GatewayCall) -> GatewayReply {
    let words = |error: anyhow::Error| format!("{error:#}");
    match asked {
        GatewayCall::Look(tab) => {
            GatewayReply::Looked(look(client, tab).map(Box::new).map_err(words))
        }
        GatewayCall::Change(change) => GatewayReply::Changed(make(client, &change).map_err(words)),
        GatewayCall::ExplainRequest(id) => {
            let lines = story(client, &id).map_err(words);
            GatewayReply::Explained(format!("request {}", safe_name(&id)), lines)
        }
        GatewayCall::ExplainTenant { pool, tenant, lines } => {
            let title = format!("tenant {}", safe_name(&tenant));
            let waiting = oldest_waiting(client, &pool, &tenant).map_err(words);
            GatewayReply::Explained(title, waiting.map(|more| [lines, more].concat()))
        }
    }
}

fn look(client: &AdminClient, tab: TopTab) -> Result<TopLook> {
    let requests = match tab {
        TopTab::Requests => {
            let list: RequestList = understood(&client.get("/api/v1/requests?limit=1000")?)?;
            Some(list.items)
        }
        _ => None,
    };
    let fleet = match tab {
        TopTab::Fleet => Some(fleet_text(&client.get("/api/v1/fleet")?)?),
        _ => None,
    };
    let fleet = fleet.map(|text| text.lines().map(str::to_owned).collect());
    let live = Some(understood(&client.get("/api/v1/fairshare/live")?)?);
    let pools: PoolList = understood(&client.get("/api/v1/pools")?)?;
    Ok(TopLook { live, pools: pools.items, requests, fleet })
}

/// Makes a change, and returns one line about the result.
fn make(client: &AdminClient, change: &TopChange) -> Result<String> {
    match change {
        TopChange::Hold { flow: PoolFlowName { pool, by, flow }, held } => {
            let action = if *held { "hold" } else { "resume" };
            let path = format!("/api/v1/pools/{}/{action}", escaped(pool));
            client.send(Method::POST, &path, Some(&json!({ "by": by, "flow": flow })))?;
            let done = if *held { "held" } else { "resumed" };
            Ok(format!("{done}: {by} {}", safe_name(flow)))
        }
        TopChange::Weight { flow: PoolFlowName { pool, by, flow }, weight } => {
            let owner = match *by {
                "tenant" => Some("tenants"),
                "group" => Some("groups"),
                "project" => Some("projects"),
                _ => None,
            };
            let (method, path, body) = match owner {
                Some(owner) => (
                    Method::PATCH,
                    format!("/api/v1/{owner}/{}", escaped(flow)),
                    json!({ "weight": weight }),
                ),
                None => (
                    Method::POST,
                    format!("/api/v1/pools/{}/weight", escaped(pool)),
                    json!({ "by": by, "flow": flow, "weight": weight }),
                ),
            };
            client.send(method, &path, Some(&body))?;
            Ok(format!("weight {weight}: {by} {}", safe_name(flow)))
        }
        TopChange::Cap { flow, slots } => {
            set_cap(client, flow, *slots)?;
            let PoolFlowName { by, flow, .. } = flow;
            let cap = slots.map_or("no cap".to_owned(), |slots| format!("cap {slots}"));
            Ok(format!("{cap}: {by} {}", safe_name(flow)))
        }
        TopChange::Drain { pool, worker, drained } => {
            let action = if *drained { "drain" } else { "undrain" };
            let path =
                format!("/api/v1/pools/{}/workers/{}/{action}", escaped(pool), escaped(worker));
            client.send(Method::POST, &path, None)?;
            let done = if *drained { "drained" } else { "takes requests again" };
            Ok(format!("{done}: worker {}", safe_name(worker)))
        }
    }
}

/// Sets a cap. The cap of a tenant is one of the tenant's limits, and a patch replaces all limits
/// together.
fn set_cap(client: &AdminClient, of: &PoolFlowName, slots: Option<u64>) -> Result<()> {
    let PoolFlowName { pool, by, flow } = of;
    if *by == "tenant" {
        let path = format!("/api/v1/tenants/{}", escaped(flow));
        let tenant: TenantBody = understood(&client.get(&path)?)?;
        let mut limits = serde_json::to_value(tenant.limits)?;
        if let Some(limits) = limits.as_object_mut() {
            match slots {
                Some(slots) => limits.insert("in_flight".to_owned(), slots.into()),
                None => limits.remove("in_flight"),
            };
            limits.retain(|_, limit| !limit.is_null());
        }
        client.send(Method::PATCH, &path, Some(&json!({ "limits": limits })))?;
        return Ok(());
    }
    let path = format!("/api/v1/pools/{}/cap", escaped(pool));
    let body = json!({ "by": by, "flow": flow, "slots": slots });
    client.send(Method::POST, &path, Some(&body)).map(drop)
}

/// Returns the story of a request, one sentence per line.
fn story(client: &AdminClient, id: &str) -> Result<Vec<String>> {
    let found = client.get(&format!("/api/v1/requests/{}", escaped(id)))?;
    let found: RequestDetail = understood(&found)?;
    let mut lines = found.story;
    if let Some(wait) = found.waiting.and_then(|waiting| waiting.expected_wait_ms) {
        lines.push(format!("expected to wait {} s more", wait.div_ceil(1000)));
    }
    Ok(lines)
}

fn oldest_waiting(client: &AdminClient, pool: &str, tenant: &str) -> Result<Vec<String>> {
    let of = format!("pool={}&tenant={}", escaped(pool), escaped(tenant));
    let list = client.get(&format!("/api/v1/requests?{of}&state=waiting&limit=1"))?;
    let list: RequestList = understood(&list)?;
    let Some(first) = list.items.first() else {
        return Ok(vec!["none of its requests waits".to_owned()]);
    };
    let title = format!("its oldest waiting request, {}:", safe_name(&first.id));
    let mut lines = vec![String::new(), title];
    lines.extend(story(client, &first.id)?);
    Ok(lines)
}
