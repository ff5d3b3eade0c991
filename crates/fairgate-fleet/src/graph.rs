//! Tasks that need each other.

/// A cycle in a graph, as positions: each needs the next, and the last is the first again. None where there is no cycle.
///
/// `needs[n]` are the positions that n needs. A walk in depth without recursion, so that ten thousand tasks in a row are no
/// problem: a task is open while what it needs is being looked at, and one that needs an open task closes a cycle.
pub(crate) fn cycle(needs: &[Vec<usize>]) -> Option<Vec<usize>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Open,
        Done,
    }
    let mut marks = vec![Mark::New; needs.len()];
    // The way here, and how many needs of each were looked at.
    let mut path: Vec<(usize, usize)> = Vec::new();
    for start in 0..needs.len() {
        if marks[start] == Mark::New {
            marks[start] = Mark::Open;
            path.push((start, 0));
        }
        while let Some((task, looked_at)) = path.last_mut() {
            let Some(next) = needs[*task].get(*looked_at).copied() else {
                marks[*task] = Mark::Done;
                path.pop();
                continue;
            };
            *looked_at += 1;
            match marks[next] {
                Mark::Done => {}
                Mark::New => {
                    marks[next] = Mark::Open;
                    path.push((next, 0));
                }
                Mark::Open => {
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
        // A row of ten thousand.
        let row = (0..10_000).map(|n| if n == 9_999 { vec![] } else { vec![n + 1] });
        assert_eq!(cycle(&row.collect::<Vec<_>>()), None);
    }

    #[test]
    fn cycles_are_named() {
        assert_eq!(cycle(&[vec![0]]), Some(vec![0, 0]));
        assert_eq!(cycle(&[vec![1], vec![2], vec![3], vec![1]]), Some(vec![1, 2, 3, 1]));
    }

    /// Takes away tasks that need nothing that is left; what stays is in or before a cycle.
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
