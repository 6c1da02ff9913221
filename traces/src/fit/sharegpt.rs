//! Lengths of conversations: ShareGPT.

use super::quantiles::{LENGTH_PROBABILITIES, LengthKnot, fit_lengths, points, probability};
use crate::request::Lengths;

/// Where the numbers come from.
pub const SOURCE: &str = "ShareGPT conversations under the Llama-2 tokenizer: microsoft/sarathi-serve \
                          data/processed_traces/sharegpt_8k_filtered_stats_llama2_tokenizer.csv (Apache-2.0); fitted \
                          on every second row. Inputs include the conversation's earlier turns; input and output \
                          together are cut at 8 192 tokens, outputs at 1 024";

/// Input lengths.
pub const INPUT: &[LengthKnot] = &[
    (0.0, 0),
    (0.00228, 7),
    (0.00664, 10),
    (0.01197, 12),
    (0.01874, 15),
    (0.02369, 17),
    (0.04679, 26),
    (0.07133, 41),
    (0.09352, 63),
    (0.11636, 97),
    (0.13959, 151),
    (0.16309, 224),
    (0.18606, 322),
    (0.20942, 424),
    (0.23298, 515),
    (0.25615, 614),
    (0.27932, 699),
    (0.30236, 794),
    (0.32572, 880),
    (0.34908, 976),
    (0.37219, 1075),
    (0.39548, 1195),
    (0.41865, 1301),
    (0.44188, 1417),
    (0.46518, 1547),
    (0.48842, 1666),
    (0.51165, 1812),
    (0.53514, 1970),
    (0.55818, 2125),
    (0.58141, 2269),
    (0.60484, 2442),
    (0.62794, 2632),
    (0.65137, 2823),
    (0.67461, 3004),
    (0.69784, 3221),
    (0.72094, 3452),
    (0.74431, 3683),
    (0.76747, 3913),
    (0.79071, 4172),
    (0.814, 4454),
    (0.83724, 4740),
    (0.86054, 5076),
    (0.88383, 5424),
    (0.907, 5805),
    (0.93024, 6198),
    (0.9536, 6623),
    (0.97677, 7076),
    (0.98256, 7214),
    (0.99004, 7426),
    (0.99505, 7608),
    (0.99805, 7761),
    (1.0, 8141),
];

/// The recording has no request of more tokens, input and output together. A bin's outputs do not tell its longest
/// inputs from others, so that some would come to more.
pub const LONGEST_TOGETHER: u32 = 8192;

/// The longest input of a bin, and output lengths in it.
pub const OUTPUT_BY_INPUT: &[(u32, &[LengthKnot])] = &[
    (
        52,
        &[
            (0.0, 1),
            (0.01404, 15),
            (0.05226, 38),
            (0.10062, 67),
            (0.15133, 102),
            (0.20047, 172),
            (0.30109, 309),
            (0.40016, 383),
            (0.50156, 466),
            (0.6014, 543),
            (0.70047, 620),
            (0.80109, 698),
            (0.85023, 760),
            (0.90016, 831),
            (0.95008, 905),
            (0.98128, 964),
            (0.99064, 985),
            (1.0, 1022),
        ],
    ),
    (
        236,
        &[
            (0.0, 1),
            (0.01171, 4),
            (0.0523, 26),
            (0.1007, 48),
            (0.15066, 68),
            (0.20141, 91),
            (0.30055, 173),
            (0.40203, 312),
            (0.50039, 406),
            (0.60109, 513),
            (0.70101, 615),
            (0.80094, 730),
            (0.85012, 787),
            (0.90008, 868),
            (0.95004, 935),
            (0.98048, 967),
            (0.99063, 995),
            (1.0, 1018),
        ],
    ),
    (
        591,
        &[
            (0.0, 1),
            (0.01563, 3),
            (0.05234, 33),
            (0.10156, 59),
            (0.15, 84),
            (0.20313, 112),
            (0.30078, 189),
            (0.4, 262),
            (0.5, 336),
            (0.60156, 392),
            (0.70078, 463),
            (0.8, 555),
            (0.85, 608),
            (0.9, 698),
            (0.95, 872),
            (0.98047, 956),
            (0.99063, 1001),
            (1.0, 1023),
        ],
    ),
    (
        911,
        &[
            (0.0, 1),
            (0.01009, 3),
            (0.05047, 33),
            (0.10016, 73),
            (0.1514, 109),
            (0.20109, 159),
            (0.30047, 269),
            (0.4014, 344),
            (0.50078, 405),
            (0.60093, 471),
            (0.70109, 561),
            (0.80202, 661),
            (0.85016, 721),
            (0.90062, 803),
            (0.95031, 886),
            (0.98059, 960),
            (0.99068, 976),
            (1.0, 1019),
        ],
    ),
    (
        1292,
        &[
            (0.0, 1),
            (0.01023, 14),
            (0.05429, 57),
            (0.10149, 98),
            (0.15028, 136),
            (0.20299, 183),
            (0.30134, 250),
            (0.40047, 329),
            (0.50197, 409),
            (0.60031, 478),
            (0.70024, 565),
            (0.80016, 664),
            (0.8513, 733),
            (0.90165, 819),
            (0.95043, 914),
            (0.98033, 981),
            (0.99056, 1001),
            (1.0, 1023),
        ],
    ),
    (
        1738,
        &[
            (0.0, 1),
            (0.01015, 7),
            (0.05152, 48),
            (0.10148, 91),
            (0.15066, 153),
            (0.20219, 204),
            (0.30289, 285),
            (0.40047, 353),
            (0.50117, 417),
            (0.60031, 502),
            (0.70336, 590),
            (0.80016, 683),
            (0.85012, 748),
            (0.90008, 811),
            (0.95004, 919),
            (0.98126, 978),
            (0.99063, 998),
            (1.0, 1023),
        ],
    ),
    (
        2280,
        &[
            (0.0, 1),
            (0.01013, 7),
            (0.05066, 46),
            (0.10055, 121),
            (0.15121, 167),
            (0.20109, 220),
            (0.30008, 302),
            (0.40296, 369),
            (0.50117, 432),
            (0.60016, 510),
            (0.70148, 606),
            (0.80047, 714),
            (0.85113, 786),
            (0.90335, 855),
            (0.9509, 941),
            (0.98597, 997),
            (0.99065, 1006),
            (1.0, 1023),
        ],
    ),
    (
        2944,
        &[
            (0.0, 1),
            (0.01095, 22),
            (0.05086, 59),
            (0.10016, 111),
            (0.15102, 165),
            (0.20031, 211),
            (0.30047, 303),
            (0.40141, 365),
            (0.50078, 420),
            (0.6025, 491),
            (0.70031, 585),
            (0.80125, 704),
            (0.85055, 766),
            (0.90063, 827),
            (0.9507, 916),
            (0.98279, 969),
            (0.99061, 978),
            (1.0, 1019),
        ],
    ),
    (
        3737,
        &[
            (0.0, 1),
            (0.01091, 5),
            (0.05378, 49),
            (0.10055, 97),
            (0.15043, 159),
            (0.20031, 209),
            (0.30086, 294),
            (0.40374, 372),
            (0.50039, 433),
            (0.60016, 500),
            (0.7007, 597),
            (0.80125, 690),
            (0.85191, 777),
            (0.90023, 856),
            (0.95012, 932),
            (0.98051, 968),
            (0.99065, 996),
            (1.0, 1020),
        ],
    ),
    (
        4685,
        &[
            (0.0, 1),
            (0.01017, 8),
            (0.05086, 55),
            (0.10094, 110),
            (0.15023, 152),
            (0.2011, 205),
            (0.30047, 291),
            (0.40297, 364),
            (0.5, 433),
            (0.60094, 507),
            (0.70188, 603),
            (0.80047, 702),
            (0.85133, 776),
            (0.90141, 856),
            (0.9507, 955),
            (0.98122, 993),
            (0.99061, 1011),
            (1.0, 1023),
        ],
    ),
    (
        5967,
        &[
            (0.0, 1),
            (0.01016, 15),
            (0.05078, 75),
            (0.1, 134),
            (0.15, 186),
            (0.20234, 228),
            (0.30156, 297),
            (0.40078, 374),
            (0.5, 446),
            (0.60234, 525),
            (0.70078, 617),
            (0.80234, 727),
            (0.85, 804),
            (0.90078, 866),
            (0.95234, 939),
            (0.98047, 982),
            (0.99063, 1000),
            (1.0, 1024),
        ],
    ),
    (
        8141,
        &[
            (0.0, 1),
            (0.01015, 5),
            (0.05152, 49),
            (0.1007, 90),
            (0.15066, 143),
            (0.20141, 189),
            (0.30523, 274),
            (0.40359, 333),
            (0.50039, 398),
            (0.60031, 480),
            (0.70101, 571),
            (0.80094, 680),
            (0.85012, 754),
            (0.90008, 809),
            (0.95004, 894),
            (0.98048, 961),
            (0.99063, 996),
            (1.0, 1021),
        ],
    ),
];

/// Outputs of the requests whose inputs are of about one length.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputBin {
    /// The longest input of the bin.
    pub longest_input: u32,
    /// Output lengths.
    pub output: Vec<LengthKnot>,
}

/// Input lengths, and output lengths by input: the joint distribution.
#[derive(Clone, Debug, PartialEq)]
pub struct Joint {
    /// Input lengths.
    pub input: Vec<LengthKnot>,
    /// Bins of equally many requests, by rising input; the last one holds all beyond.
    pub output_by_input: Vec<OutputBin>,
}

/// The outputs whatever the input: those of each bin, with the share of the requests that fall into it.
pub fn output_mixture() -> Vec<(f64, &'static [LengthKnot])> {
    let inputs = points(INPUT);
    let mut below = 0.0;
    let last = OUTPUT_BY_INPUT.len() - 1;
    let part = |(i, (longest_input, outputs)): (usize, &(u32, &'static [LengthKnot]))| {
        let up_to = if i == last {
            1.0
        } else {
            probability(&inputs, f64::from(*longest_input) + 0.5)
        };
        let share = up_to - below;
        below = up_to;
        (share, *outputs)
    };
    OUTPUT_BY_INPUT.iter().enumerate().map(part).collect()
}

const BINS: usize = 12;

/// Where outputs are kept: coarser than inputs, since each bin holds a twelfth of the requests.
const OUTPUT_PROBABILITIES: [f64; 17] = [
    0.01, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99, 1.0,
];

/// Fits inputs and, in bins of equal shares of them, outputs, which are above 0.
///
/// # Panics
/// If there are no lengths.
pub fn fit(lengths: &[Lengths]) -> Joint {
    let mut sorted = lengths.to_vec();
    sorted.sort_unstable_by_key(|pair| (pair.input, pair.output));
    let inputs: Vec<u32> = sorted.iter().map(|pair| pair.input).collect();
    let mut output_by_input: Vec<OutputBin> = Vec::new();
    let mut start = 0;
    for bin in 1..=BINS {
        let longest_input = inputs[(inputs.len() * bin / BINS).max(1) - 1];
        let end = inputs.partition_point(|&input| input <= longest_input);
        if end > start {
            let outputs: Vec<u32> = sorted[start..end].iter().map(|pair| pair.output).collect();
            output_by_input.push(OutputBin {
                longest_input,
                output: fit_lengths(&outputs, &OUTPUT_PROBABILITIES),
            });
            start = end;
        }
    }
    Joint {
        input: fit_lengths(&inputs, &LENGTH_PROBABILITIES),
        output_by_input,
    }
}
