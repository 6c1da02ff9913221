//! The roofline: what ops reach by their operations for each byte, under the roof of their card.

use tenantry_profiles::roofline::{Datasheet, Work, ops};
use tenantry_profiles::{Card, DType, Family, ModelShape, Source};
use tenantry_reports::human;
use tenantry_reports::page::{Curves, CurvesView, Mark, Series};

use super::{grouped, shared_table};

/// So far beyond its ridge the roof is drawn at least, either way: both of its parts are seen, whichever the points lie
/// under.
const BESIDE_RIDGE: f64 = 4.0;

/// The op families that are drawn.
const FAMILIES: [Family; 4] = [
    Family::EncoderLayer,
    Family::DecoderDense,
    Family::DecoderPrefill,
    Family::DecoderDecode,
];

/// An op of a table, and how long it took.
struct Reached {
    table: String,
    part: &'static str,
    /// Its sizes.
    at: String,
    dtype: DType,
    work: Work,
    us: f64,
}

impl Reached {
    /// A part of a layer of this model, in this number format, on so many cards; nothing where its shape is not known.
    fn of(
        card: &Card,
        (model, dtype, cards): (&str, DType, u32),
        part: &'static str,
        (at, us): (String, f64),
        work: impl FnOnce(&ModelShape) -> Work,
    ) -> Option<Reached> {
        Some(Reached {
            table: shared_table(model, dtype, cards),
            part,
            at,
            dtype,
            work: work(&card.model(model)?),
            us,
        })
    }

    fn operations_per_s(&self) -> f64 {
        1e6 * self.work.flops / self.us
    }

    fn bytes_per_s(&self) -> f64 {
        self.operations_per_s() / self.work.intensity()
    }
}

/// What nothing of a number format exceeds on a card.
struct Roof {
    name: String,
    operations_per_s: f64,
    bytes_per_s: f64,
}

impl Roof {
    /// What was measured of the device's limits, else its datasheet, else the highest rates of the card's own ops,
    /// which may be of different ops.
    fn of(card: &Card, dtype: DType, all: &[Reached]) -> Roof {
        let sheet = card.datasheet.clone().or_else(|| Datasheet::of_device(&card.device.name));
        let (origin, operations_per_s, bytes_per_s) = match (card.limits_of(dtype), sheet) {
            (Some(limits), _) => (
                "measured product and copy",
                limits.matmul_flops_per_s,
                limits.memory_bytes_per_s,
            ),
            (None, Some(sheet)) => {
                // As ops are priced by a datasheet: formats that a card lacks are computed in single precision.
                let peak = sheet.peak(dtype).unwrap_or(sheet.f32);
                ("datasheet", peak, sheet.memory_bandwidth)
            }
            (None, None) => {
                let highest = |rate: fn(&Reached) -> f64| {
                    let rates = all.iter().filter(|op| op.dtype == dtype).map(rate);
                    rates.fold(0.0, f64::max)
                };
                let origin = match all_measured(card) {
                    true => "highest measured",
                    false => "highest of the tables",
                };
                (
                    origin,
                    highest(Reached::operations_per_s),
                    highest(Reached::bytes_per_s),
                )
            }
        };
        let [operations, bytes] = [(operations_per_s, "FLOP/s"), (bytes_per_s, "B/s")].map(rate);
        Roof {
            name: format!("{origin}: {operations}, {bytes}"),
            operations_per_s,
            bytes_per_s,
        }
    }

    /// Operations a second at so many for each byte.
    fn at(&self, intensity: f64) -> f64 {
        self.operations_per_s.min(self.bytes_per_s * intensity)
    }

    /// Operations for each byte from which on arithmetic bounds.
    fn ridge(&self) -> f64 {
        self.operations_per_s / self.bytes_per_s
    }
}

/// Whether no table that is drawn was come by in another way: a measured card may hold some that were derived.
fn all_measured(card: &Card) -> bool {
    let mut exceptions = card.origins.list().iter();
    card.provenance.source == Source::Measured
        && exceptions.all(|origin| origin.kind == Source::Measured || !FAMILIES.contains(&origin.family))
}

/// With the prefix that fits.
fn rate((per_s, unit): (f64, &str)) -> String {
    match per_s < 1e12 {
        true => format!("{} G{unit}", human::number(per_s / 1e9)),
        false => format!("{} T{unit}", human::number(per_s / 1e12)),
    }
}

pub fn roofline(card: &Card) -> Curves {
    let all = reached(card);
    let fastest = all.iter().map(Reached::operations_per_s).fold(0.0, f64::max);
    let (unit, per_s) = match fastest < 1e12 {
        true => ("GFLOP/s", 1e9),
        false => ("TFLOP/s", 1e12),
    };
    let views = grouped(&all, |op| op.table.clone()).into_iter();
    let views = views.map(|(option, ops)| {
        let roof = Roof::of(card, ops[0].dtype, &all);
        let mut series = points(&ops, per_s);
        series.push(bound(&roof, &ops, per_s));
        CurvesView { option, series }
    });
    Curves {
        id: "roofline",
        title: "Roofline",
        caption: "What parts of a layer reached (up) by their operations for each byte that they read and write \
                  (across), a point for each size. Near the roof's slope memory bounds them, near its level part \
                  arithmetic, far below both launches; above the slope, caches hold what they read.",
        x: "Operations for each byte",
        y: unit,
        choice: "Model",
        views: views.collect(),
    }
}

fn points(ops: &[&Reached], per_s: f64) -> Vec<Series> {
    let parts = grouped(ops.iter().copied(), |op| op.part.to_owned()).into_iter();
    let series = parts.map(|(name, ops)| {
        let place = |op: &Reached| (op.work.intensity(), op.operations_per_s() / per_s);
        let mut points: Vec<(f64, f64)> = ops.into_iter().map(place).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series {
            name,
            mark: Mark::Points,
            points,
        }
    });
    series.collect()
}

/// As wide as the ops are spread, and a part beside its ridge at least.
fn bound(roof: &Roof, ops: &[&Reached], per_s: f64) -> Series {
    let ridge = roof.ridge();
    let ends = (ridge / BESIDE_RIDGE, ridge * BESIDE_RIDGE);
    let (least, most) = ops.iter().fold(ends, |(least, most), op| {
        let intensity = op.work.intensity();
        (least.min(intensity), most.max(intensity))
    });
    Series {
        name: roof.name.clone(),
        mark: Mark::Bound,
        points: [least, ridge, most].map(|x| (x, roof.at(x) / per_s)).to_vec(),
    }
}

/// The parts of layers whose operations and bytes follow from their model's shape.
fn reached(card: &Card) -> Vec<Reached> {
    let tables = &card.tables;
    let layers = tables.encoder_layer.iter().filter_map(|row| {
        let of = (row.model.as_str(), row.dtype, 1);
        let at = format!("batch {}, {} tokens", row.batch, row.tokens);
        Reached::of(card, of, "encoder layer", (at, row.stats.median_us), |model| {
            ops::encoder_layer(model, row.dtype, row.batch, row.tokens)
        })
    });
    let dense = tables.decoder_dense.iter().filter_map(|row| {
        let of = (row.model.as_str(), row.dtype, row.tensor_parallel);
        let at = format!("{} tokens", row.tokens);
        Reached::of(
            card,
            of,
            "layer without attention",
            (at, row.stats.median_us),
            |model| ops::decoder_dense(model, row.dtype, row.tensor_parallel, row.tokens),
        )
    });
    let prompts = tables.decoder_prefill.iter().filter_map(|row| {
        let of = (row.model.as_str(), row.dtype, row.tensor_parallel);
        let at = format!("{} tokens after {}", row.tokens, row.context);
        Reached::of(card, of, "prompts' attention", (at, row.stats.median_us), |model| {
            ops::decoder_prefill(model, row.dtype, row.tensor_parallel, [row.tokens, row.context])
        })
    });
    let new_tokens = tables.decoder_decode.iter().filter_map(|row| {
        let of = (row.model.as_str(), row.dtype, row.tensor_parallel);
        let at = format!("{} sequences of {}", row.sequences, row.context);
        Reached::of(card, of, "new tokens' attention", (at, row.stats.median_us), |model| {
            ops::decoder_decode(model, row.dtype, row.tensor_parallel, [row.sequences, row.context])
        })
    });
    layers.chain(dense).chain(prompts).chain(new_tokens).collect()
}

/// How near the ops of a part of a table come to their roof.
pub struct Shares {
    table: String,
    part: &'static str,
    roof: String,
    points: usize,
    /// Of its points the one in the middle,
    median: f64,
    /// and the nearest,
    highest: f64,
    /// where that is.
    at: String,
}

impl Shares {
    /// As a line of text says it.
    pub fn line(&self) -> String {
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        format!(
            "{}, {}: {} in the middle of {} points, {} at most ({}); {}",
            self.table,
            self.part,
            percent(self.median),
            human::count(self.points as u64),
            percent(self.highest),
            self.at,
            self.roof
        )
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "table": self.table,
            "part": self.part,
            "roof": self.roof,
            "points": self.points,
            "median": self.median,
            "highest": { "at": self.at, "share": self.highest },
        })
    }
}

/// What share of their roof the parts of a card's layers reach: the floor of their time over the time.
pub fn shares(card: &Card) -> Vec<Shares> {
    let all = reached(card);
    let parts = grouped(&all, |op| format!("{} {}", op.table, op.part)).into_iter();
    let shares = parts.map(|(_, ops)| {
        let roof = Roof::of(card, ops[0].dtype, &all);
        let share = |op: &Reached| op.operations_per_s() / roof.at(op.work.intensity());
        let mut by_share: Vec<(f64, &Reached)> = ops.into_iter().map(|op| (share(op), op)).collect();
        by_share.sort_by(|one, other| one.0.total_cmp(&other.0));
        let (highest, nearest) = by_share[by_share.len() - 1];
        Shares {
            table: nearest.table.clone(),
            part: nearest.part,
            roof: roof.name,
            points: by_share.len(),
            median: by_share[by_share.len() / 2].0,
            highest,
            at: nearest.at.clone(),
        }
    });
    shares.collect()
}

#[cfg(test)]
mod tests {
    use tenantry_profiles::{Limits, Origin};

    use super::super::tests::line;
    use super::*;
    use crate::cards::{card_names, find_card};

    #[test]
    fn ops_lie_under_the_roof_where_arithmetic_puts_them() {
        let card = find_card("rtx4090").unwrap();
        let products = line(&card, "roofline", "llama3.1-8b bf16", "layer without attention");
        // Queries and outputs are 4096 × 4096, keys and values 4096 × 1024, the three of the feed-forward 4096 × 14336.
        let weights = 2.0 * 4096.0 * 4096.0 + 2.0 * 4096.0 * 1024.0 + 3.0 * 4096.0 * 14336.0;
        let moved = 8.0 * 4096.0 + 2.0 * 14336.0;
        let mut rows = card.tables.decoder_dense.iter();
        let one = rows
            .find(|row| (row.model.as_str(), row.tokens, row.tensor_parallel) == ("llama3.1-8b", 1, 1))
            .unwrap();
        let (intensity, tflops) = products[0];
        assert!((intensity - weights / (weights + moved)).abs() < 1e-9, "{intensity}");
        assert!(
            (tflops - 2.0 * weights / one.stats.median_us / 1e6).abs() < 1e-9,
            "{tflops}"
        );

        // Every new token's attention reads what it computes with: one intensity, and a point for each size there.
        let attention = line(&card, "roofline", "llama3.1-8b bf16", "new tokens' attention");
        let rows = card.tables.decoder_decode.iter();
        let rows = rows.filter(|row| row.model == "llama3.1-8b" && row.tensor_parallel == 1);
        assert_eq!(attention.len(), rows.count());
        // Four queries share a key: 4 × 4096 operations for 2 × 1024 numbers of two bytes.
        assert!(attention.iter().all(|(intensity, _)| (intensity - 4.0).abs() < 1e-9));
    }

    #[test]
    fn the_roof_is_the_datasheets_of_the_number_format() {
        let t4 = find_card("t4").unwrap();
        for (option, roof, tflops) in [
            ("bert-base f16", "datasheet: 65.0 TFLOP/s, 320 GB/s", 65.0),
            ("bert-base f32", "datasheet: 8.10 TFLOP/s, 320 GB/s", 8.1),
        ] {
            let points = line(&t4, "roofline", option, roof);
            let [_, (ridge, top), (_, end)] = points[..] else {
                panic!("a slope and a level part: {points:?}")
            };
            assert!((top - tflops).abs() < 1e-9 && (end - tflops).abs() < 1e-9);
            assert!((ridge - tflops * 1e12 / 320e9).abs() < 1e-9);
        }
    }

    #[test]
    fn nothing_exceeds_the_highest_measured() {
        for name in ["cpu", "cpu-epyc"] {
            let card = find_card(name).unwrap();
            let all = reached(&card);
            let roof = Roof::of(&card, DType::F32, &all);
            assert!(roof.name.starts_with("highest measured: "), "{}", roof.name);
            let over = |op: &Reached| op.operations_per_s() / roof.at(op.work.intensity());
            let most = all.iter().map(over).fold(0.0, f64::max);
            // The op of either rate touches it.
            assert!((most - 1.0).abs() < 1e-9, "{name}: {most}");
        }
    }

    #[test]
    fn a_roof_of_tables_that_were_not_all_measured_is_not_called_so() {
        let mut card = find_card("cpu").unwrap();
        let mut name_with = |family: Family| {
            card.origins.push(Origin::new(family, None, Source::Derived, "a formula"));
            Roof::of(&card, DType::F32, &reached(&card)).name
        };
        assert!(name_with(Family::Head).starts_with("highest measured: "));
        assert!(name_with(Family::DecoderDense).starts_with("highest of the tables: "));
    }

    #[test]
    fn what_was_measured_of_the_limits_is_the_roof() {
        let mut card = find_card("cpu").unwrap();
        let before = shares(&card);
        let fastest = |part: &str| {
            let all = reached(&card);
            let of_part = all.iter().filter(|op| op.part == part);
            of_part.map(Reached::operations_per_s).fold(0.0, f64::max)
        };
        let highest = fastest("encoder layer");
        // Memory that bounds nothing.
        card.limits = vec![Limits {
            dtype: DType::F32,
            matmul_flops_per_s: 4.0 * highest,
            memory_bytes_per_s: 1e15,
        }];
        let after = shares(&card);
        assert_eq!(before.len(), after.len());
        let layers = after.iter().filter(|shares| shares.part == "encoder layer");
        let most = layers.map(|shares| shares.highest).fold(0.0, f64::max);
        assert!((most - 0.25).abs() < 1e-9, "{most}");
        for shares in &after {
            assert!(
                shares.roof.starts_with("measured product and copy: "),
                "{}",
                shares.roof
            );
            assert!(shares.median <= shares.highest, "{}", shares.line());
        }
    }

    #[test]
    fn every_shipped_card_of_a_gpu_has_a_datasheet() {
        for name in card_names() {
            let card = find_card(&name).unwrap();
            let found = Datasheet::of_device(&card.device.name).is_some();
            assert_eq!(found, !name.starts_with("cpu"), "{name}");
        }
    }
}
