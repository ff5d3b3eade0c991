//! Chooses the member whose state begins a new generation.
//!
//! A generation ends when its log is no longer the same order for all members: it has lost records,
//! it no longer exists, or two members have different states. A member that notices this stops
//! granting and reports its position and hash outside of the log. After a short wait, or as soon as
//! all live members have reported, one member's state begins the next generation on an empty log.
//! This is the state of the member that has applied the **most records**. If several have, it is
//! the state that most of these members have, and then that of the lowest member number. Members
//! then submit again the requests that this state does not contain.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use crate::units::{LogPosition, MemberNumber, ShortHash};

/// The state that one member offers as the base of the next generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GenerationReport {
    /// Number of the member.
    pub member: MemberNumber,
    /// Generation that has ended.
    pub generation: u64,
    /// Position of the last record that the member has applied.
    pub position: LogPosition,
    /// Running hash at that position.
    pub hash: ShortHash,
}

/// Returns the member whose state begins the next generation; `None` if nobody has reported about this generation.
pub fn choose_base(generation: u64, reports: &[GenerationReport]) -> Option<MemberNumber> {
    let of_this = reports.iter().filter(|report| report.generation == generation);
    let agreeing = |report: &GenerationReport| {
        let same = |other: &&GenerationReport| {
            (other.generation, other.position, other.hash)
                == (report.generation, report.position, report.hash)
        };
        reports.iter().filter(same).count()
    };
    of_this.max_by_key(|it| (it.position, agreeing(it), Reverse(it.member))).map(|it| it.member)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(member: u64, position: u64, hash: u8) -> GenerationReport {
        GenerationReport {
            member: MemberNumber(member),
            generation: 3,
            position: LogPosition(position),
            hash: ShortHash([hash; 8]),
        }
    }

    #[test]
    fn the_freshest_is_the_base_and_of_those_the_one_that_most_agree_with() {
        let chosen = |reports: &[_]| choose_base(3, reports).map(|member| member.0);
        assert_eq!(chosen(&[]), None);
        assert_eq!(chosen(&[report(1, 5, 0), report(2, 7, 0)]), Some(2));
        assert_eq!(chosen(&[report(1, 7, 9), report(2, 7, 0), report(3, 7, 0)]), Some(2));
        assert_eq!(chosen(&[report(4, 7, 9), report(2, 7, 0)]), Some(2));
        let older = GenerationReport { generation: 2, ..report(9, 99, 0) };
        assert_eq!(chosen(&[older, report(2, 7, 0)]), Some(2));
    }
}
