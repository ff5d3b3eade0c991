//! Finds dependency cycles between tasks.

/// Returns a cycle of the dependency graph as indexes of tasks. Each task needs the next one, and the last index equals
/// the first. Returns `None` if there is no cycle.
///
/// `needs[n]` are the indexes of the tasks that task n needs. The search is depth-first without
/// recursion, so that a chain of ten thousand tasks does not overflow the stack. A task is open
/// while the tasks that it needs are visited. A task that needs an open task closes a cycle.
pub(crate) fn cycle(needs: &[Vec<usize>]) -> Option<Vec<usize>> {
    #[derive(Clone, Copy, PartialEq)]
    enum VisitMark {
        New,
        Open,
        Done,
    }
    let mut marks = vec![VisitMark::New; needs.len()];
    // The current path. Each task has the number of its needs that were visited.
    let mut path: Vec<(usize, usize)> = Vec::new();
    for start in 0..needs.len() {
        if marks[start] == VisitMark::New {
            marks[start] = VisitMark::Open;
            path.push((start, 0));
        }
        while let Some((task, looked_at)) = path.last_mut() {
            let Some(next) = needs[*task].get(*looked_at).copied() else {
                marks[*task] = VisitMark::Done;
                path.pop();
                continue;
            };
            *looked_at += 1;
            match marks[next] {
                VisitMark::Done => {}
                VisitMark::New => {
                    marks[next] = VisitMark::Open;
                    path.push((next, 0));
                }
                VisitMark::Open => {
                    let way = path.iter().map(|(task, _)| *task);
                    let mut cycle: Vec<_> = way.skip_while(|task| *task != next).collect();
                    cycle.push(next);
                    return Some(cycle);
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn graphs_without_a_cycle() {
        assert_eq!(cycle(&[]), None);
        assert_eq!(cycle(&[vec![1, 2], vec![3], vec![3], vec![]]), None);
        // A chain of ten thousand tasks.
        let row = (0..10_000).map(|n| if n == 9_999 { vec![] } else { vec![n + 1] });
        assert_eq!(cycle(&row.collect::<Vec<_>>()), None);
    }

    #[test]
    fn cycles_are_named() {
        assert_eq!(cycle(&[vec![0]]), Some(vec![0, 0]));
        assert_eq!(cycle(&[vec![1], vec![2], vec![3], vec![1]]), Some(vec![1, 2, 3, 1]));
    }

    /// Repeatedly removes tasks that need no remaining task. A task that cannot be removed is in a
    /// cycle, or needs a task in a cycle.
    fn has_cycle(needs: &[Vec<usize>]) -> bool {
        let mut left: std::collections::BTreeSet<_> = (0..needs.len()).collect();
        loop {
            let free = |n: &usize| !needs[*n].iter().any(|need| left.contains(need));
            let free: Vec<_> = left.iter().copied().filter(free).collect();
            if free.is_empty() {
                return !left.is_empty();
            }
            free.iter().for_each(|n| {
                left.remove(n);
            });
        }
    }

    proptest! {
        #[test]
        fn a_cycle_is_found_where_there_is_one(
            needs in prop::collection::vec(prop::collection::vec(0_usize..8, 0..3), 8),
        ) {
            let found = cycle(&needs);
            prop_assert_eq!(found.is_some(), has_cycle(&needs));
            for pair in found.unwrap_or_default().windows(2) {
                prop_assert!(needs[pair[0]].contains(&pair[1]));
            }
        }
    }
}
