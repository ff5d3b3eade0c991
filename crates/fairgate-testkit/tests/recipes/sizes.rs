//! Request sizes from public traces of LLM serving.
//!
//! The traces are Azure's of 2023, of a chat service and of a code service (Patel et al., Splitwise, ISCA 2024; CC-BY 4.0).
//! They are read from the shared files where those are there. Otherwise 96 rows of each, evenly spread over the
//! trace, stand here.

use std::fs;
use std::path::{Path, PathBuf};

/// The tokens of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) input: u64,
    pub(crate) output: u64,
}

impl Size {
    pub(crate) fn tokens(self) -> u64 {
        self.input + self.output
    }

    /// How long it runs, in microseconds: 20 000 input tokens and 50 output tokens a second.
    pub(crate) fn duration_us(self) -> u64 {
        self.input * 50 + self.output * 20_000
    }
}

/// The sizes of both traces.
#[derive(Clone, Debug)]
pub(crate) struct Traces {
    pub(crate) conversation: Vec<Size>,
    pub(crate) code: Vec<Size>,
    /// Whether these are whole traces.
    pub(crate) whole: bool,
}

impl Traces {
    /// The whole traces, or what stands here.
    pub(crate) fn load() -> Self {
        let folder = shared_data();
        let whole = |name: &str| fs::read_to_string(folder.join(name)).ok().map(|text| rows(&text));
        match (whole("azure_conv_2023.csv"), whole("azure_code_2023.csv")) {
            (Some(conversation), Some(code)) => Self { conversation, code, whole: true },
            _ => {
                let list = |pairs: &[(u64, u64)]| pairs.iter().map(|pair| size(*pair)).collect();
                Self { conversation: list(&CONVERSATION), code: list(&CODE), whole: false }
            }
        }
    }
}

fn shared_data() -> PathBuf {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    std::env::var_os("FAIRGATE_SHARED").map_or(beside, PathBuf::from).join("data")
}

/// The last two columns: input and output tokens.
fn rows(text: &str) -> Vec<Size> {
    let row = |line: &str| {
        let numbers: Vec<u64> = line.split(',').skip(1).filter_map(|n| n.parse().ok()).collect();
        match numbers[..] {
            [input, output] => size((input, output)),
            _ => panic!("not a row of a trace: {line}"),
        }
    };
    text.lines().skip(1).map(row).collect()
}

fn size((input, output): (u64, u64)) -> Size {
    Size { input, output }
}

#[rustfmt::skip]
const CONVERSATION: [(u64, u64); 96] = [
    (374, 44), (874, 402), (124, 204), (1313, 156), (1067, 398), (374, 73), (4075, 136),
    (1085, 442), (3021, 135), (440, 117), (887, 112), (397, 94), (1040, 396), (1190, 375),
    (4100, 52), (463, 164), (400, 76), (1090, 414), (1458, 53), (1176, 77), (409, 98), (393, 86),
    (3250, 92), (1055, 445), (404, 107), (4085, 150), (1038, 375), (4134, 49), (957, 113),
    (2228, 73), (1059, 415), (1174, 429), (40, 161), (406, 90), (224, 188), (1041, 391),
    (4081, 49), (431, 107), (1056, 429), (181, 157), (2002, 77), (417, 153), (386, 84), (4076, 82),
    (397, 98), (215, 163), (397, 106), (409, 90), (740, 83), (374, 86), (1067, 373), (398, 124),
    (389, 84), (422, 107), (4079, 66), (1321, 144), (2419, 143), (2550, 49), (946, 80), (1245, 79),
    (1139, 425), (406, 101), (397, 99), (432, 98), (3589, 136), (902, 87), (192, 105), (410, 116),
    (415, 90), (220, 104), (1303, 423), (397, 85), (1122, 384), (251, 67), (3155, 69), (2361, 112),
    (981, 411), (181, 76), (2584, 148), (909, 403), (1093, 481), (209, 162), (1540, 124),
    (4830, 89), (1097, 429), (1053, 397), (206, 162), (992, 420), (1049, 396), (1135, 488),
    (1106, 394), (418, 82), (1312, 139), (399, 149), (1144, 429), (1113, 581),
];

#[rustfmt::skip]
const CODE: [(u64, u64); 96] = [
    (4808, 10), (583, 6), (2136, 8), (103, 13), (7436, 10), (3286, 19), (1059, 10), (3014, 6),
    (4749, 39), (7436, 8), (548, 11), (7436, 12), (132, 11), (1112, 26), (2168, 10), (131, 7),
    (1114, 11), (559, 7), (1693, 9), (1297, 232), (943, 16), (867, 13), (1782, 12), (1041, 24),
    (7436, 14), (571, 8), (3314, 59), (7435, 13), (189, 15), (2340, 10), (2385, 23), (699, 11),
    (3866, 31), (2721, 10), (3615, 8), (1166, 6), (397, 73), (1864, 7), (4141, 26), (234, 94),
    (545, 29), (2260, 17), (7394, 22), (4116, 20), (127, 12), (1226, 127), (238, 13), (4559, 30),
    (1710, 14), (671, 6), (7429, 15), (1486, 79), (389, 9), (1115, 18), (1127, 14), (2020, 8),
    (2297, 21), (394, 9), (1694, 76), (173, 9), (124, 15), (1272, 8), (825, 10), (2696, 14),
    (2940, 27), (2227, 30), (2796, 11), (848, 14), (750, 14), (447, 18), (14, 6), (2997, 9),
    (1313, 6), (910, 8), (1926, 9), (4879, 16), (573, 52), (6272, 6), (3039, 26), (98, 18),
    (2587, 36), (5725, 8), (54, 6), (70, 20), (1570, 62), (817, 6), (5985, 16), (1140, 10),
    (3251, 12), (1001, 8), (204, 12), (53, 12), (60, 21), (1028, 8), (1034, 14), (3114, 11),
];
