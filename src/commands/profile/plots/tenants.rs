//! What tenants' own parameters cost: adapters and LoRA by how many tenants share a batch, as each implementation
//! computes them.

use tenantry_profiles::{AdapterRow, Card, LoraRow};
use tenantry_reports::page::Curves;

use super::{counted, few, grouped, shared_table, table, view};

/// Sizes of a batch that are shown of each table.
const SIZES: usize = 3;

pub fn adapters(card: &Card) -> Curves {
    let tables = grouped(&card.tables.adapter, |row| {
        format!("{}, bottleneck {}", table(&row.model, row.dtype), row.bottleneck)
    });
    let views = tables.into_iter().flat_map(|(option, rows)| {
        // Only the largest batch has as many tenants as were measured.
        let batch = rows.iter().map(|row| row.batch).max().unwrap_or(0);
        let full: Vec<&AdapterRow> = rows.into_iter().filter(|row| row.batch == batch).collect();
        let lengths = few(full.iter().map(|row| row.tokens), SIZES);
        lengths.into_iter().rev().map(move |tokens| {
            let [sequences, each] = [
                counted(batch, "sequence", "sequences"),
                counted(tokens, "token", "tokens"),
            ];
            view(
                format!("{option}, {sequences} of {each}"),
                full.iter().copied().filter(|row| row.tokens == tokens),
                |row| row.implementation.to_string(),
                |row| (f64::from(row.tenants), row.stats.median_us),
            )
        })
    });
    Curves {
        id: "adapters",
        title: "Adapters of a layer",
        caption: "The median of one layer's adapters (up) by the different tenants in the batch (across): one tenant \
                  after the other (loop), weights gathered for each sequence (gather-bmm), or sequences sorted by \
                  tenant (grouped).",
        x: "Tenants in the batch",
        y: "µs",
        choice: "Table",
        views: views.collect(),
    }
}

pub fn lora_by_tenants(card: &Card) -> Curves {
    let tables = grouped(&card.tables.lora, |row| {
        let table = shared_table(&row.model, row.dtype, row.tensor_parallel);
        format!("{table}, rank {}", row.rank)
    });
    let views = tables.into_iter().flat_map(|(option, rows)| {
        sizes_with_all_tenants(&rows).into_iter().map(move |tokens| {
            view(
                format!("{option}, {}", counted(tokens, "token", "tokens")),
                rows.iter().copied().filter(|row| row.tokens == tokens),
                |row| row.implementation.to_string(),
                |row| (f64::from(row.tenants), row.stats.median_us),
            )
        })
    });
    Curves {
        id: "lora-tenants",
        title: "LoRA of a layer by tenants",
        caption: "The median of one layer's low-rank products (up) by the different tenants in the step (across), as \
                  each implementation computes them.",
        x: "Tenants in the step",
        y: "µs",
        choice: "Table",
        views: views.collect(),
    }
}

pub fn lora_by_rank(card: &Card) -> Curves {
    let tables = grouped(&card.tables.lora, |row| {
        shared_table(&row.model, row.dtype, row.tensor_parallel)
    });
    let views = tables.into_iter().flat_map(|(option, rows)| {
        let tenants = rows.iter().map(|row| row.tenants).max().unwrap_or(0);
        sizes_with_all_tenants(&rows).into_iter().map(move |tokens| {
            let [of_tenants, in_tokens] = [
                counted(tenants, "tenant", "tenants"),
                counted(tokens, "token", "tokens"),
            ];
            let rows = rows.iter().copied();
            view(
                format!("{option}, {of_tenants}, {in_tokens}"),
                rows.filter(|row| (row.tenants, row.tokens) == (tenants, tokens)),
                |row| row.implementation.to_string(),
                |row| (f64::from(row.rank), row.stats.median_us),
            )
        })
    });
    Curves {
        id: "lora-rank",
        title: "LoRA of a layer by rank",
        caption: "The median of one layer's low-rank products (up) by their rank (across), as each implementation \
                  computes them.",
        x: "Rank",
        y: "µs",
        choice: "Step",
        views: views.collect(),
    }
}

/// A few of the tokens that steps of the most tenants were measured with: smaller steps have fewer.
fn sizes_with_all_tenants(rows: &[&LoraRow]) -> Vec<u32> {
    let tenants = rows.iter().map(|row| row.tenants).max().unwrap_or(0);
    let full = rows.iter().filter(|row| row.tenants == tenants);
    few(full.map(|row| row.tokens), SIZES)
}

#[cfg(test)]
mod tests {
    use tenantry_profiles::testing::synthetic_card;

    use super::super::tests::line;
    use super::*;

    #[test]
    fn a_loop_costs_by_its_tenants_and_gathering_by_its_sequences() {
        let card = synthetic_card();
        let option = "tiny f32, bottleneck 16, 32 sequences of 128 tokens";
        let at = |name: &str| line(&card, "adapters", option, name);
        // 10 × tenants + 0.0002 × 16 × 32 × 128, and 15 + 32 + as much.
        let work_us = 0.0002 * 16.0 * 32.0 * 128.0;
        for (tenants, us) in at("loop") {
            assert!((us - 10.0 * tenants - work_us).abs() < 1e-9, "{tenants}");
        }
        for (_, us) in at("gather-bmm") {
            assert!((us - 47.0 - work_us).abs() < 1e-9);
        }
    }

    #[test]
    fn lora_is_drawn_for_steps_that_all_tenants_are_in() {
        let card = synthetic_card();
        let most = card.tables.lora.iter().map(|row| row.tenants).max().unwrap();
        let drawn = lora_by_tenants(&card);
        assert!(!drawn.views.is_empty());
        for view in &drawn.views {
            assert!(view.series.iter().all(|line| line.points.last().unwrap().0 == f64::from(most)));
        }
        // One rank is no line.
        let lines = lora_by_rank(&card).views.into_iter().flat_map(|view| view.series);
        assert!(lines.into_iter().all(|line| line.points.len() == 1));
    }
}
