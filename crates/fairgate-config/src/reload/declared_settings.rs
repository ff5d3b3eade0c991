//! Lists the declarations of a file as settings: one for each group, tenant and key, and one for
//! each secret of a key.

use std::fmt::Display;

use super::settings::SettingList;
use crate::config::Secret;
use crate::declared::{
    DeclaredBudget, DeclaredDirectory, DeclaredGroup, DeclaredKey, DeclaredLimits, DeclaredRights,
    DeclaredTenant,
};
use crate::values::{format_duration, format_thousandths};

/// Parts of a description: `weight 300, in_flight 4`.
#[derive(Default)]
struct DescriptionParts(Vec<String>);

impl DescriptionParts {
    fn put(&mut self, name: &str, value: impl Display) {
        self.0.push(format!("{name} {value}"));
    }

    fn put_some(&mut self, name: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.put(name, value);
        }
    }

    fn put_flag(&mut self, name: &str, is_set: bool) {
        if is_set {
            self.0.push(name.to_owned());
        }
    }

    /// Adds a list of names, unless it equals the default, `absent`.
    fn put_names(&mut self, name: &str, names: Option<&[String]>, absent: Option<&[String]>) {
        if names != absent {
            self.put(
                name,
                names.map_or("all".to_owned(), |names| format!("[{}]", names.join(", "))),
            );
        }
    }

    fn put_budgets(&mut self, budgets: &[DeclaredBudget]) {
        for DeclaredBudget { is_hosted, is_monthly, is_money, amount } in budgets {
            let hosted = if *is_hosted { "hosted_" } else { "" };
            let unit = if *is_money { "money" } else { "tokens" };
            let period = if *is_monthly { "month" } else { "day" };
            let amount = match is_money {
                true => fairgate_money::MicroUnits(*amount).to_string(),
                false => amount.to_string(),
            };
            self.put(&format!("{hosted}{unit}_per_{period}"), amount);
        }
    }

    fn put_limits(&mut self, limits: &DeclaredLimits) {
        let DeclaredLimits {
            in_flight,
            queued_requests,
            queued_bytes,
            requests_per_minute,
            tokens_per_minute,
            never_hosted,
            budgets,
        } = limits;
        self.put_some("in_flight", *in_flight);
        self.put_some("queued_requests", *queued_requests);
        self.put_some("queued_bytes", *queued_bytes);
        self.put_some("requests_per_minute", *requests_per_minute);
        self.put_some("tokens_per_minute", *tokens_per_minute);
        self.put_flag("never hosted", *never_hosted);
        self.put_budgets(budgets);
    }

    fn put_rights(&mut self, rights: &DeclaredRights) {
        let DeclaredRights {
            models,
            classes,
            priority_max,
            weight_max_milli,
            workers,
            may_pin,
            may_lease,
            may_use_foreign_ids,
            taints,
            deadline,
            deadline_min,
        } = rights;
        self.put_names("models", models.as_deref(), None);
        self.put_names("classes", classes.as_deref(), Some(&[]));
        self.put_some("priority_max", Some(priority_max).filter(|priority| **priority != 0));
        self.put_some("weight_max", weight_max_milli.map(format_thousandths));
        self.put_names("workers", workers.as_deref(), None);
        self.put_flag("may_pin", *may_pin);
        self.put_flag("may_lease", *may_lease);
        self.put_flag("may_use_foreign_ids", *may_use_foreign_ids);
        self.put_names("taints", taints.as_deref(), Some(&[]));
        self.put_some("deadline", deadline.map(format_duration));
        self.put_some("deadline_min", deadline_min.map(format_duration));
    }

    fn joined(self) -> String {
        self.0.join(", ")
    }
}

pub(super) fn declared_settings(list: &mut SettingList<'_>, declared: &DeclaredDirectory) {
    // The path of the file is left out: the same declarations at another path are no change.
    let DeclaredDirectory { file: _, is_stated: _, groups, tenants, keys } = declared;
    let joined = |names: Vec<&str>| (!names.is_empty()).then(|| names.join(", "));
    list.put("groups", &joined(groups.iter().map(|group| &*group.name).collect()));
    list.put("tenants", &joined(tenants.iter().map(|tenant| &*tenant.name).collect()));
    list.put("keys", &joined(keys.iter().map(|key| &*key.name).collect()));
    for DeclaredGroup { line: _, name, weight, budgets } in groups {
        let mut parts = DescriptionParts::default();
        parts.put("weight", weight);
        parts.put_budgets(budgets);
        list.put(&format!("groups.{name}"), &parts.joined());
    }
    for DeclaredTenant { line: _, name, group, weight, disabled, limits, requires } in tenants {
        let mut parts = DescriptionParts::default();
        parts.put("group", group);
        parts.put("weight", weight);
        parts.put_flag("disabled", *disabled);
        parts.put_limits(limits);
        parts.put_names("requires", Some(requires), Some(&[]));
        list.put(&format!("tenants.{name}"), &parts.joined());
    }
    for key in keys {
        key_settings(list, key);
    }
}

fn key_settings(list: &mut SettingList<'_>, key: &DeclaredKey) {
    let DeclaredKey {
        line: _,
        tenant,
        name,
        hash,
        hint: _,
        source,
        weight,
        limits,
        rights,
        expires_at,
    } = key;
    let mut parts = DescriptionParts::default();
    parts.put("weight", weight);
    parts.put_rights(rights);
    parts.put_some("expires_at", expires_at.map(fairgate_time::to_rfc3339));
    parts.put_limits(limits);
    list.put(&format!("keys.{tenant}.{name}"), &parts.joined());
    let secret = Secret::new(hash.to_string()).with_source(Some(source));
    list.put(&format!("keys.{tenant}.{name}.secret"), &secret);
}
