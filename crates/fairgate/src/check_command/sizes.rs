//! Sizes of real requests, from public traces.

/// Numbers of tokens of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestSize {
    pub(super) input: u64,
    pub(super) output: u64,
}

const fn size(input: u64, output: u64) -> RequestSize {
    RequestSize { input, output }
}

/// Sizes of requests in Azure's public traces of 2023. The list alternates between every 302nd request of the
/// conversations and every 137th of the code completions.
pub(super) const SIZES: [RequestSize; 128] = [
    size(1316, 200),
    size(7436, 8),
    size(4105, 67),
    size(3396, 7),
    size(398, 132),
    size(194, 6),
    size(1233, 377),
    size(2130, 12),
    size(1474, 94),
    size(678, 16),
    size(379, 65),
    size(770, 14),
    size(1014, 392),
    size(12, 17),
    size(974, 406),
    size(491, 58),
    size(386, 69),
    size(456, 180),
    size(1127, 639),
    size(742, 37),
    size(1072, 394),
    size(1363, 20),
    size(1122, 396),
    size(1373, 7),
    size(1000, 430),
    size(17, 18),
    size(4086, 50),
    size(1104, 11),
    size(197, 217),
    size(4226, 9),
    size(891, 403),
    size(2101, 10),
    size(1033, 397),
    size(902, 12),
    size(51, 93),
    size(854, 60),
    size(379, 93),
    size(1818, 7),
    size(396, 99),
    size(231, 42),
    size(91, 16),
    size(2924, 7),
    size(418, 107),
    size(852, 11),
    size(1464, 77),
    size(6284, 37),
    size(386, 77),
    size(1453, 73),
    size(1191, 74),
    size(76, 16),
    size(394, 80),
    size(1586, 6),
    size(398, 87),
    size(751, 9),
    size(439, 101),
    size(1863, 6),
    size(388, 77),
    size(96, 9),
    size(4081, 69),
    size(2436, 28),
    size(376, 61),
    size(243, 9),
    size(212, 162),
    size(259, 22),
    size(392, 93),
    size(1897, 7),
    size(406, 114),
    size(270, 19),
    size(120, 12),
    size(1464, 69),
    size(403, 140),
    size(3224, 9),
    size(4098, 116),
    size(2014, 35),
    size(1682, 99),
    size(94, 23),
    size(1001, 429),
    size(2770, 10),
    size(395, 107),
    size(946, 28),
    size(1140, 382),
    size(127, 19),
    size(394, 134),
    size(137, 30),
    size(408, 106),
    size(1392, 6),
    size(1241, 56),
    size(2942, 9),
    size(1093, 388),
    size(2738, 29),
    size(1156, 404),
    size(2055, 8),
    size(200, 183),
    size(46, 6),
    size(197, 162),
    size(1318, 19),
    size(1066, 509),
    size(374, 7),
    size(883, 129),
    size(6230, 195),
    size(2197, 42),
    size(2226, 15),
    size(1702, 118),
    size(986, 25),
    size(1552, 51),
    size(497, 9),
    size(857, 114),
    size(76, 6),
    size(403, 102),
    size(2919, 13),
    size(904, 488),
    size(157, 11),
    size(205, 57),
    size(1827, 25),
    size(116, 78),
    size(1547, 11),
    size(1090, 396),
    size(2527, 10),
    size(404, 113),
    size(2342, 9),
    size(1159, 57),
    size(964, 9),
    size(3561, 237),
    size(717, 6),
    size(398, 94),
    size(2137, 12),
    size(1029, 406),
    size(3634, 23),
];

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn they_are_requests_of_the_traces() {
        for (turn, name) in ["azure_conv_2023.csv", "azure_code_2023.csv"].iter().enumerate() {
            let text = fs::read_to_string(fairgate_testkit::test_data::trace(name)).unwrap();
            let rows: Vec<&str> = text.lines().skip(1).collect();
            let step = rows.len() / 64;
            for (i, size) in SIZES.iter().skip(turn).step_by(2).enumerate() {
                let row = rows[i * step + step / 2];
                assert!(
                    row.ends_with(&format!(",{},{}", size.input, size.output)),
                    "{name}: {row}"
                );
            }
        }
    }
}
