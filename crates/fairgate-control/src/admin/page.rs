//! Pagination of long lists.

use serde::Deserialize;
use utoipa::IntoParams;

use super::api_error::ApiError;
use super::query::NameFilter;

/// Default number of entries on a page.
pub(super) const PAGE: u32 = 100;
/// Maximum number of entries on a page.
pub(super) const LONGEST_PAGE: u32 = 1000;

/// Selects a page of a list.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(super) struct PageQuery {
    /// Maximum number of entries, 1 to 1000 (default 100).
    #[param(minimum = 1, maximum = 1000, nullable = false)]
    pub(super) limit: Option<u32>,
    /// Returns only entries after this name; pass the `next` of the previous page.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    pub(super) after: Option<NameFilter>,
}

/// Checks the requested page length. Returns the default if it is absent, and an error outside 1 to 1000.
pub(super) fn page_length(limit: Option<u32>) -> Result<u32, ApiError> {
    match limit.unwrap_or(PAGE) {
        limit @ 1..=LONGEST_PAGE => Ok(limit),
        limit => {
            let message = format!("limit must be 1 to {LONGEST_PAGE} and is {limit}");
            Err(ApiError::bad_request("invalid_query", message).in_field("limit"))
        }
    }
}

/// Returns a page of a list that is sorted by name, and the last name of the page if another page follows. The next
/// page begins after that name.
pub(super) fn page<'a, T: 'a>(
    sorted: impl Iterator<Item = &'a T>,
    name: impl Fn(&T) -> &str,
    after: Option<&NameFilter>,
    limit: u32,
) -> (Vec<&'a T>, Option<String>) {
    let mut rest = sorted
        .skip_while(|each| after.is_some_and(|after| name(each) <= after.0.as_str()))
        .peekable();
    let mut page = Vec::new();
    while page.len() < limit as usize {
        let Some(each) = rest.next() else { break };
        page.push(each);
    }
    let next = rest.peek().and_then(|_| page.last()).map(|last| name(last).to_owned());
    (page, next)
}

/// Returns a page of a list in any order, and the last name of the page if another page follows. The next page begins
/// after that name. Returns an error if no entry is named `after`.
pub(super) fn page_after<T>(
    mut list: Vec<T>,
    name: impl Fn(&T) -> &str,
    after: Option<&NameFilter>,
    limit: u32,
    what: &str,
) -> Result<(Vec<T>, Option<String>), ApiError> {
    if let Some(after) = after {
        let place = list.iter().position(|each| name(each) == after.0);
        let place = place.ok_or_else(|| ApiError::not_found(what, &after.0))?;
        list.drain(..=place);
    }
    let more = list.len() > limit as usize;
    list.truncate(limit as usize);
    let next = list.last().filter(|_| more).map(|last| name(last).to_owned());
    Ok((list, next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_each_other() {
        let names = ["a".to_owned(), "b".to_owned(), "c".to_owned()];
        let pages = |after: Option<&str>, limit| {
            let after = after.map(|after| NameFilter(after.to_owned()));
            let (page, next) =
                page(names.iter(), |name: &String| name.as_str(), after.as_ref(), limit);
            (page.into_iter().cloned().collect::<Vec<_>>().join(""), next)
        };
        assert_eq!(pages(None, 2), ("ab".to_owned(), Some("b".to_owned())));
        assert_eq!(pages(Some("b"), 2), ("c".to_owned(), None));
        assert_eq!(pages(None, 3), ("abc".to_owned(), None));
        assert_eq!(pages(Some("bb"), 1), ("c".to_owned(), None));
        assert_eq!(pages(Some("c"), 1), (String::new(), None));
    }
}
